"""Sizes the KV cache of each GPU: bytes for each token, and the tokens of the pool.

Sources: SGLang 0.5.2 model_executor/model_runner.py (profile_max_num_token, set_num_token_hybrid, init_memory_pool) and
mem_cache/memory_pool.py (the tensors of the pools); allocation.json has the differences of later releases, read up to
0.5.23. States of linear attention: SGLang 0.5.2 configs/qwen3_next.py (mamba_cache_per_req); 0.5.4 to 0.5.23 in
allocation.json, with the bytes of a state in 0.5.23 configs/mamba_utils.py:56-126."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from sglang_hydra.architecture.decoder import BOTH, FULL, LINEAR, SLIDING, Decoder
from sglang_hydra.architecture.ranks import Ranks, kv_share, stage_layers
from sglang_hydra.fit.overheads import Allocation, states_of_a_request
from sglang_hydra.text.json_types import JsonObject

_INDEX_SCALE = 128  # elements of an index key that share a float32 scale; the key is in FP8
_FP4_NUMBER = 0.5 + 1 / 16  # bytes of a 4 bit element, with a scale for 16 elements
_MXFP8_NUMBER = 1 + 1 / 32
_EVICTION = 128  # tokens between two evictions from a window's pool (SGLANG_SWA_EVICTION_INTERVAL)


class KvKind(NamedTuple):
    """Layers with the same kind of cache: ``layers`` of them on one GPU, with ``bytes_per_token`` in total."""

    kind: str
    layers: int
    bytes_per_token: float


class Cells(NamedTuple):
    """The bytes of one token on each GPU of the fullest stage: ``counted`` is the divisor in SGLang's own profile,
    ``kinds`` are the caches it makes, ``drafted`` is the draft's part where the profile counts it."""

    counted: float
    kinds: tuple[KvKind, ...]
    drafted: float = 0.0

    @property
    def bytes_per_token(self) -> float:
        return sum(kind.bytes_per_token for kind in self.kinds)


class Pool(NamedTuple):
    """The pool of one GPU. ``profiled`` is the tokens that the memory allows, ``tokens`` those that the server reports
    as max_total_num_tokens, ``sliding`` the smaller pool of sliding-window layers (None: they share the other).
    ``shared`` is the number of tokens before that split: all layers together have memory for them. ``size`` is in
    bytes. ``requests`` is the number that a fixed part was sized for (0: there is none)."""

    profiled: int
    shared: int
    tokens: int
    sliding: int | None
    size: float
    requests: int = 0


def cache_bytes(values: Mapping[str, object], usual: float) -> float:
    """Returns the bytes of one cached element: ``usual`` where kv_cache_dtype is auto."""
    dtype = str(values.get("kv_cache_dtype") or "auto")
    sizes = {"auto": usual, "bf16": 2.0, "bfloat16": 2.0, "mxfp8": _MXFP8_NUMBER, "nvfp4": _FP4_NUMBER}
    sizes |= {"fp4_e2m1": _FP4_NUMBER, "fp4_mx_block16": _FP4_NUMBER}
    return 1.0 if dtype.startswith("fp8") else sizes.get(dtype, usual)


def cells_of(decoder: Decoder, ranks: Ranks, element: float, rules: Allocation, draft: Decoder | None = None) -> Cells:
    """Returns the bytes of one token. Latent attention caches one vector for all heads, on every GPU; other attention
    caches the KV heads of the GPU. Where the profile counts a ``draft``, each of its layers takes the average of the
    target's layers (0.5.23 pool_configurator.py:266-312)."""
    cells = _largest_cells(decoder, ranks, element, rules)
    if draft is None or not rules.draft_counted:
        return cells
    number = sum(kind.layers for kind in cells.kinds if kind.kind != INDEX) or 1
    plain = sum(kind.bytes_per_token for kind in cells.kinds if kind.kind != INDEX)
    index = _index_key(decoder) if decoder.indexer is not None and decoder.latent is not None else 0
    drafted = len(draft.layers) * (plain / number + index)
    return cells._replace(counted=cells.counted + drafted, drafted=drafted)


@functools.lru_cache(maxsize=256)
def _largest_cells(decoder: Decoder, ranks: Ranks, element: float, rules: Allocation) -> Cells:
    stages = stage_layers(len(decoder.layers), ranks.stages)
    return max(
        (_stage_cells(decoder, ranks, element, layers, rules) for layers in stages),
        key=lambda cell: (cell.counted, cell.bytes_per_token),
    )


