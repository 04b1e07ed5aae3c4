"""Forecasts a server's performance under a load, with its error: physical terms times measured coefficients.

    step    = sum of coefficient * term of a decode step                                     (forecast_terms.py)
    prompt  = sum of coefficient * term of a prompt
    TPOT    = step * speculation + mixed * B / output_len * prompt
    TTFT    = fixed + open * B + steps * step + prompts * prompt + waiting for other prompts + for space in the KV cache
    tokens  = B * output_len / (TTFT + (output_len - 1) * TPOT)

B is the number of running requests: the clients, or as many as the KV cache holds. During one answer B prompts arrive,
and the prefill of each delays all requests. Clients that begin together stay together for some rounds: in such a wave a
request meets only half of the prompts while it decodes (``mixed`` is 1/2), and waits for the other half before its
first token. An interval holds 80 % of held-out rows: families of models, or GPU classes, that a fit had not seen.
tools/fit_forecast.py makes the coefficients in forecast.json from forecast_measured.jsonl.gz."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import exp, log, sqrt
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import at_least, release_key
from sglang_hydra.fit.forecast_server import ForecastServer
from sglang_hydra.fit.forecast_terms import TERMS, assumed, crosses, prompt_terms, step_terms
from sglang_hydra.fit.roofline import COMPUTE, LINK
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, json_beside

ALL = "all"
NEW = "0.5.8"
"""SGLang's releases before this one are slower by a factor of their own."""
_ROUNDS = 10
_BUSIEST = 0.9  # the largest share of time for prompts in the formula of the queue
DRAFTING = 1.1  # assumed: a step that verifies and drafts, relative to a step with the same number of tokens
_BESIDE = 0.25  # a load this near (as a logarithm) to measured loads gets no reason
_FAR_LOAD, _UNKNOWN_VENDOR, ASSUMED = 0.15, 0.35, 0.25  # assumed: added to an error, as logarithms
ALL_TO_ALL = "all-to-all backends are assumed, not measured"


class Demand(NamedTuple):
    """Requests of ``input_len`` and ``output_len`` tokens on average, ``concurrency`` of them open at a time.

    ``cached`` is the share of a prompt in the prefix cache (None: unknown). ``spread`` is the width of the lengths'
    range divided by their mean (0: all equal), ``rounds`` the sequential requests of each client (None: requests arrive
    at random, without waves). ``accepted`` is the number of tokens per step with speculation (None: as fitted)."""

    input_len: float
    output_len: float
    concurrency: float
    cached: float | None = 0.0
    spread: float = 0.2 / 0.9
    rounds: float | None = _ROUNDS
    accepted: float | None = None


class Figure(NamedTuple):
    """A number, and the interval that holds it with a probability of 80 %."""

    value: float
    low: float
    high: float

    def inverse(self, amount: float) -> Figure:
        """Returns ``amount`` divided by this figure."""
        return Figure(amount / self.value, amount / self.high, amount / self.low)


class Forecast(NamedTuple):
    """Times in seconds, and rates. ``ttft`` is None where cache hits are unknown. ``running`` requests run at a
    time. ``step`` and ``prompts`` are the parts of TPOT by term, in seconds. ``reasons`` explain the width of the
    interval."""

    tpot: Figure
    ttft: Figure | None
    tokens: Figure
    tokens_per_gpu: Figure
    requests: Figure
    running: float
    step: Mapping[str, float]
    prompts: Mapping[str, float]
    reasons: tuple[str, ...]


class Own(NamedTuple):
    """Corrections from a user's own measurements: logarithms of factors on a step, on prompts and on the time to the
    first token, and the remaining error of TPOT and TTFT (logarithms; None: as shipped). ``load`` is the measured range
    of loads."""

    step: float = 0.0
    prompt: float = 0.0
    ttft: float = 0.0
    tpot_error: float | None = None
    ttft_error: float | None = None
    load: Mapping[str, tuple[float, float]] | None = None


@cache
def coefficients() -> Json:
    """Reads the shipped coefficients (forecast.json)."""
    return json_beside(__file__)


def accepted(server: ForecastServer, demand: Demand, given: JsonObject | None = None) -> float:
    """Returns the tokens that each step of ``server`` makes: stated, or as fitted from its drafted ones."""
    return demand.accepted or 1 + (given or coefficients())["accepted"] * (server.roofline.tokens - 1)


