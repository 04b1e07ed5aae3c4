"""Reads the table of SGLang's releases: arguments, old flags, variables, pages, commands and needs of each."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from sglang_hydra.arguments.tables.order import at_least, is_candidate_of, release_key, same_release
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject
from sglang_hydra.text.user_settings import settings_folder

Item = TypeVar("Item")


class Lazy(Mapping[str, Item]):
    """A read-only mapping that makes the value of a name at its first read, and keeps it."""

    def __init__(self, names: Collection[str], make: Callable[[str], Item]) -> None:
        self._names, self._make = names, make
        self._made: dict[str, Item] = {}

    def __getitem__(self, name: str) -> Item:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_FILE = Path(__file__).with_name("table.json")
PINNED_TABLES = "trusted_tables.json"
"""The file beside the user's settings with the tables of trusted releases."""


class Argument(NamedTuple):
    """One argument of one release. ``default`` is meaningless where it is ``required``; ``flags`` is empty where the
    command line lacks it; ``computed`` is the expression of a default that only the running release knows.

    ``type`` is an annotation (``int | None``), ``action`` argparse's (``store_true``, ``BooleanOptionalAction``),
    ``reader`` the function that reads the text of its value (``json.loads``)."""

    name: str
    type: str
    flags: tuple[str, ...]
    default: Json = None
    required: bool = False
    computed: str | None = None
    choices: tuple[Json, ...] | None = None
    nargs: str | None = None
    action: str | None = None
    const: object = None
    reader: str | None = None

    @property
    def flag(self) -> str | None:
        """Returns the flag to type, or None."""
        return self.flags[0] if self.flags else None


class OldFlag(NamedTuple):
    """A deprecated flag of a release: the field that it sets (None: it has no effect, or is ``refused`` with advice),
    the flag to use ``instead``, and the ``value`` that it sets. The rest is as in ``Argument``."""

    flag: str
    action: str
    field: str | None = None
    instead: str | None = None
    value: Json = None
    nargs: str | None = None
    choices: Sequence[Json] | None = None
    reader: str | None = None
    refused: bool = False

    @property
    def does_nothing(self) -> bool:
        """Returns whether the release accepts and ignores it."""
        return self.field is None and self.value is None and not self.refused


@dataclass(frozen=True)
class Release:
    """One release. ``flags`` lists the flags of each argument, its first one first. ``needs``: ``python`` (a
    specifier), ``packages`` by name, ``cuda``, ``driver``."""

    version: str
    arguments: Mapping[str, Argument] = field(repr=False)
    flags: Mapping[str, Sequence[str]] = field(repr=False)
    old_flags: Mapping[str, OldFlag] = field(repr=False)
    variables: frozenset[str] = field(repr=False)
    pages: frozenset[str] = field(repr=False)
    scripts: Mapping[str, str]
    needs: JsonObject


@functools.lru_cache(maxsize=1)
def rows() -> Sequence[JsonObject]:
    """Returns the table as written: the first release whole, each later one as its changes. Oldest first."""
    content = json.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(content["releases"])


@functools.lru_cache(maxsize=1)
def known_versions() -> tuple[str, ...]:
    """Returns every release of the table, oldest first."""
    return tuple(row["version"] for row in rows())


def pinned_rows() -> Mapping[str, JsonObject]:
    """Returns the rows of releases that the user trusts, each as its differences from the release ``near``: by version,
    without those of the table. A file that others can write is ignored."""
    folder = settings_folder()
    path = "" if folder is None else os.path.join(folder, PINNED_TABLES)
    try:
        state = os.stat(path)
    except OSError:
        return {}
    is_ours = state.st_uid in (os.getuid(), 0) and not state.st_mode & 0o022
    return _read_pinned(path, state.st_mtime_ns) if is_ours else {}


@functools.lru_cache(maxsize=4)
def _read_pinned(path: str, time_ns: int) -> Mapping[str, Mapping[str, object]]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {version: row for version, row in content.items() if version not in known_versions()}


def nearest_known(version: str) -> str | None:
    """Returns ``version`` itself, also where its table was read from its wheel; else the release that it is a candidate
    for (0.5.3rc1), else the last one of the table before it.

    None for a version older than all of them, or no version."""
    near = nearest_recorded(version)
    return version if near != version and version in pinned_rows() else near


@functools.lru_cache(maxsize=64)
def nearest_recorded(version: str) -> str | None:
    """Returns the nearest release of the table alone, without the user's trusted ones."""
    key = release_key(version)
    if key is None:
        return None
    final = next((known for known in known_versions() if is_candidate_of(version, known)), None)
    if final is not None:
        return final
    earlier = [known for known in known_versions() if (release_key(known) or key) <= key]
    return earlier[-1] if earlier else None


@functools.lru_cache(maxsize=64)
def release(version: str) -> Release:
    """Returns a release of the table, or one that the user trusts. Raises KeyError for any other."""
    pinned = pinned_rows().get(version) if version not in known_versions() else None
    rest = _rest(pinned["near"] if pinned else version)
    arguments, old = raw_tables(version)
    return Release(
        version,
        Lazy(arguments, lambda name: _argument(name, arguments[name])),
        {name: typed_flags(name, spec) for name, spec in arguments.items()},
        {flag: OldFlag(flag, **spec) for flag, spec in old.items()},
        *rest,
    )


