"""Reads the table of a release's arguments from its own class and its own command-line parser."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

_MOST = 4000
"""Characters of one default, choice or name."""


class _Caught(Exception):
    pass


def table_of(
    kind: object, prepare: Callable[[list[str]], object], plain: Callable[[object], object]
) -> dict[str, object]:
    """Returns ``fields`` by name, each with its type's text and, if any, its default; the parser's ``options``."""
    options = [_option(action, plain) for action in _parser(prepare)._actions if action.option_strings]
    return {"fields": dict(_fields(kind, plain)), "options": options}


def _fields(kind: Any, plain: Callable[[object], object]) -> Iterator[tuple[str, dict[str, object]]]:
    missing: object = dataclasses.MISSING
    listed: Any = dataclasses.fields
    if hasattr(kind, "__struct_fields__"):  # a library of the release, importable once it runs
        missing, listed = (
            importlib.import_module("msgspec").NODEFAULT,
            importlib.import_module("msgspec.structs").fields,
        )
    for each in listed(kind):
        kind_of = each.type.__origin__ if hasattr(each.type, "__metadata__") else each.type
        is_plain = isinstance(kind_of, type) and not getattr(kind_of, "__args__", None)
        made: dict[str, object] = {"type": kind_of.__name__ if is_plain else str(kind_of)[:_MOST]}
        if each.default is not missing:
            made["default"] = plain(each.default)
        elif each.default_factory is not missing:
            made["default"] = plain(each.default_factory())
        yield each.name, made


def _parser(prepare: Callable[[list[str]], object]) -> argparse.ArgumentParser:
    """Returns the parser in its state when the release's own entry begins to read words."""
    caught: list[argparse.ArgumentParser] = []

    def catch(parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        caught.append(parser)
        raise _Caught

    original = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = catch  # type: ignore[assignment]
    try:
        prepare(["--model-path", "m"])
    except _Caught:
        pass
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]
    return caught[0]


def _option(action: argparse.Action, plain: Callable[[object], object]) -> dict[str, object]:
    own = {name: getattr(action, name, None) for name in ("new_flag", "const_value", "error_message")}
    return {
        "dest": action.dest,
        "flags": list(action.option_strings),
        "action": type(action).__name__,
        "nargs": action.nargs,
        "const": plain(action.const),
        "choices": None if action.choices is None else [plain(each) for each in action.choices],
        "reader": getattr(action.type, "__qualname__", None),
        **{name: None if value is None else plain(value) for name, value in own.items()},
    }
