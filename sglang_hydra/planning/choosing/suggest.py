"""Suggests plans for a model, GPUs and a load: sizes and forecasts every layout, then plans the best ones."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import exp, log
from typing import NamedTuple

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.fit.forecast import ALL_TO_ALL, ASSUMED, Figure, Forecast, forecast
from sglang_hydra.fit.forecast_own import Point
from sglang_hydra.fit.result import Fit, Wanted
from sglang_hydra.fit.roofline import Limit
from sglang_hydra.planning.choosing.forecast import Expected, forecast_of_plan, known_limit
from sglang_hydra.planning.choosing.layouts import MOST_FULL, Layout, larger_share, layouts_of, stretched
from sglang_hydra.planning.making.make import make_plan, plan_composed
from sglang_hydra.planning.making.memory import fit_settings
from sglang_hydra.planning.making.replan import typed_in_place
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.progress import counted
from sglang_hydra.text.user_settings import settings
from sglang_hydra.text.words import typed

LATENCY, THROUGHPUT, FEWEST, COST = "latency", "throughput", "gpus", "cost"
GOALS = {
    FEWEST: "the fewest GPUs, then the least TPOT",
    LATENCY: "the least TPOT with all requests running, then the fewest GPUs",
    THROUGHPUT: "the most output tokens/s of one GPU with as many requests as it holds, then many GPUs",
    COST: "the least price of a million output tokens under the load, then the fewest GPUs",
}
"""The ranking of each goal. Forecasts that differ by less than ``EQUAL`` count as equal."""
EQUAL = 0.05
_MOST, _MOST_PLANNED = 5, 6
_SEED = 42
_MILLION, _HOUR = 1e6, 3600


class Slo(NamedTuple):
    """The required latency of a forecast, in ms; None means no requirement."""

    ttft: float | None = None
    tpot: float | None = None

    def met(self, found: Forecast | None) -> bool | None:
        """Returns whether the forecast's value is within the SLO; None without a forecast."""
        if found is None or (self.ttft is not None and found.ttft is None):
            return None if self != Slo() else True
        tpot = self.tpot is None or found.tpot.value * 1e3 <= self.tpot
        return tpot and (self.ttft is None or found.ttft is None or found.ttft.value * 1e3 <= self.ttft)


class Suggestion(NamedTuple):
    """A launchable plan that holds the load: the added words, its GPUs, the concurrent requests of the stated length,
    the hardware's limit, the forecast under the load, the forecast with as many requests as it holds, and the price of
    a million output tokens (None: without a price)."""

    words: tuple[str, ...]
    plan: Plan
    gpus: int
    requests: int
    limit: Limit | None
    expected: Expected
    full: Forecast | None
    cost: Figure | None
    slo: bool | None

    @property
    def keeps_model(self) -> bool:
        """Returns whether the weights are the requested ones."""
        return not any(word.startswith(("model_path=", "quantization=")) for word in self.words)

    def measure(self, goal: str) -> float | None:
        """Returns the number that the goal ranks by; smaller is better."""
        return _measure(goal, self.expected.found, self.full, self.cost.value if self.cost else None)

    def rank(self, goal: str, best: float) -> tuple[object, ...]:
        """Returns the rank: smaller is better; ``best`` is the least measure of all. A plan outside the SLO comes after
        those within."""
        keys = _keys(goal, self.gpus, self.measure(goal), best)
        return (self.slo is False, *keys, not self.keeps_model, _plainness(self.words))


def suggestions(
    composer: Composer,
    requests: Sequence[Request],
    classes: Sequence[str],
    goal: str,
    slo: Slo | None = None,
    points_of: Callable[[Plan], Sequence[Point]] = lambda plan: (),
    *,
    thorough: bool = True,
) -> list[Suggestion]:
    """Returns the best plans on each of these GPU classes (() means the class of ``requests``), best first, with one of
    the requested weights among them. ``points_of`` reads the user's own measurements for a plan. Where no layout holds
    the load by estimate, every layout is planned nevertheless; unless ``thorough`` (the page's catalog), only a few.
    Raises ConfigError for requests without a possible plan, and for a goal without a price."""
    made: list[Suggestion] = []
    for words in [[f"gpu={name}"] for name in classes] or [[]]:
        asked = typed_in_place(composer, requests, words)
        made += _on_class(composer, asked, words, goal, slo or Slo(), points_of, thorough)
    best = _least(suggestion.measure(goal) for suggestion in made if suggestion.slo is not False)
    found: dict[tuple[object, ...], Suggestion] = {}
    for suggestion in sorted(made, key=lambda suggestion: suggestion.rank(goal, best)):
        found.setdefault((suggestion.plan.gpu.name, suggestion.gpus, suggestion.keeps_model), suggestion)
    every = list(found.values())
    ranked = [one for place, one in enumerate(every) if not any(_as_good(other, one) for other in every[:place])]
    own = next((suggestion for suggestion in ranked if suggestion.keeps_model), None)
    if own is None or own in ranked[:_MOST]:
        return ranked[:_MOST]
    return [*ranked[: _MOST - 1], own]


