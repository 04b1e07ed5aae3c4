"""Sizes the pools of DeepSeek-V4: the window's keys of every layer, compressed keys, index keys and compression states.

Sources: SGLang 0.5.12 model_executor/pool_configurator.py (DSV4PoolConfigurator), 0.5.23 there 1067-1712; for the rows
0.5.23 mem_cache/deepseek_v4_memory_pool.py:53-79, 166-196 and kernels/ops/attention/dsv4/kv_layout.py:48-105."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sglang_hydra.architecture.decoder import Compressed, Decoder
from sglang_hydra.architecture.ranks import Ranks, stage_layers
from sglang_hydra.fit.kv import Cells, KvKind, Pool, window_cap
from sglang_hydra.fit.overheads import Allocation
from sglang_hydra.text.json_types import JsonObject

_RATIO, _PAGE = 0.1, 256  # the swa_full_tokens_ratio and page_size that the model's class sets
_SCALES = 8  # bytes of a row's scales
_ROW_UNIT, _PAGE_UNIT = 576, 64  # a page's rows, and a page of the uniform layout, are rounded up to these
_STATE = 4  # bytes of an element of a compression state (SGLANG_DSV4_COMPRESS_STATE_DTYPE: float32)
_TAILS = 4  # cached prefixes per request that keep their window (0.5.23:1309-1326)


def compressed_cells(decoder: Decoder, ranks: Ranks, values: Mapping[str, object], rules: Allocation) -> Cells:
    """Returns the bytes of one full-context token in the fullest stage, with its share of the window's pools."""
    stages = stage_layers(len(decoder.layers), ranks.stages)
    if not rules.ratios_by_stage:
        stages = [range(len(decoder.layers))]
    own = 0 if rules.ratios_by_stage else _shape(decoder).listed - len(decoder.layers)
    cells = (_stage(decoder, [decoder.layers[i].kind for i in layers] + [0] * own, values, rules) for layers in stages)
    return max(cells, key=lambda cell: cell.counted)


def _stage(decoder: Decoder, ratios: list[int], values: Mapping[str, object], rules: Allocation) -> Cells:
    shape = _shape(decoder)
    share = 0.0 if _by_requests(values, rules) else window_ratio(values)
    four, many = ratios.count(4), ratios.count(128)
    states = {4: share * _state_row(shape, 4, values, rules) * four, 128: 0.0}
    if not rules.ratio_128_by_request:
        states[128] = share * _state_row(shape, 128, values, rules) * many
    index = shape.index_dim + shape.index_dim // 128 * 4
    more = _drafting(values, len(ratios))
    rows = {
        "sliding window": (len(ratios), share * _row(shape, 1, values, rules) * len(ratios)),
        "compressed 4 to 1": (four, _row(shape, 4, values, rules) * four / 4),
        "compressed 128 to 1": (many, _row(shape, 128, values, rules) * many / 128),
        "index keys": (four, index * four / 4),
        "states of compression": (four + many, sum(states.values())),
    }
    kinds = tuple(KvKind(name, layers, size * more) for name, (layers, size) in rows.items() if size)
    return Cells(sum(kind.bytes_per_token for kind in kinds), kinds)


