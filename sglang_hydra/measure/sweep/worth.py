"""What the forecast finds worth measuring: the order of a sweep's servers, and points that cannot win."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import exp
from typing import Any, NamedTuple

from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.bench import LADDER
from sglang_hydra.compose.settings.nodes import Nodes, has_several_servers
from sglang_hydra.fit.forecast import Forecast, coefficients
from sglang_hydra.measure.sweep.judging import Judged
from sglang_hydra.planning.choosing.forecast import forecast_of_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.findings import Finding

BEATEN = "SWP012"
"""The id under which points are counted that ``sweep.prune=forecast`` leaves out."""
Combination = tuple[tuple[Request, ...], Judged]


class Worth(NamedTuple):
    """The forecast of a point, and what it competes with: points of one load, family of models and GPU class."""

    race: tuple[Any, ...]
    words: str
    found: Forecast

    def loses_to(self, other: Worth) -> bool:
        """Whether the other is better in both, output tokens/s of a GPU and TPOT, by more than what holds 90 % of the
        errors between two layouts of a model."""
        least = exp(coefficients()["errors"]["pair"])
        mine, best = self.found, other.found
        faster = mine.tpot.value > least * best.tpot.value
        return faster and best.tokens_per_gpu.value > least * mine.tokens_per_gpu.value


def forecast_of_point(plan: Plan, workload: Mapping[str, Any]) -> tuple[str, Forecast] | None:
    """The family of models and the forecast of ``plan`` under a load. None where it is unknown, where the
    point looks for its load itself, and of several servers. The user's own measurements are left aside: a resumed sweep
    has to plan the same."""
    if workload["concurrency"] == LADDER or has_several_servers(plan.nodes):
        return None
    known = forecast_of_plan(replace(plan, nodes=Nodes({**plan.nodes.plain, "bench": workload})))
    return None if known.found is None or known.server is None else (known.server.shape, known.found)


def without_losers(combinations: Iterable[Combination]) -> list[Combination]:
    """The same, of which points that cannot win by the forecast are refused (``BEATEN``)."""
    listed = list(combinations)
    races: dict[tuple[Any, ...], list[Worth]] = defaultdict(list)
    worths = []
    for own, judged in listed:
        worth = _worth(own, judged)
        worths.append(worth)
        if worth is not None:
            races[worth.race].append(worth)
    result = []
    for (own, judged), worth in zip(listed, worths, strict=True):
        better = [other for other in races[worth.race] if worth.loses_to(other)] if worth is not None else []
        if worth is not None and better:
            best = max(better, key=lambda other: other.found.tokens_per_gpu.value)
            judged = replace(judged, refused=(_beaten(worth, best),))
        result.append((own, judged))
    return result


def _worth(own: tuple[Request, ...], judged: Judged) -> Worth | None:
    if judged.refused or judged.server is None or judged.workload is None:
        return None
    found = forecast_of_point(judged.server.plan, judged.workload)
    if found is None:
        return None
    words = " ".join(request.text for request in own)
    return Worth((judged.workload_id, found[0], judged.server.plan.gpu.name), words, found[1])


def _beaten(worth: Worth, best: Worth) -> Finding:
    rates = [f"{one.found.tokens_per_gpu.value:,.0f} tokens/s of a GPU" for one in (worth, best)]
    times = [f"TPOT {one.found.tpot.value * 1e3:,.1f} ms" for one in (worth, best)]
    message = f"by the forecast it cannot win: {rates[0]} at {times[0]}; {best.words}: {rates[1]} at {times[1]}"
    return Finding("error", BEATEN, message, ("sweep.prune",), "sweep.prune=null")
