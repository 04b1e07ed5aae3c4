"""Describes a language model: its layers in order, and the sizes from which its tensors derive."""

from __future__ import annotations

from typing import NamedTuple

FULL = "full"
SLIDING = "sliding"
LINEAR = "linear"
BOTH = "full and linear"
CROSS = "cross"
NO_MIXER = "none"

GATED_DELTA, KIMI_DELTA = "gated delta net", "Kimi delta attention"
MAMBA, MAMBA_1, SHORT_CONVOLUTION = "Mamba 2", "Mamba 1", "short convolution"


class Layer(NamedTuple):
    """One decoder layer: its token mixer, the width of its dense MLP (0: none), and whether it has experts.

    ``kind`` separates layers that are otherwise alike: the ratio of compressed attention (``Compressed``), or 1 where a
    layer of sparse attention has no indexer (for MiniMax-M3: no sparse attention)."""

    mixer: str
    dense: int
    experts: bool
    kind: int = 0


class Latent(NamedTuple):
    """Multi-head latent attention: ranks of the compressed query (0: none) and KV, and sizes of a head's parts
    (``rope`` is 0 without a rotated part). ``gate`` is the size of each head's gate on the output, 0 without one."""

    query_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    gate: int = 0


class Compressed(NamedTuple):
    """The compressed attention of DeepSeek-V4: one KV head of ``dim`` for all query heads, with ``rope`` rotated
    numbers kept in 16 bits; the output in ``groups`` of ``rank``; a window in tokens; ``streams`` of hidden states.

    A layer's ``kind`` is its ratio: it caches one of 4 or 128 tokens (0: only the window). Layers of ratio 4 select
    cached tokens with an indexer. ``listed`` counts the ratios in the config, including those of draft layers."""

    query_rank: int
    dim: int
    rope: int
    groups: int
    rank: int
    window: int
    streams: int
    index_heads: int
    index_dim: int
    listed: int


class Linear(NamedTuple):
    """Layers that keep a state of fixed size for each request: heads, their sizes, the length of the convolution.

    ``kind`` is one of the names above. For Mamba 2, ``key_heads`` counts its groups and ``key_dim`` is the size of its
    state. Mamba 1 is one head of all channels, with ``rank`` for its time step. A short convolution has no matrix. For
    Kimi delta attention, ``rank`` counts the gates (0 to 2) that are one matrix, not a product of two small ones."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    kind: str = GATED_DELTA
    rank: int = 0

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    def channels(self, gpus: int = 1) -> int:
        """Returns the channels of the convolution on all ``gpus``: queries, keys and values; for Mamba 1 the values
        alone. Mamba 2 repeats its groups where their number does not divide by the GPUs."""
        if self.kind in (MAMBA_1, SHORT_CONVOLUTION):
            return self.values
        groups = gpus if self.kind == MAMBA and self.key_heads % gpus else self.key_heads
        return 2 * groups * self.key_dim + self.values

    def matrices(self, gpus: int) -> int:
        """Returns the number of elements in one request's state matrices, in one layer on one GPU."""
        return -(-self.value_heads * self.key_dim * self.value_dim // gpus)

    def window(self, gpus: int) -> int:
        """Returns the number of elements that the convolution keeps of one request, in one layer on one GPU."""
        return -(-self.channels(gpus) // gpus) * (self.kernel - 1)


class Heads(NamedTuple):
    """The heads of one kind of attention layer: numbers of query and KV heads, and the sizes of a key and a value."""

    number: int
    kv: int
    key: int
    value: int

    @property
    def cached(self) -> int:
        """Returns the number of elements that one token adds to the KV cache for each KV head."""
        return self.key + self.value


class Extra(NamedTuple):
    """A matrix that only some families have: once in each layer or once in all (``layer`` False). ``split``: GPUs share
    it."""

    module: str
    rows: int
    columns: int
    split: bool
    layer: bool


class Experts(NamedTuple):
    """A mixture of experts: their number, their width, the total width of the shared experts, the experts per token.

    ``latent`` is the size to which tokens are projected for the routed experts; 0 where it is the hidden size."""

    number: int
    width: int
    shared: int
    chosen: int
    biased: bool = False
    latent: int = 0


class Indexer(NamedTuple):
    """The lightning indexer of DeepSeek sparse attention: heads, their size, the rank of the query it reads.
    ``scaled``: an FP8 cache beside it keeps scales, and the rotated part in 16 bits (kv.py). ``pool`` tokens share one
    cached key. MiniMax-M3 has an indexer beside KV heads (``query_rank`` 0) and caches its keys in 16 bits."""

    heads: int
    dim: int
    query_rank: int
    scaled: bool = True
    pool: int = 1


class Decoder(NamedTuple):
    """A decoder-only model.

    ``query_gate``: queries come with a gate of their size. ``shared_query``: all heads read one query of this size.
    ``blocks`` counts the attention blocks and dense MLPs in each layer. ``windowed`` holds the heads of sliding-window
    layers where they differ from the others. ``head_rows`` is 0 where lm_head is the embedding (``tied``) or is
    missing. ``context`` is the longest context in tokens, 0 if not stated. ``rotary`` counts the rotated dimensions of
    a head, ``positions`` the rows of the table of their angles, and ``layer_positions`` the rows of a table of each
    layer's own (0: none). ``attention_chunk`` is the window of chunked attention in tokens, ``window`` that of a
    sliding window (0: none). ``pools_windows``: later releases keep a KV pool for its windows. ``state_dtype`` is the
    config's dtype of states. ``served``: SGLang 0.5.2 has this class. ``assumed``: the class is unknown here.
    ``copied``: sizes include the copies that a server makes of weights on the GPU; False: sizes as in the checkpoint.
    """

    architecture: str
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    windowed: Heads | None
    layers: tuple[Layer, ...]
    latent: Latent | None
    linear: Linear | None
    experts: Experts | None
    indexer: Indexer | None
    gated: bool
    query_gate: bool
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
    served: bool = True
    extras: tuple[Extra, ...] = ()
    copied: bool = True
    layer_positions: int = 0
    compressed: Compressed | None = None
    window: int = 0
    state_dtype: str = "float32"
    pools_windows: bool = False
    shared_query: int = 0

    def heads_of(self, mixer: str) -> Heads:
        """Returns the heads of the layers with this token mixer."""
        usual = Heads(self.heads, self.kv_heads, self.head_dim, self.value_dim)
        return self.windowed or usual if mixer == SLIDING else usual
