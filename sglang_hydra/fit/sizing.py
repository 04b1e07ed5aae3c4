"""Computes whether a server fits: adds up the memory of one GPU as a release of SGLang allocates it.

Draft models: SGLang 0.5.2, models/*_eagle*.py and *_nextn.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.architecture.decoder import FULL, Decoder, Layer
from sglang_hydra.architecture.formats import Scheme
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.architecture.quantization import scheme_of
from sglang_hydra.architecture.ranks import kv_share, padded_vocabulary, ranks_of, share
from sglang_hydra.architecture.reading import architecture_of, read_decoder
from sglang_hydra.architecture.tensors import OTHER, PARTS, VISION
from sglang_hydra.architecture.understanding import Understanding, config_fields, understand
from sglang_hydra.arguments.layout import Layout
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.fit import overheads
from sglang_hydra.fit.compressed import compressed_cells, compressed_pool
from sglang_hydra.fit.kv import (
    NO_STATES,
    Cells,
    Pool,
    States,
    cache_bytes,
    cells_of,
    pool_of,
    request_slots,
    state_bytes,
    states_of,
)
from sglang_hydra.fit.overheads import GIB, Allocation, Range, allocation_of, exactly
from sglang_hydra.fit.result import Fit, KvCache, Weights
from sglang_hydra.fit.verdict import Memory, Need, interval_of, judge
from sglang_hydra.fit.weights import StageWeights, decoder_weights, lora_bytes, stored_weights
from sglang_hydra.text.json_types import JsonObject

if TYPE_CHECKING:
    from sglang_hydra.fit.checkpoint import CheckpointSize


def fit(
    values: Mapping[str, object],
    gpu: GpuFacts,
    model: ModelFacts,
    *,
    reserved_gib: float = 0.0,
    draft: ModelFacts | None = None,
    weights: CheckpointSize | None = None,
    free_gib: float | None = None,
    sized_end: bool = True,
    release: str | None = None,
    estimated: bool = False,
    layout: Layout | None = None,
) -> Fit:
    """Returns the memory that the server with ``values`` (resolved arguments by name) needs on each GPU, and the
    verdict.

    ``release`` is SGLang's, whose pools count: without it 0.5.2's, or those of the last known release where 0.5.2 lacks
    the model's class; ``estimated``: ``values`` are nevertheless 0.5.2's; ``layout`` is theirs. ``reserved_gib`` is for
    others on the same GPU; ``draft`` has the facts of a separate draft model; ``weights`` is the size by the
    checkpoint's files; ``free_gib`` is the measured free memory before loading. Without ``sized_end`` the upper end of
    the interval is that of the requested pool, which saves a fifth of the time. Unknown facts go to ``Fit.unknown``.
    Raises ConfigError (FIT010) for a config field that cannot be a size."""
    known = understand(values, gpu, model, release, layout)
    known.named = known.named and not estimated
    weighed = weigh(known, values, weights)
    weighed = on_hip(weighed) if gpu.is_hip else weighed
    lora = lora_of(known, values)
    drafted = _draft(known, values, gpu, draft)
    memory = _memory(known, values, gpu, reserved_gib * GIB, free_gib)
    if values.get("mem_fraction_static") is None:
        known.unknown.append("mem_fraction_static")
    need = Need(known, values, weighed, lora, drafted.weights if isinstance(drafted, Draft) else drafted)
    decoder = known.decoder
    if decoder is None:
        return judge(need, memory)

    def size(need: Need) -> None:
        _size_cache(need, gpu, drafted if isinstance(drafted, Draft) else None, memory.free, decoder)

    size(need)
    found = judge(need, memory)
    return _with_an_end_that_works(found, need, memory, size) if sized_end else found


def _with_an_end_that_works(found: Fit, need: Need, memory: Memory, size: Callable[[Need], None]) -> Fit:
    """Returns ``found`` with an upper end of its interval that works when requested: a larger pool admits more
    requests, whose tables are outside it. An end below the requested fraction becomes that fraction."""
    interval, asked = found.interval, found.asked
    if interval is None or interval.empty or asked is None or asked >= interval.high:
        return found
    values = {**need.values, "mem_fraction_static": interval.high}
    there = Need(need.known, values, need.weights, need.lora, need.draft)
    size(there)
    end = interval_of(there, memory.free)
    if end is None or not interval.low <= end.high < interval.high:
        return found
    if end.high < asked:
        return found._replace(interval=replace(interval, high=asked))
    return found._replace(interval=replace(interval, high=end.high, high_reason=end.high_reason))


def logged_pool(
    values: JsonObject,
    gpu: GpuFacts,
    model: ModelFacts,
    *,
    before_gib: float,
    after_gib: float,
    with_states: bool = True,
    release: str | None = None,
    draft: ModelFacts | None = None,
) -> int | None:
    """Returns the KV tokens of a server that logged ``before_gib`` free before loading and ``after_gib`` after it; None
    for an unknown cache. Where a release loads the ``draft`` first, ``after_gib`` is after that. Excludes the tokens
    that 0.5.2 adds for speculative decoding, and, without ``with_states``, the states of linear attention."""
    known = understand(values, gpu, model, release)
    decoder, fraction = known.decoder, values.get("mem_fraction_static")
    if decoder is None or fraction is None:
        return None
    rules = allocation_of(known.release)
    room = (after_gib - before_gib * (1 - float(fraction))) * GIB
    room -= _reserved(known, rules)
    drafted = _draft(known, values, gpu, draft) if rules.draft_counted else None
    cells = _cells(known, decoder, values, rules, drafted if isinstance(drafted, Draft) else None)
    if with_states:
        states = states_of(decoder, known.ranks, values, rules, room)
        room -= states.bytes + states.drafted
    kept = values if rules.no_headroom else {**values, "speculative_algorithm": None}
    return _pool(room, known, decoder, cells, {**kept, "max_total_tokens": None}, rules).tokens


def _memory(
    known: Understanding, values: Mapping[str, object], gpu: GpuFacts, reserved: float, measured_gib: float | None
) -> Memory:
    """Returns the GPU's memory. ``reserved`` is subtracted from a measured value, too."""
    total = None if gpu.memory_mib is None else gpu.memory_mib * overheads.MIB
    before = overheads.before_loading(gpu, known.ranks, known.layout.nodes) if total else None
    free = None
    if measured_gib is not None:
        free = exactly(measured_gib * GIB - reserved)
    elif total is not None and before is not None:
        free = Range(*(max(0.0, total - size - reserved) for size in (before.high, before.mid, before.low)))
    else:
        known.unknown.append("gpu.memory_mib")
    return Memory(total, before, free, reserved)


