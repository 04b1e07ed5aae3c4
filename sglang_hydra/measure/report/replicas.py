"""Computes the replicas for an arrival rate from the highest rate that one replica sustained within its SLO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sglang_hydra.measure.report.comparing import (
    THROUGHPUT,
    THROUGHPUT_PER_GPU,
    Group,
    Interval,
    Metric,
    grouped,
    meets_slo,
)
from sglang_hydra.measure.report.contents import slo_of
from sglang_hydra.measure.report.reading import SweepResults
from sglang_hydra.text.json_types import JsonDict

REQUESTS = Metric("request_throughput", "requests/s", True, "requests/s")
_VARIED = ("bench.concurrency", "bench.request_rate")


class Needed(NamedTuple):
    """The replicas of one server for one shape of requests. ``point`` is the measured point with the highest rate,
    ``sustained`` its mean requests/s, ``noise`` the 95 % interval of that (None without repeats). ``replicas`` suffice
    at the lower end of the interval, ``fewest`` at its upper end. ``gpus`` is the number per replica, None if unknown;
    ``is_open``: the requests arrived at their own times."""

    point: Group
    sustained: float
    noise: Interval | None
    replicas: int
    fewest: int
    gpus: int | None
    slo: str
    is_open: bool

    @property
    def words(self) -> str:
        return " ".join(self.point.first.words)

    @property
    def all_gpus(self) -> int | None:
        return None if self.gpus is None else self.gpus * self.replicas

    def to_json(self) -> JsonDict:
        return {
            "words": list(self.point.first.words),
            "server_id": self.point.first.server_id,
            "requests_per_s": self.sustained,
            "noise": None if self.noise is None else list(self.noise),
            "replicas": self.replicas,
            "fewest": self.fewest,
            "gpus": self.all_gpus,
            "slo": self.slo,
            "open_loop": self.is_open,
        }


def needed(sweeps: Sequence[SweepResults], rate: float) -> list[Needed]:
    """Returns the replicas of each measured server, sorted by GPUs, then by replicas. Points with an SLO count only if
    every repeat met it."""
    best: dict[object, Needed] = {}
    for group in grouped(row for sweep in sweeps for row in sweep.rows):
        slo, sustained = slo_of(group), group.mean(REQUESTS)
        if not sustained or (slo and not meets_slo(group)):
            continue
        shape = {key: repr(value) for key, value in group.first.settings.items() if key.startswith("bench.")}
        key = (group.first.server_id, *sorted((name, value) for name, value in shape.items() if name not in _VARIED))
        if key not in best or sustained > best[key].sustained:
            best[key] = _needed(group, sustained, rate, slo)
    return sorted(best.values(), key=lambda item: (item.all_gpus or math.inf, item.replicas, -item.sustained))


def _needed(group: Group, sustained: float, rate: float, slo: str) -> Needed:
    noise = group.interval(REQUESTS)
    low, high = noise or (sustained, sustained)
    whole, each = group.mean(THROUGHPUT), group.mean(THROUGHPUT_PER_GPU)
    gpus = round(whole / each) if whole and each else None
    # An interval that reaches zero sustains nothing: then only the mean helps.
    replicas = math.ceil(rate / (low if low > 0 else sustained))
    is_open = group.first.settings.get("bench.request_rate") is not None
    return Needed(group, sustained, noise, replicas, math.ceil(rate / high), gpus, slo, is_open)