def _as_good(other: Suggestion, one: Suggestion) -> bool:
    """Returns whether ``other`` takes fewer GPUs of the same class and is not worse in weights, SLO, speed or
    throughput."""
    if other.plan.gpu.name != one.plan.gpu.name or other.gpus >= one.gpus or other.keeps_model < one.keeps_model:
        return False
    mine, theirs = one.expected.found, other.expected.found
    if mine is None or theirs is None or one.full is None or other.full is None or (one.slo and not other.slo):
        return False
    slower = theirs.tpot.value > mine.tpot.value * (1 + EQUAL)
    return not slower and other.full.tokens_per_gpu.value >= one.full.tokens_per_gpu.value * (1 - EQUAL)


def _on_class(
    composer: Composer,
    requests: list[Request],
    words: Sequence[str],
    goal: str,
    slo: Slo,
    points_of: Callable[[Plan], Sequence[Point]],
    thorough: bool,
) -> Iterator[Suggestion]:
    """Plans the most promising layouts until some hold the load; all of them before the first is found."""
    base = _plan(composer, requests)
    if base.fit is None:
        if base.errors:
            raise ConfigError(*make_plan(composer, requests).errors)
        return
    if (longer := stretched(base, _wanted(base).context)) is not None:
        requests, words = typed_in_place(composer, requests, [longer]), [*words, longer]
        base = _plan(composer, requests)
    price, points = _price(base, goal), points_of(base)
    typed = {request.name for request in requests}
    every = layouts_of(base, _wanted(base), fill=goal == THROUGHPUT)
    layouts = [layout for layout in every if not typed & set(layout.change)]
    kept: set[tuple[int, bool]] = set()
    planned = 0
    sure = [layout for layout in layouts if layout.holds and not layout.lossy and slo.met(layout.found) is not False]
    best = _least(_promised(layout, goal, price) for layout in sure)
    promising = sorted(layouts, key=lambda layout: _promise(layout, goal, price, slo, best))
    for layout in counted(promising, f"layouts on {base.gpu.name}", len(promising)):
        own = not {"model_path", "quantization"} & set(layout.change)
        missing = (thorough or layout.holds) and (not any(keeps for _, keeps in kept) if own else not kept)
        if (layout.gpus, own) in kept or (planned >= _MOST_PLANNED and not missing):
            continue
        planned += 1
        suggestion = _suggestion(composer, requests, words, layout.change, price, slo, points)
        if suggestion is not None:
            kept.add((layout.gpus, own))
            yield suggestion


def _promise(layout: Layout, goal: str, price: float | None, slo: Slo, best: float) -> tuple[object, ...]:
    """Returns the expected rank of a layout; layouts that surely do not hold the load come last."""
    within = slo.met(layout.found) is not False
    keys = _keys(goal, layout.gpus, _promised(layout, goal, price), best)
    return (not layout.holds, not within, layout.lossy, *keys, _plainness(tuple(layout.change)))


def _promised(layout: Layout, goal: str, price: float | None) -> float | None:
    cost = _cost(layout.found, price, layout.gpus)
    return _measure(goal, layout.found, layout.full, cost.value if cost else None)


def _plainness(names: Sequence[str]) -> tuple[bool, int]:
    """Returns the order of plans that are equal within the error: drafts first, because their forecast uses the
    acceptance of random tokens and text gains more; then fewer changes."""
    return not any(name.startswith("speculative_") for name in names), len(names)


def _measure(goal: str, found: Forecast | None, full: Forecast | None, cost: float | None) -> float | None:
    """Returns the number that a goal ranks by, smaller is better: TPOT, the time of a token of one GPU, the price.
    All-to-all was never measured, so it must promise more than its additional error."""
    value = found.tpot.value if found else None
    if goal == COST:
        value = cost
    elif goal == THROUGHPUT:
        value = 1 / full.tokens_per_gpu.value if full else None
    return value * exp(ASSUMED) if value and found and ALL_TO_ALL in found.reasons else value


def _keys(goal: str, gpus: int, measure: float | None, best: float) -> tuple[object, ...]:
    """Returns the sort key of a goal; measures within ``EQUAL`` of the best count as equal to it."""
    steps = int(log(measure / best) / EQUAL) if measure else float("inf")
    return {FEWEST: (gpus, steps), LATENCY: (steps, gpus), THROUGHPUT: (steps, -gpus), COST: (steps, gpus)}[goal]


