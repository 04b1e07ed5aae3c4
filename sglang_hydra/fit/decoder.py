"""What a language model is made of: its layers in order and the sizes that its tensors derive from."""

from __future__ import annotations

from typing import NamedTuple

FULL = "full"
SLIDING = "sliding"
LINEAR = "linear"
CROSS = "cross"
NO_MIXER = "none"


class Layer(NamedTuple):
    """One decoder layer: how it mixes tokens, the width of its dense MLP (0: none), whether it has experts."""

    mixer: str
    dense: int
    experts: bool


class Latent(NamedTuple):
    """Multi-head latent attention: ranks of the compressed query (0: none) and KV, sizes of a head's parts."""

    query_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


class Linear(NamedTuple):
    """Gated delta net layers: heads, their sizes, the length of the causal convolution."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


class Experts(NamedTuple):
    """A mixture of experts: how many, their width, the width of all shared experts together, experts per token."""

    number: int
    width: int
    shared: int
    chosen: int
    biased: bool = False


class Indexer(NamedTuple):
    """The lightning indexer of DeepSeek sparse attention: heads, their size, the query rank it reads from."""

    heads: int
    dim: int
    query_rank: int


class Decoder(NamedTuple):
    """A decoder-only model.

    ``query_gate``: queries come with a gate of their size. ``shared_query``: all heads read one query of this size.
    ``blocks``: attention and dense MLP come so often in each layer. ``head_rows`` is 0 where lm_head is the embedding
    (``tied``) or there is none. ``context`` is the longest context in tokens, 0 if not stated; ``rotary`` the rotated
    dimensions of a head and ``positions`` the rows of the table of their angles. ``attention_chunk`` is the window of
    chunked attention in tokens, 0 where there is none. ``copied``: on a GPU, with what a
    server makes of the weights there; else as a checkpoint stores them.
    """

    architecture: str
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[Layer, ...]
    latent: Latent | None
    linear: Linear | None
    experts: Experts | None
    indexer: Indexer | None
    gated: bool
    query_gate: bool
    shared_query: int
    blocks: int
    head_rows: int
    tied: bool
    embedding_rows: int
    embedding_repeated: bool
    norms: int
    shares_attention: bool
    context: int
    rotary: int
    positions: int
    attention_chunk: int
    head_on_every_stage: bool
    learned_positions: int
    assumed: bool
    copied: bool = True