def raw_tables(version: str) -> tuple[dict[str, JsonDict], dict[str, JsonDict]]:
    """Returns the arguments and the old flags of a release as written, by name. Raises KeyError like ``release``."""
    arguments: dict[str, JsonDict] = {}
    old: dict[str, JsonDict] = {}
    if version not in known_versions():
        row = pinned_rows()[version]
        arguments, old = raw_tables(row["near"])
        for state, change in ((arguments, row["arguments"]), (old, row["old_flags"])):
            for name in change["removed"]:
                del state[name]
            state.update(change["added"] | change["changed"])
        return arguments, old
    for row in rows():
        _apply(arguments, row.get("arguments", {}))
        _apply(old, row.get("old_flags", {}))
        if row["version"] == version:
            break
    return arguments, old


def _rest(version: str) -> tuple[frozenset[str], frozenset[str], Mapping[str, str], JsonObject]:
    """Returns the variables, the pages, the commands and the needs of a release of the table."""
    variables: set[str] = set()
    pages: set[str] = set()
    scripts: Mapping[str, str] = {}
    needs: JsonObject = {}
    for row in rows():
        for have, key in ((variables, "variables"), (pages, "pages")):
            have.difference_update(row.get(key, {}).get("removed", ()))
            have.update(row.get(key, {}).get("added", ()))
        scripts, needs = row.get("scripts", scripts), row.get("needs", needs)
        if row["version"] == version:
            return frozenset(variables), frozenset(pages), scripts, needs
    raise KeyError(version)


@functools.lru_cache(maxsize=1)
def all_arguments() -> Mapping[str, Argument]:
    """Returns each argument of any release, as the newest release that has it describes it."""
    state: dict[str, JsonDict] = {}
    for row in (*rows(), *pinned_rows().values()):
        changes = row.get("arguments", {})
        _apply(state, {key: changes[key] for key in ("added", "changed") if key in changes})
    return Lazy(state, lambda name: _argument(name, state[name]))


@functools.lru_cache(maxsize=1)
def every_variable() -> frozenset[str]:
    """Returns the exact name of every environment variable that the code of some release reads."""
    return frozenset(name for row in rows() for name in row.get("variables", {}).get("added", ()))


def _apply(state: dict[str, dict[str, object]], change: JsonObject) -> None:
    for name in change.get("removed", ()):
        del state[name]
    for name, spec in change.get("added", {}).items():
        state[name] = dict(spec)
    for name, spec in change.get("changed", {}).items():
        made = {key: value for key, value in state[name].items() if key not in spec.get("without", ())}
        state[name] = {**made, **{key: value for key, value in spec.items() if key != "without"}}


def _flags(name: str, spec: JsonObject) -> tuple[str, ...]:
    return tuple(spec["flags"]) if "flags" in spec else ("--" + name.replace("_", "-"),)


def typed_flags(name: str, spec: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the flags of an argument, including those that turn it off."""
    own = _flags(name, spec)
    pair = spec.get("action") == "BooleanOptionalAction"
    return tuple(word for flag in own for word in (flag, f"--no-{flag[2:]}")) if pair else own


def _argument(name: str, spec: JsonObject) -> Argument:
    default = spec.get("default")
    computed = default["computed"] if isinstance(default, dict) and "computed" in default else None
    choices = spec.get("choices")
    return Argument(
        name=name,
        type=spec["type"],
        flags=_flags(name, spec),
        default=None if computed else default,
        required="default" not in spec,
        computed=computed,
        choices=None if choices is None else tuple(choices),
        nargs=spec.get("nargs"),
        action=spec.get("action"),
        const=spec.get("const"),
        reader=spec.get("reader"),
    )


def first_release_of(architectures: Iterable[str]) -> str | None:
    """Returns the first release with a class for one of ``architectures``, or None."""
    names = frozenset(architectures)
    return next((version for version, classes in _classes().items() if names & classes), None)


def has_class(version: str, architectures: Iterable[str]) -> bool | None:
    """Returns whether ``version`` has a class for one of ``architectures``; SGLang uses the first one that it has
    (models/registry.py, resolve_model_cls).

    None where that is unknown: no version, one before the table, or a class that the table lacks in a version after its
    last row."""
    rows = _rows_until(version)
    if not rows:
        return None
    has = bool(_classes()[rows[-1]] & frozenset(architectures))
    return None if not has and len(rows) == len(_classes()) and not same_release(version, rows[-1]) else has


@functools.lru_cache(maxsize=64)
def _rows_until(version: str) -> tuple[str, ...]:
    return tuple(row for row in _classes() if at_least(version, row) or is_candidate_of(version, row))


def last_release() -> str:
    """Returns the last release that changed any class."""
    return list(_classes())[-1]


@functools.lru_cache(maxsize=1)
def _classes() -> Mapping[str, frozenset[str]]:
    """Returns all classes by each release that changed any, oldest first.

    tools/read_releases.py writes architectures.json: by release, the added and removed classes, from EntryClass in each
    file of the release's srt/models."""
    rows = json.loads(Path(__file__).with_name("architectures.json").read_text(encoding="utf-8"))
    made: dict[str, frozenset[str]] = {}
    now: frozenset[str] = frozenset()
    for version, row in rows.items():
        now = (now - frozenset(row.get("removed", ()))) | frozenset(row.get("added", ()))
        made[version] = now
    return made