def _draft(
    known: Understanding, values: Mapping[str, object], gpu: GpuFacts, draft: ModelFacts | None
) -> Draft | float | None:
    """Returns the draft model, 0 where none is used, None where it is unknown."""
    algorithm = values.get("speculative_algorithm")
    if algorithm is None or str(algorithm) in WITHOUT_MODEL:
        return 0.0
    decoder = known.decoder
    if decoder is None:
        return None
    path = values.get("speculative_draft_model_path")
    own = draft is None and (path is None or path == values.get("model_path"))
    config = known.config if own else config_fields(draft, "{}") if draft is not None else None
    if config is None:
        known.unknown.append(f"config.json of the draft model {path}")
        return None
    return known.attempt(lambda: draft_of(config, values, known.layout, gpu, decoder, own, known.release))


def _longest(values: JsonObject, sliding: int | None, rules: Allocation) -> tuple[int, str] | None:
    """Returns the longest request in tokens that a pool of ``sliding`` tokens for windows allows, and what happens to a
    longer one; None if it limits none (allocation.json: inputs_by_full, chunks_shortened)."""
    chunk, page = int(values.get("chunked_prefill_size") or 0), int(values.get("page_size") or 1)
    if sliding is None or sliding <= 0 or rules.chunks_shortened:
        return None
    where = f"the pool for sliding windows holds {sliding:,} tokens (swa_full_tokens_ratio)"
    if not rules.inputs_by_full:
        return sliding, f"is refused: {where}"
    if 0 < chunk < sliding - page:
        return None
    return sliding - page - 1, f"waits forever, with all behind it: {where}, less than chunked_prefill_size and a page"


