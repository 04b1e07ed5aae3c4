"""Computes a plan's performance: the hardware's limit and the forecast, for its load or a measured point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sglang_hydra.architecture.known import Missing
from sglang_hydra.fit.forecast import Demand, Forecast, Own, forecast
from sglang_hydra.fit.forecast_own import Point, own_of
from sglang_hydra.fit.forecast_server import ForecastServer, server_of
from sglang_hydra.fit.roofline import Limit, Load, Roofline, roofline_from
from sglang_hydra.planning.fields import PlanFields
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.json_types import JsonDict, JsonObject

_TRIES = 24


class Known(NamedTuple):
    """The terms of a plan's limit; None for unknown ones, which ``unknown`` names."""

    roofline: Roofline | None
    load: Load | None
    unknown: tuple[str, ...]

    @property
    def limit(self) -> Limit | None:
        return self.roofline.limit(self.load) if self.roofline is not None and self.load is not None else None


def known_limit(plan: PlanFields) -> Known:
    """Returns the terms and the load of a plan's limit."""
    from sglang_hydra.fit.roofline_terms import roofline_of

    load = load_of_plan(plan)
    missing = () if load is not None else ("bench.concurrency",)
    try:
        terms = roofline_of(
            _sized_values(plan), plan.gpu, plan.model, None if plan.by_own_rules else plan.engine.version
        )
        return Known(terms, load, missing)
    except Missing as failure:
        return Known(None, load, (*failure.names, *missing))
    except ConfigError as failure:
        return Known(None, load, (failure.findings[0].message, *missing))


class Expected(NamedTuple):
    """The expected performance of a plan; None where a fact is missing, which ``unknown`` names. ``own`` holds the
    user's own corrections. ``too_much``: requests arrive faster than the server answers them."""

    server: ForecastServer | None
    demand: Demand | None
    found: Forecast | None
    unknown: tuple[str, ...]
    own: Own | None = None
    too_much: bool = False

    def to_json(self) -> JsonDict | None:
        """Returns seconds, tokens/s and requests/s with the 80 % interval; None where nothing is known."""
        if self.found is None or self.demand is None:
            return None
        figures = ("tpot", "ttft", "tokens", "tokens_per_gpu", "requests")
        return {
            "load": self.demand._asdict(),
            **{name: getattr(self.found, name) and _digits(getattr(self.found, name)._asdict()) for name in figures},
            **_digits({"running": self.found.running}),
            "reasons": list(self.found.reasons),
            "measured": self.own is not None,
            "server": _digits({k: v for k, v in self.server._asdict().items() if k != "roofline"})
            if self.server
            else None,
        }


def _digits(values: Mapping[str, object]) -> dict[str, object]:
    """Rounds numbers to nine digits: the last digits of ``exp`` and ``pow`` differ between systems."""
    return {name: float(f"{value:.9g}") if isinstance(value, float) else value for name, value in values.items()}


def forecast_of_plan(plan: PlanFields, points: Sequence[Point] = ()) -> Expected:
    """Returns the forecast of ``plan`` under the load of ``bench``, corrected by measured ``points``."""
    try:
        server = server_of_plan(plan)
    except Missing as failure:
        return Expected(None, None, None, failure.names)
    except ConfigError as failure:
        return Expected(None, None, None, (failure.findings[0].message,))
    demand = demand_of_plan(plan)
    if demand is None:
        return Expected(server, None, None, ("bench.concurrency",))
    own = own_of(points, server)
    rate = plan.nodes.bench.request_rate
    demand, too_much = at_rate(server, demand, float(rate), own) if rate else (demand, False)
    return Expected(server, demand, forecast(server, demand, own=own), (), own, too_much)


def server_of_plan(plan: PlanFields) -> ForecastServer:
    """Describes a plan's server for a forecast, with its release only if named. Raises Missing for missing facts,
    ConfigError for impossible sizes."""
    named = plan.engine.version if "engine.version" in plan.settings else ""
    own = None if plan.by_own_rules else plan.engine.version
    return server_of(_sized_values(plan), plan.gpu, plan.model, plan.fit, plan.engine.name, named, resolved_by=own)


def _sized_values(plan: PlanFields) -> Mapping[str, object]:
    return {**plan.values, "kv_cache_dtype": None} if "kv_cache_dtype" in plan.unknown else plan.values


def _stated(plan: PlanFields) -> tuple[float, float, int | None, int | None, float | None]:
    """Returns the load of ``bench`` and ``fit.users``: mean tokens in and out; the requested number of concurrent
    requests, and the number that the KV cache holds (None: unknown); the cached share of a prompt (None: unknown)."""
    bench, users = plan.nodes.bench, plan.nodes.fit.users
    inputs, outputs = (length * (1 + float(bench.range_ratio)) / 2 for length in (bench.input_len, bench.output_len))
    asked = bench.concurrency if isinstance(bench.concurrency, int) else users
    held = plan.fit.concurrent_requests(int(inputs + outputs / 2)) if plan.fit is not None else None
    is_cold = _is_cold(plan.nodes.plain["bench"]) or plan.values.get("disable_radix_cache")
    return inputs, outputs, asked, held, 0.0 if is_cold else None