def _stage_cells(decoder: Decoder, ranks: Ranks, element: float, layers: range, rules: Allocation) -> Cells:
    mixers = [decoder.layers[number].mixer for number in layers]
    if decoder.latent is not None:
        kept = [number for number in layers if decoder.layers[number].mixer != LINEAR]
        return _latent_cells(decoder, kept, element, rules)
    usual, windowed = (_each(decoder, mixer, ranks, element) for mixer in (FULL, SLIDING))
    sliding = mixers.count(SLIDING)
    if decoder.linear is not None:  # before 0.5.8 the profile does not look at stages
        full = sum(mixer in (FULL, BOTH) for mixer in mixers)
        everywhere = full if rules.states_by_stage else sum(layer.mixer in (FULL, BOTH) for layer in decoder.layers)
        return Cells(everywhere * usual, (KvKind("full attention", full, full * usual),))
    full = len(layers) - sliding
    kinds = [KvKind("full attention", full, full * usual)]
    if sliding:
        kinds.append(KvKind("sliding window", sliding, sliding * windowed))
    if decoder.indexer is not None:  # MiniMax-M3: keys in 16 bits (0.5.23 pool_configurator.py:421-500)
        indexed = sum(not decoder.layers[number].kind for number in layers)
        kinds.append(KvKind(INDEX, indexed, indexed * decoder.indexer.dim * 2))
    return Cells(sum(kind.bytes_per_token for kind in kinds), tuple(kinds))


INDEX = "index keys"


def _each(decoder: Decoder, mixer: str, ranks: Ranks, element: float) -> float:
    """Returns the bytes of one token in one layer with KV heads."""
    heads = decoder.heads_of(mixer)
    return _whole(kv_share(heads.kv, ranks.cached) * heads.cached * element)


def _latent_cells(decoder: Decoder, layers: list[int], element: float, rules: Allocation) -> Cells:
    latent = decoder.latent
    assert latent is not None
    number = len(layers) * decoder.blocks
    each = _whole((latent.kv_rank + latent.rope) * element)
    # Sparse attention of DeepSeek-V3.2 (SGLang 0.5.4 and later): its FP8 cache keeps a float32 scale for 128
    # numbers and the rotated part in 16 bits, 656 bytes a layer (sgl-project/sglang#11309); the TensorRT-LLM kernels
    # that later releases take on datacenter Blackwell read plain rows (0.5.23: calculate_mla_kv_cache_dim).
    if decoder.indexer is not None and decoder.indexer.scaled and element == 1:
        each = latent.kv_rank // 32 + latent.kv_rank + 2 * latent.rope
    kinds = [KvKind("latent", number, number * each)]
    if decoder.indexer is not None:
        shares = rules.index_shared
        indexed = sum(not (shares and decoder.layers[i].kind) for i in layers) * decoder.blocks
        kinds.append(KvKind(INDEX, indexed, indexed * _index_key(decoder)))
    counted = kinds if rules.index_counted else kinds[:1]
    return Cells(sum(kind.bytes_per_token for kind in counted), tuple(kinds))


