"""Files of cases: reading, writing and comparing them."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from recording.environment import RecorderError

HARDWARE = ("device", "memory_mib", "capability", "flashinfer", "triton_kernels")
# What each kind of case has beside its id and the key that tells its kind.
KINDS = {
    "args": ("hardware", "hf_config"),
    "argv": ("hardware", "hf_config"),
    "available": ("args", "dp_rank", "randint"),
}
Pairs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]  # (what was read, what the release does)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a .jsonl or .jsonl.gz file as {"case", ...}; a bare case is taken too."""
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise RecorderError(f"{path} cannot be read: {error}") from error
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            lines.append(_parse(line, f"{path}:{number}"))
    return lines


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise RecorderError(f"{place}: not JSON: {error}") from error
    entry = value if isinstance(value, dict) and "case" in value else {"case": value}
    case = entry["case"]
    if not isinstance(case, dict) or "id" not in case:
        raise RecorderError(f"{place}: a case is an object with an id")
    kind = next((kind for kind in ("available", "argv", "args") if kind in case), None)
    if kind is None:
        raise RecorderError(f"{place}: case {case['id']} has neither args nor argv")
    missing = [name for name in KINDS[kind] if name not in case]
    missing += [f"hardware.{name}" for name in HARDWARE if name not in case.get("hardware", HARDWARE)]
    if missing:
        raise RecorderError(f"{place}: case {case['id']} lacks {', '.join(missing)}")
    return entry


def write(path: Path, text: str) -> None:
    """Write a whole file or nothing; compressed where its name ends in .gz."""
    content = text.encode("utf-8")
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
        draft.replace(path)
    except OSError as error:
        raise RecorderError(f"{path} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def refusals(pairs: Pairs) -> list[str]:
    """One line for each reason why cases could not be recorded, with how many they are."""
    reasons: dict[str, list[str]] = {}
    for entry, outcome in pairs:
        if "refused" in outcome:
            reasons.setdefault(outcome["refused"], []).append(entry["case"]["id"])
    return [f"{len(ids)} cases not recorded, {ids[0]} is the first: {reason}" for reason, ids in reasons.items()]


def differences(pairs: Pairs, ignored: Collection[str]) -> list[str]:
    """One line for each case whose outcome is not the one that it holds, then the count for each key.

    `ignored` keys may differ. Empty where all are equal.
    """
    lines, keys = [], Counter[str]()
    for entry, outcome in pairs:
        expected = entry["expected"]
        differing = [key for key in {**expected, **outcome} if key not in ignored and not _same(expected, outcome, key)]
        if differing:
            texts = [f"{key}: held {expected.get(key)!r}, now {outcome.get(key)!r}" for key in differing]
            lines.append(f"{entry['case']['id']}: {'; '.join(texts)}")
            keys.update(differing)
    counts = ", ".join(f"{key} in {count}" for key, count in keys.most_common())
    return [*lines, f"{len(lines)} cases differ: {counts}"] if lines else []


def _same(expected: Mapping[str, Any], outcome: Mapping[str, Any], key: str) -> bool:
    # As JSON: there 1, 1.0 and true are three values, and a missing key is not null.
    return all(key in each for each in (expected, outcome)) and _json(expected[key]) == _json(outcome[key])


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
