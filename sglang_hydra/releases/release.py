"""Asks a release for the values of command lines, by its own code: from the cache of answers, else from a child.

The code is that of unpacked wheels, or of an environment that has the release; nothing there is imported here."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.facts.installed import interpreter_paths
from sglang_hydra.releases import answers, wheels
from sglang_hydra.releases.case import ASSUMED, Case
from sglang_hydra.releases.fetching import progress_if_allowed
from sglang_hydra.releases.process import ChildFailed, Incomplete, child_for, end_children
from sglang_hydra.releases.records import Record, nearest_record, not_recorded, record_of, records
from sglang_hydra.rules.answer import Answer, answer_of
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside

_MIB = 1 << 20


def can_answer(version: str) -> bool:
    """Returns whether the release is recorded and its wheels are here."""
    record = record_of(version)
    return record is not None and not wheels.missing(record)


def ask_release(version: str, cases: Sequence[Case], *, use_kept: bool = True, why: bool = False) -> list[Answer]:
    """Returns a release's answer to each case, in their order; with ``why`` also the reasons. Fetches nothing. Raises
    MachineError: REL001 for a release without a record, REL004 if its wheels are not here and an answer is not kept."""
    return [answer_of(raw) for raw in raw_answers(_recorded(version), cases, use_kept=use_kept, why=why)]


def raw_answers(
    record: Record, cases: Sequence[Case], *, use_kept: bool = True, why: bool = True
) -> Iterator[JsonDict]:
    """Yields the answers as the child writes them. Raises like ``ask_release``."""
    for case in cases:
        asked = {**case.to_json(), **({"why": True} if why else {})}
        key = answers.answer_key(record.fingerprint, asked)
        raw = answers.kept_answer(key) if use_kept else None
        if raw is None:
            raw = _asked(record, _places(record), asked)
            if use_kept and "failed" not in raw:
                answers.keep_answer(key, raw)
        yield raw


def ask_installed(python: str, version: str, cases: Sequence[Case], *, why: bool = False) -> list[Answer]:
    """Returns the answer of an environment's SGLang to each case, by its own files; ``version`` is that of its
    metadata. Its interpreter ``python`` runs them only if ours cannot load its compiled libraries. Keeps no answer."""
    try:
        there = installed_release(python, version)
    except NotRecorded as failure:
        return [Answer(None, unanswered=str(failure))] * len(cases)
    reasons = {"why": True} if why else {}
    asked = ({**case.to_json(), **reasons} for case in cases)
    return [answer_of(_asked(there.record, there.places, case, there.interpreter)) for case in asked]


def prepare(version: str) -> None:
    """Runs a release once, so that its byte code exists for the next start. Raises MachineError like ``ask_release``,
    and REL005 if it does not run here."""
    case = Case(("--model-path", "tiny"), PLAIN_MACHINE, {"tiny": TINY})
    (raw,) = raw_answers(_recorded(version), [case], use_kept=False, why=False)
    end_children()  # they keep the byte code
    if "failed" in raw:
        raise MachineError.of("REL005", f"SGLang {version} does not run here: {raw['failed']}")


_TABLE: JsonObject = json_beside(__file__)
PLAIN_MACHINE: JsonObject = {**_TABLE["machine"], "assumed": dict(ASSUMED)}
TINY: JsonObject = _TABLE["tiny"]
LATENT: JsonObject = {**TINY, **_TABLE["latent"]}
MACHINES: Sequence[JsonObject] = [PLAIN_MACHINE, *({**PLAIN_MACHINE, **other} for other in _TABLE["machines"])]
"""Two small models, and four kinds of machine: for a first run, and for what a new release asks."""


def _recorded(version: str) -> Record:
    record = record_of(version)
    if record is None:
        raise MachineError(not_recorded(version))
    return record


def _places(record: Record) -> list[Any]:
    missing = wheels.missing(record)
    if missing:
        size = wheels.download_size(record) / _MIB
        message = f"SGLang {record.version} is not here: {len(missing)} wheels, {size:.1f} MiB"
        raise MachineError.of("REL004", message, hint=f"sglang-hydra release fetch {record.version}")
    return [wheels.place_of(wheel) for wheel in record.wheels]


def _asked(record: Record, places: Sequence[Path], case: JsonObject, python: str | None = None) -> dict[str, object]:
    try:
        answer = child_for(record, places, case["machine"], python).ask(case)
    except Incomplete as failure:
        progress = progress_if_allowed()
        if progress is None:
            return {"failed": f"{failure}; without --offline it is"}
        wheels.complete(record, failure.names, progress)
        return _asked(record, places, case, python)
    except ChildFailed as failure:
        return {"failed": str(failure)}
    answer.pop("id", None)
    return answer


class NotRecorded(Exception):
    """The environment has no SGLang that can be asked; the text is the reason, in a clause."""


@dataclass(frozen=True)
class Installation:
    """An installed release. ``places`` are its folder and those of its libraries, its own first; ``interpreter`` runs
    it: our own, or that of the environment if ours cannot load its compiled libraries."""

    record: Record
    places: tuple[Path, ...]
    interpreter: str


def installed_release(python: str, version: str) -> Installation:
    """Returns the SGLang ``version`` of the environment of ``python``, with the real parts of the nearest record.
    Raises NotRecorded for a release that is older or newer than the records, and for missing files."""
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
