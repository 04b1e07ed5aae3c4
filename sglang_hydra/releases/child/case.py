"""Runs one command line and returns the release's values, or the table of its arguments."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from .files import Files
from .inert import is_inert
from .machine import Machine
from .packages import Packages
from .questions import PREFIX, Asked, Unanswered, frames_of, is_importing, refuse, short_path
from .why import Why

HOME = "sglang.srt.server_args"
_MOST_WARNINGS = 40
_LONGEST = 2000
"""Kept characters of one message."""
_HUB = re.compile(
    r"couldn't connect to 'https://|offline mode is enabled|LocalEntryNotFound|\bhttpx2?\.|\bHfApi\b", re.I
)
"""The signs of a question to the hub: SGLang's own message on it is the same for each model, and says nothing."""


class Warnings(logging.Handler):
    """The release's own warnings in one case."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < _MOST_WARNINGS:
            self.texts.append(record.getMessage()[:_LONGEST])


class Runner:
    """Runs cases of one release on one kind of machine."""

    def __init__(self, release: Any, machine: Machine, files: Files, packages: Packages) -> None:
        self.machine, self.files, self.packages = machine, files, packages
        self.release = release
        self.prepare = release.prepare_server_args
        self.error: Exception | None = None
        self.warnings = Warnings()
        logging.getLogger("sglang").addHandler(self.warnings)
        logging.lastResort = None
        self.number = 0
        self.imported: dict[str, str] | None = None
        sys.addaudithook(self._heard)

    def _heard(self, event: str, values: tuple[Any, ...]) -> None:
        """Keeps the variables that a module sets at its import: it is imported once, and they stay."""
        if event == "os.putenv" and self.imported is not None and is_importing():
            self.imported[os.fsdecode(values[0])] = os.fsdecode(values[1])

    def run(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to one case: ``ok`` with ``values``, else ``stage`` and ``error``; ``unanswered`` if a
        question had no answer."""
        self.number += 1
        before, self.imported = dict(os.environ), {}
        self.machine.update(case["machine"])
        self.machine.drawn = 0
        Asked.clear()
        self.warnings.texts = []
        forget()
        folders = self.files.begin(self.number, case, self.machine)
        words = [_with_folder(word, folders) for word in case["argv"]]
        try:
            if case.get("table"):
                answer: dict[str, Any] = {"ok": True, "values": table_of(self.release.ServerArgs, self.prepare)}
            elif case.get("why"):
                with Why(self.release.ServerArgs, plain) as why:
                    answer = self._resolve(words, why.end)
                answer = {**answer, "why": why.answer(answer.get("values"), self.error)}
            else:
                answer = self._resolve(words)
        except Unanswered as question:
            answer = {"unanswered": str(question)}
        finally:
            before, self.imported = before | self.imported, None
            written = {name: value for name, value in os.environ.items() if before.get(name) != value}
            os.environ.clear()
            os.environ.update(before)
            self.files.end()
        if Asked.first is not None:  # the release may have taken the refusal for an answer
            answer = {"unanswered": Asked.first}
        if _HUB.search(str(answer.get("unanswered") or answer.get("error"))):
            paths = [path for word in case["argv"] if (path := word.rpartition("=")[2]) not in folders and "/" in path]
            answer = {
                "unanswered": f"{PREFIX}the files of {' or '.join(paths) or 'a model'}, of which no facts are here"
            }
        answer |= {"environment": written, "warnings": self.warnings.texts, "assumed": Asked.assumed}
        names = {folder: name for name, folder in folders.items()} | {self.files.home: "~", self.files.scratch: "~"}
        named: dict[str, Any] = _with_names(answer, names)
        return {"id": case.get("id"), **named}

    def _resolve(self, argv: list[str], end: Callable[[], None] = lambda: None) -> dict[str, Any]:
        stage, printed, self.error = "argparse", io.StringIO(), None
        try:
            with contextlib.redirect_stderr(printed):
                args = self.prepare(argv)
            stage = "post_init"
            if hasattr(args, "resolve_once"):
                args.resolve_once()
            stage = "check"
            args.check_server_args()
            end()
        except SystemExit:
            text = printed.getvalue().partition("error: ")[2].strip() or printed.getvalue().strip()
            return {"ok": False, "stage": "argparse", "error": text[:_LONGEST]}
        except Exception as error:  # noqa: BLE001 - whatever a release raises is an outcome
            self.error = error
            return self._refusal(error, stage)
        if hasattr(args, "resolved_dict"):
            values = args.resolved_dict()
        else:
            values = {field.name: getattr(args, field.name) for field in dataclasses.fields(args)}
        return {"ok": True, "values": {name: plain(value) for name, value in values.items() if name[:1] != "_"}}

    def _refusal(self, error: Exception, stage: str) -> dict[str, object]:
        frames = frames_of(error)
        text = f"{type(error).__name__}: {error}"
        is_absent = isinstance(error, ImportError) and self.packages.is_known_absent(
            (error.name or "").partition(".")[0]
        )
        if not is_absent and (isinstance(error, ImportError) or "Inert" in text or "inert." in text):
            raise refuse(f"what an inert name gives: {text[:300]}{_place(frames)}") from error
        if stage == "argparse" and "from_cli_args" in {frame.name for frame in frames}:
            stage = "post_init"
        is_librarys = any(
            f"/{name}/" in frame.filename for frame in frames for name in ("transformers", "huggingface_hub")
        )
        place = _place(frames)
        error_text = text[: _LONGEST - len(place)] + place
        return {"ok": False, "stage": stage, "error": error_text, "by_library": is_librarys}


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    """Returns the release's own line that raised, as `` (server_args.py:2568)``."""
    own = [frame for frame in frames if "/sglang/" in frame.filename]
    return f" ({short_path(own[-1].filename)}:{own[-1].lineno})" if own else ""


