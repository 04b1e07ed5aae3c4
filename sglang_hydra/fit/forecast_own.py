"""Fits a user's own measurements on top of the shipped coefficients: a few factors, near 1 where data is scarce."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

from sglang_hydra.fit.forecast import Demand, Own, forecast
from sglang_hydra.fit.forecast_server import ForecastServer

_NOISE = 0.04  # of a measurement, as a logarithm
_EXPECTED = 0.25  # the expected distance of a factor from 1 without measurements, as a logarithm
_NEAR, _FAR = 0.10, 0.20  # the least remaining error: for other loads of a measured layout, for other layouts
_WIDTH = 1.28  # standard deviations that hold 80 %
_STEP = 1e-4
_ROUNDS = 8


class Point(NamedTuple):
    """A measurement in seconds; None where it is missing."""

    server: ForecastServer
    demand: Demand
    tpot: float | None
    ttft: float | None


def own_of(points: Sequence[Point], server: ForecastServer) -> Own | None:
    """Fits the corrections to ``points`` of similar servers (same model and GPU class); None without such points."""
    alike = [point for point in points if _family(point.server) == _family(server) and point.tpot]
    if not alike:
        return None
    step = prompt = 0.0
    for _ in range(_ROUNDS):
        step, prompt = _improved(alike, step, prompt)
    off = [_off(point, step, prompt) for point in alike]
    spread = sqrt(sum(value**2 for value in off) / len(off) + _NOISE**2)
    least = _NEAR if any(_layout(point.server) == _layout(server) for point in alike) else _FAR
    waits = [_waits(point, step, prompt) for point in alike if point.ttft]
    ttft = sum(waits) / (len(waits) + (_NOISE / _EXPECTED) ** 2) if waits else 0.0
    left = sqrt(sum((value - ttft) ** 2 for value in waits) / len(waits)) if waits else None
    return Own(
        step=step,
        prompt=prompt,
        ttft=ttft,
        tpot_error=max(least, _WIDTH * spread),
        ttft_error=None if left is None else max(2 * least, _WIDTH * left),
        load=_measured(alike),
    )


def _measured(points: Sequence[Point]) -> dict[str, tuple[float, float]]:
    """Returns the range of each part of these points' loads."""
    parts = {
        "input_len": [point.demand.input_len for point in points],
        "output_len": [point.demand.output_len for point in points],
        "running": [forecast(point.server, point.demand).running for point in points],
    }
    return {name: (min(values), max(values)) for name, values in parts.items()}


def _improved(points: Sequence[Point], step: float, prompt: float) -> tuple[float, float]:
    """Makes one Gauss-Newton step on two factors, with a ridge towards 1."""
    a = b = c = d = e = 0.0
    for point in points:
        off = _off(point, step, prompt)
        by_step = (_off(point, step + _STEP, prompt) - off) / _STEP
        by_prompt = (_off(point, step, prompt + _STEP) - off) / _STEP
        a, b, c = a + by_step**2, b + by_step * by_prompt, c + by_prompt**2
        d, e = d - off * by_step, e - off * by_prompt
    ridge = (_NOISE / _EXPECTED) ** 2
    a, c, d, e = a + ridge, c + ridge, d - ridge * step, e - ridge * prompt
    whole = a * c - b * b
    return step + (c * d - b * e) / whole, prompt + (a * e - b * d) / whole


def _off(point: Point, step: float, prompt: float) -> float:
    """Returns the logarithm of the forecast TPOT divided by the measured one."""
    assert point.tpot
    return log(forecast(point.server, point.demand, own=Own(step, prompt)).tpot.value / point.tpot)


def _waits(point: Point, step: float, prompt: float) -> float:
    """Returns the logarithm of the measured time to the first token divided by its forecast."""
    found = forecast(point.server, point.demand, own=Own(step, prompt)).ttft
    return log(point.ttft / found.value) if point.ttft and found is not None else 0.0


def _family(server: ForecastServer) -> tuple[str, str]:
    return server.shape, server.roofline.gpu


def _layout(server: ForecastServer) -> tuple[object, ...]:
    return server.gpus, server.tp, server.dp, server.ep, server.eight, server.roofline.copies