def _index_key(decoder: Decoder) -> int:
    index = decoder.indexer
    assert index is not None
    return -(-(index.dim + index.dim // _INDEX_SCALE * 4) // index.pool)


def _whole(size: float) -> float:
    """Converts a whole number of bytes to an int."""
    return int(size) if size == int(size) else size


def pool_of(
    room: float, decoder: Decoder, ranks: Ranks, cells: Cells, values: JsonObject, context: int, rules: Allocation
) -> Pool:
    """Returns the pool that fits into ``room`` bytes. With 0 tokens or less the server refuses to start."""
    page = int(values.get("page_size") or 1)
    limit = values.get("max_total_tokens")
    pooled = rules.windows_by_bytes and pools_windows(decoder, values, rules)
    if pooled:
        return _windowed_pool(room, decoder, ranks, cells, values, page)
    profiled = int(room // cells.counted) if cells.counted else 0
    tokens = profiled + (0 if rules.no_headroom else _speculative_headroom(values, profiled, context))
    tokens = min(tokens, int(limit)) if limit else tokens
    tokens = tokens // page * page
    full, sliding = _split(decoder, values, tokens, context, page, rules)
    size = float(tokens * cells.bytes_per_token)
    return Pool(profiled, tokens, full * ranks.decode_contexts, sliding, size)


def pools_windows(decoder: Decoder, values: Mapping[str, object], rules: Allocation) -> bool:
    """Returns whether layers with a sliding window have a separate pool."""
    if not any(layer.mixer == SLIDING for layer in decoder.layers):
        return False
    if rules.window_pools:
        return decoder.pools_windows and not values.get("disable_hybrid_swa_memory")
    return not values.get("disable_hybrid_swa_memory", True)


def _windowed_pool(room: float, decoder: Decoder, ranks: Ranks, cells: Cells, values: JsonObject, page: int) -> Pool:
    """Divides the bytes between the pools for full attention and for windows: by a ratio of their tokens, or, with
    limited requests and without prefix cache, by the requests' need (0.5.23 pool_configurator.py:786-1046)."""
    sizes = {kind.kind: kind.bytes_per_token for kind in cells.kinds}
    window, full = sizes.get("sliding window", 0), sizes.get("full attention", 0) + cells.drafted
    ratio = float(values.get("swa_full_tokens_ratio") or 0.8)
    sliding = 0
    if full and decoder.window and values.get("disable_radix_cache") and values.get("max_running_requests"):
        cap = window_cap(values, decoder.window, page, int(values["max_running_requests"]) // ranks.groups)
        sliding = -(-cap // page) * page
    cell = full if sliding else full + ratio * window if full else window
    tokens = int((room - sliding * window) // cell) // page * page if cell else 0
    limit = values.get("max_total_tokens")
    kept = min(tokens, int(limit)) // page * page if limit else tokens
    if not full:
        return Pool(tokens, kept, kept, kept, float(kept * window))
    sliding = min(sliding, kept) if sliding else int(kept * ratio) // page * page
    size = kept * (full - cells.drafted) + sliding * window
    return Pool(tokens, kept, kept, sliding, float(size))


def window_cap(values: JsonObject, window: int, page: int, requests: int) -> int:
    """Returns the tokens of a window's pool that ``requests`` hold at once (0.5.23 pool_configurator.py:924-968)."""
    drafting = values.get("speculative_algorithm") is not None
    drafts = int(values.get("speculative_num_draft_tokens") or 1) if drafting else 1
    steps = int(values.get("speculative_num_steps") or 0) * int(values.get("speculative_eagle_topk") or 1)
    decode = 2 * max(steps, drafts) if drafting else page
    each = window + _EVICTION * drafts + page + decode
    if values.get("disaggregation_mode") == "decode":
        return each * max(1, requests)
    chunks = 1 if values.get("disable_overlap_schedule") else 2
    return each * max(1, requests) + chunks * int(values.get("chunked_prefill_size") or 0) + page


def request_slots(
    values: JsonObject, ranks: Ranks, profiled: int, context: int, states: int | None, rules: Allocation
) -> int:
    """Returns the rows in the table of token locations (init_memory_pool), from the tokens that the memory allows
    before a limit, drafts or a split of the pool. ``states`` is the number of requests with a state of linear attention
    (None: the model has none)."""
    asked = values.get("max_running_requests")
    estimated = min(max(profiled * 512 // max(1, context), 2048), 4096)
    slots = int(asked) if asked else estimated
    if rules.requests_by_tokens:
        slots = min(max(1, slots // ranks.groups) if asked else estimated, max(profiled // 2, 0))
    return slots if states is None else min(slots, states)


def _speculative_headroom(values: JsonObject, tokens: int, context: int) -> int:
    """Returns the extra tokens of the target's pool for draft and verified tokens of every request."""
    if values.get("speculative_algorithm") is None:
        return 0
    slots = values.get("max_running_requests") or min(max(tokens * 512 // max(1, context), 2048), 4096)
    steps, width = values.get("speculative_num_steps") or 0, values.get("speculative_eagle_topk") or 1
    return int(slots * (steps * width + (values.get("speculative_num_draft_tokens") or 0)) + 100)


def _split(
    decoder: Decoder, values: JsonObject, tokens: int, context: int, page: int, rules: Allocation
) -> tuple[int, int | None]:
    """Returns the tokens of the pool for full attention, and of a separate pool for sliding windows or None."""
    sliding = sum(layer.mixer == SLIDING for layer in decoder.layers)
    if not sliding or tokens <= 0:
        return tokens, None
    if decoder.architecture == "Llama4ForConditionalGeneration" and not rules.window_pools:
        return _split_llama4(values, tokens, context, decoder.attention_chunk, page)
    if not pools_windows(decoder, values, rules):
        return tokens, None
    ratio = float(values.get("swa_full_tokens_ratio") or 0.8)
    full = int(tokens * len(decoder.layers) / (ratio * sliding + len(decoder.layers) - sliding))
    return full, int(full * ratio)


def _split_llama4(values: JsonObject, tokens: int, context: int, chunk: int, page: int) -> tuple[int, int | None]:
    """Splits the pool of Llama 4, where three of four layers attend within chunks; hybrid_kvcache_ratio decides how
    much smaller their pool is."""
    hybrid = values.get("hybrid_kvcache_ratio")
    if not hybrid or not chunk or context <= chunk:
        return tokens, None
    share_of_window = (1 - hybrid) + hybrid * chunk / context
    weight = 3 * share_of_window + 1
    sliding, full = 4 * tokens * share_of_window // weight, 4 * tokens - 12 * tokens * share_of_window // weight
    return int(full // page * page), int(sliding // page * page)


DEFAULT_STATES = 512  # requests with linear attention, where no argument limits them
_SHARE = 0.9  # the default mamba_full_memory_ratio


class States(NamedTuple):
    """``slots`` for states (None: the model keeps none), the ``requests`` that can run with them, and bytes: of the
    slots and of the states after each drafted token. A server that shares the memory out refuses to start with less
    than 1 slot."""

    slots: int | None
    requests: int | None
    bytes: float
    drafted: float


NO_STATES = States(None, None, 0.0, 0.0)


def state_bytes(decoder: Decoder, ranks: Ranks, values: JsonObject) -> int:
    """Returns the bytes of one request's state in the stage with most such layers: the last inputs of the convolution
    in 16 bits, and its matrices in mamba_ssm_dtype."""
    linear = decoder.linear
    if linear is None:
        return 0
    wide = 2 if (values.get("mamba_ssm_dtype") or decoder.state_dtype) in ("bfloat16", "float16") else 4
    each = linear.window(ranks.attention) * 2 + linear.matrices(ranks.attention) * wide
    stages = stage_layers(len(decoder.layers), ranks.stages)
    return each * max(sum(decoder.layers[i].mixer in (LINEAR, BOTH) for i in layers) for layers in stages)


def states_of(decoder: Decoder, ranks: Ranks, values: JsonObject, rules: Allocation, room: float | None) -> States:
    """Returns the states that share ``room`` bytes with the KV cache (None: unknown). DP attention's groups divide
    numeric limits."""
    each = state_bytes(decoder, ranks, values)
    if decoder.linear is None or each == 0:
        return NO_STATES if decoder.linear is None else States(0, None, 0.0, 0.0)
    running = int(values.get("max_running_requests") or 0) // ranks.groups
    asked = int(values.get("max_mamba_cache_size") or 0) // ranks.groups
    cached = not values.get("disable_radix_cache")
    drafted = int(values.get("speculative_num_draft_tokens") or 0) if values.get("speculative_algorithm") else 0
    per_request = states_of_a_request(values) if rules.states_by_share else 1
    padding = int(rules.states_padded)

    def of(slots: int, requests: int) -> States:
        room_for = (requests + padding) * drafted * each if rules.states_typed else slots * drafted * each
        return States(slots, max(0, slots // per_request), float((slots + padding) * each), float(room_for))

    def limited(slots: int) -> int:
        return min(running or slots, slots // per_request) if rules.states_jointly else running

    if not rules.states_by_share or (asked and (rules.states_typed or not cached)):
        slots = asked or (running if not cached or not rules.states_by_share else 0) or DEFAULT_STATES // ranks.groups
        return of(slots, limited(slots) if asked else slots)
    if not cached and (running or not rules.states_typed):
        slots = running or DEFAULT_STATES
        return of(slots, slots)
    if room is None:
        return of(DEFAULT_STATES // ranks.groups, running)
    part = float(values.get("mamba_full_memory_ratio") or _SHARE)
    part /= 1 + part
    if not rules.states_typed:
        slots = int(room * part // each // (1 + drafted))
    elif not rules.states_jointly:
        slots = int((room - running * drafted * each) * part // each)
    else:
        slots = int((room * part - padding * each * (1 + drafted)) // (each * (1 + drafted / per_request)))
    slots = max(0, slots)
    return of(slots, limited(slots))
