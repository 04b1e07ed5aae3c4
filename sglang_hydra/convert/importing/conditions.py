"""The tests of a shell script: one over known values is evaluated, the answer of any other is not known."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from sglang_hydra.convert.importing.expansion import Value, text_of
from sglang_hydra.convert.importing.launches import is_open
from sglang_hydra.convert.importing.syntax import commands_of
from sglang_hydra.text.words import is_digits

_NUMERIC: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_COMPARED = re.compile(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)")


def is_test(words: Sequence[str]) -> bool:
    """Whether a command is ``[ ... ]``, ``[[ ... ]]``, ``(( ... ))`` or ``test ...``, also behind ``!``."""
    first = next((word for word in words if word != "!"), "")
    return first in ("[", "test") or first.startswith(("[[", "(("))


def tested(words: Sequence[str], variables: Mapping[str, Value]) -> bool | None:
    """The answer of a test; None where it is not known."""
    plain = [word for word in words if word != "!"]
    text = " ".join(plain)
    arithmetic = text.startswith("((")
    inner = text[2:-2] if text.startswith(("[[", "((")) else text.removeprefix("test").strip("[] ")
    holds: bool | None = True
    for part in commands_of(re.sub(r"([<>]=?)", r" '\1' ", inner)):
        if not part.joined:
            holds = compared(part.words, variables, arithmetic=arithmetic)
        elif holds is not (part.after == "||"):  # else the answer before it decides
            found, decides = compared(part.words, variables, arithmetic=arithmetic), part.after == "||"
            holds = found if holds is not None or found is decides else None
    return holds if holds is None else holds != (len(plain) != len(words))


def compared(words: Sequence[str], variables: Mapping[str, Value], *, arithmetic: bool = False) -> bool | None:
    """The answer of one comparison; None where one of its values is not known, or for what is not supported here."""
    negated = words[:1] == ["!"]
    words = [word.strip("'") if word.strip("'")[:1] in "<>" else word for word in words[negated:]]
    if arithmetic and (match := _COMPARED.fullmatch(" ".join(words))):
        words = [part.strip() for part in match.groups()]
    left, sign, right = words if len(words) == 3 else (" ".join(words), "?", "")
    if len(words) == 1 or (len(words) == 2 and words[0] in ("-n", "-z")):
        left, sign = words[-1], words[0] if len(words) == 2 else "-n"
    value, other = (_text(word, variables, arithmetic) for word in (left, right))
    answer = None if is_open(value) or is_open(other) else _compare(value, sign, other)
    return None if answer is None else answer != negated


def _compare(value: str, sign: str, other: str) -> bool | None:
    """Compares two known values; None for an operator that is not supported here."""
    if sign in _NUMERIC:
        return is_digits(value) and is_digits(other) and _NUMERIC[sign](int(value), int(other))
    if sign in ("=", "==", "!="):
        same = fnmatch.fnmatchcase(value, other) if set(other) & set("*?[") else value == other
        return same != (sign == "!=")
    return {"-n": value != "", "-z": value == ""}.get(sign)


def _text(word: str, variables: Mapping[str, Value], arithmetic: bool) -> str:
    """A word's value; in ``(( ))`` a bare name is a variable."""
    if arithmetic and not is_digits(word):
        word = word if "$" in word else f"${word}" if word.isidentifier() else f"$(({word}))"
    return text_of(word, variables)
