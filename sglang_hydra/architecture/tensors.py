"""The tensors of one layer as each GPU holds them (SGLang 0.5.2, srt/models/*.py and layers/linear.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sglang_hydra.architecture.decoder import (
    BOTH,
    KIMI_DELTA,
    LINEAR,
    MAMBA,
    MAMBA_1,
    NO_MIXER,
    SHORT_CONVOLUTION,
    Decoder,
    Extra,
    Layer,
    Linear,
)
from sglang_hydra.architecture.formats import Scheme, Stored
from sglang_hydra.architecture.ranks import Ranks, kv_share, share

EMBEDDING = "embedding"
ATTENTION = "attention"
DENSE = "dense MLP"
ROUTED = "routed experts"
SHARED = "shared experts"
HEAD = "lm_head"
NORMS = "norms"
VISION = "vision tower"
ROTARY = "rotary tables"
OTHER = "other"
PARTS = (EMBEDDING, ATTENTION, DENSE, ROUTED, SHARED, HEAD, NORMS, VISION, ROTARY, OTHER)
"""The parts of the weights, in display order."""

LINEAR_FORMAT, EXPERTS_FORMAT, PLAIN_FORMAT = "linear", "experts", "plain"


class Matrix(NamedTuple):
    """A group of ``copies`` matrices with ``rows`` outputs and ``columns`` inputs on one GPU.

    ``module`` is their path inside a layer, in the spelling of a checkpoint's lists of unquantized modules; ``format``
    selects one of the scheme's formats."""

    part: str
    module: str
    rows: int
    columns: int
    copies: int = 1
    format: str = LINEAR_FORMAT


class Tensor(NamedTuple):
    """The tensors of a matrix in one of its formats on one GPU, all copies together: bytes of ``weights``, of their
    ``scales``, and of the ``unquantized`` weights. ``layers`` of one kind have them."""

    part: str
    layers: int
    weights: float
    scales: float
    unquantized: float


def layer_tensors(decoder: Decoder, layer: Layer, ranks: Ranks, scheme: Scheme, numbers: Sequence[int]) -> list[Tensor]:
    """Returns the tensors of the layers ``numbers``, all of this kind, in the order of their creation."""
    return [
        Tensor(
            matrix.part,
            count,
            stored.weights(matrix.rows, matrix.columns) * matrix.copies,
            stored.scales(matrix.rows, matrix.columns) * matrix.copies,
            scheme.plain.weights(matrix.rows, matrix.columns) * matrix.copies,
        )
        for matrix in layer_matrices(decoder, layer, ranks, scheme.experts)
        for stored, count in scheme.formats(matrix.format, matrix.module, numbers)
    ]


def layer_matrices(decoder: Decoder, layer: Layer, ranks: Ranks, experts_format: Stored) -> list[Matrix]:
    """Returns every matrix of a layer of this kind on one GPU."""
    matrices = _mixer(decoder, layer, ranks) * decoder.blocks
    matrices += [extra_matrix(extra, ranks) for extra in decoder.extras if extra.layer]
    if layer.dense:
        matrices += mlp_matrices(decoder, layer.dense, ranks.dense, DENSE, "mlp") * decoder.blocks
    if layer.experts:
        # Where the layer has its own MLP, the experts are beside it: Gemma 4's layers.N.experts.
        matrices += expert_matrices(decoder, ranks, experts_format, "" if layer.dense else "mlp.")
    matrices.append(Matrix(NORMS, "norm", decoder.norms * decoder.blocks, decoder.hidden, format=PLAIN_FORMAT))
    return matrices


def extra_matrix(extra: Extra, ranks: Ranks) -> Matrix:
    """Returns a family's special matrix on one GPU; GPUs that share it divide its outputs."""
    rows = share(extra.rows, ranks.attention) if extra.split else extra.rows
    kind = PLAIN_FORMAT if extra.module.startswith(("embed", "small.")) else LINEAR_FORMAT
    part = EMBEDDING if extra.module.startswith("embed") else OTHER
    return Matrix(part, extra.module, rows, extra.columns, format=kind)


def mlp_matrices(decoder: Decoder, width: int, gpus: int, part: str, module: str) -> list[Matrix]:
    """Returns the matrices of an MLP: up (and gate) divided by their outputs, down by its inputs."""
    mine = share(width, gpus)
    return [
        Matrix(part, f"{module}.gate_proj", mine, decoder.hidden, copies=2 if decoder.gated else 1),
        Matrix(part, f"{module}.down_proj", decoder.hidden, mine),
    ]


