"""Expands the words of a shell script, and evaluates its tests.

Runs no command. A value that only a run would show (the output of a command, an unset variable) is marked open, and a
test that depends on it has no answer."""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from sglang_hydra.convert.importing.launches import CLOSE, OPEN, is_open, opened, without_marks
from sglang_hydra.convert.importing.syntax import commands_of, end_of_group, end_of_piece
from sglang_hydra.text.words import is_digits

Value = str | list[str]
"""A variable's value: text, or the items of an array."""

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PARAMETER = re.compile(
    r"(#?)([A-Za-z_]\w*|[0-9@*#?$!-])(?:\[([^\]]*)\])?(?:(:?[-=?+]|##?|%%?|//?|\^\^|,,)(.*))?", re.ASCII | re.DOTALL
)
_COMPUTING: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv, ast.Mod: operator.mod, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_TERNARY = re.compile(r"([^?:]+)\?([^?:]+):([^?:]+)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_ALONE = re.compile(r"\"\$\{?(\w+)\}?\"")
_NOTHING = re.compile(r"\$\{\w+:?[-=]\}")
_BLANKS = re.compile(f"({OPEN}[^{CLOSE}]*{CLOSE})|\\s+")
_PARTING, _THERE = "\ue002", "\ue003"
"""Marks between two fields, and before a field that counts even if it is empty."""
_BRACES = re.compile(r"(?<!\$)\{[\w./:=-]*(?:\.\.|,)[\w./:=,-]*\}", re.ASCII)
_QUOTED = re.compile(r"\\.|'[^']*'|\"[^\"]*\"|\$\{[^{}]*\}")
_DEEPEST = 8
_LONGEST = 1 << 18
"""The most characters of a word: variables that double each other would exhaust the memory."""


def fields_of(written: str, variables: Mapping[str, Value]) -> list[str]:
    """Expands a word as the shell does: usually to one field, to several for an array or an unquoted list, to none for
    an empty variable. Braces (``{1..4}``) make it open."""
    if _BRACES.search(_QUOTED.sub("", written)):
        return [opened(written)]
    joined = ""
    has_empty_list = False
    for value, quoted in _pieces(written, variables, 0):
        if isinstance(value, list):
            has_empty_list = has_empty_list or not value
            joined += _PARTING.join(_THERE + item for item in value)
        else:
            joined += _THERE + value if quoted else _BLANKS.sub(lambda found: found[1] or _PARTING, value)
    fields = [field.replace(_THERE, "") for field in joined.split(_PARTING) if field]
    if fields == [""] and has_empty_list:
        return []
    if fields == [""] and (name := _ALONE.fullmatch(written)) and name[1] in variables:
        return [opened(name[1])]  # an empty default, which a run replaces
    if len(fields) == 1 and is_open(fields[0]) and _NOTHING.fullmatch(without_marks(fields[0])) and '"' not in written:
        return []  # an unquoted unset variable is no word
    return fields


def text_of(written: str, variables: Mapping[str, Value], depth: int = 0) -> str:
    """Expands a word without splitting, as in an assignment or a target."""
    return "".join(map(_joined, (value for value, _ in _pieces(written, variables, depth))))


def replaced(text: str, variables: Mapping[str, Value]) -> str:
    """Replaces variables in a text, as in a heredoc; keeps quotes."""
    pieces = _up_to(2 * len(text) + _LONGEST, _double(text, variables, 0, escaped="$`\\\n"))
    return "".join(map(_joined, (value for value, _ in pieces)))


def _joined(value: Value) -> str:
    return value if isinstance(value, str) else " ".join(value)


_Pieces = Iterator[tuple[Value, bool]]
"""The pieces of a word, and whether each was quoted."""


def _pieces(written: str, variables: Mapping[str, Value], depth: int) -> _Pieces:
    return _up_to(_LONGEST, _all_pieces(written, variables, depth))


def _up_to(room: int, pieces: _Pieces) -> _Pieces:
    for value, quoted in pieces:
        room -= len(value) if isinstance(value, str) else sum(map(len, value)) + len(value)
        if room < 0:
            return
        yield value, quoted


