"""Computes the memory fit of a plan, its meaning for the launch, and remedies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sglang_hydra.architecture.known import WrongField
from sglang_hydra.architecture.understanding import understand
from sglang_hydra.compose.schema import FitNode
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.fit.result import NOTHING_STATED, Wanted
from sglang_hydra.planning.making.by_release import resolver
from sglang_hydra.releases.provider import Provider
from sglang_hydra.rules.checks.launchable import run_plan_checks
from sglang_hydra.rules.resolution import Resolution, resolve
from sglang_hydra.rules.rule import Facts
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.findings import Remedy as Offered
from sglang_hydra.text.json_types import JsonDict, JsonObject

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composition
    from sglang_hydra.facts.gpu import GpuClass, GpuFacts
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.fit.host import HostMemory
    from sglang_hydra.fit.remedy import Remedy
    from sglang_hydra.fit.result import Fit
    from sglang_hydra.planning.making.target import Target
    from sglang_hydra.text.origins import Origin

Resolve = Callable[[Facts], Resolution]

_SHOWN_REMEDIES = 4
_MOST_GIB = 2**20


def fit_settings(settings: FitNode) -> tuple[float, Wanted]:
    """Returns the GiB that the ``fit`` node reserves on each GPU, and the wanted capacity. Raises ConfigError for
    invalid settings."""
    reserved, context, users = settings.reserved_gib, settings.context, settings.users
    wrong = {
        f"fit.reserved_gib={reserved} is no size in GiB": (not 0 <= reserved < _MOST_GIB, "fit.reserved_gib=2"),
        f"fit.context={context} is no number of tokens": (context is not None and context < 1, "fit.context=4096"),
        f"fit.users={users} is no number of requests": (users is not None and users < 1, "fit.users=8"),
    }
    findings = [
        Finding("error", "CLI022", message, (message.partition("=")[0],), hint)
        for message, (is_wrong, hint) in wrong.items()
        if is_wrong
    ]
    if findings:
        raise ConfigError(*findings)
    return float(reserved), Wanted(context, users)


def fit_of(resolution: Resolution, facts: Facts, reserved_gib: float = 0.0, *, sized_end: bool = True) -> Fit | None:
    """Returns the fit of the resolved values, also where SGLang refuses them for another reason; None without a GPU of
    known memory, or without a known model. ``sized_end`` as for ``fit``. Raises ConfigError for a config.json with
    impossible sizes."""
    gpu = facts.gpu
    if gpu.memory_mib is None or gpu.device in (None, "cpu") or not facts.model.known:
        return None
    from sglang_hydra.fit.checkpoint import read_checkpoint
    from sglang_hydra.fit.sizing import fit

    path = str(resolution.values["model_path"])
    # A path that no file can have (half a character) does not exist; opening it would fail.
    weights = read_checkpoint(path) if os.path.exists(path) else None
    later: JsonDict = {"disable_hybrid_swa_memory": False}  # of releases after 0.5.2, whose values an estimate has
    if "DeepseekV4ForCausalLM" in ((facts.model.config or {}).get("architectures") or ()):
        later["max_running_requests"] = 256  # 0.5.23 arg_groups/deepseek_v4_hook.py:142
    values, later = resolution.values, {name: each for name, each in later.items() if name in resolution.unknown}
    found = fit(
        {**values, **later} if later else values,
        gpu,
        facts.model,
        reserved_gib=reserved_gib,
        draft=facts.model.draft,
        weights=weights,
        sized_end=sized_end,
        release=None if Provider(resolution.release).is_by_rules else resolution.release,
        estimated=resolution.basis == "rules",
        layout=resolution.layout,
    )
    if resolution.basis != "rules":
        return found
    note = f"an estimate: SGLang {resolution.release} was not asked for its values, and may keep more or less free"
    if found.fits is False and not _fails_for_all(found, resolution.intent):
        unknown = (*found.unknown, f"the values of SGLang {resolution.release}")
        found = found._replace(fits=None, reasons=(), unknown=unknown)
    return found._replace(notes=(*found.notes, note))


def _fails_for_all(found: Fit, typed: JsonObject) -> bool:
    """Returns whether a misfit needs no value that only the release knows: the weights leave nothing of the memory, or
    of its typed fraction; the states of the typed number of requests leave no token of that fraction."""
    has_states = found.kv is not None and (found.kv.state or found.kv.sliding_tokens is not None)
    decided = {"mem_fraction_static", "max_running_requests"} if has_states else {"mem_fraction_static"}
    if decided <= typed.keys() and found.kv_tokens == 0:
        return True
    weights, free = found.weights.loading or 0.0, found.free.high if found.free is not None else 0.0
    return weights - found.weights.slack > free * float(typed.get("mem_fraction_static") or 1)


def fit_with_findings(
    target: Target, resolution: Resolution, read_classes: Callable[[], Sequence[GpuClass]] | None
) -> tuple[Fit | None, list[Finding]]:
    """Returns the fit of a target, None where it cannot be computed, and the findings on it, with remedies where
    ``read_classes`` gives the GPU classes of the catalog."""
    composition, facts, is_probed = target.composition, target.facts, "host_memory_gib" in target.hardware.facts
    reserved, wanted = fit_settings(composition.nodes.fit)
    try:
        fit = fit_of(resolution, facts, reserved)
    except ConfigError as failure:  # a config.json or a checkpoint with impossible sizes
        return None, list(_with_setter(failure, resolution, facts, composition.settings))
    if fit is None:
        return None, []
    shared, of_trainer = _beside_trainer(composition, resolution, facts, fit)

    def remedies() -> Sequence[Remedy]:
        if read_classes is None:
            return ()
        usual = not is_probed and "gpu.count" not in composition.settings
        resolve_with = resolver(target)
        return remedies_of(resolution, facts, fit, wanted, read_classes, reserved, resolve_with, usual_count=usual)

    of_host = _host_findings(resolution, facts, fit, is_probed or "gpu.host_memory_gib" in composition.settings)
    return shared, [*fit_findings(fit, remedies, wanted, refused=not resolution.ok), *of_host, *of_trainer]


def _beside_trainer(
    composition: Composition, resolution: Resolution, facts: Facts, fit: Fit
) -> tuple[Fit, Sequence[Finding]]:
    """Returns ``fit`` with the trainer that shares its GPUs, and the findings on that. Raises ConfigError for invalid
    settings."""
    settings = composition.nodes.plain["colocate"]
    if settings["trainer_gib"] is None and settings["keeps"] is None:
        return fit, ()
    from sglang_hydra.fit.colocate import colocated, findings, wrong_settings

    if wrong := wrong_settings(settings):
        raise ConfigError(*wrong)
    known = understand(resolution.values, facts.gpu, facts.model, resolution.release)
    shared = colocated(fit, known, resolution.values, settings)
    return fit._replace(colocated=shared), list(findings(shared, fit, resolution.values))


def node_memory(resolution: Resolution, fit: Fit) -> HostMemory:
    """Returns the server's host memory on one node."""
    from sglang_hydra.fit.host import host_memory

    layout = resolution.layout
    ranks = len(layout.gpu_numbers()) or layout.gpus // max(layout.nodes, 1)
    return host_memory(resolution.values, resolution.intent, fit.kv, ranks, resolution.release)