def _is_cold(workload: Mapping[str, object]) -> bool:
    return workload.get("dataset") == "random" and workload.get("cache") == "cold"


def load_of_plan(plan: PlanFields) -> Load | None:
    """Returns the running load: the requested number of requests, limited by the KV cache, as others queue. None where
    neither is known."""
    inputs, outputs, asked, held, cached = _stated(plan)
    known = [number for number in (asked, held) if number]
    return Load(inputs, outputs, min(known), cached) if known else None


def demand_of_plan(plan: PlanFields) -> Demand | None:
    """Returns the open requests: the requested number, else the number that the KV cache holds. None where neither is
    known."""
    inputs, outputs, asked, held, cached = _stated(plan)
    concurrency = asked or held
    if not concurrency:
        return None
    prompts = plan.nodes.bench.num_prompts
    return Demand(
        inputs,
        outputs,
        concurrency,
        cached,
        spread=_spread(plan.nodes.bench.range_ratio),
        accepted=plan.nodes.forecast.accept_length,
        **({"rounds": prompts / concurrency} if prompts else {}),
    )


def _spread(range_ratio: float | None) -> float:
    ratio = float(range_ratio or 1.0)
    return 2 * (1 - ratio) / (1 + ratio)


def at_rate(server: ForecastServer, demand: Demand, rate: float, own: Own | None = None) -> tuple[Demand, bool]:
    """Returns the load of requests that arrive at random, ``rate`` a second: the open requests follow from Little's
    law. The second value says whether the rate exceeds the server's throughput."""
    low, high = 1.0, 2.0 * max(demand.concurrency, server.most(demand.input_len + demand.output_len / 2) or 1.0)
    for _ in range(_TRIES):
        middle = (low + high) / 2
        found = forecast(server, demand._replace(concurrency=middle, rounds=None), own=own)
        low, high = (middle, high) if found.requests.value < rate else (low, middle)
    chosen = demand._replace(concurrency=high, rounds=None)
    return chosen, forecast(server, chosen, own=own).requests.value < 0.98 * rate


def _measured_load(record: JsonObject, workload: JsonObject, measures: JsonObject) -> Load | None:
    """Returns the load of a measured point; None where it, or the limit of its server, is unknown. ``record`` is the
    server's plan.json."""
    done, requests = measures.get("completed"), measures.get("concurrency")
    tokens = [measures.get(name) for name in ("input_tokens", "output_tokens")]
    if not (record.get("roofline") and done and requests and all(tokens)):
        return None
    inputs, outputs = (float(number or 0) / done for number in tokens)
    hits = measures.get("cache_hit_rate")
    return Load(inputs, outputs, float(requests), 0.0 if hits is None and _is_cold(workload) else hits)


def point_of(record: JsonObject, workload: JsonObject, measures: JsonObject) -> Point | None:
    """Returns a measured point; ``record`` is its server's plan.json. None where too little is known."""
    load, terms = _measured_load(record, workload, measures), (record.get("forecast") or {}).get("server")
    if load is None or not terms:
        return None
    try:
        server = ForecastServer(**terms, roofline=roofline_from(dict(record["roofline"])))
    except (TypeError, KeyError):
        return None
    by_chance = bool(workload.get("request_rate"))
    demand = Demand(
        *load,
        spread=_spread(workload.get("range_ratio")),
        rounds=None if by_chance else measures["completed"] / load.requests,
    )
    return Point(server, demand, _seconds(measures.get("tpot_ms")), _seconds(measures.get("ttft_ms")))


def _seconds(spread: object) -> float | None:
    mean = spread.get("mean") if isinstance(spread, dict) else None
    return float(mean) / 1e3 if mean else None


def measured_error(
    record: Mapping[str, object], workload: Mapping[str, object], measures: Mapping[str, object]
) -> dict[str, float]:
    """Returns the forecast TPOT of a measured point in ms, and its error in percent; {} if unknown."""
    point = point_of(record, workload, measures)
    if point is None or not point.tpot:
        return {}
    found = forecast(point.server, point.demand).tpot.value
    return {"forecast_tpot_ms": found * 1e3, "forecast_error": 100 * (found / point.tpot - 1)}


def measured_share(record: JsonObject, workload: JsonObject, measures: JsonObject) -> dict[str, float]:
    """Returns a point's output throughput as a percentage of the limit, and the limit in tokens/s of one GPU; {} where
    either is unknown. ``record`` is the server's plan.json."""
    load = _measured_load(record, workload, measures)
    per_gpu = measures.get("output_throughput_per_gpu") or measures.get("output_throughput")  # without GPUs: the total
    if load is None or not per_gpu:
        return {}
    try:
        limit = roofline_from(dict(record["roofline"])).limit(load)
    except (TypeError, KeyError, ZeroDivisionError):
        return {}
    return {"limit_per_gpu": limit.tokens_per_gpu, "limit_share": 100 * per_gpu / limit.tokens_per_gpu}
