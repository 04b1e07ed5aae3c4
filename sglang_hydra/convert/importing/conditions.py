"""The tests of a shell script: one over known values is evaluated, any other is taken to hold, and that is said."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from sglang_hydra.convert.importing.expansion import text_of
from sglang_hydra.convert.importing.launches import is_open, without_marks
from sglang_hydra.convert.importing.shell import Shell
from sglang_hydra.convert.importing.syntax import commands_of
from sglang_hydra.text.words import is_digits, short

_NEGATED = {"!=": "=", "-ne": "=", "-lt": "-ge", "-le": "-gt", "-z": "-n", "<": "-ge", "<=": "-gt"}
_SAME = {"==": "=", "-eq": "=", ">": "-gt", ">=": "-ge"}
_NUMERIC: Mapping[str, Callable[[int, int], bool]] = {"-ge": operator.ge, "-gt": operator.gt}
_SHOWN = {"=": ("=", "!="), "-ge": (">=", "<"), "-gt": (">", "<="), "-n": ("is set", "is not set")}
_NAME = re.compile(r"\"?\$?\{?([A-Za-z_]\w*)(?::?-[^{}]*)?\}?\"?", re.ASCII)
_COMPARED = re.compile(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)")


def is_test(words: Sequence[str]) -> bool:
    """Whether a command is ``[ ... ]``, ``[[ ... ]]``, ``(( ... ))`` or ``test ...``, also behind ``!``."""
    first = next((word for word in words if word != "!"), "")
    return first in ("[", "test") or first.startswith(("[[", "(("))


def tested(words: Sequence[str], shell: Shell) -> tuple[bool, list[str]]:
    """The answer of a test, and what is assumed for it."""
    plain = [word for word in words if word != "!"]
    text = " ".join(plain)
    arithmetic = text.startswith("((")
    inner = text[2:-2] if text.startswith(("[[", "((")) else text.removeprefix("test").strip("[] ")
    holds, assumed = True, []
    for part in commands_of(re.sub(r"([<>]=?)", r" '\1' ", inner)):
        if not (part.joined and holds == (part.after == "||")):
            holds, said = compared(part.words, shell, arithmetic=arithmetic)
            assumed += said
    return holds != (len(plain) != len(words)), assumed


def compared(words: Sequence[str], shell: Shell, *, arithmetic: bool = False) -> tuple[bool, list[str]]:
    """The answer of one comparison, and what is assumed where one of its values is not known: that it holds, and that a
    variable which nobody sets is not set."""
    negated = words[:1] == ["!"]
    words = [word.strip("'") if word.strip("'")[:1] in "<>" else word for word in words[negated:]]
    if arithmetic and (match := _COMPARED.fullmatch(" ".join(words))):
        words = [part.strip() for part in match.groups()]
    left, sign, right = words if len(words) == 3 else (" ".join(words), "?", "")
    if len(words) == 1 or (len(words) == 2 and words[0] in ("-n", "-z")):
        left, sign = words[-1], words[0] if len(words) == 2 else "-n"
    negated ^= sign in _NEGATED
    sign = _NEGATED.get(sign, _SAME.get(sign, sign))
    value, other = (_text(word, shell, arithmetic) for word in (left, right))
    answer = None if is_open(value) or is_open(other) else _compare(value, sign, other)
    if answer is not None:
        return answer != negated, []
    answer = sign != "-n" and not negated
    match = _NAME.fullmatch(left)
    name = match[1] if match else without_marks(left.strip('"'))
    if match and sign in ("=", *_NUMERIC) and not (set(other) & set("*?[") or is_open(other)):
        _suppose(name, sign, other, answer, shell)
    return answer != negated, [_shown(name, sign, without_marks(other), answer)]


def _suppose(name: str, sign: str, other: str, answer: bool, shell: Shell) -> None:
    """Makes later tests of a variable agree with what was assumed of it."""
    if sign == "=":
        if answer:
            shell.variables[name] = other
    elif is_digits(other):
        shell.supposed[name] = str(int(other) + (1 if sign == "-gt" else 0) - (0 if answer else 1))


def _compare(value: str, sign: str, other: str) -> bool | None:
    """Compares two known values; None for an operator that is not supported here."""
    if sign == "=":
        return fnmatch.fnmatchcase(value, other) if set(other) & set("*?[") else value == other
    if sign == "-n":
        return value != ""
    if sign in _NUMERIC:
        return is_digits(value) and is_digits(other) and _NUMERIC[sign](int(value), int(other))
    return None


def _shown(name: str, sign: str, other: str, answer: bool) -> str:
    words = (name, _SHOWN[sign][not answer], other) if sign in _SHOWN else ("" if answer else "not", name, other)
    return short(" ".join(filter(None, words)), 60)


def _text(word: str, shell: Shell, arithmetic: bool) -> str:
    """A word's value; in ``(( ))`` a bare name is a variable."""
    if arithmetic and not is_digits(word):
        word = word if "$" in word else f"${word}" if word.isidentifier() else f"$(({word}))"
    return text_of(word, {**shell.supposed, **shell.variables})
