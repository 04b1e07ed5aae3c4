"""Computes the terms of the hardware's limit: bytes, weights and peaks, from a model's structure and a data sheet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sglang_hydra.architecture.decoder import BOTH, FULL, LINEAR, SLIDING, Decoder, Layer
from sglang_hydra.architecture.formats import Scheme, Stored
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.architecture.quantization import stored_quantization
from sglang_hydra.architecture.ranks import Ranks, padded_vocabulary, ranks_of, share
from sglang_hydra.architecture.tensors import EMBEDDING, HEAD, NORMS, ROUTED, layer_matrices
from sglang_hydra.architecture.understanding import Understanding, understand
from sglang_hydra.arguments.layout import Layout
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.fit.compressed import compressed_cells
from sglang_hydra.fit.kv import cache_bytes, cells_of, state_bytes
from sglang_hydra.fit.overheads import allocation_of
from sglang_hydra.fit.roofline import BANDWIDTH, Cache, Roofline, Work
from sglang_hydra.text.json_types import JsonObject

_GIGA, _TERA = 1e9, 1e12
_INDEX_TOP_K = 2048  # DeepSeek-V3.2's index_topk, for a config without it


class Part(NamedTuple):
    """Matrices of one format: their number of ``weights``, and their ``size`` in bytes."""

    name: str
    stored: Stored
    weights: float
    size: float


def roofline_of(values: JsonObject, gpu: GpuFacts, model: ModelFacts, release: str | None = None) -> Roofline:
    """Returns the limit of the server with ``values`` (resolved arguments of ``release``, as for ``fit``) on GPUs of
    this class. Raises Missing with the names of missing facts, ConfigError (FIT010) for a config field that cannot be a
    size."""
    known = understand(values, gpu, model, release)
    decoder, scheme = known.decoder, known.scheme
    bandwidth = gpu.extra.get("memory_bandwidth_gbps")
    if decoder is None or scheme is None or not bandwidth:
        raise Missing(*known.unknown, *(() if bandwidth else (BANDWIDTH,)))
    ranks = known.ranks._replace(redundant=0)
    mine = list(_parts(decoder, scheme, ranks))
    routed = sum(part.size for part in mine if part.name == ROUTED)
    experts = decoder.experts
    tflops = gpu.extra.get("dense_tflops") or {}
    links = float(gpu.extra.get("scale_up_gbps") or 0) * _GIGA / 2
    drafting = known.layout.drafting
    speculates = drafting.algorithm is not None
    tokens = 1 + (drafting.steps or drafting.tokens) if speculates else 1
    return Roofline(
        gpu=gpu.name,
        bandwidth=float(bandwidth) * _GIGA,
        peak=max((float(tflops.get(name) or 0) for name in ("bf16", "fp8")), default=0.0) * _TERA,
        link=links,
        gpus=ranks.gpus,
        copies=ranks.copies,
        replicas=max(1, ranks.tp // ranks.attention),
        stages=ranks.stages,
        weights=(sum(part.size for part in mine) - routed) / ranks.stages,
        experts=routed / ranks.stages,
        expert_number=experts.number if experts else 0,
        expert_chosen=max(1, experts.chosen) if experts else 0,
        caches=tuple(_caches(known, decoder, ranks, values)),
        state=state_bytes(decoder, ranks._replace(stages=1), values) / ranks.stages,
        work=tuple(_work(decoder, scheme, tflops)),
        exchanged=_exchanged(decoder, ranks),
        tokens=tokens,
        verified=max(1, min(drafting.tokens or tokens, tokens)) if speculates else 1,
    )


def _parts(decoder: Decoder, scheme: Scheme, ranks: Ranks) -> Iterator[Part]:
    """Yields the weights that every step reads on one GPU, all stages together, without the embedding (a step reads a
    few rows) and tables. Sizes are the checkpoint's, without a kernel's padding and second copies."""
    members: dict[Layer, list[int]] = {}
    for number, layer in enumerate(decoder.layers):
        members.setdefault(layer, []).append(number)
    for layer, numbers in members.items():
        for matrix in layer_matrices(decoder, layer, ranks, scheme.experts._replace(pad=(1, 1))):
            if matrix.part in (EMBEDDING, NORMS):
                continue
            for stored, count in scheme.formats(matrix.format, matrix.module, numbers):
                copies = matrix.copies * count
                size = stored._replace(scale_copies=1).size(matrix.rows, matrix.columns) * copies
                yield Part(matrix.part, stored, matrix.rows * matrix.columns * copies, size)
    rows = decoder.head_rows or (decoder.embedding_rows if decoder.tied else 0)
    if rows:
        rows = share(padded_vocabulary(rows), ranks.head)
        yield Part(HEAD, scheme.head, rows * decoder.hidden, scheme.head.size(rows, decoder.hidden))


def _work(decoder: Decoder, scheme: Scheme, tflops: Mapping[str, object]) -> Iterator[Work]:
    """Yields the weights that one token uses, by format; of the routed experts only the chosen ones. A format without a
    published peak is left out, because its time is unknown."""
    experts = decoder.experts
    chosen = max(1, experts.chosen) / experts.number if experts else 0.0
    found: dict[tuple[str, float, bool], float] = {}
    for part in _parts(decoder, scheme, ranks_of(Layout(), shares_attention=False)):
        peak = peak_of(part.stored, tflops)
        if peak:
            key = (part.stored.name, peak, part.name == HEAD)
            found[key] = found.get(key, 0.0) + part.weights * (chosen if part.name == ROUTED else 1.0)
    for (name, peak, sampled), weights in found.items():
        yield Work(name, weights, peak, sampled)


def peak_of(stored: Stored, tflops: JsonObject) -> float:
    """Returns the FLOP/s of one GPU for weights of this format: the data sheet's highest value without sparsity for
    elements of this width, or a wider one (``tflops``: bf16, fp8, fp4; INT8 counts twice BF16 without FP8). 0 where it
    is not stated."""
    bf16, fp8, fp4 = (float(tflops.get(name) or 0) for name in ("bf16", "fp8", "fp4"))
    if stored.bits > 8:
        return bf16 * _TERA
    eight = fp8 or (2 * bf16 if "int8" in stored.name else bf16)
    return (fp4 or eight if "fp4" in stored.name else eight) * _TERA


def _caches(known: Understanding, decoder: Decoder, ranks: Ranks, values: Mapping[str, object]) -> Iterator[Cache]:
    """Yields the caches of the fit. An unknown KV type counts one byte an element."""
    assert known.config is not None
    text = text_part(known.config)
    stored = stored_quantization(known.config)
    named = values.get("kv_cache_dtype")
    eight = named is None or (
        named == "auto"
        and stored is not None
        and bool(stored.get("kv_cache_scheme") or stored.get("kv_cache_quant_algo"))
    )
    element = 1 if eight or str(named).startswith("fp4") else cache_bytes(values, known.element)
    shorter = 0.5 if str(named).startswith("fp4") else 1.0
    window = text.count("sliding_window", default=0) or decoder.attention_chunk
    sparse = (decoder.indexer is not None and decoder.latent is not None) or decoder.compressed is not None
    top = text.count("index_topk", default=_INDEX_TOP_K) if sparse else None
    most = {"sliding window": window, "latent": top, "compressed 4 to 1": 4 * top if top else None}
    flops = {kind: 2.0 * number for kind, number in _products(decoder).items()}
    once, rules = ranks._replace(stages=1), allocation_of(known.release)
    if decoder.compressed is not None:  # counts each token of a window once, for any pool size
        kinds = compressed_cells(decoder, once, {**values, "swa_full_tokens_ratio": 1.0}, rules).kinds
        kinds = tuple(kind for kind in kinds if kind.kind != "states of compression")
    else:
        kinds = cells_of(decoder, once, element, rules).kinds
    chosen, share = _chosen_blocks(text, decoder)
    for cell in kinds:
        size, products = cell.bytes_per_token * shorter / ranks.stages, flops.get(cell.kind, 0.0)
        if chosen and cell.kind == "full attention":
            yield Cache("sparse attention", size * share, products * share, chosen)
            size, products = size * (1 - share), products * (1 - share)
        yield Cache(cell.kind, size, products, most.get(cell.kind))


def _chosen_blocks(text: Fields, decoder: Decoder) -> tuple[int, float]:
    """Returns the tokens that a token reads in layers with KV heads and an indexer (MiniMax-M3: the blocks with the
    best scores), and the share of such layers; 0 without them."""
    sparse = text.part("sparse_attention_config") if decoder.latent is None and decoder.indexer is not None else None
    if sparse is None:
        return 0, 0.0
    tokens = sparse.count("sparse_topk_blocks", default=0) * sparse.count("sparse_block_size", default=0)
    return tokens, sum(not layer.kind for layer in decoder.layers) / len(decoder.layers)


def _products(decoder: Decoder) -> dict[str, float]:
    """Returns the multiplications for one pair of tokens in all layers, by kind of cache: query times key, weight times
    value (for latent attention as if each head had keys and values, which is less than with compressed ones)."""
    mixers = [layer.mixer for layer in decoder.layers]
    found = {}
    for kind, names in (("full attention", (FULL, BOTH)), ("sliding window", (SLIDING,))):
        heads = decoder.heads_of(names[0])
        found[kind] = float(sum(mixer in names for mixer in mixers) * heads.number * heads.cached)
    latent, layers = decoder.latent, sum(mixer != LINEAR for mixer in mixers) * decoder.blocks
    if latent is not None:
        found["latent"] = float(layers * decoder.heads * (latent.nope + latent.rope + latent.value))
    if decoder.indexer is not None:
        layers = sum(not layer.kind and layer.mixer != LINEAR for layer in decoder.layers) * decoder.blocks
        found["index keys"] = float(layers * decoder.indexer.heads * decoder.indexer.dim)
    return found


def _exchanged(decoder: Decoder, ranks: Ranks) -> float:
    """Returns the least bytes that a GPU sends for each token in the layers of a stage: after attention and after the
    MLP its part of the hidden state, one byte an element, summed on the way. 0 for DP attention, which exchanges
    otherwise."""
    divided = ranks.attention == ranks.tp > 1
    return 2.0 * len(decoder.layers) / ranks.stages * decoder.hidden if divided else 0.0