def expert_matrices(decoder: Decoder, ranks: Ranks, stored: Stored, within: str = "mlp.") -> list[Matrix]:
    """Lists the matrices of routed and shared experts, and the router, which every GPU holds whole
    (layers/moe/fused_moe_triton/layer.py).

    A shared expert that is fused with the routed ones takes the same memory."""
    experts = decoder.experts
    if experts is None:
        return []
    mine = share(experts.number + ranks.redundant, ranks.experts)
    width = share(share(experts.width, ranks.expert_slices), stored.pad[0]) * stored.pad[0]
    hidden = share(experts.latent or decoder.hidden, stored.pad[1]) * stored.pad[1]
    matrices = [
        Matrix(
            ROUTED, f"{within}experts.0.gate_proj", width, hidden, (2 if decoder.gated else 1) * mine, EXPERTS_FORMAT
        ),
        Matrix(ROUTED, f"{within}experts.0.down_proj", hidden, width, mine, EXPERTS_FORMAT),
        Matrix(OTHER, "mlp.gate", experts.number, decoder.hidden, format=PLAIN_FORMAT),
    ]
    if experts.latent:  # projects to the experts' size, and back
        matrices.append(Matrix(OTHER, "mixer.fc1_latent_proj", experts.latent, decoder.hidden, 2))
    if experts.biased:  # float32: two 16 bit weights each
        matrices.append(Matrix(ROUTED, f"{within}experts", 2 * (2 * width + hidden), mine, format=PLAIN_FORMAT))
    if experts.shared:
        matrices += mlp_matrices(decoder, experts.shared, ranks.shared, SHARED, "mlp.shared_experts")
    return matrices


def latent_copies(decoder: Decoder, ranks: Ranks) -> int:
    """Counts the unpacked weights of a layer's kv_b_proj, which latent attention holds as w_kc and w_vc beside the
    projection for prefill (deepseek_v2.py, post_load_weights); 0 without latent attention."""
    latent = decoder.latent
    if latent is None:
        return 0
    return share(decoder.heads, ranks.attention) * (latent.nope + latent.value) * latent.kv_rank * decoder.blocks


def _mixer(decoder: Decoder, layer: Layer, ranks: Ranks) -> list[Matrix]:
    if layer.mixer == NO_MIXER:
        return []
    if layer.mixer == LINEAR:
        return _state(decoder, ranks)
    if decoder.compressed is not None:
        return _compressed_attention(decoder, layer, ranks)
    attention = _latent_attention(decoder, layer, ranks) if decoder.latent else _attention(decoder, layer, ranks)
    return attention + _state(decoder, ranks) if layer.mixer == BOTH else attention


def _attention(decoder: Decoder, layer: Layer, ranks: Ranks) -> list[Matrix]:
    """Lists the matrices of attention with KV heads, repeated if fewer than GPUs (layers/linear.QKVParallelLinear)."""
    shape = decoder.heads_of(layer.mixer)
    heads, kv_heads = share(shape.number, ranks.attention), kv_share(shape.kv, ranks.attention)
    output = Matrix(ATTENTION, "self_attn.o_proj", decoder.hidden, heads * shape.value)
    if decoder.shared_query:  # Step 3: one query and one KV head on every GPU, heads made from them
        rows = decoder.shared_query + 2 * shape.key
        return [
            Matrix(ATTENTION, "self_attn.q_proj", rows, decoder.hidden),
            Matrix(ATTENTION, "self_attn.wq", heads * shape.key, decoder.shared_query),
            output,
        ]
    rows = heads * (2 if decoder.query_gate else 1) * shape.key + kv_heads * shape.cached
    matrices = [Matrix(ATTENTION, "self_attn.q_proj", rows, decoder.hidden), output]
    index = decoder.indexer
    if index is not None and not layer.kind:  # MiniMax-M3: one key for all index heads (models/minimax_m3.py:830-841)
        rows = (share(index.heads, ranks.attention) + 1) * index.dim
        matrices.append(Matrix(ATTENTION, "self_attn.index_q_proj", rows, decoder.hidden))
    return matrices


def _latent_attention(decoder: Decoder, layer: Layer, ranks: Ranks) -> list[Matrix]:
    """Lists the matrices of multi-head latent attention; every GPU holds the compressing projections whole
    (deepseek_v2.py)."""
    latent = decoder.latent
    assert latent is not None
    heads = share(decoder.heads, ranks.attention)
    head = latent.nope + latent.rope
    compressed = latent.kv_rank + latent.rope
    if latent.query_rank:
        matrices = [
            Matrix(ATTENTION, "self_attn.q_a_proj", latent.query_rank + compressed, decoder.hidden),
            Matrix(ATTENTION, "self_attn.q_b_proj", heads * head, latent.query_rank),
        ]
    else:
        matrices = [
            Matrix(ATTENTION, "self_attn.q_proj", heads * head, decoder.hidden),
            Matrix(ATTENTION, "self_attn.kv_a_proj_with_mqa", compressed, decoder.hidden),
        ]
    matrices += [
        Matrix(ATTENTION, "self_attn.kv_b_proj", heads * (latent.nope + latent.value), latent.kv_rank),
        Matrix(ATTENTION, "self_attn.o_proj", decoder.hidden, heads * latent.value),
    ]
    if latent.gate:
        matrices.append(Matrix(ATTENTION, "self_attn.g_proj", heads * latent.gate, decoder.hidden))
    if decoder.indexer is not None and not layer.kind:
        index = decoder.indexer
        matrices += [
            Matrix(ATTENTION, "self_attn.indexer.wq_b", index.heads * index.dim, index.query_rank),
            Matrix(ATTENTION, "self_attn.indexer.wk", index.dim, decoder.hidden),
            Matrix(ATTENTION, "self_attn.indexer.weights_proj", index.heads, decoder.hidden, format=PLAIN_FORMAT),
        ]
    return matrices