def _host_findings(resolution: Resolution, facts: Facts, fit: Fit, is_told: bool) -> Iterator[Finding]:
    """Yields the finding on a node with too little memory for its server.

    It is an error where the memory of this node ``is_told``, else a warning: the class states the usual one."""
    node, values = facts.gpu.extra.get("host_memory_gib"), resolution.values
    if node is None or not (values.get("enable_hierarchical_cache") or values.get("cpu_offload_gb")):
        return
    from sglang_hydra.fit.host import RESERVE_GIB, fitting_word

    host = node_memory(resolution, fit)
    if host.pinned is None:
        return
    pinned = host.pinned / 2**30
    if not host.pinned or pinned + RESERVE_GIB <= node:
        return
    pools = {"the hierarchical cache": 0 if host.elastic else host.cache, "offloaded weights": host.offloaded}
    what = " and ".join(name for name, size in pools.items() if size)
    each = f", {pinned / host.ranks:,.1f} GiB for each of its {host.ranks} GPUs" if host.ranks > 1 else ""
    rounded = ", rounded up to a power of two" if host.rounded else ""
    there = f"the node has {node:,.0f} GiB, of which SGLang leaves {RESERVE_GIB} free"
    message = f"{what} of a node: {pinned:,.0f} GiB{each}{rounded}; {there}"
    word = fitting_word(values, fit.kv, host, float(node)) if fit.kv else None
    of_cache = [*([word] if word else []), "enable_hierarchical_cache=false"]
    offers = of_cache if host.cache and not host.elastic else ["cpu_offload_gb=0"]
    fields = ("hicache_ratio", "hicache_size", "cpu_offload_gb", "gpu.host_memory_gib")
    yield Finding("error" if is_told else "warning", "FIT004", message, fields, offers=list(map(Offered.typed, offers)))


def _with_setter(
    failure: ConfigError, resolution: Resolution, facts: Facts, settings: Mapping[str, Origin]
) -> Sequence[Finding]:
    """Returns the findings of a failed fit; one on a field of the model's config names what set it over the file:
    ``json_model_override_args``, or a ``model.config.FIELD`` among ``settings``."""
    if not isinstance(failure, WrongField) or failure.source != facts.model.source:
        return failure.findings
    (finding,), name = failure.findings, failure.name
    view = view_of(facts.model, resolution.values["json_model_override_args"])
    if view is not None and name.partition(".")[0] in view.overrides:
        key, place = "json_model_override_args", "json_model_override_args: "
        return [replace(finding, message=f"{place}{failure.problem}", fields=(key,))]
    for key in (f"model.config.{name}", f"model.config.{name.rpartition('.')[0]}"):
        if key in settings:
            place = settings[key].place or settings[key].layer
            return [replace(finding, message=f"{place}: model.config.{failure.problem}", fields=(key,))]
    return failure.findings


