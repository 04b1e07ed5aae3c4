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
    """One decoder layer: how it mixes tokens, the width of its dense MLP (0: none), whether it has experts.

    ``kind`` tells layers apart that are alike in these: the ratio of compressed attention (``Compressed``), and 1 where
    a layer of sparse attention has no indexer (or one of MiniMax-M3 no sparse attention).
    """

    mixer: str
    dense: int
    experts: bool
    kind: int = 0


class Latent(NamedTuple):
    """Multi-head latent attention: ranks of the compressed query (0: none) and KV, sizes of a head's parts (``rope`` is
    0 where no part is rotated). ``gate`` is the size that each head's gate on the output has, 0 without one."""

    query_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    gate: int = 0


class Compressed(NamedTuple):
    """The compressed attention of DeepSeek-V4: one KV head of ``dim`` for all, ``rope`` numbers rotated and kept in
    16 bits; the output in ``groups`` of ``rank``; a window in tokens; streams of hidden states (``streams``).

    A layer's ``kind`` is its ratio: of 4 or 128 tokens one is cached (0: only the window's). Those of ratio 4 choose
    among them with an indexer. ``listed`` are the ratios in the config, those of drafting layers among them.
    """

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

    ``kind`` is one of the names above. Of Mamba 2 ``key_heads`` are its groups and ``key_dim`` the size of its state;
    Mamba 1 is one head of all channels, with ``rank`` for its time step; a short convolution has no matrix. Of Kimi
    delta attention ``rank`` counts the gates that are no product of two small matrices: 0 to 2.
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
    an FP8 cache beside it keeps scales and the rotated part in 16 bits (kv.py). ``pool`` tokens share one cached key.

    MiniMax-M3 has one beside KV heads (``query_rank`` 0): its keys are cached in 16 bits.
    """

    heads: int
    dim: int
    query_rank: int
    scaled: bool = True
    pool: int = 1


class Decoder(NamedTuple):
    """A decoder-only model.

    ``query_gate``: queries come with a gate of their size. ``shared_query``: all heads read one query of this size.
    ``blocks``: attention and dense MLP come so often in each layer. ``windowed`` are the heads of layers with a sliding
    window where they differ from the others'. ``head_rows`` is 0 where lm_head is the embedding (``tied``) or there is
    none. ``context`` is the longest context in tokens, 0 if not stated; ``rotary`` the rotated dimensions of a head and
    ``positions`` the rows of the table of their angles, ``layer_positions`` those of a table that each layer has for
    itself (0: none). ``attention_chunk`` is the window of chunked attention in tokens, ``window`` a sliding one's: 0
    where there is none.
    ``pools_windows``: later releases keep a KV pool for its windows; ``state_dtype`` is what the config says of states.
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
        """Returns the heads of the layers that mix tokens in this way."""
        usual = Heads(self.heads, self.kv_heads, self.head_dim, self.value_dim)
        return self.windowed or usual if mixer == SLIDING else usual