def break_even(server: ForecastServer, demand: Demand, found: Forecast, own: Own | None = None) -> float | None:
    """Returns the tokens that each step must make for drafts to cost no time; None for a server without drafts."""
    if server.roofline.tokens == 1:
        return None
    alone = forecast(server._replace(roofline=replace(server.roofline, tokens=1, verified=1)), demand, own=own)
    return sum(found.step.values()) * accepted(server, demand) / sum(alone.step.values())


def forecast(
    server: ForecastServer, demand: Demand, given: JsonObject | None = None, own: Own | None = None
) -> Forecast:
    """Forecasts the performance of ``server`` under ``demand``, by the coefficients ``given`` (default: the
    package's)."""
    known, own = given or coefficients(), own or Own()
    context = demand.input_len + demand.output_len / 2
    most = server.most(context)
    running = max(1.0, demand.concurrency if most is None else min(demand.concurrency, most))
    fresh = demand.input_len * (1 - (demand.cached or 0.0))
    step = _weighted(step_terms(server, running, context), server, known, own.step)
    step["not measured"] = assumed(server, running)
    step = _within_the_limit(step, server.roofline.step(running, context).time)
    if server.roofline.tokens > 1:
        made = accepted(server, demand, known)
        step = {name: seconds * DRAFTING / made for name, seconds in step.items()}
    least = server.roofline.prefill(fresh)
    prompt = _weighted(prompt_terms(server, fresh), server, known, own.prompt)
    prompt = _within_the_limit(prompt, max(least[COMPUTE], least.get(LINK, 0.0)))
    one, decode = sum(prompt.values()), sum(step.values())
    arriving = running / server.roofline.copies / max(1.0, demand.output_len)
    share = mixed(demand, decode, arriving * one, known["ttft"]["mixing"])
    tpot = decode + share * arriving * one
    error = _errors(server, demand, running, known, own)
    ttft = None
    if demand.cached is not None:
        seconds = first_token(server, demand, running, decode, prompt, tpot, known["ttft"]) * exp(own.ttft)
        ttft = _figure(max(seconds, *least.values()), error["ttft"])
    cycle = (ttft.value if ttft else one) + max(0.0, demand.output_len - 1) * tpot
    made_by_one = _figure(cycle / max(demand.concurrency, 1.0), error["tpot"])
    requests = made_by_one.inverse(1.0)
    tokens = made_by_one.inverse(demand.output_len)
    return Forecast(
        tpot=_figure(tpot, error["tpot"]),
        ttft=ttft,
        tokens=tokens,
        tokens_per_gpu=Figure(*(number / server.gpus for number in tokens)),
        requests=requests,
        running=running,
        step=step,
        prompts={name: share * arriving * seconds for name, seconds in prompt.items()},
        reasons=tuple(error["reasons"]),
    )


def first_token(
    server: ForecastServer,
    demand: Demand,
    running: float,
    step: float,
    prompt: Mapping[str, float],
    tpot: float,
    fitted: Mapping[str, float],
) -> float:
    """Returns the mean seconds to the first token over all requests: of the first wave, which meets a cold server; of
    later waves, which come apart; of the queue in between; and of requests that wait for space in the KV cache."""
    one, started = sum(prompt.values()), prompt["prompt, layer"]
    mine = running / server.roofline.copies
    cycle = demand.output_len * tpot
    busy = mine * one / cycle if cycle else 0.0
    together = (mine - 1) / 2 * one
    waves = 0.0
    for number in range(_rounds(demand)):
        if not demand.spread:
            waves += fitted["wave"] * together
        elif number:
            waves += fitted["wave"] * max(0.0, busy - _apart(demand, number, fitted["mixing"])) * cycle / 2
        else:
            waves += fitted["burst"] * together
    waves /= max(1, _rounds(demand))
    queue = min(busy, _BUSIEST) / (2 * (1 - min(busy, _BUSIEST))) * one if demand.spread else 0.0
    alone = (
        (fitted["fixed_ms"] + fitted["open_ms"] * mine) / 1e3
        + fitted["steps"] * step
        + fitted["prompts"] * one
        + fitted["started"] * started
    )
    room = max(0.0, demand.concurrency / running - 1) * (alone + queue + cycle)
    return alone + queue + waves + room


def mixed(demand: Demand, step: float, prompts: float, mixing: float) -> float:
    """Returns the share of the prompts arriving during an answer that delay it: 1 where clients come apart, 1/2 where
    they stay together."""
    if not prompts:
        return 1.0
    share = 1.0
    for _ in range(3):
        busy = prompts / (step + share * prompts)
        met = [max(0.0, 1 - _apart(demand, number, mixing) / busy) for number in range(_rounds(demand))]
        share = 1 - sum(met) / max(1, len(met)) / 2
    return share