def _size_cache(need: Need, gpu: GpuFacts, draft: Draft | None, free: Range | None, decoder: Decoder) -> None:
    """Sizes the KV cache and everything that is allocated after it."""
    known, values, ranks, context = need.known, need.values, need.known.ranks, need.known.context
    rules = allocation_of(known.release)
    backend = overheads.attention_backend(values, decoder, gpu, ranks)
    fraction = values.get("mem_fraction_static")
    need.fraction = fraction if fraction is None else float(fraction)
    if need.fraction is not None and not (rules.fraction_resolved and known.named):
        need.fraction = overheads.kept_fraction(need.fraction, backend, context)
    need.cells = cells = _cells(known, decoder, values, rules, draft)
    held = need.before_cache
    if rules.draft_counted and draft is not None:
        need.counted = draft.weights + draft.replaced
    room = None
    if held is not None and free is not None and need.fraction is not None:
        room = free.mid * need.fraction - held - need.counted - _reserved(known, rules)
    states = states_of(decoder, ranks, values, rules, room)
    need.state = states.bytes
    shared_out = rules.states_by_share and not values.get("max_mamba_cache_size")
    need.least_state = min(need.state, 2.0 * state_bytes(decoder, ranks, values)) if shared_out else need.state
    element = cache_bytes(values, known.cached)
    kv = KvCache(cells.kinds, cells.bytes_per_token, element, context, state=need.state)
    left = None if room is None else room - states.bytes - states.drafted
    pool = None if left is None else _pool(left, known, decoder, cells, values, rules)
    slots = request_slots(values, ranks, pool.profiled if pool is not None else 0, context, states.requests, rules)
    if pool is not None:
        size, sliding = max(0.0, pool.size), pool.sliding
        kv = kv._replace(profiled=pool.profiled, tokens=pool.tokens, sliding_tokens=sliding, size=size, slots=slots)
        kv = kv._replace(longest=_longest(values, sliding, rules))
        need.headroom = float(max(0, pool.shared - pool.profiled) * cells.bytes_per_token)
        needs_floor = rules.window_floor or decoder.compressed is not None
        if needs_floor and sliding is not None and decoder.window and pool.tokens > 0:
            need.window_floor = (sliding, decoder.window + int(values.get("page_size") or 1))
            need.window_hangs = not rules.window_floor
    need.kv = kv
    if draft is not None:
        _size_draft_cache(need, draft, decoder, rules, states, max(0, pool.shared) if pool is not None else 0)
    need.request_table = overheads.request_table(values, slots, context)
    need.workspace = overheads.workspace(backend, decoder, ranks, slots, context)
    need.libraries = overheads.libraries() + overheads.expert_buffers(values, decoder, ranks)
    sizes = overheads.captured_sizes(values, known.layout, gpu, ranks, slots)
    need.graphs = overheads.graphs(values, decoder, ranks, backend, sizes, context)
    prefill = overheads.prefill_tokens(values, context)
    # A prefill batch has logits at the last position of each request, of which few share a batch.
    need.activations = overheads.activations(decoder, ranks, prefill, min(slots, prefill, 64))


def _size_draft_cache(
    need: Need, draft: Draft, decoder: Decoder, rules: Allocation, states: States, tokens: int
) -> None:
    """Sizes the draft's own cache, and the states that each request keeps after every drafted token until verification
    (mem_cache/memory_pool.MambaPool). Releases that count them before they size the pool allocate nothing for them
    later."""
    values, ranks = need.values, need.known.ranks
    cells = need.cells
    if rules.draft_counted and cells is not None and cells.drafted:
        need.draft_cache = tokens * cells.drafted
    elif decoder.compressed is None:
        own = ranks_of(need.known.layout._replace(stages=1), shares_attention=decoder.shares_attention)
        element = cache_bytes(values, need.known.cached)
        need.draft_cache = float(tokens * cells_of(draft.decoder, own, element, rules).bytes_per_token)
    if states is not NO_STATES and not rules.states_by_share:
        drafted = int(values.get("speculative_num_draft_tokens") or 0)
        slots = need.kv.slots if need.kv is not None and need.kv.slots is not None else 0
        need.draft_cache += float(state_bytes(decoder, ranks, values) * drafted * (slots + 1))
    need.draft_cache += states.drafted
    if rules.draft_counted:
        need.headroom = -(need.draft_cache + need.counted)


