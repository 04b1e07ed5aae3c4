"""The records of a sweep's folder: what is written of a point, and whether a record has what its readers need.

Each kind of record has a JSON Schema that says more; a validator is no part of the core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from sglang_hydra.measure.sweep.points import Point
from sglang_hydra.text.errors import SglangHydraError


def planned_record(point: Point) -> dict[str, Any]:
    """Which measurement a point of the plan, or a step of a search, is."""
    return {
        "server_id": point.server_id,
        "workload_id": point.workload_id,
        "repeat": point.repeat,
        "words": list(point.words),
    }


def point_record(point: Point) -> dict[str, Any]:
    """Which measurement a point is, and its load."""
    return {**planned_record(point), "workload": dict(point.workload)}


def failure_record(
    point: Point, kind: str, error: SglangHydraError, *, retryable: bool, final: bool, log_tail: Sequence[str] = ()
) -> dict[str, Any]:
    """Why a point brought no measurement: the class of the failure, its findings, and the end of the server's
    log. ``final``: it is not tried again in this run."""
    return {
        **point_record(point),
        "kind": kind,
        "retryable": retryable,
        "findings": [finding.to_json() for finding in error.findings],
        "log_tail": list(log_tail),
        "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "final": final,
    }


_STATES = ("valid", "invalid")
_NEEDED: Mapping[str, Mapping[str, type]] = {
    "sweep": {"words": list, "shared": list, "points": dict, "servers": dict},
    "result": {"state": str, "reasons": list, "measures": dict},
    "failure": {"kind": str, "final": bool},
    "search": {"planned": str, "over": bool, "steps": dict},
}
_POINT = {"server_id": str, "workload_id": str, "repeat": int, "words": list}
_POINTS = {"sweep": "points", "search": "steps"}
_OBJECTS = ("workload", "client", "machine")
"""What a result may leave out, and has keys of its own where it is there."""
_TEXTS = ("words", "shared", "config_dirs", "reasons")
_REFUSED: Mapping[str, type] = {"id": str, "count": int, "words": list, "message": str}
_LARGEST = 1e300


def shape_problem(record: Mapping[str, Any], schema: str) -> str | None:
    """Returns what in a record does not fit ``schema`` (``sglang_hydra.result/1``); None for a good one."""
    kind = schema.partition(".")[2].partition("/")[0]
    return _unlike(record, _NEEDED[kind]) or next(_part_problems(record, kind), None)


def _part_problems(record: Mapping[str, Any], kind: str) -> Iterator[str]:
    if kind == "result":
        if record["state"] not in _STATES:
            yield f"its state is {record['state']!r}"
        yield from _no_numbers(record["measures"], "measures")
        yield from (
            _named_value(name, record[name])
            for name in _OBJECTS
            if record.get(name) is not None and not isinstance(record[name], dict)
        )
    yield from (_named_value(name, record[name]) for name in _TEXTS if not _are_texts(record.get(name, [])))
    for id, point in record[_POINTS[kind]].items() if kind in _POINTS else ():
        problem = _unlike(point, _POINT)
        if problem or not _are_texts(point["words"]):
            yield f"of point {id}, {problem or _named_value('words', point['words'])}"
    for item in record.get("refused") or () if kind == "sweep" else ():
        problem = _unlike(item, _REFUSED)
        if problem:
            yield f"of what was refused, {problem}"


def _no_numbers(values: Mapping[str, Any], path: str) -> Iterator[str]:
    """What is neither a number that can be computed with, nor null, nor an object of such, as latencies are."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _no_numbers(value, f"{path}.{name}")
        elif value is not None and (name.endswith("_ms") or not _is_number(value)):
            yield _named_value(f"{path}.{name}", value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < _LARGEST


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _unlike(record: Any, shape: Mapping[str, type]) -> str | None:
    if not isinstance(record, dict):
        return "it is no object"
    for name, kind in shape.items():
        if name not in record:
            return f"it lacks {name!r}"
        if not isinstance(record[name], kind):
            return _named_value(name, record[name])
    return None


def _named_value(name: str, value: Any) -> str:
    return f"{name} is {value!r}"[:100]