def _rounds(demand: Demand) -> int:
    """Returns the number of simulated rounds, at most 64: later ones hardly differ. 0 without waves."""
    return 0 if demand.rounds is None else max(1, min(64, round(demand.rounds)))


def _apart(demand: Demand, number: int, mixing: float) -> float:
    """Returns how far clients that began together are apart after ``number`` requests each, as a share of a request's
    time: the spread of a sum of random lengths."""
    return demand.spread * mixing * sqrt(number)


def _weighted(terms: Mapping[str, float], server: ForecastServer, known: JsonObject, own: float) -> dict[str, float]:
    fitted, factors = known["coefficients"], _factors(server, known)
    return {
        name: seconds * fitted[name] * factors.get(TERMS[name].group, 1.0) * factors[ALL] * exp(own)
        for name, seconds in terms.items()
    }


def _within_the_limit(terms: dict[str, float], least: float) -> dict[str, float]:
    """Scales the terms up where their sum is below the hardware's limit: a coefficient below 1 comes from servers with
    overlapping terms, and is too small where one term dominates."""
    short = least / sum(terms.values())
    return {name: seconds * short for name, seconds in terms.items()} if short > 1 else terms


def _factors(server: ForecastServer, known: JsonObject) -> dict[str, float]:
    """Returns the factors of this engine, GPU class and release, by group of terms."""
    found = {ALL: 1.0}
    names = [f"engine {server.engine}", f"gpu {server.roofline.gpu}"]
    if server.engine == "sglang" and is_old(server.release):
        names.append("release old")
    for name in names:
        for group, factor in known["factors"].get(name, {}).items():
            found[group] = found.get(group, 1.0) * factor
    return found


def is_old(release: str) -> bool:
    """Returns whether a release of SGLang is an older, slower one; False for an unnamed release."""
    return release_key(release) is not None and not at_least(release, NEW)


def _figure(value: float, error: tuple[float, float]) -> Figure:
    return Figure(value, value * exp(error[0]), value * exp(error[1]))


def _errors(server: ForecastServer, demand: Demand, running: float, known: JsonObject, own: Own) -> JsonDict:
    """Returns the intervals of TPOT and TTFT as logarithms, and their reasons. A user's own measurements are of this
    model on this GPU, so that only loads and layouts far from all measurements widen their interval."""
    seen = known["measured"]
    shape, there = server.shape in seen["shapes"], server.roofline.gpu in seen["gpus"]
    errors: JsonObject = known["errors"]["measured" if shape and there else "gpu" if shape else "model"]
    more, reasons = (0.0, []) if own.load else _unknown(server, seen, errors)
    for name, value in (("input_len", demand.input_len), ("output_len", demand.output_len), ("running", running)):
        low, high = seen["load"][name]
        if own.load:
            low, high = min(low, own.load[name][0]), max(high, own.load[name][1])
        if not low <= value <= high:
            far = abs(log(max(value, 1.0) / (low if value < low else high)))
            more += _FAR_LOAD * min(2.0, far)
            if far < _BESIDE:
                continue
            reasons.append(f"{name} {value:,.0f} is outside what was measured ({low:,.0f} to {high:,.0f})")
    if crosses(server) or running / server.roofline.copies / server.dp > server.graphs:
        more += ASSUMED
        reasons.append("nodes and steps without CUDA graphs are assumed, not measured")
    if server.all_to_all:
        more += ASSUMED
        reasons.append(ALL_TO_ALL)
    found = {}
    for name, left in (("tpot", own.tpot_error), ("ttft", own.ttft_error)):
        low, high = (-left, left) if left is not None else errors[name]
        found[name] = (low - more, high + more)
    return {**found, "reasons": reasons}


def _unknown(server: ForecastServer, seen: JsonObject, errors: JsonObject) -> tuple[float, list[str]]:
    """Returns the additional error of a server whose model or GPU was never measured, with the reasons in words."""
    shape, there = server.shape in seen["shapes"], server.roofline.gpu in seen["gpus"]
    more, reasons = 0.0, []
    if not shape:
        reasons.append("no measurement of this family of models")
    if not there:
        reasons.append("no measurement of this GPU")
    if not shape and not there:
        more += errors["tpot"][1] / 2
    if server.vendor not in seen["vendors"]:
        more += _UNKNOWN_VENDOR
        reasons.append(f"no measurement of a GPU of this vendor ({server.vendor or 'unknown'})")
    return more, reasons
