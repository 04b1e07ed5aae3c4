"""Does it fit: the memory of one GPU, added up as a release of SGLang spends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sglang_hydra.architecture.decoder import Decoder
from sglang_hydra.architecture.ranks import ranks_of
from sglang_hydra.architecture.understanding import Understanding, config_fields, understand
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.fit import overheads
from sglang_hydra.fit.allocation import Allocation, allocation_of
from sglang_hydra.fit.checkpoint import CheckpointSize
from sglang_hydra.fit.compressed import compressed_cells, compressed_pool
from sglang_hydra.fit.draft import WITHOUT_MODEL, Draft, draft_of
from sglang_hydra.fit.kv import Cells, Pool, cache_bytes, cells_of, pool_of, request_slots
from sglang_hydra.fit.overheads import GIB, Range, exactly
from sglang_hydra.fit.result import Fit, KvCache
from sglang_hydra.fit.states import NO_STATES, States, state_bytes, states_of
from sglang_hydra.fit.verdict import Memory, Need, interval_of, judge
from sglang_hydra.fit.weighing import lora_of, on_hip, weigh


def fit(
    values: Mapping[str, Any],
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
) -> Fit:
    """Returns what the server with ``values`` (resolved arguments by name) needs on each GPU, and whether that is
    there.

    ``release`` is SGLang's, whose pools are made: without it 0.5.2's, or those of the last release that was read where
    0.5.2 has no such class; ``estimated`` says that ``values`` are 0.5.2's all the same.
    ``reserved_gib`` is for others on the same GPU; ``draft`` are the facts of a separate draft model; ``weights`` is
    what the checkpoint's files say of their size; ``free_gib`` is the memory free before loading where it was measured.
    Without ``sized_end`` the upper end of the interval is that of the pool that is asked for, which saves a fifth.
    Unknown facts end in ``Fit.unknown``. Raises ConfigError (FIT010) for a config field that cannot be a size.
    """
    known = understand(values, gpu, model, release)
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
    """Returns ``found`` with an upper end of its interval that also works when it is asked for: more requests fit into
    a larger pool, and their tables are outside. An end below what is asked for is sized for even larger ones."""
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
        return replace(found, interval=replace(interval, high=asked))
    return replace(found, interval=replace(interval, high=end.high, high_reason=end.high_reason))


def logged_pool(
    values: Mapping[str, Any],
    gpu: GpuFacts,
    model: ModelFacts,
    *,
    before_gib: float,
    after_gib: float,
    with_states: bool = True,
    release: str | None = None,
    draft: ModelFacts | None = None,
) -> int | None:
    """Returns KV tokens of a server that logged ``before_gib`` free before loading and ``after_gib`` after it; None
    where the model's cache is unknown. Where a release loads the ``draft`` first, ``after_gib`` is after that. Without
    the tokens that 0.5.2 adds for speculative decoding, and on request without the states of linear attention."""
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
    known: Understanding, values: Mapping[str, Any], gpu: GpuFacts, reserved: float, measured_gib: float | None
) -> Memory:
    """Returns the GPU's memory. What others take is taken from a measured value too."""
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
    known: Understanding, values: Mapping[str, Any], gpu: GpuFacts, draft: ModelFacts | None
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


def _size_cache(need: Need, gpu: GpuFacts, draft: Draft | None, free: Range | None, decoder: Decoder) -> None:
    """Fills in the KV cache and everything that is allocated after it."""
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
        kv = replace(kv, profiled=pool.profiled, tokens=pool.tokens, sliding_tokens=sliding, size=size, slots=slots)
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
    need.activations = overheads.activations(decoder, ranks, prefill, _last_positions(slots, prefill))


def _size_draft_cache(
    need: Need, draft: Draft, decoder: Decoder, rules: Allocation, states: States, tokens: int
) -> None:
    """Sizes the draft's own cache, and the states that each request keeps after every drafted token until it is
    verified (mem_cache/memory_pool.MambaPool). Releases that count them before they size the pool take nothing for it
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
    known: Understanding, decoder: Decoder, values: Mapping[str, Any], rules: Allocation, draft: Draft | None
) -> Cells:
    if decoder.compressed is not None:
        return compressed_cells(decoder, known.ranks, values, rules)
    element = cache_bytes(values, known.cached)
    return cells_of(decoder, known.ranks, element, rules, None if draft is None else draft.decoder)


def _reserved(known: Understanding, rules: Allocation) -> float:
    """Returns what a release keeps out of the pool for multimodal inputs (SGLANG_VLM_CACHE_SIZE_MB)."""
    return _MEDIA if rules.media_reserved and (known.tower is not None or known.tower_missing) else 0.0


_MEDIA = 100.0 * overheads.MIB


def _last_positions(slots: int, prefill: int) -> int:
    """Positions of a prefill batch that get logits: the last of each request, of which few share a batch."""
    return min(slots, prefill, 64)


def _pool(
    room: float, known: Understanding, decoder: Decoder, cells: Cells, values: Mapping[str, Any], rules: Allocation
) -> Pool:
    """Returns the pool that fits into ``room`` bytes."""
    if decoder.compressed is not None:
        return compressed_pool(room, decoder, known.ranks, cells, values, rules, known.context)
    return pool_of(room, decoder, known.ranks, cells, values, known.context, rules)
