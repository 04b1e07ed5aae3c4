"""The words of a shell script, as the POSIX shell and bash cut them, and what each comes to.

No command is run: what only running would tell (the output of a command, a variable that nobody set) is marked open.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sglang_hydra.importing.launches import is_open, opened

Value = str | list[str]
"""A variable's value: text, or the items of an array."""

_TRAILING_BLANKS = re.compile(r"\\[ \t]+\n")
_OPERATORS = "\n;&|()"
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PARAMETER = re.compile(r"([A-Za-z_]\w*|[0-9@*#?$!-])(\[[@*]\])?(?:(:?[-=?+])(.*))?", re.ASCII | re.DOTALL)
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)([\w.-]+)\2")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Mod)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_DEEPEST = 8
_LONGEST = 1 << 18
"""Characters that a word may come to: variables that double each other would fill any memory."""


@dataclass
class Command:
    """One simple command: its words as they are written, where it writes to, and the texts that it is fed."""

    line: int
    words: list[str] = field(default_factory=list)
    target: str | None = None
    heredocs: list[Heredoc] = field(default_factory=list)


@dataclass
class Heredoc:
    """A text in the script. ``literal``: nothing in it is replaced."""

    delimiter: str
    indented: bool
    literal: bool
    body: str = ""


def commands_of(text: str) -> list[Command]:
    """The simple commands of a script, in order. What cannot be cut (a quote that never ends) is taken to the end."""
    return _Cutter(_TRAILING_BLANKS.sub("\\\\\n", text.replace("\r\n", "\n"))).cut()


