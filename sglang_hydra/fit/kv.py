"""The KV cache of each GPU: bytes for each token, and how many tokens the pool holds.

Sources, all SGLang 0.5.2: model_executor/model_runner.py (profile_max_num_token, set_num_token_hybrid,
init_memory_pool), mem_cache/memory_pool.py (the tensors of the pools), configs/qwen3_next.py (mamba_cache_per_req).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sglang_hydra.architecture.decoder import BOTH, FULL, LINEAR, SLIDING, Decoder
from sglang_hydra.architecture.ranks import Ranks, kv_share, stage_layers

DEFAULT_STATES = 512  # requests with linear attention, where neither argument that limits them is set
_STATES_TO_CACHE = 0.9  # mamba_full_memory_ratio, where a release has it
_INDEX_BYTES = 132  # a key of the lightning indexer: 128 in fp8 and a float32 scale


class KvKind(NamedTuple):
    """Layers that cache alike: ``layers`` of them on one GPU, with ``bytes_per_token`` in all of them together."""

    kind: str
    layers: int
    bytes_per_token: int


class Cells(NamedTuple):
    """What one token takes on each GPU of the stage with most layers: ``counted`` is what SGLang's own profile
    divides by, ``kinds`` are the caches it makes."""

    counted: int
    kinds: tuple[KvKind, ...]

    @property
    def bytes_per_token(self) -> int:
        return sum(kind.bytes_per_token for kind in self.kinds)


class Pool(NamedTuple):
    """The pool of one GPU. ``profiled`` is what the memory allows, ``tokens`` what the server reports as
    max_total_num_tokens, ``sliding`` the smaller pool of sliding-window layers (None: they share the other).
    ``shared`` is what it has before that split, if any: the tokens that all layers together have memory for.
    ``size`` is in bytes."""

    profiled: int
    shared: int
    tokens: int
    sliding: int | None
    size: float


def cache_bytes(values: Mapping[str, Any], element: int) -> int:
    """Bytes of one cached number: 1 in FP8, else those of the model's dtype."""
    return 1 if str(values.get("kv_cache_dtype")).startswith("fp8") else element


def cells_of(decoder: Decoder, ranks: Ranks, element: int) -> Cells:
    """What one token takes. Latent attention caches one vector for all heads, on every GPU; other attention caches
    the KV heads of the GPU."""
    stages = stage_layers(len(decoder.layers), ranks.stages)
    cells = (_stage_cells(decoder, ranks, element, layers) for layers in stages)
    return max(cells, key=lambda cell: (cell.counted, cell.bytes_per_token))


def _stage_cells(decoder: Decoder, ranks: Ranks, element: int, layers: range) -> Cells:
    mixers = [decoder.layers[number].mixer for number in layers]
    if decoder.latent is not None:
        return _latent_cells(decoder, sum(mixer != LINEAR for mixer in mixers), element)
    usual, windowed = (_each(decoder, mixer, ranks, element) for mixer in (FULL, SLIDING))
    sliding = mixers.count(SLIDING)
    if decoder.linear is not None:  # the profile does not look at stages where some layers keep states
        full = sum(mixer in (FULL, BOTH) for mixer in mixers)
        everywhere = sum(layer.mixer in (FULL, BOTH) for layer in decoder.layers)
        return Cells(everywhere * usual, (KvKind("full attention", full, full * usual),))
    full = len(layers) - sliding
    kinds = [KvKind("full attention", full, full * usual)]
    if sliding:
        kinds.append(KvKind("sliding window", sliding, sliding * windowed))
    return Cells(full * usual + sliding * windowed, tuple(kinds))


def _each(decoder: Decoder, mixer: str, ranks: Ranks, element: int) -> int:
    """Bytes of one token in one layer with KV heads."""
    heads = decoder.heads_of(mixer)
    return kv_share(heads.kv, ranks.attention) * heads.cached * element


def _latent_cells(decoder: Decoder, layers: int, element: int) -> Cells:
    latent = decoder.latent
    assert latent is not None
    number = layers * decoder.blocks
    each = (latent.kv_rank + latent.rope) * element
    # Sparse attention of DeepSeek-V3.2 (SGLang 0.5.4 and later): its FP8 cache keeps a float32 scale for 128
    # numbers and the rotated part in 16 bits, 656 bytes a layer (sgl-project/sglang#11309); the TensorRT-LLM kernels
    # that later releases take on datacenter Blackwell read plain rows (0.5.23: calculate_mla_kv_cache_dim).
    if decoder.indexer is not None and decoder.indexer.scaled and element == 1:
        each = latent.kv_rank // 32 + latent.kv_rank + 2 * latent.rope
    kinds = [KvKind("latent", number, number * each)]
    if decoder.indexer is not None:
        kinds.append(KvKind("index keys", number, number * _INDEX_BYTES))
    return Cells(number * each, tuple(kinds))


