"""Lists the possible layouts of a server, each sized and forecast by numbers alone: no release is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.architecture.known import Missing
from sglang_hydra.architecture.published_checkpoints import facts_as, find_published, others
from sglang_hydra.architecture.quantization import stored_quantization
from sglang_hydra.architecture.tensors import ROUTED
from sglang_hydra.architecture.understanding import config_fields
from sglang_hydra.arguments.layout import arguments_saying, layout_of, names_of
from sglang_hydra.arguments.tables.table import nearest_known, release
from sglang_hydra.facts.config_view import yarn_override
from sglang_hydra.fit.forecast import Forecast, forecast
from sglang_hydra.fit.forecast_server import server_of
from sglang_hydra.fit.remedy import cache_type, has_free_cache, takes
from sglang_hydra.fit.result import Fit, Wanted
from sglang_hydra.fit.roofline import BANDWIDTH
from sglang_hydra.fit.sizing import fit as sized
from sglang_hydra.planning.choosing.forecast import demand_of_plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.json_types import JsonDict, JsonObject

if TYPE_CHECKING:
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.planning.plan import Plan

_NODES, _MOST_GPUS = (2, 4, 8), 64
MOST_FULL = 1024  # concurrent requests of the largest measured batches
_LOSSY = ("awq", "gptq", "int8")  # formats whose answers differ more from the original than with FP8 and NVFP4
_DRAFTS = {"algorithm": "EAGLE", "steps": 3, "width": 1, "drafted": 4}
_SIZES = ("tp", "copies", "experts", "nodes")
_SENDS = tuple(f"{name}ForCausalLM" for name in ("DeepseekV2", "DeepseekV3", "DeepseekV32", "Glm4Moe", "Qwen3Moe"))
"""Classes that send tokens to experts by DeepEP (0.5.2 models/deepseek_v2.py, glm4_moe.py, qwen3_moe.py), on Hopper and
data-centre Blackwell, with experts of FP8 in blocks (layers/moe/ep_moe/layer.py:452-462)."""
_SHARE = 0.8  # memory fraction over several nodes: the release's own is negative there (0.5.23 memory_hook.py:342)
_DEEPEP, _DEEPEP_GPUS = "deepep", (9, 10)


class Layout(NamedTuple):
    """Arguments to add, their number of GPUs, and by estimate whether the load fits, the performance under it, and the
    performance with as many requests as fit. ``lossy``: the weights are in a format of lower quality."""

    change: JsonObject
    gpus: int
    holds: bool
    lossy: bool
    found: Forecast | None
    full: Forecast | None


def layouts_of(base: Plan, wanted: Wanted, *, fill: bool = False) -> Iterator[Layout]:
    """Yields every layout of ``base`` on its GPU class: formats of weights and cache, GPUs, nodes, and the division of
    attention, experts and requests. ``fill``: more requests than wanted justify an FP8 cache."""
    version = base.engine.version
    free = {meaning: 1 for meaning in _SIZES if not base.intent.keys() & set(names_of(meaning))}
    values = {**base.values, **arguments_saying(version, (), **free)}
    drafts = arguments_saying(version, (), **_DRAFTS) if _drafts(base) else {}
    caches: list[JsonObject] = [{}]
    if has_free_cache(values, base.gpu):
        caches.append({"kv_cache_dtype": cache_type(base.gpu)})
    for (format, model, lossy), divided in product(_weights(base), list(_divided(base, version))):
        if _DEEPEP in divided.values() and not _sends(base, model):
            continue
        layout, change = None, {**divided, **format}
        for cache in caches:
            change = {**divided, **format, **cache}
            layout = _sized(base, {**values, **change}, model, change, wanted, lossy)
            if layout is None:
                continue
            yield layout
            if layout.holds and not fill:
                break  # the requested cache is enough
        if layout is not None and not layout.holds and base.layout.nodes == 1 and "nnodes" not in change:
            change = {**change, **_larger_share(base, {**values, **change}, model)}
            layout = _sized(base, {**values, **change}, model, change, wanted, lossy)
            yield from (layout,) if layout is not None and layout.holds else ()
        if layout is not None and layout.holds and drafts:
            drafting = _sized(base, {**values, **change, **drafts}, model, {**change, **drafts}, wanted, lossy)
            yield from (drafting,) if drafting is not None else ()


def stretched(base: Plan, context: int | None) -> str | None:
    """Returns the override that lets the model take requests of ``context`` tokens (YaRN); None where it takes them
    already, or no extension is known."""
    kv = base.fit.kv if base.fit else None
    if {"context_length", "json_model_override_args"} & base.intent.keys() or kv is None or not context:
        return None
    return yarn_override(base.model.config, context) if kv.context < context else None


def _weights(base: Plan) -> Iterator[tuple[Mapping[str, object], ModelFacts, bool]]:
    """Yields the requested weights, and others in formats of this GPU: words, facts, whether quality is lost."""
    yield {}, base.model, False
    formats = []
    for checkpoint in others(str(base.values["model_path"])):
        if not takes(base.gpu, checkpoint.format):
            continue
        formats.append(checkpoint.format)
        known = find_published(checkpoint.path)
        if known is not None:
            yield {"model_path": checkpoint.path}, facts_as(known, base.model), checkpoint.format in _LOSSY
    can = takes(base.gpu, "fp8") and "fp8" not in formats
    config = config_fields(base.model, base.values.get("json_model_override_args", "{}"))
    is_16_bit = config is None or stored_quantization(config) is None
    if base.values.get("quantization") is None and can and is_16_bit:
        yield {"quantization": "fp8"}, base.model, False


def _divided(base: Plan, version: str) -> Iterator[Mapping[str, object]]:
    """Yields the sizes of the parallel groups, in the release's arguments: powers of two, or whole nodes."""
    here = base.gpu.count or 8
    experts = base.fit is not None and bool(base.fit.weights.parts.get(ROUTED))
    sizes = [2**power for power in range(7) if 2**power <= here]
    for nodes in (1, *_NODES):
        for size in sizes if nodes == 1 else [nodes * here]:
            if size > _MOST_GPUS:
                continue
            whole: JsonDict = {"tp": size} if size > 1 else {}
            whole |= {"nodes": nodes} if nodes > 1 else {}
            yield arguments_saying(version, **whole)
            if size > 1:
                yield arguments_saying(version, **whole, attention_groups=size)
            if size > 1 and experts:
                yield arguments_saying(version, **whole, experts=size)
            if size >= here > 1 and experts:
                dense: JsonDict = {"dense": 1} if nodes > 1 else {}  # else blocks of FP8 are cut
                is_open = nodes > 1 and "mem_fraction_static" not in base.intent
                share = {"mem_fraction_static": _SHARE} if is_open else {}
                sending = arguments_saying(version, **whole, **dense, attention_groups=size, all_to_all=_DEEPEP)
                yield {**sending, **share}
            copies = [number for number in sizes if number > 1 and number * size <= here] if nodes == 1 else []
            yield from (arguments_saying(version, **whole, copies=number) for number in copies)