def _cells(
    known: Understanding, decoder: Decoder, values: Mapping[str, object], rules: Allocation, draft: Draft | None
) -> Cells:
    if decoder.compressed is not None:
        return compressed_cells(decoder, known.ranks, values, rules)
    element = cache_bytes(values, known.cached)
    return cells_of(decoder, known.ranks, element, rules, None if draft is None else draft.decoder)


def _reserved(known: Understanding, rules: Allocation) -> float:
    """Returns the bytes that a release reserves for multimodal inputs (SGLANG_VLM_CACHE_SIZE_MB)."""
    return _MEDIA if rules.media_reserved and (known.tower is not None or known.tower_missing) else 0.0


_MEDIA = 100.0 * overheads.MIB


def _pool(
    room: float, known: Understanding, decoder: Decoder, cells: Cells, values: Mapping[str, object], rules: Allocation
) -> Pool:
    """Returns the pool that fits into ``room`` bytes."""
    if decoder.compressed is not None:
        return compressed_pool(room, decoder, known.ranks, cells, values, rules, known.context)
    return pool_of(room, decoder, known.ranks, cells, values, known.context, rules)


WITHOUT_MODEL = ("NGRAM", "LOOKAHEAD")
_EAGLE = "Eagle"
_EAGLE3 = "Eagle3"
_TARGETS = {"MiMoMTP": "MiMoForCausalLM"}
_WHILE_LOADING = ("fp8", "w8a8_fp8")
_NUMBERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


class Draft(NamedTuple):
    """Bytes of the draft's weights on one GPU, its decoder for the KV cache, and the bytes of its own embedding and
    head, which the target's replace after the pools are sized (0.5.14 to 0.5.23 speculative/eagle_worker_v2.py,
    init_lm_head in alloc_memory_pool)."""

    weights: float
    decoder: Decoder
    replaced: float = 0.0


def draft_of(
    config: Fields,
    values: Mapping[str, object],
    layout: Layout,
    gpu: GpuFacts,
    target: Decoder,
    own: bool,
    release: str = "0.5.2",
) -> Draft:
    """Returns the draft model that ``config`` describes. ``own``: it is the target's config, whose next-token layers
    draft; a checkpoint of such layers alone (DeepSeek-V3-NextN) drafts the same way.

    Embedding and lm_head are the target's (eagle_worker.py), except an EAGLE-3 draft's own lm_head and a model that
    drafts on its own (STANDALONE). Raises Missing."""
    algorithm = str(values.get("speculative_algorithm"))
    named = architecture_of(config)
    architecture = _TARGETS.get(named) or named.removesuffix("NextN").removesuffix("MTP")
    decoder = read_decoder(config, architecture)
    standalone = algorithm == "STANDALONE"
    brings_layers = named != architecture or config.count("num_nextn_predict_layers", default=0) > 0
    if not standalone and (own or brings_layers):
        return _next_token_layers(config, decoder, values, layout, gpu, release)
    ranks = ranks_of(layout._replace(stages=1), shares_attention=target.shares_attention)
    # The draft loads with the same argument (configs/model_config.from_server_args): only quantization while loading
    # can apply to a draft, whose checkpoint has no format of its own.
    asked = values.get("quantization")
    scheme = scheme_of(config, {**values, "quantization": asked if asked in _WHILE_LOADING else None}, gpu, release)
    eagle3 = _EAGLE3 in architecture or algorithm == "EAGLE3"
    if standalone or not (eagle3 or _EAGLE in architecture or algorithm == "EAGLE"):
        return Draft(decoder_weights(decoder, scheme, ranks, None)[0].total, decoder)
    bare = decoder._replace(embedding_rows=0, head_rows=0, positions=0)
    weights = decoder_weights(bare, scheme, ranks, None)[0].total
    inputs = 3 * config.size("target_hidden_size", default=target.hidden) if eagle3 else 2 * decoder.hidden
    weights += inputs * decoder.hidden * scheme.element
    row = decoder.hidden * scheme.element
    replaced = share(padded_vocabulary(decoder.embedding_rows), ranks.embedding) * row
    head = 0 if decoder.tied else share(padded_vocabulary(decoder.head_rows), ranks.head) * row
    if not eagle3:
        return Draft(weights, decoder, replaced + head)
    heads = share(decoder.heads, ranks.attention) + 2 * kv_share(decoder.kv_heads, ranks.attention)
    weights += heads * decoder.head_dim * decoder.hidden * scheme.element
    weights += share(padded_vocabulary(decoder.head_rows), ranks.head) * decoder.hidden * scheme.element
    return Draft(weights, decoder, replaced)