def checkpoint_bytes(values: JsonObject, gpu: GpuFacts, model: ModelFacts) -> int | None:
    """Returns the bytes of the checkpoint's files, by its config.json alone, or None if unknown."""
    from sglang_hydra.architecture.known import text_part
    from sglang_hydra.fit.weights import stored_weights

    try:
        known = understand(values, gpu, model)
    except ConfigError:
        return None  # the plan has the finding
    if known.config is None or known.decoder is None or known.scheme is None or known.tower_missing:
        return None
    element = 4 if text_part(known.config).get("torch_dtype") == "float32" else 2
    return int(stored_weights(known.decoder, known.scheme, known.tower, element))


def resolved_by_own_rules(facts: Facts) -> Resolution:
    return resolve(facts.given, gpu=facts.gpu, model=facts.model, seed=facts.seed, draw=False, env=facts.env)


def remedies_of(
    resolution: Resolution,
    facts: Facts,
    found: Fit,
    wanted: Wanted,
    read_classes: Callable[[], Sequence[GpuClass]],
    reserved_gib: float = 0.0,
    resolve_with: Resolve = resolved_by_own_rules,
    *,
    usual_count: bool = False,
) -> tuple[Remedy, ...]:
    """Returns the changes with which the plan fits and has the wanted capacity, each resolved, checked and fitted.

    ``read_classes`` reads the GPU classes of the catalog; it is called where no smaller change helps. ``resolve_with``
    resolves what is given with other facts, without it by our own rules. A ``usual_count`` of GPUs may be another."""
    from sglang_hydra.fit.remedy import Misfit, remedies

    classes: dict[str, GpuFacts] = {}

    def larger() -> Iterator[GpuFacts]:
        for gpu in read_classes():
            classes[gpu.name] = replace(gpu.facts, name=gpu.name)
        yield from classes.values()

    def verify(overrides: JsonObject) -> Fit | None:
        changes = dict(overrides)
        gpu = classes.get(changes.pop("gpu", ""), facts.gpu)
        gpu = replace(gpu, count=changes.pop("gpu.count", gpu.count))
        model = facts.model
        if "model_path" in changes:
            from sglang_hydra.architecture.published_checkpoints import facts_as, find_published

            published = find_published(changes["model_path"])
            if published is None:
                return None
            model = facts_as(published, model)
        intent = {**resolution.intent, **changes}
        other = facts._replace(gpu=gpu, model=model, given=intent)
        planned = resolve_with(other)
        if not planned.ok:
            return None
        found = fit_of(planned, other, reserved_gib, sized_end=False)
        # Most changes do not make it fit; only changes that do are worth the time of the checks.
        if found is None or not found.fits:
            return found
        return None if any(finding.level == "error" for finding in run_plan_checks(planned, other)) else found

    server = Misfit(resolution.values, resolution.layout, resolution.release, resolution.intent, usual_count)
    return remedies(server, facts.gpu, found, verify, wanted=wanted, classes=larger())


def fit_findings(
    found: Fit, help_with: Callable[[], Sequence[Remedy]], wanted: Wanted = NOTHING_STATED, *, refused: bool = False
) -> list[Finding]:
    """Returns the findings on the fit: an error of ours where it surely fails, a warning where it is tight or the KV
    cache holds less than wanted. For arguments that SGLang refuses for another reason (``refused``) it makes no
    offers."""
    fields: tuple[str, ...] = ("model_path", "tp_size", "mem_fraction_static")
    if found.fits is False:
        id, message = "FIT001", f"it does not fit: {'; '.join(found.reasons)}"
    elif found.tight:
        id, message = "FIT002", f"it fits only if everything takes the least memory ever measured: {_likely(found)}"
    elif short := found.shortage(wanted):
        id, message = "FIT003", short
        fields = ("fit.context", "fit.users", "tp_size", "mem_fraction_static", "context_length", "max_total_tokens")
    else:
        return []
    offers = []
    for remedy in [] if refused else help_with()[:_SHOWN_REMEDIES]:
        typed, colon, why = remedy.change.partition(": ")
        when = f"is the smallest class that holds it{colon}{why}" if "gpu" in remedy.overrides else ""  # an example
        offers.append(Offered.typed(typed, colon + why, when=when))
    return [Finding("error" if found.fits is False else "warning", id, message, fields, offers=offers)]


def _likely(found: Fit) -> str:
    """Describes the likeliest numbers for a fraction that only the best numbers allow."""
    interval = found.interval
    if interval is None or found.asked is None:
        return "the likeliest numbers say no"
    if interval.empty:
        return "no mem_fraction_static is likely to work"
    below = found.asked < interval.low
    edge, reason = (interval.low, interval.low_reason) if below else (interval.high, interval.high_reason)
    return (
        f"mem_fraction_static={found.asked:g} is {'below' if below else 'above'} {edge:g}; {reason.partition(', ')[2]}"
    )
