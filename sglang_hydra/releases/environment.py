"""Where an environment has SGLang and the libraries that its argument code needs. Nothing of it is run."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.facts.installed import interpreter_paths
from sglang_hydra.releases.records import Record, nearest_record, records


class NotRecorded(Exception):
    """The environment has nothing that can be asked; the text is why, in a clause."""


@dataclass(frozen=True)
class Installation:
    """An installed release. ``places`` are the folders that have it and its libraries, its own one first;
    ``interpreter`` runs it: ours, or that of the environment where ours cannot load its compiled libraries."""

    record: Record
    places: tuple[Path, ...]
    interpreter: str


def installed_release(python: str, version: str) -> Installation:
    """The SGLang ``version`` of the environment of ``python``, with the real parts of the nearest record. Raises
    NotRecorded for a release that is older or newer than the records, and where files are missing."""
    known = nearest_record(version)
    newest, mine = release_key(list(records())[-1]), release_key(version)
    if known is None or newest is None or mine is None or mine[0] > newest[0]:
        recorded = list(records())
        raise NotRecorded(f"SGLang {version} is not recorded here: {recorded[0]} to {recorded[-1]} are")
    folders = list(dict.fromkeys(Path(folder).resolve() for folder in interpreter_paths(python)))
    home = next((folder for folder in folders if (folder / "sglang" / "srt").is_dir()), None)
    if home is None:
        raise NotRecorded("its environment has no files of the package sglang")
    present = tuple(wheel for wheel in known.libraries if _folders_of(wheel.name, folders))
    missing = [wheel.name for wheel in known.libraries if wheel.name == "transformers" and wheel not in present]
    if missing:
        raise NotRecorded(f"its environment has no {missing[0]}")
    others = [
        folder for name in ("sglang", *(wheel.name for wheel in present)) for folder in _folders_of(name, folders)
    ]
    places = tuple(dict.fromkeys([home, *others]))
    compiled = {file.name.partition(".")[2] for folder in places for file in folder.glob("msgspec/*.so")}
    ours = not compiled or any(f".{suffix}" in importlib.machinery.EXTENSION_SUFFIXES for suffix in compiled)
    return Installation(replace(known, version=version, libraries=present), places, sys.executable if ours else python)


def _folders_of(name: str, folders: Sequence[Path]) -> list[Path]:
    wanted = (f"{name}/__init__.py", f"{name}.py", f"{name}-*.dist-info/METADATA")
    return [folder for folder in folders if any(any(folder.glob(pattern)) for pattern in wanted)]
