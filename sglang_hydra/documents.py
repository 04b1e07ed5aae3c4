"""Files that hold a configuration: YAML as people write it, and plans as we write them, read as overrides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.errors import ConfigError
from sglang_hydra.findings import Finding
from sglang_hydra.overrides import Request, as_override
from sglang_hydra.places import key_lines, shown_path
from sglang_hydra.plans import SCHEMA as PLAN_SCHEMA

_SUFFIXES = (".yaml", ".yml", ".json")


def is_document(word: str) -> bool:
    """True for what names a file or folder to read rather than an override."""
    return "=" not in word and (word.endswith(_SUFFIXES) or Path(word).is_dir())


def documents(requests: Sequence[Request]) -> Iterator[tuple[str, list[Request] | ConfigError]]:
    """Each file's name and what it asks for, or why it cannot be read. A folder stands for all files below it."""
    for request in requests:
        path = Path(request.text)
        files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not files:
            yield request.text, _unreadable(request.text, "there is no .yaml or .json file in it")
        for file in files:
            name = shown_path(str(file))
            try:
                yield name, read_document(file)
            except ConfigError as failure:
                yield name, failure


def read_document(file: Path) -> list[Request]:
    """The overrides that one file stands for.

    YAML is a mapping of arguments and groups (``gpu: h100``, ``tp_size: 8``), or an experiment with a defaults list
    (``- override /gpu: h100``). JSON is a plan. Raises ConfigError naming the file, and the line where there is one.
    """
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8 text"
        raise _unreadable(str(file), str(reason)) from failure
    return _from_plan(file, content) if file.suffix == ".json" else _from_yaml(file, content)


def _from_yaml(file: Path, content: str) -> list[Request]:
    import yaml

    try:
        loaded = yaml.safe_load(content)
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise _unreadable(f"{file}{place}", f"it is no YAML: {failure.problem}") from failure
    if not isinstance(loaded, Mapping):
        raise _unreadable(str(file), f"it holds a {type(loaded).__name__}, not a mapping of arguments")
    lines = key_lines(str(file))
    requests = list(_from_defaults(file, loaded.get("defaults") or [], lines.get(("defaults",), 1)))
    for key, value in loaded.items():
        if key != "defaults":
            requests += _flattened(file, (str(key),), value, lines)
    return requests


def _from_defaults(file: Path, entries: Any, line: int) -> Iterator[Request]:
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping):
            for group, option in entry.items():
                name = str(group).removeprefix("optional ").removeprefix("override ").strip().lstrip("/")
                yield _request(file, line, f"{name}={option}")


def _flattened(file: Path, keys: tuple[str, ...], value: Any, lines: Mapping[tuple[str, ...], int]) -> list[Request]:
    """``gpu: {count: 4}`` is ``gpu.count=4``; a group's name with a word is the choice of its option."""
    from sglang_hydra.config import NODES

    if keys[0] in NODES and isinstance(value, Mapping) and len(keys) == 1:
        return [item for key, inner in value.items() for item in _flattened(file, (*keys, str(key)), inner, lines)]
    if len(keys) == 1 and keys[0] in NODES and isinstance(value, str):
        return [_request(file, lines.get(keys, 1), f"{keys[0]}={value}")]
    return [_request(file, lines.get(keys, 1), as_override(".".join(keys), value))]


def _from_plan(file: Path, content: str) -> list[Request]:
    try:
        plan = json.loads(content)
    except json.JSONDecodeError as failure:
        raise _unreadable(f"{file}:{failure.lineno}:{failure.colno}", f"it is no JSON: {failure.msg}") from failure
    schema = plan.get("schema") if isinstance(plan, dict) else None
    if schema != PLAN_SCHEMA:
        raise _unreadable(str(file), f"its schema is {schema!r}, and only {PLAN_SCHEMA!r} can be read")
    choices = [
        Request(f"{group}={option}", str(file), "lock")
        for group, option in plan["choices"].items()
        if option is not None
    ]
    values = [Request(as_override(name, value), str(file), "lock") for name, value in plan["intent"].items()]
    return [*choices, *values]


def _request(file: Path, line: int, override: str) -> Request:
    return Request(override, f"{shown_path(str(file))}:{line}", "experiment")


def _unreadable(place: str, why: str) -> ConfigError:
    return ConfigError(Finding("error", "CLI017", f"{place} cannot be read: {why}"))