def forget() -> None:
    """Clears the caches of the release's functions from the last case."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "sglang":
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def plain(value: Any) -> Any:
    """Converts to JSON's types: sets are sorted, records become mappings, other types become text. Raises Unanswered
    for an inert name."""
    if is_inert(value):
        raise refuse(f"the value {value.__name__}")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    if hasattr(type(value), "__struct_fields__"):
        return {name: plain(getattr(value, name)) for name in type(value).__struct_fields__}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return str(value)


def _with_folder(word: str, folders: Mapping[str, str]) -> str:
    """Replaces a model's name by its folder in a word of a command line, also after ``--flag=``."""
    flag, equals, value = word.partition("=")
    return (
        f"{flag}={folders[value]}" if equals and flag.startswith("--") and value in folders else folders.get(word, word)
    )


def _with_names(value: object, names: Mapping[str, str]) -> Any:
    """Replaces each folder of a model in ``value`` by the model's own name."""
    if isinstance(value, str):
        for folder, name in names.items():
            value = value.replace(folder, name)
        return str(value)
    if isinstance(value, list):
        return [_with_names(item, names) for item in value]
    if isinstance(value, dict):
        return {key: _with_names(item, names) for key, item in value.items()}
    return value


_MOST = 4000
"""Characters of one default, choice or name."""


class _Caught(Exception):
    pass


def table_of(kind: object, prepare: Callable[[list[str]], object]) -> dict[str, object]:
    """Returns a release's arguments by its own class and parser: ``fields`` by name, each with its type's text and, if
    any, its default; the parser's ``options``."""
    options = [_option(action) for action in _parser(prepare)._actions if action.option_strings]
    return {"fields": dict(_fields(kind)), "options": options}


def _fields(kind: Any) -> Iterator[tuple[str, dict[str, object]]]:
    missing: object = dataclasses.MISSING
    listed: Any = dataclasses.fields
    if hasattr(kind, "__struct_fields__"):  # a library of the release, importable once it runs
        missing = importlib.import_module("msgspec").NODEFAULT
        listed = importlib.import_module("msgspec.structs").fields
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


def _option(action: argparse.Action) -> dict[str, object]:
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
