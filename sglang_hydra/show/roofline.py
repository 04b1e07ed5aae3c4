"""Shows the hardware's limit: the bytes and FLOPs of a step, its bound, and the formula."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.fit.roofline import BANDWIDTH, COMPUTE, LINK, MEMORY, Limit, Load, Roofline, Step
from sglang_hydra.planning.choosing.forecast import known_limit
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import by_estimate
from sglang_hydra.text.screen import Line, columns, folded, text
from sglang_hydra.text.words import plural

SCHEMA = "sglang_hydra.roofline/1"
FORMULAS = (
    "bytes(B, ctx) = weights + experts x (1 - (1 - k/E)^tokens) + B x (cache(ctx) + state), of one GPU",
    "step(B) = max(bytes / bandwidth, FLOPs / peak, exchanged / link)",
    "TPOT >= step(B) / T, with T tokens of a step: 1, with speculation one more than are drafted",
    "tokens/s of a GPU <= 1 / GPUs / max over terms of (step(B) / (B x T) + prompt / output_len)",
    "TTFT >= max(FLOPs of the prompt / (GPUs x peak), weights / bandwidth)",
)
NOTE = "A limit is no forecast: of 108 published points the median reached 27 % of the limit, the best 76 %."
_HOW = {
    BANDWIDTH: f"{BANDWIDTH}=NUMBER, in GB/s, from its data sheet",
    "bench.concurrency": "bench.concurrency=8, requests at a time",
    "config.json": "model.facts_from=./config.json",
}
_UNITS = {MEMORY: "read", COMPUTE: "computed", LINK: "sent"}


def roofline_record(plan: Plan) -> dict[str, object]:
    """Returns ``explain roofline --json``: bytes, FLOPs, seconds. Null where ``unknown`` names a missing fact."""
    known = known_limit(plan)
    roofline, load, limit = known.roofline, known.load, known.limit
    steps = [roofline.step(number, load.context) for number in (1, load.requests)] if roofline and load else []
    return {
        "schema": SCHEMA,
        "gpu": plan.gpu.name,
        "basis": plan.basis,
        "formulas": list(FORMULAS),
        "unknown": list(known.unknown),
        "terms": roofline.to_json() if roofline else None,
        "load": load._asdict() if load else None,
        "limit": limit._asdict() if limit else None,
        "steps": [{**step._asdict(), "time": step.time, "bound": step.bound} for step in steps],
    }


def roofline_lines(plan: Plan) -> list[Line]:
    """Returns ``explain roofline``: the limits, their terms, the formula."""
    known = known_limit(plan)
    roofline, load = known.roofline, known.load
    title: Line = [text(f"The hardware's limit: {plan.gpu.name}", "bold")]
    mark = text(by_estimate(plan), "yellow")
    if roofline is None or load is None:
        return [title, *refusal_lines(plan), *missing_lines(known.unknown)]
    limit = roofline.limit(load)
    gpus = roofline.gpus * roofline.copies
    lines: list[Line] = [
        *folded([*title, text(f" x {gpus}"), mark]),
        *folded([text("  "), text(_load_words(load))]),
        *refusal_lines(plan),
        [],
        *columns(_limit_rows(roofline, load, limit)),
        [],
        [text("One GPU, one decode step", "bold")],
        *columns(_step_rows(roofline, [roofline.step(number, load.context) for number in (1, load.requests)])),
        [],
        *_prompt_lines(roofline, load),
        [text("One GPU", "bold")],
        *columns(_peak_rows(roofline)),
        [],
        [text("Formula", "bold")],
    ]
    for formula in FORMULAS:
        lines += folded([text("  "), text(formula, "dim")])
    return [*lines, [], *folded([text(NOTE, "dim")])]


def refusal_lines(plan: Plan) -> list[Line]:
    """Returns why the plan cannot start: its figures are of hardware, not of a server."""
    if plan.launchable is not False or not plan.errors:
        return []
    error = plan.errors[0]
    return folded([text("  This plan cannot start: ", "red"), text(f"{error.id} {error.message}")])


def missing_lines(unknown: Sequence[str]) -> list[Line]:
    """Returns the missing facts of a figure, and the overrides that set them."""
    lines = folded([text("  unknown: "), text(", ".join(unknown), "yellow")])
    for fact, words in _HOW.items():
        if any(name.startswith(fact) for name in unknown):
            lines += folded([text(f"  Set {words}")])
    return lines


def _load_words(load: Load) -> str:
    """Formats ``8 running requests of 1,024 + 128 tokens, nothing cached``."""
    cached = "cache hits unknown" if load.cached is None else "nothing cached" if not load.cached else "partly cached"
    return f"{load.requests:,.0f} running requests of {load.input_len:,.0f} + {load.output_len:,.0f} tokens, {cached}"


def limit_cells(limit: Limit | None) -> list[tuple[str, str]]:
    """Returns the limit for a table: output tokens/s of one GPU, the least TPOT in ms."""
    if limit is None:
        return [text("?"), text("?")]
    return [text(f"{limit.tokens_per_gpu:,.0f}"), text(f"{limit.tpot_one * 1000:.1f}")]


LIMIT_TITLES = ("limit tok/s/GPU", "least TPOT ms")


def limit_rows(plan: Plan) -> list[list[tuple[str, str]]]:
    """Returns the figures of the limit, each with its bound; none where a fact is missing."""
    known = known_limit(plan)
    if known.roofline is None or known.load is None:
        return []
    return _limit_rows(known.roofline, known.load, known.roofline.limit(known.load))


def _limit_rows(roofline: Roofline, load: Load, limit: Limit) -> list[list[tuple[str, str]]]:
    ttft = "withheld: cache hits are unknown" if limit.ttft is None else f"{limit.ttft * 1000:,.1f} ms"
    rows = [
        ("output tokens/s of one GPU", f"at most {limit.tokens_per_gpu:,.0f}", f"bound by {limit.bound}"),
        ("TPOT, 1 running request", f"at least {limit.tpot_one * 1000:,.2f} ms", "holds at every load"),
        (f"TPOT, {load.requests:,.0f} running", f"at least {limit.tpot_all * 1000:,.2f} ms", "a queue runs fewer"),
        ("TTFT", f"at least {ttft}" if limit.ttft else ttft, f"bound by {limit.ttft_bound}" if limit.ttft else ""),
    ]
    if roofline.tokens > 1:
        rows.append(("tokens of a step", f"at most {roofline.tokens}", "every draft accepted"))
    return [[text(f"  {name}"), text(value), text(why, "dim")] for name, value, why in rows]


def _step_rows(roofline: Roofline, steps: list[Step]) -> list[list[tuple[str, str]]]:
    """Returns each term for one running request and for all, with its parts."""
    rows = [[text("  "), *(text(f"B = {step.requests:,.0f}", "bold") for step in steps), text("")]]
    experts = f"{roofline.expert_chosen} of {roofline.expert_number} a token, of {_giga(roofline.experts)}"
    cached = f"of {steps[0].context:,.0f} tokens a request"
    notes = {"experts": experts, "KV cache": cached, "weights": "all but routed experts"}
    for name in steps[0].bytes:
        if any(step.bytes[name] for step in steps):
            sizes = (text(_giga(step.bytes[name])) for step in steps)
            rows.append([text(f"  {name}"), *sizes, text(notes.get(name, ""), "dim")])
    flops = (text(f"{step.flops / 1e9:,.1f} GFLOP") for step in steps)
    rows.append([text("  arithmetic"), *flops, text(f"of {plural(roofline.gpus, 'GPU')}", "dim")])
    for name in steps[0].seconds:
        times = (text(f"{step.seconds[name] * 1000:,.3f} ms", "bold" if step.bound == name else "") for step in steps)
        rows.append([text(f"  {name}"), *times, text(f"to be {_UNITS[name]}", "dim")])
    return rows


def _prompt_lines(roofline: Roofline, load: Load) -> list[Line]:
    if load.cached is None:
        return []
    tokens = load.input_len * (1 - load.cached)
    terms = ", ".join(f"{name} {seconds * 1000:,.3f} ms" for name, seconds in roofline.prefill(tokens).items())
    return [[text(f"One prompt of {tokens:,.0f} tokens: ", "bold"), text(terms)], []]


def _peak_rows(roofline: Roofline) -> list[list[tuple[str, str]]]:
    rows = [("memory bandwidth", f"{roofline.bandwidth / 1e9:,.0f} GB/s", "data sheet, by the preset")]
    for work in roofline.work:
        used = f"{work.weights / 1e9:,.2f} billion weights a token" + (", lm_head" if work.sampled else "")
        rows.append((work.format, f"{work.peak / 1e12:,.0f} TFLOP/s", used))
    if not roofline.work:
        rows.append(("arithmetic", "unknown", "the preset states no peak"))
    if roofline.link and roofline.exchanged:
        rows.append(("link", f"{roofline.link / 1e9:,.0f} GB/s", f"{roofline.exchanged:,.0f} bytes a token, one way"))
    for cache in roofline.caches:
        most = "" if cache.most is None else f", at most {cache.most:,} of them"
        rows.append((f"cache, {cache.kind}", f"{cache.bytes_per_token:,.0f} bytes", f"a token{most}"))
    return [[text(f"  {name}"), text(value), text(why, "dim")] for name, value, why in rows]


def _giga(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"
