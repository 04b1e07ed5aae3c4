"""Decides which programs planning may start: typed ones, and those that the user's settings trust.

A program that another file names is not started, and no code is imported from its path. The default is to refuse: every
place that starts an interpreter asks here. ``serve`` and ``bench`` grant the programs of their plan when they begin to
run it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sglang_hydra.facts.environments import environment_settings, find_python
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import conf_dir, shown_path
from sglang_hydra.text.origins import Named, Origin
from sglang_hydra.text.user_settings import Allowed, settings

if TYPE_CHECKING:
    from sglang_hydra.facts.hub import Access

TYPED = ("cli", "schema")
_PLAIN = re.compile(r"(?:[^$]|\$(?!\{)|\$\{oc\.env:[^${}]*\})*", re.DOTALL)
"""Text whose interpolations read only variables, not keys: a file could set a key."""

SEC001 = "SEC001"
"""The finding for a program that a file names and that was not started."""

_granted: set[str] = set()


def is_trusted(origin: Origin) -> bool:
    """Returns whether the user typed the value of ``origin``, or it is from our own conf/ or schema."""
    if origin.file is not None:
        return os.path.realpath(origin.file).startswith(os.path.realpath(conf_dir()) + os.sep)
    plain = not isinstance(origin.value, str) or _PLAIN.fullmatch(origin.value) is not None
    return origin.layer in TYPED and plain


def grant(*pythons: str | None) -> None:
    """Allows this process to start these interpreters."""
    _granted.update(exact_path(python) for python in pythons if python)


def grant_typed(programs: Iterable[Named]) -> None:
    """Grants the programs that were typed or that the user's own app files name."""
    grant(*(named.program for named in programs if named.is_of_app or is_trusted(named.origin)))


def may_start(python: str | None) -> bool:
    """Returns whether an interpreter may be started: ours, a granted one, or one that the settings trust.

    Raises ConfigError for wrong settings."""
    if not python:
        return True
    path = exact_path(python)
    return path == os.path.abspath(sys.executable) or path in _granted or trusting_folder(path) is not None


def is_granted(path: str) -> bool:
    """Returns whether an interpreter was granted to this process."""
    return path in _granted


def trusting_folder(path: str) -> Allowed | None:
    """Returns the trusted folder that contains an interpreter, with every link in its path resolved; else None.

    The python of a virtual environment is a link out of the folder: it is trusted where the pyvenv.cfg in the trusted
    folder names the link's target as the environment's base."""
    folder = settings().trusts(os.path.dirname(path))
    if folder is None or settings().trusts(path) is not None:
        return folder
    home = environment_settings(path).get("home")
    made_from = os.path.realpath(home) if home else None
    return folder if os.path.dirname(os.path.realpath(path)) == made_from else None


def begin_to_start(programs: Mapping[str, Named]) -> list[str]:
    """Grants the programs that files name, because they start now. Returns a line for each new one."""
    new = {key: named for key, named in programs.items() if not may_start(named.program)}
    grant(*(named.program for named in new.values()))
    return [f"Starting {key}={named.program}, named by {named.origin.place}" for key, named in new.items()]


def refused_search_path(file: str, paths: Iterable[str], was_typed: bool) -> Finding | None:
    """Returns the finding on ``hydra.searchpath`` in a primary config that is neither ours nor in a trusted folder, or
    None. A ``pkg://`` path is refused because searching it imports the package; a folder outside the config's own is
    refused unless the path was typed."""
    home = os.path.dirname(os.path.realpath(file))
    for path in paths:
        scheme, _, rest = path.rpartition("://")
        real = os.path.realpath(os.path.join(os.path.dirname(file), rest))
        inside = scheme in ("", "file") and (was_typed or real == home or real.startswith(home + os.sep))
        if not inside and not real.startswith(os.path.realpath(conf_dir())) and settings().trusts(file) is None:
            why = "it is a package, which would be imported" if scheme == "pkg" else "it leaves the folder of the file"
            place = Origin("", None, file=file, keys=("hydra", "searchpath")).place
            message = f"{place}: hydra.searchpath names {path}: {why}"
            folder = shown_path(os.path.dirname(os.path.abspath(file)))
            hint = f"'hydra.searchpath=[{path}]' on the command line", f"--trust {folder}"
            return Finding("error", "SEC002", message, ("hydra.searchpath",), hint)
    return None


def hub_access(origin: Origin | None, *, of_app: bool = False) -> Access:
    """Returns the access to the hub for a model that ``origin`` names: with the user's token where it was typed, else
    anonymous unless the user's settings say otherwise. Raises ConfigError for wrong settings."""
    from sglang_hydra.facts.hub import OWN, Access

    if of_app or origin is None or is_trusted(origin):
        return OWN
    allowed = settings()
    if not allowed.may_fetch and allowed.fetch is not None:
        why = f"a file names the model, and fetch is off ({allowed.fetch.place})"
        return Access(token=False, fetch=False, why=why)
    if allowed.may_use_token and allowed.hub_token is not None:
        return Access(note=f" with your token, as {allowed.hub_token.place} allows")
    return Access(token=False)


def exact_path(python: str) -> str:
    """Returns the absolute path of the program ``python``, with links kept."""
    return find_python(python) or os.path.abspath(os.path.expanduser(python))
