_sglang_hydra() {
    local -a found
    found=("${(@f)$("@PYTHON@" -I -S "@FILE@" zsh "${BUFFER[1,CURSOR]}" 2>/dev/null)}")
    [[ -n "$found" ]] || { _files; return }
    local -a open closed
    open=(${(M)found:#*[=.]}); closed=(${found:#*[=.]})
    (( $#open )) && compadd -Q -S '' -- $open
    (( $#closed )) && compadd -Q -- $closed
}
compdef _sglang_hydra sglang-hydra
