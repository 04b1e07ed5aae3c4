"""Files that hold a configuration: YAML as people write it, and plans as we write them, read as overrides."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES
from sglang_hydra.planning.plan import Recorded
from sglang_hydra.planning.saved import NotAPlan, OtherSchema, parse_plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import CONFIG_BYTES, RECORD_BYTES, link_problem, read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.key_lines import key_lines
from sglang_hydra.text.locations import shown_path
from sglang_hydra.text.yaml_limits import TOO_MUCH, text_is_too_much

_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Document:
    """What one file asks for. A plan also brings what it was made with, so that nothing is asked anew."""

    requests: Sequence[Request]
    recorded: Recorded | None = None


class _OtherKind(ConfigError):
    """A JSON file that holds something else."""


def is_document(word: str) -> bool:
    """True for what names a file or folder to read rather than an override."""
    return "=" not in word and (word.endswith(_SUFFIXES) or os.path.isdir(word))


def documents(requests: Sequence[Request]) -> Iterator[tuple[str, Document | ConfigError]]:
    """Each file's name and what it asks for, or why it cannot be read. A folder stands for all files below it; JSON
    that says itself that it is something else than a plan is passed over there."""
    for request in requests:
        is_folder = os.path.isdir(request.text)
        files = _files_below(request.text) if is_folder else [Path(request.text)]
        if is_folder and _is_environment(request.text):
            why = f"it is a Python environment; --against {request.text} asks the SGLang in it"
            yield request.text, _unreadable(request.text, why)
            continue
        if not files:
            yield request.text, _unreadable(request.text, "there is no .yaml or .json file in it")
        for file in files:
            problem = link_problem(file, Path(request.text)) if is_folder else None
            if problem is not None:
                yield shown_path(str(file)), _unreadable(shown_path(str(file)), problem)
                continue
            try:
                yield shown_path(str(file)), read_document(file)
            except _OtherKind as failure:
                if not is_folder:
                    yield shown_path(str(file)), failure
            except ConfigError as failure:
                yield shown_path(str(file)), failure


def read_document(file: Path) -> Document:
    """What one file stands for.

    YAML is a mapping of arguments and groups (``gpu: h100``, ``tp_size: 8``), or an experiment with a defaults list
    (``- override /gpu: h100``); in a folder named like a group it is an option of it, unless it names a GPU or a model.
    JSON is a plan.
    Raises ConfigError naming the file, and the line where there is one.
    """
    try:
        content = read_text(file, RECORD_BYTES if file.suffix == ".json" else CONFIG_BYTES)
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8 text"
        raise _unreadable(shown_path(str(file)), str(reason)) from failure
    return _from_plan(file, content) if file.suffix == ".json" else Document(read_yaml(file, content))


def _files_below(folder: str) -> list[Path]:
    """Nothing from hidden folders (.git, .github) and Python environments: no launch file lies there."""
    found: list[Path] = []
    for here, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        if _is_environment(here):
            inner.clear()
            continue
        found += [Path(here, name) for name in names if name.endswith(_SUFFIXES)]
    return sorted(found)


def _is_environment(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def read_yaml(file: Path, content: str) -> list[Request]:
    """What ``content`` asks for, read as the YAML of ``file``. Raises ConfigError as ``read_document`` does."""
    import yaml

    from sglang_hydra.compose.hydra_internals import yaml_loader

    name = shown_path(str(file))
    if text_is_too_much(content):
        raise _unreadable(name, TOO_MUCH)
    try:
        loaded = yaml.load(content, Loader=yaml_loader())
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise _unreadable(f"{name}{place}", f"it is no YAML: {failure.problem}") from failure
    except (yaml.YAMLError, ValueError, RecursionError) as failure:
        raise _unreadable(name, f"it is no YAML: {failure}") from failure
    if not isinstance(loaded, Mapping):
        what = "nothing" if loaded is None else f"a {type(loaded).__name__}"
        raise _unreadable(name, f"it holds {what}, not a mapping of arguments")
    lines = key_lines(str(file))
    group = file.absolute().parent.name
    group = group if group in NODES and not _names_a_server(loaded, group) else ""
    requests = list(_from_defaults(name, loaded.get("defaults") or [], lines.get(("defaults",), 1), group))
    for key, value in loaded.items():
        if group and key != "defaults":
            place = f"{name}:{lines.get((str(key),), 1)}"
            requests.append(Request.typed(f"{group}.{key}", value, place, group, interpolate=True))
        elif key not in ("defaults", "hydra"):
            requests += _flattened(name, (str(key),), value, lines)
    return requests


def _names_a_server(loaded: Mapping[Any, Any], group: str) -> bool:
    """Whether a file in a folder that happens to be called like a group (``launch/``) says what to serve, or where:
    no option of a group does."""
    return bool({"gpu", "model", "recipe"} & set(loaded)) or ("model_path" in loaded and group != "model")


def _from_defaults(name: str, entries: Any, line: int, group: str) -> Iterator[Request]:
    """The choices of a defaults list; in an option of ``group`` a bare name is another option of it.

    Raises ConfigError for an entry that only composing it in place can follow.
    """
    for entry in entries if isinstance(entries, list) else [entries]:
        if entry == "_self_" or entry == "sglang_hydra_schema":
            continue
        if group and isinstance(entry, str):
            entry = {group: entry}
        if not isinstance(entry, Mapping) or any(isinstance(option, (list, dict)) for option in entry.values()):
            raise _unreadable(f"{name}:{line}", f"the entry {entry!r} of its defaults list includes another config")
        for group, option in entry.items():
            words = str(group).split()
            yield Request(
                f"{words[-1].lstrip('/')}={'null' if option is None else option}", f"{name}:{line}", "experiment"
            )


def _flattened(name: str, keys: tuple[str, ...], value: Any, lines: Mapping[tuple[str, ...], int]) -> list[Request]:
    """``gpu: {count: 4}`` is ``gpu.count=4``; a group's name with a word is the choice of its option."""
    if keys[0] in NODES and isinstance(value, Mapping) and len(keys) == 1:
        return [item for key, inner in value.items() for item in _flattened(name, (*keys, str(key)), inner, lines)]
    place = f"{name}:{lines.get(keys, 1)}"
    return [Request.typed(".".join(keys), value, place, "experiment", interpolate=True)]


def _from_plan(file: Path, content: str) -> Document:
    """A plan as its intent and the facts that it was made with."""
    try:
        saved = parse_plan(shown_path(str(file)), content)
    except OtherSchema as failure:
        raise _OtherKind(*_unreadable(failure.place, str(failure)).findings) from failure
    except NotAPlan as failure:
        raise _unreadable(failure.place, str(failure)) from failure
    plan = saved.record
    typed: dict[str, Any] = {
        "gpu": "none",
        "model": "unset",
        "engine": plan["engine"]["name"],
        "engine.version": plan["engine"]["version"],
        "ignore": sorted({finding["id"] for finding in plan["ignored"]}),
    }
    typed |= {f"engine.env.{variable}": value for variable, value in plan["environment"].items()}
    typed |= {f"extra.{name}": value for name, value in plan.get("extra", {}).items()}
    typed |= saved.intent
    return Document([Request.typed(key, value, saved.name, "lock") for key, value in typed.items()], saved.recorded)


def _unreadable(place: str, why: str) -> ConfigError:
    return ConfigError(Finding("error", "CLI017", f"{place} cannot be read: {why}"))
