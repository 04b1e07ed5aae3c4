_sglang_hydra() {
    local line="${COMP_LINE:0:COMP_POINT}" current IFS=$'\n'
    current="${line##* }"
    COMPREPLY=($("@PYTHON@" -I -S "@FILE@" bash "$line" 2>/dev/null))
    # bash counts what follows = and : as a word of its own.
    local before="${current%"${current##*[=:]}"}"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    [[ ${COMPREPLY[*]} == *= || ${COMPREPLY[*]} == *. ]] && compopt -o nospace
}
complete -o default -F _sglang_hydra sglang-hydra
