"""The tensors of one layer as each GPU holds them (SGLang 0.5.2, srt/models/*.py and layers/linear.py)."""

from __future__ import annotations

from typing import NamedTuple

from sglang_hydra.fit.decoder import LINEAR, NO_MIXER, Decoder, Layer
from sglang_hydra.fit.formats import Stored
from sglang_hydra.fit.ranks import Ranks, kv_share, share

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
"""What the weights are split into, in the order in which they are shown."""

LINEAR_FORMAT, EXPERTS_FORMAT, PLAIN_FORMAT = "linear", "experts", "plain"


class Matrix(NamedTuple):
    """``copies`` matrices of ``rows`` outputs and ``columns`` inputs on one GPU.

    ``module`` is their path inside a layer, as a checkpoint's lists of unquantized modules spell it; ``format``
    says which of the scheme's formats they take.
    """

    part: str
    module: str
    rows: int
    columns: int
    copies: int = 1
    format: str = LINEAR_FORMAT


def layer_matrices(decoder: Decoder, layer: Layer, ranks: Ranks, experts_format: Stored) -> list[Matrix]:
    """Every matrix of a layer of this kind on one GPU."""
    matrices = _mixer(decoder, layer, ranks) * decoder.blocks
    if layer.dense:
        matrices += mlp_matrices(decoder, layer.dense, ranks.dense, DENSE, "mlp") * decoder.blocks
    if layer.experts:
        matrices += expert_matrices(decoder, ranks, experts_format)
    matrices.append(Matrix(NORMS, "norm", decoder.norms * decoder.blocks, decoder.hidden, format=PLAIN_FORMAT))
    return matrices


def mlp_matrices(decoder: Decoder, width: int, gpus: int, part: str, module: str) -> list[Matrix]:
    """An MLP: up (and gate) divided by their outputs, down by its inputs."""
    mine = share(width, gpus)
    return [
        Matrix(part, f"{module}.gate_proj", mine, decoder.hidden, copies=2 if decoder.gated else 1),
        Matrix(part, f"{module}.down_proj", decoder.hidden, mine),
    ]


def expert_matrices(decoder: Decoder, ranks: Ranks, stored: Stored) -> list[Matrix]:
    """Routed and shared experts and the router, which every GPU holds whole (layers/moe/fused_moe_triton/layer.py).

    A shared expert that is fused with the routed ones takes the same memory.
    """
    experts = decoder.experts
    if experts is None:
        return []
    mine = share(experts.number, ranks.experts)
    width = _padded(share(experts.width, ranks.expert_slices), stored.pad[0])
    hidden = _padded(decoder.hidden, stored.pad[1])
    matrices = [
        Matrix(ROUTED, "mlp.experts", width, hidden, 2 * mine, EXPERTS_FORMAT),
        Matrix(ROUTED, "mlp.experts", hidden, width, mine, EXPERTS_FORMAT),
        Matrix(OTHER, "mlp.gate", experts.number, decoder.hidden, format=PLAIN_FORMAT),
    ]
    if experts.biased:  # float32: two 16 bit weights each
        matrices.append(Matrix(ROUTED, "mlp.experts", 2 * (2 * width + hidden), mine, format=PLAIN_FORMAT))
    if experts.shared:
        matrices += mlp_matrices(decoder, experts.shared, ranks.shared, SHARED, "mlp.shared_experts")
    return matrices


def latent_copies(decoder: Decoder, ranks: Ranks) -> int:
    """Weights of a layer's kv_b_proj, which latent attention also holds unpacked, as w_kc and w_vc (deepseek_v2.py,
    post_load_weights: the projection itself stays for prefill)."""
    latent = decoder.latent
    if latent is None:
        return 0
    return share(decoder.heads, ranks.attention) * (latent.nope + latent.value) * latent.kv_rank * decoder.blocks


def _mixer(decoder: Decoder, layer: Layer, ranks: Ranks) -> list[Matrix]:
    if layer.mixer == NO_MIXER:
        return []
    if layer.mixer == LINEAR:
        return _linear_attention(decoder, ranks)
    return _latent_attention(decoder, ranks) if decoder.latent else _attention(decoder, ranks)


def _attention(decoder: Decoder, ranks: Ranks) -> list[Matrix]:
    """Attention with KV heads; they are repeated where there are fewer than GPUs (layers/linear.QKVParallelLinear)."""
    heads = share(decoder.heads, ranks.attention)
    kv_heads = kv_share(decoder.kv_heads, ranks.attention)
    output = Matrix(ATTENTION, "self_attn.o_proj", decoder.hidden, heads * decoder.head_dim)
    if decoder.shared_query:  # Step 3: one query and one KV head on every GPU, heads made from them
        rows = decoder.shared_query + 2 * decoder.head_dim
        return [
            Matrix(ATTENTION, "self_attn.q_proj", rows, decoder.hidden),
            Matrix(ATTENTION, "self_attn.wq", heads * decoder.head_dim, decoder.shared_query),
            output,
        ]
    rows = (heads * (2 if decoder.query_gate else 1) + 2 * kv_heads) * decoder.head_dim
    return [Matrix(ATTENTION, "self_attn.q_proj", rows, decoder.hidden), output]


def _latent_attention(decoder: Decoder, ranks: Ranks) -> list[Matrix]:
    """Multi-head latent attention: the compressing projections are whole on every GPU (deepseek_v2.py)."""
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
    if decoder.indexer is not None:
        index = decoder.indexer
        matrices += [
            Matrix(ATTENTION, "self_attn.indexer.wq_b", index.heads * index.dim, index.query_rank),
            Matrix(ATTENTION, "self_attn.indexer.wk", index.dim, decoder.hidden),
            Matrix(ATTENTION, "self_attn.indexer.weights_proj", index.heads, decoder.hidden, format=PLAIN_FORMAT),
        ]
    return matrices


def _linear_attention(decoder: Decoder, ranks: Ranks) -> list[Matrix]:
    """A gated delta net: queries, keys, values and gate, two scalars for each value head, the convolution
    (qwen3_next.py)."""
    linear = decoder.linear
    assert linear is not None
    values = linear.value_heads * linear.value_dim
    gpus = ranks.attention
    return [
        Matrix(ATTENTION, "linear_attn.in_proj_qkvz", share(linear.channels + values, gpus), decoder.hidden),
        Matrix(ATTENTION, "linear_attn.in_proj_ba", share(2 * linear.value_heads, gpus), decoder.hidden),
        Matrix(ATTENTION, "linear_attn.conv1d", share(linear.channels, gpus), linear.kernel, format=PLAIN_FORMAT),
        Matrix(ATTENTION, "linear_attn.out_proj", decoder.hidden, share(values, gpus)),
    ]


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
