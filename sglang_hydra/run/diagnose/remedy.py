"""Finds the smallest changes that fix the plan of a failed server, and offers only error-free plans."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.facts.hub import offline
from sglang_hydra.fit.overheads import GIB
from sglang_hydra.fit.result import Fit, gib
from sglang_hydra.planning.plan import Plan
from sglang_hydra.rules.rule import Facts
from sglang_hydra.run.diagnose.advice import SAID, SMALLER, with_costs
from sglang_hydra.run.diagnose.cause import Change
from sglang_hydra.run.diagnose.classes import FailureClass
from sglang_hydra.run.diagnose.diagnosis import Diagnosis
from sglang_hydra.run.diagnose.log_facts import LogNumbers
from sglang_hydra.run.diagnose.replan import Replanned, replan
from sglang_hydra.text.budget import read_yaml
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.screen import shown

_MOST_OFFERED = 4
_ODD_GIB = 1.0
"""GiB of free memory below the plan's lowest figure from which another process is named."""
_OTHER_WEIGHTS = 0.05
"""The share by which the fit of a checkpoint is never off (docs/measured.md): beyond it, it is another one."""
_STEP = 0.04
_LEAST_STEP = 0.01
_TRIED = 12
_MOST_GRAPHS = 160
"""The largest batch of a graph where the plan does not know it."""
_ARGUMENT = re.compile(r"[a-z][a-z0-9_.]*=")
_DIVIDED = re.compile(r"(\d{1,7}) is not divisible by (?:[\w ]{1,60}= ?|\w+ )?(\d{1,5})")
_ABSENT = object()
_BY_KIND = ("parallel_size", "too_few_gpus", "context_length")


def with_remedies(diagnosis: Diagnosis, composer: Composer, overrides: Sequence[Request] = ()) -> Diagnosis:
    """Puts changes that were planned without errors first in the diagnosis's advice.

    Keeps the advice of the class when nothing can be planned or no change is clean; ``notes`` say why."""
    if not _may_have_changes(diagnosis):
        return diagnosis
    planned = replan(diagnosis, composer, overrides)
    if isinstance(planned, str):
        return replace(diagnosis, notes=(*diagnosis.notes, planned))
    return _with_changes(diagnosis, planned, composer)


def _may_have_changes(diagnosis: Diagnosis) -> bool:
    """Returns whether a change of an argument may help; it does not for a cable or a full disk."""
    failure = diagnosis.failure
    by_class = failure is not None and (failure.memory or failure.changes or failure.kind in _BY_KIND)
    return failure is not None and (bool(by_class) or any(_by_code(diagnosis)))


def _by_code(diagnosis: Diagnosis) -> Iterator[tuple[Change, str]]:
    """Yields the changes that the log asks for, then those that make the failing condition false, with the reason."""
    cause = diagnosis.cause
    reasons = [({name: value}, one.why) for one in diagnosis.advised for name, value in one.changes.items()]
    asked: list[Change] = [change for change, _ in reasons]
    yield from reasons[:_MOST_OFFERED]
    if cause is None:
        return
    accepted = [change for change in cause.changes if change not in asked][:_MOST_OFFERED]
    yield from ((change, f"a condition at {cause.place} is then false") for change in accepted)
    defaults = () if asked else cause.defaults[:_MOST_OFFERED]
    yield from ((change, f"its default: a condition at {cause.place} reads it") for change in defaults)


def _with_changes(diagnosis: Diagnosis, planned: Replanned, composer: Composer) -> Diagnosis:
    """Replaces the hint by the changes whose plans have no errors, followed by the advice that sets no argument.

    Notes name the changes of log and code that are left out, and the whole command of the first one kept."""
    failure, first = diagnosis.failure, planned.plans[0]
    assert failure is not None
    offers: list[tuple[str, Plan]] = []
    notes = list(planned.remarks)
    for change, why in _by_code(diagnosis):
        text, plan = f"{_typed(change)} ({why})", _clean(composer, planned.requests[0], change, fitted=False)
        if plan is None and first.launchable is not False:
            notes.append(f"left out, as the plan with it has errors for SGLang {first.engine.version}: {text}")
        elif plan is not None:
            offers.append((text, plan))
    by_class: list[tuple[str, Plan]] = []
    for change in islice(_candidates(failure, diagnosis, first, composer), _TRIED):
        cleans = [_clean(composer, requests, change, fitted=failure.memory) for requests in planned.requests]
        if plans := [plan for plan in cleans if plan is not None] if None not in cleans else []:
            by_class.append((_worded(change, plans), plans[0]))
        if len(by_class) == _MOST_OFFERED:
            break
    offers += by_class
    if plan := next((plan for _, plan in offers if plan.command), None):
        by = plan.engine.version if plan.basis in ("exact", "recorded") else "an estimate"
        words = list(plan.command)
        if plan.seed_drawn and "--random-seed" in words:
            del words[(at := words.index("--random-seed")) : at + 2]
        notes.append(f"the whole command, planned by {by}: {shlex.join(words)}")
    diagnosis = replace(diagnosis, notes=(*diagnosis.notes, *notes))
    if not offers:
        return diagnosis
    remedies = with_costs([text for text, _ in offers], diagnosis.kind)
    general = [remedy for remedy in diagnosis.finding.shown if not _ARGUMENT.match(remedy.said)]
    heard = [remedy for remedy in general if remedy.said.startswith(SAID)]
    rest = [remedy for remedy in general if remedy not in heard]
    return replace(diagnosis, finding=diagnosis.finding.said([*heard, *remedies, *rest]), remedies=tuple(remedies))


