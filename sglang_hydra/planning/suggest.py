"""Plans to choose from for a model, GPUs and a load: the layouts of the engine of remedies, ranked by a goal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.fit.remedy import layouts, smaller, spelled
from sglang_hydra.fit.result import Wanted
from sglang_hydra.fit.roofline import Limit
from sglang_hydra.planning.make import make_plan, plan_composed
from sglang_hydra.planning.memory import fit_settings
from sglang_hydra.planning.offers import typed_in_place
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.roofline import known_limit
from sglang_hydra.text.errors import ConfigError

LATENCY, THROUGHPUT, FEWEST = "latency", "throughput", "gpus"
GOALS = {
    FEWEST: "the fewest GPUs, then the least TPOT that the hardware allows",
    LATENCY: "the least TPOT that the hardware allows with all requests running, then the fewest GPUs",
    THROUGHPUT: "the most output tokens/s of one GPU that the hardware allows with a full KV cache, then few GPUs",
}
"""How each goal ranks."""
_MOST, _MOST_OF_OTHERS = 4, 1
_SEED = 42
_LEAST_KEPT = {"": 0.9, "quantization": 0.45, "model_path": 0.2}
"""The least of the weights' bytes that a change of one of these leaves: what all ranks hold is divided by none."""


class Suggestion(NamedTuple):
    """A plan that can be launched and holds the load: what was added to the words, the GPUs that it takes, requests of
    the stated length that run at a time, the hardware's limit with the load, and with as many requests as it holds."""

    words: tuple[str, ...]
    plan: Plan
    gpus: int
    requests: int
    limit: Limit | None
    full: Limit | None

    @property
    def keeps_model(self) -> bool:
        """Whether the weights are those that were asked for."""
        return not any(word.startswith(("model_path=", "quantization=")) for word in self.words)

    def rank(self, goal: str) -> tuple[Any, ...]:
        """Smaller is better. Where the limit is unknown, the plan comes after those that have one."""
        slowest = self.limit.tpot_all if self.limit else float("inf")
        most = -self.full.tokens_per_gpu if self.full else float("inf")
        kept = len(self.words)
        return {FEWEST: (self.gpus, slowest), LATENCY: (slowest, self.gpus), THROUGHPUT: (most, self.gpus)}[goal] + (
            kept,
        )


def suggestions(composer: Composer, requests: Sequence[Request], classes: Sequence[str], goal: str) -> list[Suggestion]:
    """The best plans on each of these GPU classes (() is the one of ``requests``), best first: those with the weights
    that were asked for, then one with others. Raises ConfigError for requests of which no plan can be made."""
    found: dict[tuple[Any, ...], Suggestion] = {}
    for words in [[f"gpu={name}"] for name in classes] or [[]]:
        for suggestion in _on_class(composer, typed_in_place(composer, requests, words), words):
            key = (suggestion.plan.gpu.name, suggestion.gpus, suggestion.keeps_model)
            if key not in found or suggestion.rank(goal) < found[key].rank(goal):
                found[key] = suggestion
    ranked = sorted(found.values(), key=lambda suggestion: suggestion.rank(goal))
    own = [suggestion for suggestion in ranked if suggestion.keeps_model][:_MOST]
    others = [suggestion for suggestion in ranked if not suggestion.keeps_model]
    return own + others[: _MOST_OF_OTHERS if own else _MOST]


def _on_class(composer: Composer, requests: list[Request], words: Sequence[str]) -> Iterator[Suggestion]:
    """Each layout with the asked weights and cache where that holds the load, else with a smaller cache; and with the
    first smaller checkpoint that does. More nodes are thought of where one gives too little choice."""
    base = _plan(composer, requests)
    if base.fit is None:
        if base.errors:
            raise ConfigError(*make_plan(composer, requests).errors)
        return
    typed = {request.key or request.text.partition("=")[0] for request in requests}
    start = {**base.values, **{name: 1 for name in ("tp_size", "dp_size", "nnodes") if name not in typed}}
    sizes: set[int] = set()
    for layout in layouts(start, base.gpu, replace(base.fit, fits=True)):
        if typed & set(layout) or (len(sizes) > 1 and "nnodes" in layout):
            continue
        own = None
        for kind in smaller(base.values, base.gpu):
            held = ({**layout, **change} for change in kind if not typed & set(change))
            held = (change for change in held if not _too_heavy(base, change))
            found = next(filter(None, (_suggestion(composer, requests, words, change) for change in held)), None)
            if found is None or (own is not None and _weights(found) >= _weights(own)):
                continue
            own = own or found
            sizes.add(found.gpus)
            yield found


def _too_heavy(base: Plan, change: Mapping[str, Any]) -> bool:
    """Whether the weights alone are more than a GPU has, by those of ``base``: no release has to be asked of that."""
    if base.fit is None or not base.fit.weights.total or not base.fit.memory or base.values["enable_dp_attention"]:
        return False
    kept = min(share for name, share in _LEAST_KEPT.items() if name in change or not name)
    ranks = [values["tp_size"] * values["pp_size"] for values in (base.values, {**base.values, **change})]
    return bool(base.fit.weights.total * kept * ranks[0] / ranks[1] > base.fit.memory)


def _weights(suggestion: Suggestion) -> float:
    return (suggestion.plan.fit.weights.total if suggestion.plan.fit else None) or 0.0


def _suggestion(
    composer: Composer, requests: list[Request], words: Sequence[str], change: dict[str, Any]
) -> Suggestion | None:
    """The plan with these arguments on top; None where it cannot be launched or holds too little."""
    added = [f"{name}={spelled(value)}" for name, value in change.items()]
    try:
        plan = _plan(composer, typed_in_place(composer, requests, added))
    except ConfigError:
        return None
    if plan.fit is None or not serves(plan):
        return None
    wanted = _wanted(plan)
    context = wanted.context or (plan.fit.kv.context if plan.fit.kv else 0)
    held = plan.fit.concurrent_requests(context) or 0
    known = known_limit(plan)
    full = None
    if known.roofline is not None and known.load is not None and held:
        full = known.roofline.limit(known.load._replace(requests=held))
    return Suggestion((*words, *added), plan, plan.fit.gpus, held, known.limit, full)


def serves(plan: Plan) -> bool:
    """Whether a plan can be launched, fits with the likeliest numbers, and holds what ``fit`` asks for: without that,
    one request of the longest that the server takes."""
    fit = plan.fit
    return plan.launchable and fit is not None and bool(fit.fits) and not fit.tight and not fit.shortage(_wanted(plan))


def _plan(composer: Composer, requests: Sequence[Request]) -> Plan:
    return plan_composed(composer, requests, composer.compose(requests), seed=_SEED, with_remedies=False)


def _wanted(plan: Plan) -> Wanted:
    return fit_settings(plan.nodes["fit"])[1]


def command_of(typed: Sequence[str], suggestion: Suggestion) -> str:
    """The command that starts it: what was typed for the plan, with what was added in place."""
    named = {word.partition("=")[0] for word in suggestion.words}
    kept = [word for word in typed if word.partition("=")[0] not in named]
    return shlex.join(["sglang-hydra", "serve", *kept, *suggestion.words])