def state_bytes(decoder: Decoder, ranks: Ranks, values: Mapping[str, Any]) -> int:
    """Bytes of one request's state in all layers that keep one: the last inputs of the convolution in 16 bits, and its
    matrices in mamba_ssm_dtype."""
    linear = decoder.linear
    if linear is None:
        return 0
    wide = 2 if values.get("mamba_ssm_dtype") == "bfloat16" else 4
    each = linear.window(ranks.attention) * 2 + linear.matrices(ranks.attention) * wide
    return each * sum(layer.mixer in (LINEAR, BOTH) for layer in decoder.layers)


def state_slots(values: Mapping[str, Any], decoder: Decoder, ranks: Ranks, room: float | None) -> int:
    """Requests that linear attention keeps states for: max_mamba_cache_size, shared by DP attention's replicas.

    A class that 0.5.2 does not have needs a later release. Those take max_running_requests for it only without the
    prefix cache, and else what fits into a share of ``room``, the bytes for states and KV cache (None: unknown).
    """
    later = decoder.linear is not None and not decoder.served
    asked = values.get("max_mamba_cache_size")
    if not later or values.get("disable_radix_cache"):
        asked = asked or values.get("max_running_requests")
    if later and not asked and room is not None:
        return max(0, _later_states(room, state_bytes(decoder, ranks, values)))
    slots = int(asked or DEFAULT_STATES)
    return slots // (values.get("dp_size") or 1) if values.get("enable_dp_attention") else slots


def _later_states(room: float, each: int) -> int:
    """Slots of ``each`` bytes that states get for every part of ``room`` that goes to the KV cache, less one of padding
    (SGLang 0.5.23, mem_cache/kv_cache_configurator.py). Below 1 the server refuses to start."""
    return int(room * _STATES_TO_CACHE / (1 + _STATES_TO_CACHE) // each) - 1


def pool_of(room: float, decoder: Decoder, cells: Cells, values: Mapping[str, Any], context: int) -> Pool:
    """The pool that fits into ``room`` bytes. Its tokens are 0 or less where the server would refuse to start."""
    profiled = int(room // cells.counted) if cells.counted else 0
    tokens = profiled + _speculative_headroom(values, profiled, context)
    limit = values.get("max_total_tokens")
    tokens = min(tokens, int(limit)) if limit else tokens
    page = values.get("page_size") or 1
    tokens = tokens // page * page
    full, sliding = _split(decoder, values, tokens, context, int(page))
    size = float(tokens * cells.bytes_per_token)
    return Pool(profiled, tokens, full, sliding, size)


def request_slots(values: Mapping[str, Any], profiled: int, context: int, states: int | None) -> int:
    """Requests that the table of token locations has rows for (init_memory_pool), from the tokens that the memory
    allows: before a limit, drafts or a split of the pool. ``states`` is for how many there are states of linear
    attention (None: there is none)."""
    asked = values.get("max_running_requests")
    slots = int(asked) if asked else min(max(profiled * 512 // max(1, context), 2048), 4096)
    return slots if states is None else min(slots, states)


def _speculative_headroom(values: Mapping[str, Any], tokens: int, context: int) -> int:
    """Tokens that the target's pool gets on top, for draft and verified tokens of every request."""
    if values.get("speculative_algorithm") is None:
        return 0
    slots = values.get("max_running_requests") or min(max(tokens * 512 // max(1, context), 2048), 4096)
    steps, width = values.get("speculative_num_steps") or 0, values.get("speculative_eagle_topk") or 1
    return int(slots * (steps * width + (values.get("speculative_num_draft_tokens") or 0)) + 100)


def _split(decoder: Decoder, values: Mapping[str, Any], tokens: int, context: int, page: int) -> tuple[int, int | None]:
    """Tokens of the pool for full attention and of the one for sliding windows, where there are two."""
    sliding = sum(layer.mixer == SLIDING for layer in decoder.layers)
    if not sliding or tokens <= 0:
        return tokens, None
    if decoder.architecture == "Llama4ForConditionalGeneration":
        return _split_llama4(values, tokens, context, decoder.attention_chunk, page)
    if values.get("disable_hybrid_swa_memory", True):
        return tokens, None
    ratio = float(values.get("swa_full_tokens_ratio") or 0.8)
    full = int(tokens * len(decoder.layers) / (ratio * sliding + len(decoder.layers) - sliding))
    return full, int(full * ratio)


def _split_llama4(
    values: Mapping[str, Any], tokens: int, context: int, chunk: int, page: int
) -> tuple[int, int | None]:
    """Three of four layers attend within chunks; hybrid_kvcache_ratio says how much less their pool may hold."""
    hybrid = values.get("hybrid_kvcache_ratio")
    if not hybrid or not chunk or context <= chunk:
        return tokens, None
    share_of_window = (1 - hybrid) + hybrid * chunk / context
    weight = 3 * share_of_window + 1
    sliding, full = 4 * tokens * share_of_window // weight, 4 * tokens - 12 * tokens * share_of_window // weight
    return int(full // page * page), int(sliding // page * page)