def _typed(change: Change) -> str:
    return " ".join(f"{name}={shown(value)}" for name, value in change.items())


def with_plan(diagnosis: Diagnosis, plan: Plan, composer: Composer, requests: Sequence[Request]) -> Diagnosis:
    """Adds the plan's predictions beside the log's measurements, and changes that were planned without errors on it.

    The server was started from ``plan``; ``requests`` compose that plan."""
    missing = _missing_gib(diagnosis.numbers, plan.fit)
    diagnosis = replace(diagnosis, notes=(*diagnosis.notes, *_beside_the_plan(diagnosis.numbers, plan.fit)))
    if _may_have_changes(diagnosis):
        diagnosis = _with_changes(diagnosis, Replanned((plan,), (tuple(requests),), ()), composer)
    if not missing or diagnosis.failure is None or not diagnosis.failure.memory:
        return diagnosis
    first = f"nvidia-smi names the process that holds {missing:,.1f} GiB: end it, and start the server again"
    return replace(diagnosis, finding=diagnosis.finding.said([first, *diagnosis.finding.shown]))


def _beside_the_plan(numbers: LogNumbers, fit: Fit | None) -> Iterator[str]:
    """Yields the plan's figures beside the log's, in GiB of one rank, and the meaning of a difference."""
    if fit is None:
        return
    free, weights = gib(fit.free.mid) if fit.free else None, gib(fit.weights.total)
    both = (
        (free, numbers.before_gb, "{:,.1f} GiB free before loading, {:,.1f} measured"),
        (weights, numbers.weights_gb, "{:,.1f} GiB of weights, {:,.1f} measured"),
        (fit.kv_tokens, numbers.tokens, "{:,} KV tokens, {:,} measured"),
    )
    said = [text.format(planned, seen) for planned, seen, text in both if planned is not None and seen is not None]
    if said:
        yield f"planned {'; '.join(said)}"
    if missing := _missing_gib(numbers, fit):
        yield f"{missing:,.1f} GiB fewer were free than planned: another process held them"
    if weights and numbers.weights_gb and abs(numbers.weights_gb / weights - 1) > _OTHER_WEIGHTS:
        yield "the weights are not those of the plan: another checkpoint, format or size of the tensor parallel group"


def _missing_gib(numbers: LogNumbers, fit: Fit | None) -> float | None:
    """Returns the free memory before loading that the plan expects and the log lacks, in GiB; None if it was there."""
    if fit is None or fit.free is None or numbers.before_gb is None:
        return None
    return fit.free.mid / GIB - numbers.before_gb if numbers.before_gb < fit.free.low / GIB - _ODD_GIB else None


def _candidates(failure: FailureClass, diagnosis: Diagnosis, plan: Plan, composer: Composer) -> Iterator[Change]:
    """Yields changes worth planning for this class, each once, smallest first."""
    declared = (text.partition("=") for text in failure.changes)
    sources: list[Iterator[Change]] = [_by_kind(failure.kind, diagnosis, plan)]
    sources += [_fractions(failure, plan)] if failure.memory else []
    sources.append({name: read_yaml(value, "argument")} for name, _, value in declared)
    sources += [_fit_remedies(plan, composer)] if failure.memory else []
    seen: list[Change] = []
    for whole in chain(*sources):
        # In the names of the release, without the arguments that it lacks and the values that the plan already has.
        named = {name_in(name, plan.engine.version or ""): value for name, value in whole.items()}
        change = {name: value for name, value in named.items() if name and plan.values.get(name, _ABSENT) != value}
        if change and change not in seen and not _makes_it_worse(failure, change, plan):
            seen.append(change)
            yield change


def _makes_it_worse(failure: FailureClass, change: Change, plan: Plan) -> bool:
    """Returns whether ``change`` only sets mem_fraction_static too high, or at all after a failed load; or a size that
    the plan has smaller, or of graphs that it does not capture."""
    (name, value), *others = change.items()
    used = plan.values.get(name)
    if name.startswith("cuda_graph_max_bs"):
        made = plan.layout.graphs
        return not made.made or (made.largest or _MOST_GRAPHS) <= value
    if name in SMALLER:
        return used is not None and used <= value
    if name != "mem_fraction_static" or others or failure.kind == "mem_fraction_too_low":
        return False
    return failure.kind == "oom_load" or (isinstance(used, float) and value > used)