def _next_token_layers(
    config: Fields, decoder: Decoder, values: Mapping[str, object], layout: Layout, gpu: GpuFacts, release: str
) -> Draft:
    """Returns a model's layers for predicting further tokens: its last kind of layer with full attention, and a
    projection of two hidden states into one. NVFP4 checkpoints of DeepSeek have them in 16 bits (deepseek_nextn.py),
    ModelOpt's of Qwen3.5 too (0.5.20 models/qwen3_5_mtp.py, _mtp_quant_config)."""
    default = 1 if decoder.architecture.startswith(("Qwen3Next", "MiMo", "Ernie4_5")) else None
    text = text_part(config)
    if text.count(*_NUMBERS, default=default) == 0:
        raise Missing("num_nextn_predict_layers (0: this checkpoint has no layer that drafts)")
    number = text.size(*_NUMBERS, default=default, most=len(decoder.layers))
    last = decoder.layers[-1]
    bare = decoder._replace(
        layers=(Layer(FULL, last.dense, last.experts),) * number, embedding_rows=0, head_rows=0, tied=False, positions=0
    )
    scheme = scheme_of(config, values, gpu, release)
    modelopt = scheme.name.startswith("modelopt") and decoder.architecture.startswith("Qwen3_5")
    if modelopt or (scheme.linear.name == "nvfp4" and decoder.latent is not None):
        scheme = scheme._replace(linear=scheme.plain, experts=scheme.plain, head=scheme.plain, groups=())
    whole = layout._replace(stages=1)
    ranks = ranks_of(whole, shares_attention=decoder.shares_attention, architecture=decoder.architecture)
    weights = decoder_weights(bare, scheme, ranks, None)[0].total
    own = bare._replace(embedding_rows=decoder.embedding_rows, head_rows=decoder.head_rows, tied=decoder.tied)
    replaced = decoder_weights(own, scheme, ranks, None)[0].total - weights
    return Draft(weights + 2 * decoder.hidden * decoder.hidden * scheme.element * number, bare, replaced)


# The logged "mem usage" has 0 to 0.27 GiB beside weights (loaded kernels, other processes); it was never below the
# weights by more than the logs' rounding (cases in the tests).
_UNEXPLAINED = 0.15 * GIB
_RELATIVE, _RELATIVE_ASSUMED, _RELATIVE_FILES = 0.007, 0.05, 0.1
_AGREEMENT = 0.02
_ROUNDING, _ROUNDING_RELATIVE = 0.02 * GIB, 0.003


# Kernels that HIP loads with the weights: the difference of a small model's logs on an MI355X and an H100
# (Qwen3-0.6B 1.21 and 1.18, EmbeddingGemma-300m 0.63 and 0.59 GiB, of one author).
_HIP = 0.03 * GIB


