"""Sorts points by what they can be compared with: one workload has requests of one kind, whatever the concurrency or
the request rate. Names the servers of a report, and says which of them leads at each load."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from sglang_hydra.measure.report.comparing import ITL, TTFT, Best, Group, Metric, best, meets_slo

_LOADS = {"bench.concurrency": ("concurrency", ""), "bench.request_rate": ("requests/s", "/s")}
"""The settings that say how much load a point has: in words, and the unit beside a mark."""
_LENGTHS = ("bench.input_len", "bench.output_len")
_SLO_NAMES = {"ttft": "TTFT", "itl": "ITL", "e2e": "end-to-end"}
_LIMIT = re.compile(r"\s*(ttft|itl|e2e)(?:_ms)?\s*=\s*(\d+(?:\.\d+)?)\s*(ms|s|)\s*", re.IGNORECASE)


class Leader(NamedTuple):
    """The best server at one load, by each metric; None where nobody measured it."""

    load: str
    verdicts: tuple[Best | None, ...]


def workloads_of(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups by their workload in words, in the order of the first."""
    found: dict[tuple[tuple[str, str], ...], list[Group]] = {}
    for group in groups:
        found.setdefault(_shape(group), []).append(group)
    common = set(next(iter(found), ())).intersection(*found)
    differ = {item[0] for shape in found for item in shape if item not in common}
    return {_words(shape, differ): of for shape, of in found.items()}


def load_of_point(group: Group) -> tuple[float, str, str]:
    """How much load a point has: to sort by, as the label of its mark, and in words."""
    for key, (words, unit) in _LOADS.items():
        value = group.first.settings.get(key)
        if isinstance(value, (int, float)):
            return value, f"{value:g}{unit}", f"{words} {value:g}" if not unit else f"{value:g} {words}"
    return 0.0, "", ""


def key_of(word: str) -> str:
    """The key of an override."""
    return word.lstrip("+~").partition("=")[0].partition("@")[0]


def server_words(words: Sequence[str]) -> list[str]:
    """The overrides without those of the load, the sweep and Hydra."""
    return [word for word in words if re.split(r"[./]", key_of(word))[0] not in ("bench", "sweep", "hydra")]


def servers_of(groups: Sequence[Group]) -> dict[str, str]:
    """The name of each server by its id: what was typed for it beside the load, or else its model. Servers of one sweep
    never share a name; those of different sweeps that were typed alike do."""
    names: dict[str, str] = {}
    taken: dict[tuple[str, str], str] = {}
    for group in groups:
        row = group.first
        name = " ".join(server_words(row.words)) or str(row.settings.get("model_path", "the server"))
        if taken.setdefault((row.sweep, name), row.server_id) != row.server_id:
            name += f" ({row.server_id[:8]})"
        names.setdefault(row.server_id, name)
    return names


def leaders(groups: Sequence[Group], throughput: Metric) -> list[Leader]:
    """Who leads at each load that several servers have; nothing for a single server."""
    at = {id(group): load_of_point(group)[::2] for group in groups}
    loads = groupby(sorted(groups, key=lambda group: at[id(group)]), key=lambda group: at[id(group)])
    return [
        Leader(words, tuple(best(of, metric) for metric in (throughput, TTFT, ITL)))
        for (_, words), of in ((load, list(found)) for load, found in loads)
        if len({(group.first.sweep, group.first.server_id) for group in of}) > 1
    ]


def read_slo(text: str) -> dict[str, float] | None:
    """``ttft=500ms,itl=30ms`` as ``{"ttft_ms": 500.0, "itl_ms": 30.0}``; None for other text."""
    found = [_LIMIT.fullmatch(part) for part in text.split(",")]
    limits = {each[1].lower() + "_ms": float(each[2]) * (1000 if each[3] == "s" else 1) for each in found if each}
    return limits if len(limits) == len(found) and all(limits.values()) else None


def slo_words(slo: Mapping[str, float]) -> str:
    return ", ".join(f"{_SLO_NAMES[name[:-3]]} <= {limit:g} ms" for name, limit in slo.items())


def measured_slo(groups: Sequence[Group]) -> dict[str, float]:
    """The limits that all of these points were measured under; {} where they differ."""
    names = [f"{name}_ms" for name in _SLO_NAMES]
    asked = [{name: group.first.settings.get(f"bench.slo.{name}") for name in names} for group in groups]
    limits = [{name: limit for name, limit in each.items() if isinstance(limit, (int, float))} for each in asked]
    return limits[0] if limits and all(each == limits[0] for each in limits) else {}


def misses(group: Group, slo: Mapping[str, float]) -> bool:
    """Whether a point misses the limits: judged request by request where it was measured under them, else by the 99th
    percentiles. A number that nobody measured misses nothing."""
    if slo and slo == measured_slo([group]):
        return not meets_slo(group)
    means = {name: group.mean(Metric(f"{name}.p99", "", False, "ms")) for name in slo}
    return any((mean := means[name]) is not None and mean > limit for name, limit in slo.items())


def _shape(group: Group) -> tuple[tuple[str, str], ...]:
    settings = group.first.settings.items()
    return tuple(sorted((key, str(value)) for key, value in settings if key.startswith("bench.") and key not in _LOADS))


def _words(shape: tuple[tuple[str, str], ...], differ: set[str]) -> str:
    return ", ".join(f"{key[6:]} {value}" for key, value in shape if key in differ or key in _LENGTHS)
