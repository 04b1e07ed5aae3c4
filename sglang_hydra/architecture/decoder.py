"""What a language model is made of: its layers in order and the sizes that its tensors derive from."""

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
    """Layers that keep a state of fixed size for each request: heads, their sizes, the length of the convolution.

    ``kind`` is one of the names above. Of Mamba 2 ``key_heads`` are its groups and ``key_dim`` the size of its state;
    Mamba 1 is one head of all channels, with ``rank`` for its time step; a short convolution has no matrix.
    """

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
        """Channels of the convolution on all ``gpus``: queries, keys and values; of Mamba 1 the values alone. Groups of
        Mamba 2 that are fewer than GPUs are repeated."""
        if self.kind in (MAMBA_1, SHORT_CONVOLUTION):
            return self.values
        groups = gpus if self.kind == MAMBA and self.key_heads % gpus else self.key_heads
        return 2 * groups * self.key_dim + self.values

    def matrices(self, gpus: int) -> int:
        """Numbers in the matrices of one request's state on one GPU, in one layer."""
        return -(-self.value_heads * self.key_dim * self.value_dim // gpus)

    def window(self, gpus: int) -> int:
        """Numbers of one request's last inputs to the convolution on one GPU, in one layer."""
        return -(-self.channels(gpus) // gpus) * (self.kernel - 1)


class Heads(NamedTuple):
    """The heads of one kind of attention layer: of queries, of keys and values, and the size of a key and a value."""

    number: int
    kv: int
    key: int
    value: int

    @property
    def cached(self) -> int:
        """Numbers that one token leaves in the KV cache for each KV head."""
        return self.key + self.value


class Extra(NamedTuple):
    """A matrix that only some family has: in each layer, or once (``layer`` False), and whether GPUs share it."""

    module: str
    rows: int
    columns: int
    split: bool
    layer: bool


class Experts(NamedTuple):
    """A mixture of experts: how many, their width, the width of all shared experts together, experts per token.

    ``latent`` is the size that tokens are projected to for the routed experts; 0 where it is the hidden size.
    """

    number: int
    width: int
    shared: int
    chosen: int
    biased: bool = False
    latent: int = 0


class Indexer(NamedTuple):
    """The lightning indexer of DeepSeek sparse attention: heads, their size, the query rank it reads from. ``scaled``:
    an FP8 cache beside it keeps scales and the rotated part in 16 bits (kv.py)."""

    heads: int
    dim: int
    query_rank: int
    scaled: bool = True


class Decoder(NamedTuple):
    """A decoder-only model.

    ``query_gate``: queries come with a gate of their size. ``shared_query``: all heads read one query of this size.
    ``blocks``: attention and dense MLP come so often in each layer. ``windowed`` are the heads of layers with a sliding
    window where they differ from the others'. ``head_rows`` is 0 where lm_head is the embedding (``tied``) or there is
    none. ``context`` is the longest context in tokens, 0 if not stated; ``rotary`` the rotated dimensions of a head and
    ``positions`` the rows of the table of their angles, ``layer_positions`` those of a table that each layer has for
    itself (0: none). ``attention_chunk`` is the window of chunked attention in tokens, 0 where there is none.
    ``served``: SGLang 0.5.2 has this class; ``assumed``: nobody here knows it. ``copied``: on a GPU, with what a server
    makes of the weights there; else as a checkpoint stores them.
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
    served: bool = True
    extras: tuple[Extra, ...] = ()
    copied: bool = True
    layer_positions: int = 0

    def heads_of(self, mixer: str) -> Heads:
        """The heads of the layers that mix tokens in this way."""
        usual = Heads(self.heads, self.kv_heads, self.head_dim, self.value_dim)
        return self.windowed or usual if mixer == SLIDING else usual
