"""What the model classes of SGLang 0.5.2 do that no field of a config says (srt/models/*.py).

architectures.json has the table: ``traits`` that several classes share, then each class with the name of its traits
or with those that differ from the usual decoder's. An encoder has 4 norms a layer because each of two has a bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sglang_hydra.text.json_types import json_beside

ALWAYS, NEVER, CONFIG = "always", "never", "config"


class Traits(NamedTuple):
    """One class of models.

    ``tied``: whether lm_head is the embedding (ALWAYS, NEVER, or as the config says, with ``tied_default`` where it
    says nothing). ``gated``: the MLP has a gate beside its up projection. ``norms``: norms of the hidden size in each
    layer. ``shares_attention``: the class knows DP attention. ``embedding_repeated``: every GPU holds the whole
    embedding. ``head``: False for reward and classification models. ``biased_experts``: experts have biases, kept in
    float32. ``windows``: layers may have a KV pool of their own for their window (the class has
    get_attention_sliding_window_size, or is the one that hybrid_kvcache_ratio is for); ``pools_windows``: releases from
    0.5.8 on make one (0.5.23 configs/model_config.py:2655-2679, is_hybrid_swa_model). ``head_on_every_stage``: each
    pipeline stage makes an lm_head, though only the last one's is used.
    """

    tied: str = CONFIG
    tied_default: bool = False
    gated: bool = True
    norms: int = 2
    shares_attention: bool = False
    embedding_repeated: bool = False
    head: bool = True
    biased_experts: bool = False
    windows: bool = False
    pools_windows: bool = False
    head_on_every_stage: bool = True


_TABLE: Mapping[str, Any] = json_beside(__file__)
_SHARED = {name: Traits(**stated) for name, stated in _TABLE["traits"].items()}


def _read(part: str) -> Mapping[str, Traits]:
    """Returns the traits of each class, which the table names or states."""
    rows = _TABLE[part].items()
    return {name: _SHARED[row] if isinstance(row, str) else Traits(**row) for name, row in rows}


KNOWN = _read("release_0_5_2")
"""The classes of 0.5.2 by architecture, as config.json spells it."""

LATER = _read("later")
"""Classes of later releases, and of transformers, that have been counted like those of 0.5.2."""

ENCODERS: Sequence[str] = _TABLE["encoders"]
"""Models without a decoder to size here."""

FA3_BY_DEFAULT: Sequence[str] = _TABLE["fa3_by_default"]
"""utils.is_fa3_default_architecture; linear attention brings FlashAttention 3 with it (hybrid_linear_attn)."""


def traits_of(architecture: str) -> tuple[Traits, bool | None]:
    """Returns the traits of a class, and whether SGLang 0.5.2 has it. None instead of the latter: nobody knows the
    class here, and its tensors are taken to be those of the usual decoder."""
    if architecture in KNOWN:
        return KNOWN[architecture], True
    if architecture in LATER:
        return LATER[architecture], False
    return _SHARED["dp_attention"], None
