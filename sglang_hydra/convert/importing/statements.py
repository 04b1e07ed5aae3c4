"""The statements of a shell script: its commands, with the branches and loops around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sglang_hydra.convert.importing.syntax import Command

_LOOPS = ("for", "select", "while", "until")
_ENDS = ("then", "elif", "else", "fi", "do", "done", "esac", "}")


@dataclass
class Branches:
    """``if``, or a group in braces: conditions and bodies, in their order; a condition that is null always holds."""

    after: str
    options: list[tuple[list[Node] | None, list[Node]]] = field(default_factory=list)


@dataclass
class Alternatives:
    """``case``: its subject, and the patterns and bodies."""

    after: str
    subject: str
    options: list[tuple[list[str], list[Node]]] = field(default_factory=list)


@dataclass
class Loop:
    """``for``, ``select``, ``while`` or ``until``: its words (``NAME in ITEMS``), or the commands of its condition."""

    after: str
    words: list[str]
    condition: list[Node]
    body: list[Node]


Node = Command | Branches | Alternatives | Loop


def statements_of(commands: Sequence[Command]) -> list[Node]:
    """The statements of a script. One that never ends goes to the end of the script."""
    reader = _Reader(list(_tokens(commands)))
    found: list[Node] = []
    while reader.at < len(reader.tokens):
        found += reader.block()
        reader.at += 1  # an end of nothing
    return found


def _tokens(commands: Sequence[Command]) -> Iterator[tuple[str, Command]]:
    """Takes the keywords before a command apart from it."""
    for command in commands:
        words = list(command.words)
        while words and words[0] in (*_ENDS, "if", "while", "until", "time", "{"):
            word = words.pop(0)
            if word != "time":
                yield word, command
        if words:
            kind = words[0] if words[0] in ("case", "for", "select") else ""
            yield kind, command if len(words) == len(command.words) else replace(command, words=words)


class _Reader:
    def __init__(self, tokens: list[tuple[str, Command]]) -> None:
        self.tokens = tokens
        self.at = 0

    def block(self, *, of_case: bool = False) -> list[Node]:
        """The statements up to a keyword that ends them; of an alternative of ``case`` up to ``;;`` as well."""
        found: list[Node] = []
        first = True
        while self.at < len(self.tokens):
            word, command = self.tokens[self.at]
            if word in _ENDS or (of_case and not first and command.after == ";;"):
                return found
            self.at, first = self.at + 1, False
            if word == "if":
                found.append(self._if(command.after))
            elif word == "{":
                found.append(Branches(command.after, [(None, self.block())]))
                self._skip("}")
            elif word == "case":
                found.append(self._case(command))
            elif word in _LOOPS:
                condition = self.block() if word in ("while", "until") else []
                self._skip("do")
                found.append(Loop(command.after, command.words[1:] if not condition else [], condition, self.block()))
                self._skip("done")
            else:
                found.append(command)
        return found

    def _skip(self, *words: str) -> str:
        """Goes over the next keyword if it is one of these, and returns it."""
        word = self.tokens[self.at][0] if self.at < len(self.tokens) else ""
        self.at += word in words and word != ""
        return word if word in words else ""

    def _if(self, after: str) -> Branches:
        made = Branches(after)
        word = "elif"
        while word == "elif":
            condition = self.block()
            self._skip("then")
            made.options.append((condition, self.block()))
            word = self._skip("elif", "else")
        if word == "else":
            made.options.append((None, self.block()))
        self._skip("fi")
        return made

    def _case(self, command: Command) -> Alternatives:
        made = Alternatives(command.after, command.words[1] if len(command.words) > 1 else "")
        patterns = command.words[3:]
        ended = command.ended if patterns else ""
        while self.at < len(self.tokens) and self.tokens[self.at][0] != "esac":
            while ended != ")" and self.at < len(self.tokens) and self.tokens[self.at][0] != "esac":
                one = self.tokens[self.at][1]
                patterns, ended, self.at = [*patterns, *one.words], one.ended, self.at + 1
            start = self.at
            empty = self.at < len(self.tokens) and self.tokens[self.at][1].after == ";;"
            made.options.append((patterns, [] if empty else self.block(of_case=True)))
            if (
                self.at == start
                and not empty
                and self.tokens[self.at : self.at + 1]
                and self.tokens[self.at][0] != "esac"
            ):
                self.at += 1  # an end of nothing
            patterns, ended = [], ""
        self._skip("esac")
        return made
