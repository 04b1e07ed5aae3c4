"""Finds the releases of an upgrade, and their differences outside the arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import at_least, is_candidate_of, release_key, same_release
from sglang_hydra.arguments.tables.table import Release, known_versions, nearest_known, release
from sglang_hydra.releases.records import release_named as release_meant
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.words import nearest, program, short, some_of

_NUMBER = re.compile(r"\d+\.\d+\.\d+(?:[.-]?(?:post|rc|dev)\d+)?")
_FAMILY = re.compile(r"\d+\.\d+\b")


class Start(NamedTuple):
    """The release that a configuration was written for, from the table, with the reason. ``is_assumed``: nothing names
    it."""

    version: str
    why: str
    is_assumed: bool = False


def release_named(version: str | None, flag: str) -> str:
    """Returns the known release typed after ``flag``. Raises ConfigError, with the known releases, for another one."""
    known = known_versions()
    if version is None:
        newest = Remedy(f"{program()} upgrade --to {known[-1]} ...", flag=f"--to={known[-1]}")
        hint = newest, f"{program()} release list shows all {len(known)}"
        raise ConfigError(Finding("error", "UPG001", "upgrade to which release?", hint=hint))
    spelled, version = version, release_meant(version)
    found = nearest_known(version)
    if found is not None and (same_release(found, version) or is_candidate_of(version, found)):
        return found
    message = f"{flag} {short(spelled, 40)} is no release that is known here"
    meant = _meant(version) or (known[0] if flag == "--to" else None)
    is_sure = release_key(version) is None or nearest(version, known) == meant  # 0.5.99 may be any release
    word = f"{flag} {meant}" if meant else None
    hints = None if is_sure else word, f"releases are {some_of(version, reversed(known), f'{program()} release list')}"
    fix = word if is_sure else None
    raise ConfigError(Finding("error", "UPG001", message, hint=hints, typed=(flag, spelled), fix=fix))


def _meant(version: str) -> str | None:
    """Finds the release that was meant; None for one older than the table."""
    known = known_versions()
    if release_key(version) is not None:
        return nearest_known(version)
    return nearest(version, known) or known[-1]


def started_from(written_for: str | None, by: str) -> Start | None:
    """Converts a source's own statement (``0.5.6+``, ``>=0.5.0rc2``, ``0.5.x``) to a release of the table.

    A release older than the table becomes its first one; None for a statement without a release."""
    if not written_for:
        return None
    number = _NUMBER.search(written_for) or _FAMILY.search(written_for)
    if number is None:
        return None
    found = nearest_known(number[0].replace("-", "."))
    why = f"{by} was written for {short(written_for, 40)}"
    if found is None:
        return Start(known_versions()[0], f"{why}, which is older than the table")
    return Start(found, why)


def assumed_start(meant: str, arguments: Iterable[str]) -> Start:
    """Returns the release of a configuration that names none: ``meant``, the one it is planned for, if that has all of
    its ``arguments``; else the newest one that has them."""
    meant = nearest_known(meant) or known_versions()[-1]
    wanted = {name for name in arguments if any(name in release(version).arguments for version in known_versions())}
    if wanted.issubset(release(meant).arguments):
        return Start(meant, f"no release is named: it is planned for {meant}", True)
    fitting = (version for version in reversed(known_versions()) if wanted.issubset(release(version).arguments))
    newest = next(fitting, meant)
    return Start(newest, f"no release is named: {newest} is the newest with all of its arguments", True)


class Changes(NamedTuple):
    """The changes between two releases, independent of the configuration. ``names`` lists the ``added`` and ``removed``
    scripts, pages, variables and arguments; ``serve_since`` is the first release with ``sglang serve``, if only the
    later one of the two has it."""

    names: Mapping[str, Mapping[str, list[str]]]
    serve_since: str | None


def changes_between(old: str, new: str) -> Changes:
    """Compares the names of two releases. Raises KeyError for a release outside the table."""
    before, after = release(old), release(new)
    both: dict[str, tuple[Iterable[str], Iterable[str]]] = {
        "scripts": (_commands(before), _commands(after)),
        "pages": (before.pages, after.pages),
        "variables": (before.variables, after.variables),
        "arguments": (before.arguments, after.arguments),
    }
    names = {
        name: {"added": sorted(set(now) - set(then)), "removed": sorted(set(then) - set(now))}
        for name, (then, now) in both.items()
    }
    serve = None
    if "sglang" in after.scripts and "sglang" not in before.scripts:
        serve = next((version for version in known_versions() if "sglang" in release(version).scripts), None)
    return Changes(names, serve)


def _commands(known: Release) -> list[str]:
    """Returns the commands to type: ``sglang serve`` is a word of the program ``sglang``."""
    return [f"{name} serve" if name == "sglang" else name for name in known.scripts]


def direction(old: str, new: str) -> str:
    """Returns ``upgrade``, ``downgrade`` or ``same``."""
    if same_release(old, new):
        return "same"
    return "upgrade" if at_least(new, old) else "downgrade"
