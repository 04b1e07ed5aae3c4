"""The records of a sweep's folder: what is written of a point, and whether a record has what its readers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from sglang_hydra.measure.sweep.points import Point
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.text.record_shape import misfit

PLANNED = ("server_id", "workload_id", "repeat", "words")


def planned_record(point: Point) -> dict[str, Any]:
    """Returns which measurement a point of the plan, or a step of a search, is."""
    return {name: getattr(point, name) for name in PLANNED} | {"words": list(point.words)}


def point_record(point: Point) -> dict[str, Any]:
    """Returns which measurement a point is, and its load."""
    return {**planned_record(point), "workload": dict(point.workload)}


def failure_record(
    point: Point, kind: str, error: SglangHydraError, *, retryable: bool, final: bool, log_tail: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns why a point brought no measurement: the class of the failure, its findings, and the end of the server's
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


_NEEDED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sweep": {
        "": ("words", "shared", "points", "servers"),
        "points.*": PLANNED,
        "refused.*": ("id", "count", "words", "message"),
    },
    "result": {"": ("state", "reasons", "measures")},
    "failure": {"": ("kind", "final")},
    "search": {"": ("planned", "over", "steps"), "steps.*": PLANNED},
}
"""What the readers of each kind of record cannot do without."""


def shape_problem(record: Mapping[str, Any], schema: str) -> str | None:
    """Returns what in a record does not fit ``schema`` (``sglang_hydra.result/1``); None for a good one."""
    kind = schema.partition(".")[2].partition("/")[0]
    problem = misfit(kind, record, _NEEDED[kind])
    is_other = kind == "result" and problem is None and record["state"] not in ("valid", "invalid")
    return f"state is {record['state']!r}" if is_other else problem