def compressed_pool(
    room: float, decoder: Decoder, ranks: Ranks, cells: Cells, values: JsonObject, rules: Allocation, context: int
) -> Pool:
    """Returns the pools that fit into ``room`` bytes: tokens of the full context, of the window, and requests with a
    state."""
    shape, page = _shape(decoder), int(values.get("page_size") or _PAGE)
    page = page if page % 128 == 0 else _PAGE
    many = sum(layer.kind == 128 for layer in decoder.layers)
    guess = room / cells.counted
    requests = int(values.get("max_running_requests") or 0) // ranks.groups
    requests = requests or int(min(max(min(guess / max(1, context) * 512, 4096), 2048), max(1, guess // 2)))
    fixed = 0.0
    if rules.ratio_128_by_request:
        ring = 256 if values.get("speculative_algorithm") else 128
        rows = -(-((requests + 2) * ring + 1) // 128) * 128
        fixed += rows * 2 * shape.dim * _STATE * many
    window = _window_tokens(shape, ranks, values, rules, page)
    if window is not None:
        layers = [layer.kind for layer in decoder.layers]
        each = _row(shape, 1, values, rules) * len(layers) + _state_row(shape, 4, values, rules) * layers.count(4)
        fixed += window * each * _drafting(values, len(layers))
    tokens = int(max(0.0, room - fixed) / cells.counted) // page * page
    limit = values.get("max_total_tokens")
    kept = min(tokens, int(limit)) // page * page if limit else tokens
    sliding = int(kept * window_ratio(values)) // page * page if window is None else window
    return Pool(tokens, kept, kept, sliding, kept * cells.counted + fixed, requests)


def window_ratio(values: JsonObject) -> float:
    """Returns the tokens of the window's pool for each token of the full pool."""
    stated = values.get("swa_full_tokens_ratio")
    return _RATIO if stated is None or stated == 0.8 else float(stated)


def _window_tokens(shape: Compressed, ranks: Ranks, values: JsonObject, rules: Allocation, page: int) -> int | None:
    """Returns the tokens of the window's pool where the number of requests decides; None where the ratio does."""
    if not _by_requests(values, rules):
        return None
    requests = int(values["max_running_requests"]) // ranks.groups
    tails = values.get("swa_prefix_tails")
    kept = int(tails) if tails is not None else 0 if values.get("disable_radix_cache") else _TAILS * requests
    tokens = window_cap(values, shape.window, page, requests) + kept * (shape.window + page)
    return -(-tokens // page) * page


def _by_requests(values: JsonObject, rules: Allocation) -> bool:
    stated = values.get("swa_full_tokens_ratio")
    chunked = int(values.get("chunked_prefill_size") or 0) > 0 or values.get("disaggregation_mode") == "decode"
    limited = bool(values.get("max_running_requests")) and stated in (None, 0.1, 0.8)
    return rules.compressed_by_page and limited and chunked


def _row(shape: Compressed, ratio: int, values: JsonObject, rules: Allocation) -> float:
    """Returns the bytes of one cached row: the plain part in FP8, the rotated part in 16 bits, and scales; later
    releases round up whole pages. The TensorRT-LLM kernels read everything in FP8."""
    if values.get("dsv4_attn_backend") == "trtllm":
        return float(shape.dim)
    row = shape.dim + shape.rope + _SCALES
    if not rules.compressed_by_page:
        return float(row)
    rows = max(1, (int(values.get("page_size") or _PAGE) if int(values.get("page_size") or 1) > 1 else _PAGE) // ratio)
    return math.ceil(rows * row / _ROW_UNIT) * _ROW_UNIT / rows


def _state_row(shape: Compressed, ratio: int, values: JsonObject, rules: Allocation) -> float:
    """Returns the bytes of the compression state for each token of the window's pool: a ring of rows for each of its
    pages."""
    drafting = values.get("speculative_algorithm") is not None
    ring = {4: 16 if drafting else 8, 128: 256 if drafting else 128}[ratio]
    page = shape.window if not rules.compressed_by_page else int(values.get("page_size") or 1)
    numbers = 4 * (shape.dim + shape.index_dim) if ratio == 4 else 2 * shape.dim
    return ring / (page if page > 1 else _PAGE) * numbers * _STATE


def _drafting(values: Mapping[str, object], layers: int) -> float:
    """Returns the factor for the cache of speculative decoding: one more layer."""
    return (layers + 1) / layers if values.get("speculative_algorithm") else 1.0


def _shape(decoder: Decoder) -> Compressed:
    assert decoder.compressed is not None
    return decoder.compressed