def _sends(base: Plan, model: ModelFacts) -> bool:
    """Returns whether the release has DeepEP, these weights work with it on the plan's GPUs, and the user left the
    division of experts open."""
    version = nearest_known(base.engine.version)
    argument = release(version).arguments.get("moe_a2a_backend") if version else None
    if argument is None or _DEEPEP not in (argument.choices or ()):
        return False
    config = config_fields(model, base.values.get("json_model_override_args", "{}"))
    stored = stored_quantization(config) if config is not None else None
    if stored is None or not stored.get("weight_block_size") or base.intent.keys() & set(names_of("experts")):
        return False
    known = any(name in _SENDS for name in (model.config or {}).get("architectures") or ())
    return known and base.gpu.is_cuda and (base.gpu.compute_capability or (0, 0))[0] in _DEEPEP_GPUS


def _drafts(base: Plan) -> bool:
    """Returns whether the model drafts with its own layer and the user left speculation open."""
    config = base.model.config or {}
    layers = config.get("num_nextn_predict_layers") or config.get("mtp_num_hidden_layers")
    return bool(layers) and base.values.get("speculative_algorithm") is None


def _sized(
    base: Plan,
    values: Mapping[str, object],
    model: ModelFacts,
    change: Mapping[str, object],
    wanted: Wanted,
    lossy: bool,
) -> Layout | None:
    """Returns the layout with its numbers, without a forecast where the GPU's bandwidth is unknown; None where it
    cannot be computed or divided."""
    version = None if base.by_own_rules else base.engine.version
    groups = layout_of(values, base.engine.version).attention_groups
    try:
        fit = sized(values, base.gpu, model, sized_end=False, release=version, estimated=True)
        server = server_of(values, base.gpu, model, fit, base.engine.name, "", resolved_by=version)
    except Missing as failure:
        known = failure.names == (BANDWIDTH,) and groups == 1
        return Layout(change, fit.gpus, _holds(fit, wanted), lossy, None, None) if known else None
    except (ConfigError, ZeroDivisionError):
        return None
    if groups > 1 and server.dp == 1:
        return None  # its class has no DP attention
    demand = demand_of_plan(base)
    if demand is None:
        return Layout(change, server.gpus, _holds(fit, wanted), lossy, None, None)
    steady = demand._replace(rounds=None)
    context = wanted.context or int(demand.input_len + demand.output_len)
    held = fit.concurrent_requests(context) or 1
    full = forecast(server, steady._replace(concurrency=min(held, MOST_FULL * server.roofline.copies)))
    return Layout(change, server.gpus, _holds(fit, wanted), lossy, forecast(server, steady), full)


def _larger_share(base: Plan, values: Mapping[str, object], model: ModelFacts) -> dict[str, float]:
    """Returns the largest memory fraction that likely works, where the user set none; {} if none."""
    if "mem_fraction_static" in base.intent:
        return {}
    version = None if base.by_own_rules else base.engine.version
    try:
        fit = sized(values, base.gpu, model, release=version, estimated=True)
    except ConfigError:
        return {}
    return larger_share(fit)


def larger_share(fit: Fit) -> dict[str, float]:
    """Returns the largest memory fraction that likely works, as an argument; {} if not above the current one."""
    fraction = 0.0 if fit.interval is None or fit.interval.empty else int(fit.interval.high * 100 - 1) / 100
    return {"mem_fraction_static": fraction} if fraction > (fit.asked or 1.0) else {}


def _holds(fit: Fit, wanted: Wanted) -> bool:
    """Returns whether the fit holds the load, by estimate: an unresolved layout has the fractions of the resolved
    one."""
    return fit.fits is not False and fit.shortage(wanted) is None
