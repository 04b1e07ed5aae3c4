"""Does it fit: the memory of one GPU, added up as SGLang 0.5.2 spends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sglang_hydra.architecture.decoder import Decoder
from sglang_hydra.architecture.ranks import Ranks, ranks_of
from sglang_hydra.architecture.understanding import Understanding, config_fields, understand
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.fit import overheads
from sglang_hydra.fit.draft import WITHOUT_MODEL, Draft, draft_of
from sglang_hydra.fit.kv import Cells, Pool, cache_bytes, cells_of, pool_of, request_slots, state_bytes, state_slots
from sglang_hydra.fit.overheads import GIB, Range, exactly
from sglang_hydra.fit.result import Fit, KvCache
from sglang_hydra.fit.verdict import Memory, Need, interval_of, judge
from sglang_hydra.fit.weighing import lora_of, weigh

if TYPE_CHECKING:
    from sglang_hydra.fit.checkpoint import CheckpointSize


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
) -> Fit:
    """What the server with ``values`` (resolved arguments by name) needs on each GPU, and whether that is there.

    ``reserved_gib`` is for others on the same GPU; ``draft`` are the facts of a separate draft model; ``weights`` is
    what the checkpoint's files say of their size; ``free_gib`` is the memory free before loading where it was measured.
    Without ``sized_end`` the upper end of the interval is that of the pool that is asked for, which saves a fifth.
    Unknown facts end in ``Fit.unknown``. Raises ConfigError (FIT010) for a config field that cannot be a size.
    """
    known = understand(values, gpu, model)
    weighed = weigh(known, values, weights)
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
    """``found`` with an upper end of its interval that also works when it is asked for: more requests fit into a larger
    pool, and their tables are outside of it. An end below what is asked for is sized for even larger ones."""
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
) -> int | None:
    """KV tokens of a server that logged ``before_gib`` free before loading and ``after_gib`` after it; None where the
    model's cache is unknown. Without the headroom for speculative decoding, which later versions add, and on request
    without the states of linear attention, which they count elsewhere."""
    known = understand(values, gpu, model)
    decoder, fraction = known.decoder, values.get("mem_fraction_static")
    if decoder is None or fraction is None:
        return None
    cells = cells_of(decoder, known.ranks, cache_bytes(values, known.element))
    room = (after_gib - before_gib * (1 - float(fraction))) * GIB
    if with_states:
        room -= _states(values, decoder, known.ranks, room)[1]
    undrafted = {**values, "speculative_algorithm": None, "max_total_tokens": None}
    return pool_of(room, decoder, cells, undrafted, known.context).tokens


def _memory(
    known: Understanding, values: Mapping[str, Any], gpu: GpuFacts, reserved: float, measured_gib: float | None
) -> Memory:
    """The GPU's memory. What others take is taken from a measured value too."""
    total = None if gpu.memory_mib is None else gpu.memory_mib * overheads.MIB
    before = overheads.before_loading(gpu, known.ranks, int(values.get("nnodes") or 1)) if total else None
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
    """The draft model, 0 where none is used, None where it is unknown."""
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
    return known.attempt(lambda: draft_of(config, values, gpu, decoder, own))


def _size_cache(need: Need, gpu: GpuFacts, draft: Draft | None, free: Range | None, decoder: Decoder) -> None:
    """Fills in the KV cache and everything that is allocated after it."""
    values, ranks, context = need.values, need.known.ranks, need.known.context
    backend = overheads.attention_backend(values, decoder, gpu, ranks)
    fraction = values.get("mem_fraction_static")
    need.fraction = None if fraction is None else overheads.kept_fraction(float(fraction), backend, context)
    element = cache_bytes(values, need.known.element)
    need.cells = cells = cells_of(decoder, ranks, element)
    held = need.before_cache
    room = None if held is None or free is None or need.fraction is None else free.mid * need.fraction - held
    states, need.state = _states(values, decoder, ranks, room)
    need.least_state = need.state if decoder.served else min(need.state, 2.0 * state_bytes(decoder, ranks, values))
    kv = KvCache(cells.kinds, cells.bytes_per_token, element, context, state=need.state)
    pool = _pool(need, free, decoder, cells)
    shared = max(0, pool.shared) if pool is not None else 0
    slots = request_slots(values, pool.profiled if pool is not None else 0, context, states)
    if pool is not None:
        size, sliding = max(0.0, pool.size), pool.sliding
        kv = replace(kv, profiled=pool.profiled, tokens=pool.tokens, sliding_tokens=sliding, size=size, slots=slots)
        need.headroom = float(max(0, pool.shared - pool.profiled) * cells.bytes_per_token)
    need.kv = kv
    if draft is not None:
        own = ranks_of({**values, "pp_size": 1}, shares_attention=decoder.shares_attention)
        need.draft_cache = float(shared * cells_of(draft.decoder, own, element).bytes_per_token)
        # Each request keeps the state after every draft token until it is verified (mem_cache/memory_pool.MambaPool).
        drafted = int(values.get("speculative_num_draft_tokens") or 0)
        need.draft_cache += float(state_bytes(decoder, ranks, values) * drafted * (slots + 1))
    need.request_table = overheads.request_table(values, slots, context)
    need.workspace = overheads.workspace(backend, decoder, ranks, slots, context)
    need.libraries = overheads.libraries() + overheads.expert_buffers(values, decoder, ranks)
    sizes = overheads.captured_sizes(values, gpu, ranks, slots)
    need.graphs = overheads.graphs(values, decoder, ranks, backend, sizes, context)
    prefill = overheads.prefill_tokens(values, context)
    need.activations = overheads.activations(decoder, ranks, prefill, _last_positions(slots, prefill))


def _states(values: Mapping[str, Any], decoder: Decoder, ranks: Ranks, room: float | None) -> tuple[int | None, float]:
    """For how many requests there are states of linear attention (None: there is none), and all their bytes."""
    if decoder.linear is None:
        return None, 0.0
    slots = state_slots(values, decoder, ranks, room)
    padding = 0 if decoder.served else 1
    return slots, float(state_bytes(decoder, ranks, values) * (slots + padding))


def _last_positions(slots: int, prefill: int) -> int:
    """Positions of a prefill batch that get logits: the last of each request, of which few share a batch."""
    return min(slots, prefill, 64)


def _pool(need: Need, free: Range | None, decoder: Decoder, cells: Cells) -> Pool | None:
    """The pool with the likeliest numbers; None where the weights, the memory or the fraction is unknown."""
    held = need.before_cache
    if held is None or free is None or need.fraction is None:
        return None
    room = free.mid * need.fraction - held - need.state
    return pool_of(room, decoder, cells, need.values, need.known.context)