def _all_pieces(written: str, variables: Mapping[str, Value], depth: int) -> _Pieces:
    at = 0
    while at < len(written):
        char = written[at]
        end = end_of_piece(written, at)
        if char == "\\":
            yield written[at + 1 : end].replace("\n", ""), True
        elif char == "'":
            yield written[at + 1 : end].removesuffix("'"), True
        elif written.startswith("$'", at):
            inner = written[at + 2 : end].removesuffix("'")
            yield re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), inner), True
        elif char == "~" and at == 0 and written[1:2] in ("", "/"):
            yield variables.get("HOME", "~"), True
        elif char == '"':
            yield from _double(written[at + 1 : end].removesuffix('"'), variables, depth)
        elif char in "$`":
            value, end = _expansion(written, at, variables, depth)
            yield value, False
        elif char == OPEN:
            yield written[at:end], False
        else:
            yield char, True
        at = end


def _double(inner: str, variables: Mapping[str, Value], depth: int, escaped: str = '$`"\\\n') -> _Pieces:
    at = 0
    yield "", True
    while at < len(inner):
        char = inner[at]
        if char == "\\" and inner[at + 1 : at + 2] in tuple(escaped):
            yield inner[at + 1].replace("\n", ""), True
            at += 2
        elif char == OPEN:
            end = end_of_piece(inner, at)
            yield inner[at:end], True
            at = end
        elif char in "$`":
            value, at = _expansion(inner, at, variables, depth)
            yield value, not isinstance(value, list)
        else:
            yield char, True
            at += 1


def _expansion(text: str, at: int, variables: Mapping[str, Value], depth: int) -> tuple[Value, int]:
    """Expands the ``$`` or backtick at ``at``; returns the value and the position after it."""
    if text[at] == "`":
        end = end_of_piece(text, at)
        return "" if text[at + 1 : at + 2] == "#" else opened(text[at:end]), end
    if text.startswith("$((", at):
        end = end_of_group(text, at + 1)
        return _computed(text[at + 3 : end].removesuffix(")").removesuffix(")"), variables, text[at:end]), end
    if text.startswith("$(", at):
        end = end_of_group(text, at + 1)
        return opened(text[at:end]), end
    if text.startswith("${", at):
        end = end_of_group(text, at + 1)
        return _parameter(text[at + 2 : end].removesuffix("}"), variables, text[at:end], depth), end
    match = _NAME.match(text, at + 1)
    if match is None:
        if text[at + 1 : at + 2] and text[at + 1] in "0123456789@*#?$!-":
            return _known(text[at + 1], variables, text[at : at + 2]), at + 2
        return "$", at + 1
    return _known(match[0], variables, f"${match[0]}"), match.end()


def _parameter(inner: str, variables: Mapping[str, Value], written: str, depth: int) -> Value:
    match = _PARAMETER.fullmatch(inner)
    if match is None or depth > _DEEPEST:
        return opened(written)
    counts, name, index, operator, word = match.groups()
    value = _item(variables.get(name), name if index is None else text_of(index, variables, depth + 1))
    if counts:
        return opened(written) if value is None or is_open("".join(value)) else str(len(value))
    missing = value is None or (operator is not None and operator.startswith(":") and not value)
    if operator in (":-", "-", ":=", "=") and missing and not word:
        return opened(written)  # unset: without it the rest would be another word
    if operator in (":-", "-", ":=", "=") and missing:
        return text_of(word, variables, depth + 1)
    if operator in (":+", "+"):
        return "" if missing else text_of(word, variables, depth + 1)
    if value is None:
        return opened(written)
    return value if operator is None or operator[-1] in "-=?+" else opened(written)


def _item(value: Value | None, index: str) -> Value | None:
    """Returns the item of an array for ``[index]``, by number or key: everything for @ and *, the first item without an
    index."""
    if not isinstance(value, list) or index in ("@", "*"):
        return value
    if is_digits(index) and int(index) < len(value):
        return value[int(index)]
    keyed = [item.partition("]=")[2] for item in value if item.startswith(f"[{index}]=")]
    if keyed:
        return keyed[-1]
    return None if is_digits(index) else value[0] if value else ""


