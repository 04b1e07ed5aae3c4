"""Parses the line in which a server logs its arguments: ``server_args=ServerArgs(a=1, b='x')`` of 0.4 to 0.5.18, and
``server_args={'a': 1, 'b': 'x'}`` since 0.5.19. Never evaluates it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from sglang_hydra.arguments.every import misfit
from sglang_hydra.arguments.secrets import HIDDEN, is_secret_name
from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.arguments.tables.table import nearest_known, release
from sglang_hydra.releases.records import newest_release
from sglang_hydra.text.json_types import NOT_FINITE, Json, JsonDict, JsonObject, plain

CUT = "..."
"""The key that marks a line without its closing bracket."""

_START = re.compile(r"server_args=(?:ServerArgs\(|\{)")
_NAME = re.compile(r"\s*(?:([A-Za-z_]\w{0,120})=|(['\"])([A-Za-z_]\w{0,120})\2: )")
_ENUM = re.compile(r"<[\w.]{1,80}: (.{1,80})>")
_WRAPPED = re.compile(r"(?:Posix|Windows)?Path\((['\"].*['\"])\)|(?:torch\.)(\w{1,20})", re.DOTALL)
_TEXT = re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'" + r'|"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_LONGEST_VALUE = 20_000


def parse_server_args(text: str) -> dict[str, object] | None:
    """Returns the arguments in a line of the log, or None without any.

    A value that is no Python literal (an object, an enum) stays text. Keys and tokens are hidden. For a cut line,
    returns the arguments before the cut, and ``CUT`` as a key."""
    begin = _START.search(text)
    if begin is None:
        return None
    values: dict[str, object] = {
        name: HIDDEN if written != "None" and is_secret_name(name) else _value(written)
        for name, written in _items(text, begin.end())
    }
    if not values:
        return None
    if text.rstrip()[-1:] != (")" if begin[0].endswith("(") else "}"):
        values[CUT] = True
    return values


def writes_server_args(text: str) -> bool:
    """Returns whether ``parse_server_args`` would find arguments in a line; much cheaper."""
    begin = _START.search(text)
    return begin is not None and next(_items(text, begin.end()), None) is not None


def complete(args: JsonDict | None, typed: JsonObject, version: str | None) -> JsonDict | None:
    """Returns the arguments of a log with those that somebody typed; with the defaults of the release where the log has
    none and ``typed`` names the model, so that the rest was not set. Returns None without any."""
    if args is not None or not typed:
        return {**args, **typed} if args is not None else None
    table = release(nearest_known(version or "") or newest_release()).arguments
    defaults = (
        {name: one.default for name, one in table.items() if one.computed is None} if "model_path" in typed else {}
    )
    return {**defaults, **typed}


def named(values: Mapping[str, object], version: str) -> tuple[JsonDict, list[str]]:
    """Returns the logged arguments that ``version`` has a flag for, under its names, without its defaults and secrets,
    and without objects, which the server completes. Also returns the names whose values it does not take."""
    known = release(nearest_known(version) or newest_release()).arguments
    taken: JsonDict = {}
    refused: list[str] = []
    for written, value in values.items():
        name = name_in(written, version)
        argument = known.get(name) if name is not None and not name.startswith("_") else None
        if name is None or argument is None or argument.computed is not None or is_secret_name(name):
            continue
        is_default = value == argument.default and type(value) is type(argument.default)
        if is_default or not argument.flags or isinstance(value, dict):
            continue
        if misfit(argument, value) is None:
            taken[name] = value
        else:
            refused.append(name)
    return taken, refused


def _items(text: str, start: int) -> Iterator[tuple[str, str]]:
    """Yields each argument's name and text, until the bracket closes or the text ends."""
    at = start
    while at < len(text):
        found = _NAME.match(text, at)
        if found is None:
            return
        end, whole = _end_of_value(text, found.end())
        if whole:
            yield found[1] or found[3], text[found.end() : end].strip()
        if not whole or text[end] != ",":
            return
        at = end + 1


def _end_of_value(text: str, start: int) -> tuple[int, bool]:
    """Returns the end of the value that begins at ``start``: a comma or the last bracket. False: the text was cut."""
    closing: list[str] = []
    at = start
    while at < len(text):
        char = text[at]
        if char in "'\"":
            quoted = _TEXT.match(text, at)
            at = quoted.end() if quoted else len(text)
            continue
        if closing and char == closing[-1]:
            closing.pop()
        elif char in _PAIRS and (char != "<" or at == start or text[at - 1] in "[(, :"):
            closing.append(_PAIRS[char])
        elif not closing and char in ",)}":
            return at, True
        at += 1
    return len(text), False


def _value(written: str) -> Json:
    if len(written) > _LONGEST_VALUE:
        return written[:_LONGEST_VALUE]
    enum = _ENUM.fullmatch(written)
    wrapped = _WRAPPED.fullmatch(written)
    text = enum[1] if enum else (wrapped[1] or f"'{wrapped[2]}'") if wrapped else written
    if text in NOT_FINITE:
        return float(text)
    try:
        return [] if text == "set()" else plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return written
