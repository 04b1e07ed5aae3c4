"""Reads values for an explanation: of an expression in a frame, without running it, shortened for people."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from types import BuiltinMethodType, CodeType, FrameType, ModuleType
from typing import Any

from . import source
from .inert import is_inert

SECRET = re.compile(r"api_key|secret|passw|credential|watermark|private_key|(?:hf|auth|access|bearer)_token", re.I)
HIDDEN = "***"
_LONGEST = 120
_MOST_ITEMS = 8


class _Unreadable(Exception):
    pass


Scopes = tuple[Mapping[str, object], ...]
Results = dict[str, list[tuple[CodeType | None, object]]]
"""The results of functions in a statement, by their names: each one's code, None for an unobserved result."""


def scopes_of(frame: FrameType) -> Scopes:
    """Returns the scopes where a name is looked up. Python makes a frame's locals anew each time."""
    return frame.f_locals, frame.f_globals, vars(builtins)


@functools.cache
def names_secret(text: str) -> bool:
    return SECRET.search(text) is not None


def value_of(node: ast.expr, scopes: Scopes, results: Results) -> Any:
    """Returns the value of a name or an attribute, or the result of a call in this statement. Calls nothing."""
    if isinstance(node, ast.Name):
        for names in scopes:
            if node.id in names:
                return names[node.id]
    elif isinstance(node, ast.Attribute):
        base = value_of(node.value, scopes, results)
        if is_inert(base) or (isinstance(base, ModuleType) and node.attr not in vars(base)):
            raise _Unreadable
        descriptor = next((vars(each)[node.attr] for each in type(base).__mro__ if node.attr in vars(each)), None)
        if isinstance(descriptor, (property, functools.cached_property)):
            function = descriptor.fget if isinstance(descriptor, property) else descriptor.func
            return _answer(results.get(node.attr, ()), function)
        return getattr(base, node.attr)
    elif isinstance(node, ast.Call):
        return _called(node, scopes, results)
    raise _Unreadable


def _called(node: ast.Call, scopes: Scopes, results: Results) -> Any:
    """Returns the result of a call: an observed one, a kept one, the length of a readable value, or its part."""
    answers = results.get(source.called(node), ())
    try:
        function = value_of(node.func, scopes, {})
    except (_Unreadable, AttributeError):  # a method of a call's result
        return _answer(answers, None)
    if function is len and len(node.args) == 1:
        counted = value_of(node.args[0], scopes, results)
        if type(counted) in (list, tuple, dict, set, str):
            return len(counted)
    given = [each.value for each in node.args if isinstance(each, ast.Constant)]
    if function is getattr and node.args[1:2] and isinstance(node.args[1], ast.Constant):
        try:
            return value_of(ast.Attribute(node.args[0], str(given[0])), scopes, results)
        except AttributeError:
            return given[1]
    is_read = isinstance(function, BuiltinMethodType) and type(function.__self__) is dict and function.__name__ == "get"
    if is_read and len(given) == len(node.args):
        return function(*given)
    if answers:
        return _answer(answers, function)
    is_kept = isinstance(function, functools._lru_cache_wrapper) and function.cache_info().currsize
    if is_kept and not node.args and not node.keywords:
        return function()
    raise _Unreadable


def _answer(answers: Sequence[tuple[CodeType | None, object]], function: object) -> Any:
    """Returns the one result of a function; nothing for several different results or for another function."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if function is not None and code is None and not isinstance(function, type):
        raise _Unreadable  # a built-in one of the same name
    mine = [value for made, value in answers if made is code or code is None]
    if (
        not mine
        or any(made is None for made, _ in answers)
        or any(value is not mine[0] and value != mine[0] for value in mine)
    ):
        raise _Unreadable
    return mine[0]


def is_simple(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(item is None or type(item) in (bool, int, float, str) for item in value)
    return value is None or type(value) in (bool, int, float, str)


def shortened(value: object) -> object:
    """Returns ``value`` with long texts and lists cut."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"
    if isinstance(value, (list, tuple)):
        more = [f"… {len(value)} in all"] if len(value) > _MOST_ITEMS else []
        return [*map(shortened, value[:_MOST_ITEMS]), *more]
    if isinstance(value, dict):
        return {name: HIDDEN if item and SECRET.search(name) else shortened(item) for name, item in value.items()}
    return value


def differing(before: object, after: object) -> tuple[object, object]:
    """Returns only the differences of two mappings, at any depth."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return before, after
    names = [name for name in {**before, **after} if before.get(name, ...) != after.get(name, ...)]
    pairs = {name: differing(before.get(name), after.get(name)) for name in names}
    return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}