class _Cutter:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.word: list[str] | None = None
        self.command = Command(1)
        self.found: list[Command] = []
        self.waiting: list[Heredoc] = []
        self.target_next = ""

    def cut(self) -> list[Command]:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_command()
        return self.found

    def _step(self, char: str) -> None:
        text, at = self.text, self.at
        if char in " \t":
            self._end_word()
            self._move(1)
        elif char == "#" and self.word is None:
            end = text.find("\n", at)
            self._move((end if end >= 0 else len(text)) - at)
        elif text.startswith("\\\n", at):
            self._move(2)
        elif char == "(" and self.word and "".join(self.word).endswith("="):
            self._take(end_of_group(text, at))
        elif char == "<" and (match := _HEREDOC.match(text, at)):
            self._end_word()
            heredoc = Heredoc(match[3], bool(match[1]), bool(match[2]))
            self.command.heredocs.append(heredoc)
            self.waiting.append(heredoc)
            self._move(match.end() - at)
        elif char in "<>" or text.startswith("&>", at):
            self._redirect()
        elif char in _OPERATORS:
            self._operator(char)
        else:
            self._take(end_of_piece(text, at))

    def _redirect(self) -> None:
        if self.word is not None and "".join(self.word).isdigit():
            self.word = None  # the number of a stream
        self._end_word()
        length = 1
        while self.at + length < len(self.text) and self.text[self.at + length] in "<>&|":
            length += 1
        operator = self.text[self.at : self.at + length]
        self._move(length)
        self.target_next = operator

    def _operator(self, char: str) -> None:
        self._end_command()
        self._move(1)
        if char == "\n" and self.waiting:
            for heredoc in self.waiting:
                self._read_heredoc(heredoc)
            self.waiting = []
        self.command = Command(self.line)

    def _read_heredoc(self, heredoc: Heredoc) -> None:
        lines = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            line = self.text[self.at : end if end >= 0 else len(self.text)]
            self._move(len(line) + (end >= 0))
            line = line.lstrip("\t") if heredoc.indented else line
            if line.rstrip() == heredoc.delimiter:
                break
            lines.append(line)
        heredoc.body = "".join(f"{line}\n" for line in lines)

    def _take(self, end: int) -> None:
        if self.word is None:
            self.word = []
            if not self.command.words:
                self.command.line = self.line
        self.word.append(self.text[self.at : end])
        self._move(end - self.at)

    def _move(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += max(count, 1)

    def _end_word(self) -> None:
        if self.word is None:
            return
        written = "".join(self.word)
        if self.target_next:
            if ">" in self.target_next and "&" not in self.target_next:
                self.command.target = written
            self.target_next = ""
        else:
            self.command.words.append(written)
        self.word = None

    def _end_command(self) -> None:
        self._end_word()
        self.target_next = ""
        if self.command.words:
            self.found.append(self.command)
            self.command = Command(self.line)


def end_of_piece(text: str, at: int) -> int:
    """Where the piece of a word that begins here ends: a quoted text, an expansion, or one letter."""
    char = text[at]
    if char == "\\":
        return min(at + 2, len(text))
    if char == "'" or text.startswith("$'", at):
        return _end_of_single(text, at + (2 if char == "$" else 1), escapes=char == "$")
    if char == '"':
        return _end_of_double(text, at + 1)
    if char == "`":
        end = text.find("`", at + 1)
        return end + 1 if end >= 0 else len(text)
    if text.startswith(("$(", "${"), at):
        return end_of_group(text, at + 1)
    return at + 1


def end_of_group(text: str, at: int) -> int:
    """The place after the bracket that closes the one at ``at``."""
    closing = [")" if text[at] == "(" else "}"]
    at += 1
    while at < len(text) and closing:
        char = text[at]
        if char == closing[-1]:
            closing.pop()
        elif char == "(" or text.startswith("${", at):
            closing.append(")" if char == "(" else "}")
            at += char == "$"
        elif char in "'\"\\" and closing:
            at = end_of_piece_flat(text, at)
            continue
        at += 1
    return at


def end_of_piece_flat(text: str, at: int) -> int:
    """The same for a quoted text or an escaped letter, without looking into what stands inside."""
    char = text[at]
    if char == "\\":
        return min(at + 2, len(text))
    end = at + 1
    while end < len(text) and text[end] != char:
        end += 2 if char == '"' and text[end] == "\\" else 1
    return min(end + 1, len(text))


def _end_of_single(text: str, at: int, *, escapes: bool) -> int:
    while at < len(text) and text[at] != "'":
        at += 2 if escapes and text[at] == "\\" else 1
    return min(at + 1, len(text))


def _end_of_double(text: str, at: int) -> int:
    while at < len(text) and text[at] != '"':
        at = end_of_group(text, at + 1) if text.startswith(("$(", "${"), at) else at + (2 if text[at] == "\\" else 1)
    return min(at + 1, len(text))


def fields_of(written: str, variables: Mapping[str, Value], depth: int = 0) -> list[str]:
    """What a word comes to: usually one field, several for an array or an unquoted list, none for an empty variable."""
    fields: list[str] = []
    current: list[str] = []
    has_current = False
    for value, quoted in _pieces(written, variables, depth):
        if isinstance(value, list):
            items, splits = value, True
        elif quoted or is_open(value):
            items, splits = [value], False
        else:
            items, splits = value.split(), True
        if not splits:
            current.append(items[0])
            has_current = True
            continue
        begins = isinstance(value, str) and value[:1].isspace()
        ends = isinstance(value, str) and value[-1:].isspace()
        if begins and has_current:
            fields.append("".join(current))
            current, has_current = [], False
        for number, item in enumerate(items):
            if number and has_current:
                fields.append("".join(current))
                current = []
            current.append(item)
            has_current = True
        if ends and has_current:
            fields.append("".join(current))
            current, has_current = [], False
    return [*fields, "".join(current)] if has_current else fields


def text_of(written: str, variables: Mapping[str, Value], depth: int = 0) -> str:
    """What a word comes to where the shell does not split it: in an assignment, as a target."""
    return "".join(
        value if isinstance(value, str) else " ".join(value) for value, _ in _pieces(written, variables, depth)
    )


def replaced(text: str, variables: Mapping[str, Value]) -> str:
    """A text of the script with its variables put in, as a heredoc's are; quotes in it mean themselves."""
    made: list[str] = []
    at = length = 0
    while at < len(text) and length < len(text) + _LONGEST:
        if text[at] == "\\" and at + 1 < len(text):
            made.append("" if text[at + 1] == "\n" else text[at + 1] if text[at + 1] in "$`\\" else text[at : at + 2])
            at += 2
        elif text[at] in "$`":
            value, at = _expansion(text, at, variables, 0)
            made.append(value if isinstance(value, str) else " ".join(value))
            length += len(made[-1])
        else:
            made.append(text[at])
            at += 1
    return "".join(made)


def _pieces(written: str, variables: Mapping[str, Value], depth: int) -> Iterator[tuple[Value, bool]]:
    """Each piece of a word, and whether it was quoted; what is too long ends."""
    room = _LONGEST
    for value, quoted in _all_pieces(written, variables, depth):
        room -= len(value) if isinstance(value, str) else sum(map(len, value)) + len(value)
        if room < 0:
            return
        yield value, quoted


def _all_pieces(written: str, variables: Mapping[str, Value], depth: int) -> Iterator[tuple[Value, bool]]:
    at = 0
    while at < len(written):
        char = written[at]
        end = end_of_piece(written, at)
        if char == "\\":
            yield written[at + 1 : end].replace("\n", ""), True
        elif char == "'":
            yield written[at + 1 : end].removesuffix("'"), True
        elif written.startswith("$'", at):
            yield _unescaped(written[at + 2 : end].removesuffix("'")), True
        elif char == '"':
            yield from _double(written[at + 1 : end].removesuffix('"'), variables, depth)
        elif char in "$`":
            value, end = _expansion(written, at, variables, depth)
            yield value, False
        else:
            yield char, True
        at = end


def _double(inner: str, variables: Mapping[str, Value], depth: int) -> Iterator[tuple[Value, bool]]:
    at = 0
    yield "", True
    while at < len(inner):
        char = inner[at]
        if char == "\\" and inner[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
            yield inner[at + 1].replace("\n", ""), True
            at += 2
        elif char in "$`":
            value, at = _expansion(inner, at, variables, depth)
            yield (value, False) if isinstance(value, list) else (value, True)
        else:
            yield char, True
            at += 1


def _expansion(text: str, at: int, variables: Mapping[str, Value], depth: int) -> tuple[Value, int]:
    """What the ``$`` or backtick at ``at`` comes to, and the place after it."""
    if text[at] == "`":
        end = end_of_piece(text, at)
        return opened(text[at:end]), end
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
    return _known(match[0], variables, match[0] and f"${match[0]}"), match.end()


def _parameter(inner: str, variables: Mapping[str, Value], written: str, depth: int) -> Value:
    match = _PARAMETER.fullmatch(inner)
    if match is None or depth > _DEEPEST:
        return opened(written)
    name, all_items, operator, word = match.groups()
    value = variables.get(name)
    missing = value is None or (operator is not None and operator.startswith(":") and not value)
    if operator in (":-", "-", ":=", "=") and missing:
        return text_of(word, variables, depth + 1)
    if operator in (":+", "+"):
        return "" if missing else text_of(word, variables, depth + 1)
    if isinstance(value, list) and not all_items:
        value = value[0] if value else ""
    return opened(written) if value is None else value


def _known(name: str, variables: Mapping[str, Value], written: str) -> Value:
    value = variables.get(name)
    if isinstance(value, list) and name not in "@*":
        return value[0] if value else ""
    return opened(written) if value is None else value


def _computed(expression: str, variables: Mapping[str, Value], written: str) -> str:
    """A whole number of + - * / % over numbers and variables."""
    names = {name: value for name, value in variables.items() if isinstance(value, str) and _is_number(value)}
    plain = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda found: str(names.get(found[1], found[0])), expression)
    try:
        return str(_number(ast.parse(plain.strip().replace("/", "//"), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return opened(written)


def _number(node: ast.expr, depth: int = 0) -> int:
    if depth < 50 and isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        left, right = _number(node.left, depth + 1), _number(node.right, depth + 1)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        return left % right if isinstance(node.op, ast.Mod) else left // right
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1 << 62:
        return node.value
    raise ValueError("no whole number")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 18


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)