def _least(measures: Iterable[float | None]) -> float:
    return min((measure for measure in measures if measure), default=1.0)


def _suggestion(
    composer: Composer,
    requests: list[Request],
    words: Sequence[str],
    change: Mapping[str, object],
    price: float | None,
    slo: Slo,
    points: Sequence[Point],
) -> Suggestion | None:
    """Returns the plan with these arguments added; with a larger memory fraction where the release's own holds too
    little. None where it cannot be launched or holds too little."""
    added = [f"{name}={typed(value)}" for name, value in change.items()]
    try:
        plan = _plan(composer, typed_in_place(composer, requests, added))
    except ConfigError:
        return None
    if plan.fit is None:
        return None
    if not serves(plan):
        more = _more_room(plan, plan.fit)
        return _suggestion(composer, requests, words, {**change, **more}, price, slo, points) if more else None
    wanted = _wanted(plan)
    context = wanted.context or (plan.fit.kv.context if plan.fit.kv else 0)
    held = plan.fit.concurrent_requests(context) or 0
    expected = forecast_of_plan(plan, points)
    full = None
    server, demand, own = expected.server, expected.demand, expected.own
    if server is not None and demand is not None and held:
        steady = demand._replace(rounds=None)
        expected = expected._replace(demand=steady, found=forecast(server, steady, own=own))
        most = min(held, MOST_FULL * server.roofline.copies)
        full = forecast(server, steady._replace(concurrency=most), own=own)
    gpus = plan.fit.gpus
    cost = _cost(expected.found, price, gpus)
    met = slo.met(expected.found)
    return Suggestion((*words, *added), plan, gpus, held, known_limit(plan).limit, expected, full, cost, met)


def _more_room(plan: Plan, fit: Fit) -> Mapping[str, object]:
    """Returns the argument with which the same layout may hold the load: a larger memory fraction, or no more requests
    than wanted where their states take the whole pool. {} where neither helps."""
    if fit.fits:
        return {} if "mem_fraction_static" in plan.intent else larger_share(fit)
    users = None if "max_running_requests" in plan.intent else _wanted(plan).users
    return {"max_running_requests": users} if users and fit.kv is not None and fit.kv.is_taken_by_requests else {}


def _price(plan: Plan, goal: str) -> float | None:
    """Returns the price of one GPU hour. Raises ConfigError where the goal needs it and it is unset."""
    price = plan.nodes.forecast.price.get(plan.gpu.name)
    if price is None:
        price = settings().price_of(plan.gpu.name)
    if price is None and goal == COST:
        hint = f"forecast.price.{plan.gpu.name}=3.5, in your currency for an hour of one GPU"
        raise ConfigError.of("SUG003", f"goal=cost needs the price of {plan.gpu.name}", "forecast.price", hint=hint)
    return None if price is None else float(price)


def _cost(found: Forecast | None, price: float | None, gpus: int) -> Figure | None:
    """Returns the price of a million output tokens."""
    return found.tokens.inverse(price * gpus * _MILLION / _HOUR) if found and price is not None else None


def serves(plan: Plan) -> bool:
    """Returns whether a plan is launchable, fits with the likeliest numbers, and holds the load of ``fit``: by default
    one request of the longest that the server takes."""
    fit = plan.fit
    if plan.launchable is False or fit is None:
        return False
    return bool(fit.fits) and not fit.tight and not fit.shortage(_wanted(plan))


def longest_taken(composer: Composer, requests: Sequence[Request], classes: Sequence[str]) -> int | None:
    """Returns the model's longest request in tokens, where the load's requests are longer; else None."""
    plan = _plan(composer, typed_in_place(composer, requests, [f"gpu={name}" for name in classes[:1]]))
    most, wanted = plan.fit and plan.fit.kv and plan.fit.kv.context, _wanted(plan).context
    return most if most and wanted and most < wanted else None


def _plan(composer: Composer, requests: Sequence[Request]) -> Plan:
    return plan_composed(composer, requests, composer.compose(requests), seed=_SEED, with_remedies=False)


def _wanted(plan: Plan) -> Wanted:
    return fit_settings(plan.nodes.fit)[1]


def command_of(typed: Sequence[str], suggestion: Suggestion) -> str:
    """Returns the serve command: the typed words, with the suggestion's words in place."""
    named = {word.partition("=")[0] for word in suggestion.words}
    kept = [word for word in typed if word.partition("=")[0] not in named]
    return shlex.join(["sglang-hydra", "serve", *kept, *suggestion.words])
