"""Splits a shell script into commands and words, as the POSIX shell and bash do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sglang_hydra.convert.importing.launches import CLOSE, OPEN

_TORN = re.compile(r"\\[ \t]+\n")
"""A backslash with a space behind it, which ends the command for a shell; read as if it did not."""
_OF_WINDOWS = re.compile(r"(?<=[ \t])[`^][ \t]*\n(?=[ \t]*-)")
_OPERATORS = "\n;&|()"
_BEFORE_TESTS = ("if", "then", "elif", "else", "while", "until", "do", "for", "!", "{")
_LONGEST_TEST = 1000
# These end by themselves: a marked text, an escaped letter, texts without expansion; or at the script's end if
# unclosed.
_FLAT = re.compile(rf"{OPEN}[^{CLOSE}]*{CLOSE}|\\.?|'[^']*'?|\$'(?:\\.|[^'\\])*'?|`[^`]*`?", re.DOTALL)
_QUOTED = re.compile(r"\\.?|'[^']*'?|\"(?:\\.|[^\"\\])*\"?", re.DOTALL)
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)([\w.-]+)\2")


@dataclass
class Command:
    """One simple command: its words as written, with the line and column of each, the target of its output, and the
    texts of its input. ``after`` and ``ended`` are the operators around it, ``follower`` the first word of the next
    command with its line."""

    line: int
    words: list[str] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    target: str | None = None
    heredocs: list[Heredoc] = field(default_factory=list)
    after: str = ""
    ended: str = ""
    follower: tuple[str, int] = ("", 0)
    torn: int = 0

    @property
    def joined(self) -> bool:
        """Returns whether it depends on the command before it."""
        return self.after in ("&&", "||")


@dataclass
class Heredoc:
    """A text in the script, beginning at ``line``. ``literal``: nothing in it is expanded."""

    delimiter: str
    indented: bool
    literal: bool
    body: str = ""
    line: int = 0


def commands_of(text: str) -> list[Command]:
    """Returns the simple commands of a script, in order. An open quote extends to the end."""
    return _Cutter(_OF_WINDOWS.sub("\\\\\n", text.replace("\r\n", "\n"))).cut()


class _Cutter:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.word: list[str] | None = None
        self.place = (1, 1)
        self.command = Command(1)
        self.found: list[Command] = []
        self.waiting: list[Heredoc] = []
        self.target_next = ""

    def cut(self) -> list[Command]:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_command()
        for command, after in zip(self.found, self.found[1:], strict=False):
            command.follower = (after.words[0], after.line)
        return self.found

    def _step(self, char: str) -> None:
        text, at = self.text, self.at
        begins = self.word is None and all(word in _BEFORE_TESTS for word in self.command.words)
        if char in " \t":
            self._end_word()
            self._move(1)
        elif char == "#" and self.word is None:
            end = text.find("\n", at)
            self._move((end if end >= 0 else len(text)) - at)
        elif text.startswith("\\\n", at):
            self._move(2)
        elif match := _TORN.match(text, at):
            self._end_word()
            self.command.torn = self.command.torn or self.line
            self._move(match.end() - at)
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
        elif text.startswith(("[[ ", "(("), at) and begins:
            end = text.find("]]" if char == "[" else "))", at)
            self._take(end + 2 if 0 <= end < at + _LONGEST_TEST else at + 2)
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
        before = "" if self.command.words or self.word is not None else self.command.after
        length = 2 if self.text.startswith(("&&", "||", ";;"), self.at) else 1
        operator = self.text[self.at : self.at + length]
        self._end_command(operator)
        self._move(length)
        if char == "\n" and self.waiting:
            for heredoc in self.waiting:
                self._read_heredoc(heredoc)
            self.waiting = []
        kept = before in ("&&", "||", "|", ";;") and char in "\n(;"
        self.command = Command(self.line, after=before if kept else operator)

    def _read_heredoc(self, heredoc: Heredoc) -> None:
        lines = []
        heredoc.line = self.line
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
            self.place = (self.line, self.at - self.text.rfind("\n", 0, self.at))
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
            self.command.places.append(self.place)
        self.word = None

    def _end_command(self, operator: str = "") -> None:
        self._end_word()
        self.target_next = ""
        if self.command.words:
            self.command.ended = operator
            self.found.append(self.command)
            self.command = Command(self.line)


def end_of_piece(text: str, at: int) -> int:
    """Returns the end of the piece of a word at ``at``: a quoted text, an expansion, or one letter."""
    if flat := _FLAT.match(text, at):
        return flat.end()
    if text.startswith(("$(", "${"), at):
        return end_of_group(text, at + 1)
    if text[at] != '"':
        return at + 1
    at += 1
    while at < len(text) and text[at] != '"':
        at = end_of_group(text, at + 1) if text.startswith(("$(", "${"), at) else at + (2 if text[at] == "\\" else 1)
    return min(at + 1, len(text))


def end_of_group(text: str, at: int) -> int:
    """Returns the position after the bracket that closes the one at ``at``."""
    closing = [")" if text[at] == "(" else "}"]
    at += 1
    while at < len(text) and closing:
        char = text[at]
        if char == closing[-1]:
            closing.pop()
        elif char == "(" or text.startswith("${", at):
            closing.append(")" if char == "(" else "}")
            at += char == "$"
        elif closing and (quoted := _QUOTED.match(text, at)):
            at = quoted.end()
            continue
        at += 1
    return at


def substituted(word: str) -> Iterator[str]:
    """Yields the commands whose output a word contains: in ``$( )`` and backticks."""
    at = 0
    while at < len(word):
        is_command = word.startswith("$(", at) and not word.startswith("$((", at)
        end = end_of_group(word, at + 1) if is_command else end_of_piece(word, at) if word[at] in "\\'`" else at + 1
        if is_command:
            yield word[at + 2 : end].removesuffix(")")
        elif word[at] == "`":
            yield word[at + 1 : end].removesuffix("`")
        at = end
