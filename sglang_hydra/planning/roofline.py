"""The hardware's limit of a plan and of its load, and of a point that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.architecture.known import Missing
from sglang_hydra.fit.roofline import Limit, Load, Roofline, roofline_from
from sglang_hydra.text.errors import ConfigError

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan


class Known(NamedTuple):
    """What a plan's limit is made of; None for what is not known, and ``unknown`` names why."""

    roofline: Roofline | None
    load: Load | None
    unknown: tuple[str, ...]

    @property
    def limit(self) -> Limit | None:
        return self.roofline.limit(self.load) if self.roofline is not None and self.load is not None else None


def known_limit(plan: Plan) -> Known:
    """The terms and the load of a plan's limit."""
    load = load_of_plan(plan)
    missing = () if load is not None else ("bench.concurrency",)
    try:
        return Known(roofline_of_plan(plan), load, missing)
    except Missing as failure:
        return Known(None, load, (*failure.names, *missing))
    except ConfigError as failure:
        return Known(None, load, (failure.findings[0].message, *missing))


def roofline_of_plan(plan: Plan) -> Roofline:
    """Raises Missing for facts that it lacks, ConfigError for sizes that cannot be."""
    from sglang_hydra.fit.roofline_terms import roofline_of

    values = {**plan.values, "kv_cache_dtype": None} if "kv_cache_dtype" in plan.unknown else plan.values
    return roofline_of(values, plan.gpu, plan.model)


def load_of_plan(plan: Plan) -> Load | None:
    """The load of ``bench`` and ``fit.users``; where nobody states how many requests run, as many as the KV cache
    holds. More than it holds queue. None where neither is known."""
    bench, users = plan.nodes["bench"], plan.nodes["fit"].get("users")
    shorter = (1 + float(bench["range_ratio"])) / 2
    inputs, outputs = bench["input_len"] * shorter, bench["output_len"] * shorter
    asked = bench["concurrency"] if isinstance(bench["concurrency"], int) else users
    random = bench["dataset"] == "random" and bench["cache"] == "cold"
    held = plan.fit.concurrent_requests(int(inputs + outputs / 2)) if plan.fit is not None else None
    known = [number for number in (asked, held) if number]
    if not known:
        return None
    return Load(inputs, outputs, min(known), 0.0 if random or plan.values.get("disable_radix_cache") else None)


def measured_share(
    record: Mapping[str, Any], workload: Mapping[str, Any], measures: Mapping[str, Any]
) -> dict[str, float]:
    """What a point's output throughput is of the limit, in percent, and that limit in tokens/s of one GPU; {} where
    either is unknown. ``record`` is the server's plan.json."""
    done, per_gpu = measures.get("completed"), measures.get("output_throughput_per_gpu")
    if not record.get("roofline") or not done or not per_gpu:
        return {}
    tokens = [measures.get(name) for name in ("input_tokens", "output_tokens")]
    requests = measures.get("concurrency")
    if not requests or not all(tokens):
        return {}
    hits = measures.get("cache_hit_rate")
    cold = workload.get("dataset") == "random" and workload.get("cache") == "cold"
    inputs, outputs = (float(number or 0) / done for number in tokens)
    load = Load(inputs, outputs, requests, 0.0 if hits is None and cold else hits)
    try:
        limit = roofline_from(dict(record["roofline"])).limit(load)
    except (TypeError, KeyError, ZeroDivisionError):
        return {}
    return {"limit_per_gpu": limit.tokens_per_gpu, "limit_share": 100 * per_gpu / limit.tokens_per_gpu}