def _compressed_attention(decoder: Decoder, layer: Layer, ranks: Ranks) -> list[Matrix]:
    """Lists the matrices of DeepSeek-V4's attention (0.5.23 models/deepseek_v4.py:1028-1165, 3165-3200;
    layers/attention/dsv4/compressor.py: 37-78, indexer.py:1154-1215). The mixing of its streams is in float32: two 16
    bit weights each."""
    shape = decoder.compressed
    assert shape is not None
    heads, groups = share(decoder.heads, ranks.attention), share(shape.groups, ranks.attention)
    mixed = 2 * (2 + shape.streams) * shape.streams
    matrices = [
        Matrix(ATTENTION, "self_attn.wqkv_a", shape.query_rank + shape.dim, decoder.hidden),
        Matrix(ATTENTION, "self_attn.wq_b", heads * shape.dim, shape.query_rank),
        Matrix(ATTENTION, "self_attn.wo_a", groups * shape.rank, decoder.heads * shape.dim // shape.groups),
        Matrix(ATTENTION, "self_attn.wo_b", decoder.hidden, groups * shape.rank),
        Matrix(OTHER, "hc", 2 * mixed, shape.streams * decoder.hidden, format=PLAIN_FORMAT),
    ]
    if layer.kind:
        wide = 4 if layer.kind == 4 else 2
        matrices.append(
            Matrix(ATTENTION, "self_attn.compressor", wide * shape.dim, decoder.hidden, format=PLAIN_FORMAT)
        )
    if layer.kind == 4:
        rows = shape.index_heads + 4 * shape.index_dim
        matrices += [
            Matrix(ATTENTION, "self_attn.indexer.wq_b", shape.index_heads * shape.index_dim, shape.query_rank),
            Matrix(ATTENTION, "self_attn.indexer.compressor", rows, decoder.hidden, format=PLAIN_FORMAT),
        ]
    return matrices


def _state(decoder: Decoder, ranks: Ranks) -> list[Matrix]:
    """Lists the matrices of a layer that keeps a state: input projections, convolution, output projection."""
    linear = decoder.linear
    assert linear is not None
    gpus, hidden = ranks.attention, decoder.hidden
    values, channels = share(linear.values, gpus), share(linear.channels(gpus), gpus)
    heads = share(linear.value_heads, gpus)
    name = "linear_attn" if linear.kind not in (MAMBA, MAMBA_1) else "mixer"
    return [
        *_projections(linear, name, hidden, values, channels, heads),
        Matrix(ATTENTION, f"{name}.conv1d", channels, linear.kernel, format=PLAIN_FORMAT),
        Matrix(ATTENTION, f"{name}.out_proj", hidden, values),
    ]


def _projections(linear: Linear, name: str, hidden: int, values: int, channels: int, heads: int) -> list[Matrix]:
    """Lists the input projections of a state, with ``values``, ``channels`` and ``heads`` of one GPU (0.5.2:
    qwen3_next.py; later: layers/attention/mamba/mamba.py, kimi_linear.py, lfm2.py; Mamba 1: transformers,
    modeling_jamba.py)."""
    if linear.kind == SHORT_CONVOLUTION:
        return [Matrix(ATTENTION, f"{name}.in_proj", 3 * values, hidden)]
    if linear.kind == MAMBA:
        return [Matrix(ATTENTION, f"{name}.in_proj", values + channels + heads, hidden)]
    if linear.kind == MAMBA_1:
        return [
            Matrix(ATTENTION, f"{name}.in_proj", 2 * values, hidden),
            Matrix(ATTENTION, f"{name}.x_proj", linear.rank + 2 * linear.key_dim, values),
            Matrix(ATTENTION, f"{name}.dt_proj", values, linear.rank),
            Matrix(ATTENTION, f"{name}.A_log", values, linear.key_dim, format=PLAIN_FORMAT),
        ]
    if linear.kind == KIMI_DELTA:
        low, products = linear.value_dim, 2 - linear.rank
        return [
            Matrix(ATTENTION, "self_attn.qkv_proj", channels, hidden),
            Matrix(ATTENTION, "self_attn.g_proj", values, hidden, linear.rank),
            Matrix(ATTENTION, "self_attn.f_a_proj", low, hidden, products),
            Matrix(ATTENTION, "self_attn.f_b_proj", values, low, products),
            Matrix(ATTENTION, "self_attn.b_proj", heads, hidden),
        ]
    return [
        Matrix(ATTENTION, f"{name}.in_proj_qkvz", channels + values, hidden),
        Matrix(ATTENTION, f"{name}.in_proj_ba", 2 * heads, hidden),
    ]