def _known(name: str, variables: Mapping[str, Value], written: str) -> Value:
    value = variables.get(name)
    if isinstance(value, list) and name not in ("@", "*"):
        return value[0] if value else ""
    return opened(written) if value is None else value


def _computed(expression: str, variables: Mapping[str, Value], written: str) -> str:
    """Computes with whole numbers and variables: + - * / %, comparisons, && and ||."""
    names = {name: value for name, value in variables.items() if isinstance(value, str) and is_digits(value)}
    expression = re.sub(r"\$\{[^{}]*[^\w{}][^{}]*\}", lambda found: text_of(found[0], variables), expression)
    plain = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda found: str(names.get(found[1], found[0])), expression)
    plain = _TERNARY.sub(r"(\2) if (\1) else (\3)", plain.strip()).replace("&&", " and ").replace("||", " or ")
    try:
        return str(_number(ast.parse(plain.replace("/", "//"), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return opened(written)


def _number(node: ast.expr) -> int:
    """Evaluates an expression. Raises ValueError unless it uses only whole numbers."""
    match node:
        case ast.Constant(value) if type(value) is int and abs(value) < 1 << 62:
            return value
        case ast.BinOp(left, how, right) | ast.Compare(left, [how], [right]) if type(how) in _COMPUTING:
            return int(_COMPUTING[type(how)](_number(left), _number(right)))
        case ast.BoolOp(how, values):
            answers = (_number(value) != 0 for value in values)
            return int(all(answers) if isinstance(how, ast.And) else any(answers))
        case ast.IfExp(test, body, orelse):
            return _number(body if _number(test) else orelse)
    raise ValueError("no whole number")


_NUMERIC: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def is_test(words: Sequence[str]) -> bool:
    """Returns whether a command is ``[ ... ]``, ``[[ ... ]]``, ``(( ... ))`` or ``test ...``, also after ``!``."""
    first = next((word for word in words if word != "!"), "")
    return first in ("[", "test") or first.startswith(("[[", "(("))


def tested(words: Sequence[str], variables: Mapping[str, Value]) -> bool | None:
    """Returns the answer of a test; None if it is unknown."""
    plain = [word for word in words if word != "!"]
    text = " ".join(plain)
    is_negated = len(plain) != len(words)
    if text.startswith("(("):
        number = _computed(text[2:-2], variables, text)
        return None if is_open(number) else (number != "0") != is_negated
    holds: bool | None = True
    inner = text[2:-2] if text.startswith("[[") else text.removeprefix("test").strip("[] ")
    for part in commands_of(re.sub(r"([<>]=?)", r" '\1' ", inner)):
        if not part.joined:
            holds = compared(part.words, variables)
        elif holds is not (part.after == "||"):  # else the answer before it decides
            found, decides = compared(part.words, variables), part.after == "||"
            holds = found if holds is not None or found is decides else None
    return holds if holds is None else holds != is_negated


def compared(words: Sequence[str], variables: Mapping[str, Value]) -> bool | None:
    """Returns the answer of one comparison; None for an unknown value or an unsupported operator."""
    negated = words[:1] == ["!"]
    words = [word.strip("'") if word.strip("'")[:1] in "<>" else word for word in words[negated:]]
    left, sign, right = words if len(words) == 3 else (" ".join(words), "?", "")
    if len(words) == 1 or (len(words) == 2 and words[0] in ("-n", "-z")):
        left, sign = words[-1], words[0] if len(words) == 2 else "-n"
    value, other = (text_of(word, variables) for word in (left, right))
    answer = None if is_open(value) or is_open(other) else _compare(value, sign, other)
    return None if answer is None else answer != negated


def _compare(value: str, sign: str, other: str) -> bool | None:
    """Compares two known values; None for an unsupported operator."""
    if sign in _NUMERIC:
        return is_digits(value) and is_digits(other) and _NUMERIC[sign](int(value), int(other))
    if sign in ("=", "==", "!="):
        same = fnmatch.fnmatchcase(value, other) if set(other) & set("*?[") else value == other
        return same != (sign == "!=")
    return {"-n": value != "", "-z": value == ""}.get(sign)
