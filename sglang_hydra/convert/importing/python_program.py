"""Reads the servers that a Python program starts: lists of words, shell text, arguments of ``sglang.Engine``. Nothing
is run or followed: names that hold one plain value are put in, and everything else is left open."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sglang_hydra.convert.importing.launches import Launch, has_launch_command, is_open, opened, without_opened
from sglang_hydra.convert.importing.mappings import launch_of_words

_IMPORTS = re.compile(r"^(?:import|from)[ \t]+\w", re.MULTILINE)
_CALLS = ("Engine", "ServerArgs")
_LONGEST_MENTION = 300
_LONGEST_TEXT = 100_000
"""Characters that a text of a program may come to: texts of texts would fill any memory."""


def is_program(name: str, text: str) -> bool:
    """Whether a text is a Python program that may start a server."""
    return (name.endswith(".py") or _IMPORTS.search(text) is not None) and ("sglang" in text or "sgl." in text)


def launches_of_program(
    text: str, place: str, given: Mapping[str, str], read: Callable[[str], list[Launch]]
) -> list[Launch]:
    """Every server of a program; none for other text. ``given`` are the variables that its process has, ``read`` reads
    a text for a shell."""
    try:
        program = _Program(given)
        program.visit(ast.parse(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    found = [launch for words in program.lists if (launch := launch_of_words(words, place)) is not None]
    found += [launch for command in program.commands() for launch in read(command)]
    found += [Launch("config", place, values=values) for values in program.calls]
    mentions = tuple(dict.fromkeys(program.mentions))
    return [replace(launch, mentions=(*launch.mentions, *mentions)) for launch in found]


class _Program(ast.NodeVisitor):
    """The lists of words, the texts and the calls of a program that start a server."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._names: dict[str, Any] = {}
        self._lists_of_names: dict[str, list[str]] = {}
        self._texts: list[str] = []
        self.lists: list[list[str]] = []
        self.calls: list[dict[str, Any]] = []
        self.mentions: list[str] = []

    def commands(self) -> Iterator[str]:
        """The texts that start a server, without those that are a part of another."""
        spaced = [text for text in dict.fromkeys(self._texts) if len(text.split()) > 1]
        found = [text for text in spaced if has_launch_command(f" {text}") and without_opened(text).strip()]
        for text in found:
            if not any(text in other and text != other for other in found):
                yield f"python3 train.py {text}" if text.lstrip().startswith("--") else text

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                value = self._value(node.value)
                # A second value makes it a variable, which is not followed.
                self._names[target.id] = value if target.id not in self._names else opened(target.id)
                if isinstance(node.value, ast.List) and self.lists:
                    self._lists_of_names[target.id] = self.lists[-1]

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self._grows(node.target.id, node)

    def visit_List(self, node: ast.List) -> None:
        words = [self._text(item) for item in node.elts]
        if len(words) > 1 and has_launch_command(" ".join(["", *words])):
            self.lists.append(words)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if name.rpartition(".")[2] in _CALLS:
            self.calls.append({item.arg: self._value(item.value) for item in node.keywords if item.arg})
            for item in node.keywords:
                if item.arg is None:
                    held = self._value(item.value)
                    self.calls[-1] |= held if isinstance(held, dict) else {opened(ast.unparse(item.value)): True}
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend"):
            self._grows(ast.unparse(node.func.value), node)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._take(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._take(self._text(node))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        value = self._value(node)
        if isinstance(value, str) and not is_open(value):
            self._take(value)
        else:
            self.generic_visit(node)

    def _take(self, text: str) -> None:
        self._texts.append(text)
        if "sglang" in text and len(text) <= _LONGEST_MENTION:
            self.mentions.append(text)

    def _grows(self, name: str, node: ast.AST) -> None:
        """Leaves open what a list of words gets later."""
        if name in self._lists_of_names:
            self._lists_of_names[name].append(opened(ast.unparse(node)))
        self._names[name] = opened(name)

    def _text(self, node: ast.expr) -> str:
        return str(self._value(node))

    def _value(self, node: ast.expr) -> Any:
        """What an expression is, where it is plain; a mark for any other."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, opened(node.id))
        if isinstance(node, ast.JoinedStr):
            text = "".join(self._text(part) for part in node.values)
            return text if len(text) <= _LONGEST_TEXT else opened(ast.unparse(node))
        if isinstance(node, ast.FormattedValue):
            value = self._text(node.value)
            return opened(f"{{{ast.unparse(node.value)}}}") if is_open(value) else value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            both = self._value(node.left), self._value(node.right)
            if all(isinstance(one, str) and not is_open(one) for one in both) and sum(map(len, both)) < _LONGEST_TEXT:
                return both[0] + both[1]
        if isinstance(node, ast.Call):
            return self._result(node)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            return opened(ast.unparse(node))

    def _result(self, node: ast.Call) -> Any:
        name, values = ast.unparse(node.func), [self._value(item) for item in node.args]
        if name in ("os.environ.get", "os.getenv") and values:
            variable = str(values[0])
            return self._given.get(variable, values[1] if len(values) > 1 else opened(f"${variable}"))
        if name in ("str", "int", "float") and len(values) == 1 and not is_open(str(values[0])):
            return str(values[0])
        return opened(ast.unparse(node))