def weigh(known: Understanding, values: JsonObject, checkpoint: CheckpointSize | None) -> Weights:
    """Returns the weights on the fullest GPU; total None where a part is unknown and no checkpoint gives the sum."""
    decoder, scheme = known.decoder, known.scheme
    if decoder is None or scheme is None:
        return _from_checkpoint(known, checkpoint)
    stages = decoder_weights(decoder, scheme, known.ranks, known.tower)
    stage = max(stages, key=lambda stage: stage.total)
    parts: dict[str, float | None] = dict(stage.parts)
    relative = _RELATIVE_ASSUMED if decoder.assumed else _RELATIVE
    if known.tower_missing:
        parts[VISION] = None
        return Weights(parts, None, relative * stage.total, _slack(relative, stage.total), None, scheme.name, "config")
    total, source = stage.total, "config"
    if checkpoint is not None and scheme.as_stored:
        factor = _correction(decoder, scheme, known, checkpoint)
        total *= factor
        parts = {name: None if size is None else size * factor for name, size in parts.items()}
        source = f"config, checked against {checkpoint.source}" if factor == 1.0 else checkpoint.source
    total, loading = _offloaded(total, stage, values, known)
    error, slack = relative * total + _UNEXPLAINED, _slack(relative, total)
    totals = tuple(each.total * total / stage.total for each in stages)
    return Weights(parts, total, error, slack, max(loading, total), scheme.name, source, totals)


def on_hip(weights: Weights) -> Weights:
    """Returns ``weights`` in the size that an AMD GPU logs."""
    if weights.total is None or weights.loading is None:
        return weights
    parts = {**weights.parts, OTHER: (weights.parts.get(OTHER) or 0.0) + _HIP}
    stages = tuple(stage + _HIP for stage in weights.stages)
    return weights._replace(parts=parts, total=weights.total + _HIP, loading=weights.loading + _HIP, stages=stages)


def lora_of(known: Understanding, values: JsonObject) -> float | None:
    """Returns the bytes of the LoRA adapters' buffers on one GPU; None where their rank is unknown."""
    if not values.get("enable_lora") and not values.get("lora_paths"):
        return 0.0
    rank, decoder, scheme = values.get("max_lora_rank"), known.decoder, known.scheme
    if not rank:
        known.unknown.append("max_lora_rank")
        return None
    if decoder is None or scheme is None:
        return None
    targets = tuple(values.get("lora_target_modules") or ())
    return lora_bytes(decoder, scheme, known.ranks, int(rank), int(values.get("max_loras_per_batch") or 8), targets)


def _slack(relative: float, total: float) -> float:
    """Returns how far the weights may be below ``total``: rounding alone, unless shapes are assumed."""
    return _ROUNDING + (_ROUNDING_RELATIVE if relative == _RELATIVE else relative) * total


def _correction(decoder: Decoder, scheme: Scheme, known: Understanding, checkpoint: CheckpointSize) -> float:
    """Returns the ratio of the files' bytes to the config's; 1 where they agree or cannot be compared."""
    loaded = checkpoint.loaded(len(decoder.layers))
    if loaded is None:
        return 1.0
    config = known.config
    stored_element = 4 if config is not None and text_part(config).get("torch_dtype") == "float32" else 2
    factor = loaded / stored_weights(decoder, scheme, known.tower, stored_element)
    if abs(factor - 1) <= _AGREEMENT:
        return 1.0
    known.notes.append(f"{checkpoint.source}: {factor:.3f} times what the config says; the files count")
    return factor


def _from_checkpoint(known: Understanding, checkpoint: CheckpointSize | None) -> Weights:
    """Estimates the weights without shapes or a format: the files' size divided by the GPUs. Tensors that each GPU
    repeats make the error bar wide."""
    parts: dict[str, float | None] = dict.fromkeys(PARTS, None)
    if checkpoint is None:
        return Weights(parts, None, 0.0, 0.0, None, None, "unknown")
    total = checkpoint.total / known.ranks.gpus
    known.notes.append(f"weights are {checkpoint.source} divided by {known.ranks.gpus} GPUs, to 10 %")
    parts[OTHER] = total
    known.unknown[:] = [name for name in known.unknown if "quantization_config" not in name and "GGUF" not in name]
    error = _RELATIVE_FILES * total
    return Weights(parts, total, error + _UNEXPLAINED, error, total, "as stored", checkpoint.source)


def _offloaded(total: float, stage: StageWeights, values: JsonObject, known: Understanding) -> tuple[float, float]:
    """Applies cpu_offload_gb, which keeps that number of GiB of each GPU's weights in host memory."""
    offload = min(float(values.get("cpu_offload_gb") or 0) * GIB, total)
    if offload:
        known.notes.append(f"{offload / GIB:.1f} GiB of the weights are offloaded to host memory")
    return total - offload, stage.loading - offload