def _clean(composer: Composer, requests: Sequence[Request], change: Change, *, fitted: bool) -> Plan | None:
    """Returns the plan with ``change``, or None unless it can be launched and fits. ``fitted`` also rejects a plan
    without a known fit."""
    from sglang_hydra.planning.making.make import make_plan

    kept = [request for request in requests if request.text.partition("=")[0] not in change]
    typed = [Request.typed(name, value, "a change") for name, value in change.items()]
    try:
        plan = make_plan(composer, [*kept, *typed], env=offline())
    except ConfigError:
        return None
    fits = not fitted if plan.fit is None else plan.fit.fits is True and not plan.fit.tight
    return plan if plan.launchable is not False and fits else None


def _fractions(failure: FailureClass, plan: Plan) -> Iterator[Change]:
    """Yields another mem_fraction_static in the fit's interval: higher for lack of KV cache, else lower."""
    interval = plan.fit.interval if plan.fit else None
    used = plan.values.get("mem_fraction_static")
    if interval is None or interval.empty or not isinstance(used, float) or failure.kind == "oom_load":
        return
    middle = (interval.low + interval.high) / 2
    if failure.kind == "mem_fraction_too_low":
        wanted = [target for target in (used + _STEP, middle, interval.high - _LEAST_STEP) if target > used]
    else:
        wanted = [target for target in (used - _STEP, used - 2 * _STEP, middle) if target < used]
    found = (round(min(max(target, interval.low), interval.high), 2) for target in wanted)
    good = (fraction for fraction in found if fraction in interval and fraction != round(used, 2))
    yield from ({"mem_fraction_static": fraction} for fraction in islice(good, 1))


def _fit_remedies(plan: Plan, composer: Composer) -> Iterator[Change]:
    """Yields the fit's remedies when the server does not fit at all, then larger tensor parallel sizes."""
    if plan.fit is not None and plan.fit.fits is False:
        from sglang_hydra.planning.choosing.catalog import gpu_classes
        from sglang_hydra.planning.making.memory import fit_settings, remedies_of

        facts = Facts(plan.gpu, plan.model, plan.environment, 0, plan.intent, plan.engine.version)
        wanted = fit_settings(plan.nodes.fit)[1]
        for remedy in remedies_of(plan.resolution, facts, plan.fit, wanted, partial(gpu_classes, composer)):
            yield remedy.overrides
    size, here = int(plan.values.get("tp_size") or 1), plan.gpu.count or 8
    while size * 2 <= here:
        size *= 2
        yield {"tp_size": size}


def _by_kind(kind: str, diagnosis: Diagnosis, plan: Plan) -> Iterator[Change]:
    """Yields other tensor parallel sizes, the nearest first; smaller ones; or the context length that the log derives,
    then the model's own."""
    size, here = int(plan.values.get("tp_size") or 1), plan.gpu.count or 8
    if kind == "parallel_size":
        nearest = sorted((1, 2, 4, 8, 16), key=lambda other: (abs(other - size), other))
        numbers = _DIVIDED.search(diagnosis.line or "")
        part, by = (int(numbers[1]), int(numbers[2])) if numbers else (0, 1)
        if of_blocks := by not in (1, size):  # a part of one rank, by the blocks of the quantized weights
            nearest = [other for other in nearest if part * size % (other * by) == 0]
        yield from ({"tp_size": other, "nnodes": max(1, other // here)} for other in nearest if other != size)
        if of_blocks:
            yield {"enable_dp_attention": True, "dp_size": size, "moe_dense_tp_size": 1}
    elif kind == "too_few_gpus":
        yield from ({"tp_size": other} for other in (8, 4, 2, 1) if other < size)
    elif kind == "context_length":
        derived = diagnosis.numbers.derived
        yield from ({"context_length": length} for length in ([derived, None] if derived else [None]))


def _worded(change: Change, plans: Sequence[Plan]) -> str:
    """Returns ``mem_fraction_static=0.84 (0.71-0.86 works)``, or the KV tokens that the plan has capacity for."""
    typed = _typed(change)
    fits = [plan.fit for plan in plans if plan.fit is not None]
    if not fits:
        return typed
    intervals = [fit.interval for fit in fits if fit.interval is not None and not fit.interval.empty]
    if "mem_fraction_static" in change and len(intervals) == len(plans):
        low, high = max(item.low for item in intervals), min(item.high for item in intervals)
        return f"{typed} ({low:.2f}-{high:.2f} works)"
    tokens = [fit.kv_tokens for fit in fits if fit.kv_tokens is not None]
    return f"{typed} (capacity {min(tokens):,} KV tokens)" if tokens else typed
