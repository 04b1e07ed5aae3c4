"""What the folder keeps of a point, whoever writes it: which one it is, and why it brought no measurement."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Why a point brought no measurement: the class of the failure, what was said of it, and the end of the server's
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
