"""Reads the servers that a Python program starts: lists of words, shell text, arguments of ``sglang.Engine``. Nothing
is run: assignments of plain values are followed, and what the program computes is left open."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sglang_hydra.convert.importing.launches import Launch, has_launch_command, is_open, opened, without_opened
from sglang_hydra.convert.importing.mappings import launch_of_words, launches_of_config

_IMPORTS = re.compile(r"^(?:import|from)[ \t]+\w", re.MULTILINE)
_CALLS = ("Engine", "ServerArgs")
_LONGEST_MENTION = 300
_LEAST_SETTINGS = 3
_MOST_CHARACTERS = 5_000_000
"""All values of a program together, written out. A file of a stranger can double a list forty times, or put it into
itself."""


def is_program(name: str, text: str) -> bool:
    """Whether a text is a Python program that may start a server."""
    return (name.endswith(".py") or _IMPORTS.search(text) is not None) and ("sglang" in text or "sgl." in text)


def launches_of_program(
    text: str, place: str, given: Mapping[str, str], read: Callable[[str], list[Launch]]
) -> list[Launch]:
    """Every server of a program; none for other text. ``given`` are the variables that its process has, ``read`` reads
    a text for a shell."""
    try:
        tree = ast.parse(text)
        program = _Program(given)
        program.walk(tree.body)
        program.check()
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    return list(_named(program, place, read))


def _named(program: _Program, place: str, read: Callable[[str], list[Launch]]) -> Iterator[Launch]:
    mentions = tuple(dict.fromkeys(program.mentions))
    remarks = ("the program's conditions are taken to hold",) if program.has_conditions else ()
    found = [launch for words in program.commands() if (launch := launch_of_words(words, place)) is not None]
    listed = [(launch.words, launch.environment) for launch in found]  # a list that is joined to a text as well
    texts = [launch for text in program.texts() for launch in read(text)]
    found += [launch for launch in texts if (launch.words, launch.environment) not in listed]
    found += [Launch("config", place, values=values) for values in program.calls]
    if not any(launch.values or any(word.startswith("-") for word in launch.words) for launch in found):
        found = [launch for values in program.settings() for launch in launches_of_config(values, place)]
    for launch in found:
        yield replace(launch, mentions=(*launch.mentions, *mentions), remarks=(*launch.remarks, *remarks))


class _Program:
    """What the names of a program hold, as far as it is written there."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.names: dict[str, Any] = {}
        self.lists: list[list[Any]] = []
        self.mappings: list[dict[str, Any]] = []
        self.strings: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.mentions: list[str] = []
        self.has_conditions = False
        self.room = _MOST_CHARACTERS

    def check(self) -> None:
        """Raises ValueError where what the program puts together is too large to be written out."""
        room = _MOST_CHARACTERS
        for value in (*self.lists, *self.mappings, *self.calls):
            room -= _size(value, room)

    def commands(self) -> Iterator[list[str]]:
        """The lists of words that start a server, each in its last state; not those that another continues."""
        found = [[_text(item) for item in words] for words in self.lists]
        found = [words for words in found if has_launch_command(" ".join(["", *words])) and len(words) > 1]
        joined = {"\0".join(["", *words, ""]): words for words in found}
        for text, words in joined.items():
            if not any(text in other for other in joined if len(other) > len(text)):
                yield words

    def settings(self) -> Iterator[dict[str, Any]]:
        """The mappings that may be a server's arguments, by their names or by their flags."""
        for values in self.mappings:
            if len(values) >= _LEAST_SETTINGS:
                is_flags = all(key.startswith("--") for key in values)
                yield {
                    key.removeprefix("--"): True if is_flags and item == "" else item for key, item in values.items()
                }

    def texts(self) -> Iterator[str]:
        """The texts that start a server, without those that are a part of another."""
        spaced = [text for text in dict.fromkeys(self.strings) if len(text.split()) > 1]
        found = [text for text in spaced if has_launch_command(f" {text}") and without_opened(text).strip()]
        for text in found:
            if not any(text in other and text != other for other in found):
                yield f"python3 train.py {text}" if text.lstrip().startswith("--") else text

    def walk(self, body: Iterable[ast.stmt], *, changes: bool = True) -> None:
        """Follows statements in their order. Without ``changes`` names that hold something keep it."""
        for statement in body:
            self._follow(statement, changes)

    def _follow(self, node: ast.stmt, changes: bool) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            value = self.value(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assign(target, value, changes)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
            self._add(node.target.id, self.value(node.value), changes)
        elif isinstance(node, (ast.Expr, ast.Return)) and node.value is not None:
            self._call(node.value, changes) if isinstance(node.value, ast.Call) else self.value(node.value)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._defaults(node.args)
            self.walk(node.body, changes=changes)
        elif isinstance(node, ast.If):
            known = self.value(node.test)
            is_known = not isinstance(known, str) or not is_open(known)
            self.has_conditions |= not is_known and "__main__" not in ast.unparse(node.test)
            if not is_known or known:
                self.walk(node.body, changes=changes)
            if not is_known or not known:
                self.walk(node.orelse, changes=changes and is_known)
        else:
            for name in ("body", "orelse", "finalbody"):
                self.walk(getattr(node, name, ()), changes=changes)

    def _assign(self, target: ast.expr, value: Any, changes: bool) -> None:
        if isinstance(target, ast.Name) and (changes or target.id not in self.names):
            self.names[target.id] = value
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and changes:
            held = self.names.get(target.value.id)
            if isinstance(held, dict):
                held[_text(self.value(target.slice))] = value

    def _add(self, name: str, value: Any, changes: bool) -> None:
        held = self.names.get(name)
        if not changes:
            return
        if isinstance(held, list):
            held += value if isinstance(value, list) else [value]
        elif isinstance(held, str):
            self.names[name] = self._kept(held + _text(value))

    def _call(self, node: ast.Call, changes: bool) -> None:
        method = node.func
        if isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name) and node.args:
            held = self.names.get(method.value.id)
            if isinstance(held, list) and method.attr in ("extend", "append"):
                value = self.value(node.args[0])
                self._add(method.value.id, [value] if method.attr == "append" else value, changes)
                return
            if isinstance(held, dict) and method.attr == "update" and changes:
                held.update(value if isinstance(value := self.value(node.args[0]), dict) else {})
                return
        self.value(node)

    def _defaults(self, arguments: ast.arguments) -> None:
        """The arguments of a function hold their defaults; those without one hold nothing that is known."""
        placed = [*arguments.posonlyargs, *arguments.args]
        defaults = [None] * (len(placed) - len(arguments.defaults)) + list(arguments.defaults)
        for argument, default in zip(
            [*placed, *arguments.kwonlyargs], [*defaults, *arguments.kw_defaults], strict=False
        ):
            self.names.pop(argument.arg, None)
            value = self.value(default) if default is not None else None
            if value is not None:
                self.names[argument.arg] = value

    def value(self, node: ast.expr) -> Any:
        """What an expression is, as far as the program says; a mark for the rest."""
        made = self._made(node)
        if isinstance(made, str):
            return self._kept(made)
        self.room -= _size(made, self.room)
        return made

    def _kept(self, text: str) -> str:
        self.room -= _size(text, self.room)
        self.strings.append(text)
        if "sglang" in text and len(text) <= _LONGEST_MENTION:
            self.mentions.append(text)
        return text

    def _made(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.names.get(node.id, opened(node.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in self.options:
            held = self.names.get(node.value.id, opened(node.value.id))
            return self.options[node.attr] if isinstance(held, str) and is_open(held) else opened(ast.unparse(node))
        if isinstance(node, (ast.List, ast.Tuple)):
            return self._words(node.elts)
        if isinstance(node, ast.Dict):
            return self._mapping(node)
        if isinstance(node, ast.JoinedStr):
            return "".join(self._part(part) for part in node.values)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            value = self.value(node.operand)
            if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
                return -value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._sum(self.value(node.left), self.value(node.right), node)
        if isinstance(node, ast.Call):
            return self._result(node)
        if isinstance(node, (ast.Await, ast.Starred)):
            return self.value(node.value)
        return opened(ast.unparse(node))

    def _words(self, items: Iterable[ast.expr]) -> list[Any]:
        made: list[Any] = []
        for item in items:
            value = self.value(item)
            made += value if isinstance(item, ast.Starred) and isinstance(value, list) else [value]
        self.lists.append(made)
        return made

    def _mapping(self, node: ast.Dict) -> dict[str, Any]:
        made: dict[str, Any] = {}
        self.mappings.append(made)
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            if key is not None:
                made[_text(self.value(key))] = value
            elif isinstance(value, dict):
                made.update(value)
        return made

    def _part(self, part: ast.expr) -> str:
        if not isinstance(part, ast.FormattedValue):
            return _text(self.value(part))
        value = _text(self.value(part.value))
        return value if not is_open(value) or without_opened(value) else opened(f"{{{ast.unparse(part.value)}}}")

    def _sum(self, left: Any, right: Any, node: ast.expr) -> Any:
        if isinstance(left, list):
            made = [*left, *(right if isinstance(right, list) else [right])]
            self.lists.append(made)
            return made
        if isinstance(left, str) and isinstance(right, str):
            return left + right
        both_numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
        return left + right if both_numbers else opened(ast.unparse(node))

    def _result(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        if name.rpartition(".")[2] in _CALLS:
            self.calls.append(self._arguments(node))
            return opened(name)
        values = [self.value(item) for item in node.args]
        for keyword in node.keywords:
            self.value(keyword.value)
        if name.endswith(".add_argument") and values:
            self._take_option(_text(values[0]), {item.arg: item.value for item in node.keywords})
        if name in ("os.environ.get", "os.getenv") and values:
            default = values[1] if len(values) > 1 else None
            return self.given.get(_text(values[0]), opened(f"${_text(values[0])}") if default is None else default)
        if name in ("str", "int", "float") and len(values) == 1 and not is_open(_text(values[0])):
            return _text(values[0])
        if name == "dict" and not values:
            made = self._arguments(node)
            self.mappings.append(made)
            return made
        if name == "json.dumps" and values and isinstance(values[0], dict) and not is_open(_text(values[0])):
            return json.dumps(values[0])
        if name.endswith(".join") and values and isinstance(values[0], list):
            joiner = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else " "
            if name == "shlex.join" or isinstance(joiner, str):
                words = [_text(item) for item in values[0]]
                return shlex.join(words) if name == "shlex.join" else str(joiner).join(words)
        if name == "shlex.split" and values and isinstance(values[0], str):
            return _split(values[0])
        return opened(ast.unparse(node))

    def _take_option(self, flag: str, keywords: Mapping[str | None, ast.expr]) -> None:
        """Keeps the default of an option that the program reads from its own command line."""
        name = flag.lstrip("-").replace("-", "_")
        default = self.value(keywords["default"]) if "default" in keywords else None
        if isinstance(default, (str, int, float)):
            self.options[name] = self.given.get(name, default)

    def _arguments(self, node: ast.Call) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                made[keyword.arg] = value
            elif isinstance(value, dict):
                made.update(value)
        return made


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list)) else str(value)


def _size(value: Any, most: int) -> int:
    """The characters of a value that is written out. Raises ValueError where it has more than ``most``."""
    size, left = 0, [value]
    while left:
        item = left.pop()
        size += len(item) if isinstance(item, str) else 1
        if size > most:
            raise ValueError("the program puts too much together")
        if isinstance(item, dict):
            left += [*item, *item.values()]
        elif isinstance(item, list):
            left += item
    return size
