"""Shows the forecast: figures with their interval, the parts of the time, the most helpful change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglang_hydra.fit.forecast import Demand, Figure, Forecast, accepted, break_even
from sglang_hydra.fit.forecast_own import Point
from sglang_hydra.fit.forecast_server import ForecastServer
from sglang_hydra.fit.forecast_terms import MEMORY_TERMS, TERMS
from sglang_hydra.planning.choosing.forecast import Expected, forecast_of_plan, known_limit
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import by_estimate
from sglang_hydra.show.roofline import missing_lines, refusal_lines
from sglang_hydra.text.screen import Line, columns, folded, text
from sglang_hydra.text.words import program

SCHEMA = "sglang_hydra.forecast/1"
FORMULAS = (
    "step = sum of coefficient x term (bytes, FLOPs, exchanges, kernels of each layer)",
    "prompt = sum of coefficient x term (FLOPs, activations, exchanges)",
    "TPOT = step + mixed x B / output_len x prompt",
    "TTFT = own prompt + waiting for other prompts and for space in the KV cache",
    "tokens/s = B x output_len / (TTFT + (output_len - 1) x TPOT)",
)
NOTE = "Each interval holds 80 % of the measurements that a fit had not seen: docs/forecast.md says where it is weak."
MARK = "forecast"
_SMALL = 0.02


def forecast_record(plan: Plan, points: Sequence[Point] = ()) -> dict[str, object]:
    """Returns ``explain forecast --json``: seconds and rates, each with its interval. Null where a fact is missing."""
    known = forecast_of_plan(plan, points)
    found = known.found
    limit = known_limit(plan).limit
    return {
        "schema": SCHEMA,
        "gpu": plan.gpu.name,
        "basis": plan.basis,
        "formulas": list(FORMULAS),
        "unknown": list(known.unknown),
        "forecast": known.to_json(),
        "parts": {"step": dict(found.step), "prompts": dict(found.prompts)} if found else None,
        "limit": limit._asdict() if limit else None,
    }


def forecast_lines(plan: Plan, points: Sequence[Point] = ()) -> list[Line]:
    """Returns ``explain forecast``: the expected performance, the parts of the time, the formula."""
    known = forecast_of_plan(plan, points)
    title: Line = [text(f"Forecast: {plan.gpu.name}", "bold")]
    if known.found is None or known.server is None or known.demand is None:
        return [title, *refusal_lines(plan), *missing_lines(known.unknown)]
    found, server = known.found, known.server
    lines: list[Line] = [
        *folded([*title, text(f" x {server.gpus}"), text(by_estimate(plan), "yellow")]),
        *folded([text("  "), text(demand_words(known.demand, found))]),
        *refusal_lines(plan),
        [],
        *columns(list(_figures(plan, known, found))),
        *_unused(plan, known),
    ]
    for reason in found.reasons:
        lines += folded([text(f"  wider: {reason}", "yellow")])
    lines += [[], [text("What takes the time of a token", "bold")], *columns(list(_parts(found))), []]
    lines += [[text("What would help most", "bold")], *_helps(server, found), [], [text("Formula", "bold")]]
    for formula in FORMULAS:
        lines += folded([text("  "), text(formula, "dim")])
    return [*lines, [], *folded([text(NOTE, "dim")])]


def short_lines(plan: Plan, points: Sequence[Point] = ()) -> list[Line]:
    """Returns the forecast below a plan (``plan --load``)."""
    known = forecast_of_plan(plan, points)
    if known.found is None or known.demand is None:
        return [[text("Forecast", "bold")], *missing_lines(known.unknown)]
    words = f" of {demand_words(known.demand, known.found)}"
    head = [text("Forecast", "bold"), text(words), text(by_estimate(plan), "yellow")]
    return [*folded(head), *columns(list(_figures(plan, known, known.found))), *_unused(plan, known)]


def _unused(plan: Plan, known: Expected) -> list[Line]:
    """Warns that the named measurements correct nothing."""
    folders = plan.nodes.forecast.results
    if not folders or known.own is not None:
        return []
    words = f"  forecast.results has no valid point of this model on {plan.gpu.name}: {program()} report {folders[0]}"
    return folded([text(words, "yellow")])


def demand_words(demand: Demand, found: Forecast) -> str:
    """Formats ``64 requests of 1,024 + 128 tokens, 32 of them running``."""
    running = f", {found.running:,.0f} of them running" if found.running < demand.concurrency else ""
    cached = ", cache hits unknown" if demand.cached is None else ""
    size = f"{demand.input_len:,.0f} + {demand.output_len:,.0f} tokens"
    return f"{demand.concurrency:,.0f} requests of {size}{running}{cached}"


def milliseconds(figure: Figure | None) -> str:
    """Formats ``19.2 ms (14 to 25)``."""
    if figure is None:
        return "?"
    return f"{_short(figure.value * 1e3, 3)} ms ({_short(figure.low * 1e3)} to {_short(figure.high * 1e3)})"


def rate(figure: Figure) -> str:
    """Formats ``2,410 (1,900 to 3,100)``."""
    return f"{_short(figure.value, 3)} ({_short(figure.low)} to {_short(figure.high)})"


def _short(number: float, digits: int = 2) -> str:
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:,.0f}" if rounded >= 10 ** (digits - 1) else f"{rounded:,.{digits}g}"


def _figures(plan: Plan, known: Expected, found: Forecast) -> Iterator[list[tuple[str, str]]]:
    limit = known_limit(plan).limit
    mark = f"{MARK}, corrected by your measurements" if known.own is not None else MARK
    least = f"; limit {limit.tpot_all * 1e3:,.1f} ms" if limit else ""
    most = f"; limit {limit.tokens_per_gpu:,.0f}" if limit else ""
    ttft = milliseconds(found.ttft) if found.ttft else "withheld: cache hits are unknown"
    yield _row("TPOT", milliseconds(found.tpot), f"{mark}{least}")
    yield _row("TTFT", ttft, mark if found.ttft else "")
    yield _row("output tokens/s of one GPU", rate(found.tokens_per_gpu), f"{mark}{most}")
    yield _row("output tokens/s", rate(found.tokens), mark)
    least_made = break_even(known.server, known.demand, found, known.own) if known.server and known.demand else None
    if least_made and known.server and known.demand:
        made = f"{accepted(known.server, known.demand):.1f} expected of {known.server.roofline.tokens}"
        yield _row("speculation pays from", f"{least_made:.1f} tokens a step", made)
    yield _row("requests/s", rate(found.requests), "more arrive: the queue grows" if known.too_much else mark)


def _row(name: str, value: str, note: str) -> list[tuple[str, str]]:
    return [text(f"  {name}"), text(value), text(note, "dim")]


def _parts(found: Forecast) -> Iterator[list[tuple[str, str]]]:
    """Yields the largest parts of TPOT, and the rest in one row."""
    parts = sorted({**found.step, **found.prompts}.items(), key=lambda item: -item[1])
    whole = sum(seconds for _, seconds in parts) or 1.0
    rest = sum(seconds for _, seconds in parts if seconds < _SMALL * whole)
    shown = [(name, seconds) for name, seconds in parts if seconds >= _SMALL * whole]
    for name, seconds in [*shown, *([("others", rest)] if rest else [])]:
        about = TERMS[name].what if name in TERMS else "assumed: between nodes, or without CUDA graphs"
        share = [text(f"  {seconds * 1e3:,.2f} ms"), text(f"{100 * seconds / whole:.0f} %")]
        yield [*share, text(name), text("" if name == "others" else about, "dim")]


def _helps(server: ForecastServer, found: Forecast) -> list[Line]:
    """Returns advice for the largest group of parts."""
    step = {name: seconds for name, seconds in found.step.items() if name in TERMS}
    memory = sum(seconds for name, seconds in step.items() if TERMS[name].group == MEMORY_TERMS)
    prompts, waits = sum(found.prompts.values()), sum(step.values()) - memory
    if prompts >= max(memory, waits):
        words = "prompts: fewer or shorter ones, a prefix cache, or servers of their own for them (disaggregation)"
    elif memory >= waits:
        cache = step["cache"] + step["states"] > step["weights"] + step["experts"]
        words = "reading the KV cache: kv_cache_dtype=fp8_e4m3, or more GPUs" if cache else "reading weights: "
        if not cache:
            words += "FP8 or FP4 ones, more GPUs, or more requests that share each reading"
    elif server.roofline.tokens == 1:
        words = "waiting for kernels and other GPUs: speculation (more tokens a step), fewer GPUs, or more requests"
    else:
        words = "waiting for kernels and other GPUs: fewer GPUs, or more requests a step"
    return folded([text("  "), text(words)])


def cell(expected: Expected) -> list[tuple[str, str]]:
    """Returns the forecast for a table: output tokens/s of one GPU and TPOT in ms, each with its interval."""
    if expected.found is None:
        return [text("?"), text("?")]
    return [text(rate(expected.found.tokens_per_gpu)), text(milliseconds(expected.found.tpot).replace(" ms", ""))]


TITLES = ("forecast tok/s/GPU", "forecast TPOT ms")
