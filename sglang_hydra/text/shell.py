"""Words of a command line as a shell takes them."""

from __future__ import annotations

import shlex


def shell_word(word: str) -> str:
    """Returns one word for a shell. Terminal controls are spelled out in quotes of bash, zsh and ksh."""
    if word.isprintable():
        return shlex.quote(word)
    spelled = "".join(_ansi_c(char) for char in word)
    return f"$'{spelled}'"


def _ansi_c(char: str) -> str:
    if char in "'\\":
        return "\\" + char
    if char.isprintable():
        return char
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", errors))
