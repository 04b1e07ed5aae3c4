"""Reads the kinds of layers: mixtures of experts, and states instead of a KV cache (gated delta nets, Mamba, Kimi delta
attention, convolutions).

Fields and shapes: SGLang 0.5.2 configs/qwen3_next.py; for families of later releases their classes in configs/
(nemotron_h.py, falcon_h1.py, granitemoehybrid.py, kimi_linear.py, lfm2.py) and transformers (jamba, bamba).
architectures.json holds what no field of a config states about the model classes of SGLang 0.5.2 (srt/models/*.py):
``traits`` that several classes share, then each class with the name of its traits, or with its differences from the
usual decoder. An encoder has 4 norms a layer because each of its two norms has a bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.architecture.decoder import (
    BOTH,
    FULL,
    KIMI_DELTA,
    LINEAR,
    MAMBA,
    MAMBA_1,
    NO_MIXER,
    SHORT_CONVOLUTION,
    Experts,
    Layer,
    Linear,
)
from sglang_hydra.architecture.known import Fields, Missing
from sglang_hydra.text.json_types import JsonObject, json_beside

_STATES = ("linear", "mamba", "conv", "hybrid")
# Nemotron-H writes one letter for each block; its newer files write a word.
_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}
# A size of a state, and the field that names the layers with attention instead: never all layers.
_WHICH_LAYERS = {
    "mamba_dt_rank": "attn_layer_period",
    "mamba_d_state": "attn_layer_indices",
    "ssm_state_size": "hybrid_override_pattern",
    "conv_L_cache": "full_attn_idxs",
}
# State spaces whose tensors neither this package nor SGLang 0.5.2 knows.
_NOT_MODELLED = ("attn_type_list", "time_step_rank", "attn_layer_pattern", "hybrid_layer_ids")


def not_modelled(text: Fields) -> str | None:
    """Returns the first field that marks a layer of unknown tensors, or None. MiniMax writes attention as 1 (its
    models/minimax_m2.py reads no other kind)."""
    usual = {"attn_type_list"} if set(text.get("attn_type_list") or ()) == {1} else ()
    return next((name for name in _NOT_MODELLED if name in text and name not in usual), None)


def is_state(kind: str) -> bool:
    """Returns whether a layer of this kind, in the config's spelling, keeps a state."""
    return kind.startswith(_STATES)


def block_layers(text: Fields) -> tuple[Layer, ...] | None:
    """Returns the layers of a model whose mixers and MLPs are separate layers (Nemotron-H); None for other models."""
    pattern = text.get("hybrid_override_pattern")
    names = text.words("layers_block_type")
    if isinstance(pattern, str):
        unknown = set(pattern) - set(_BLOCKS)
        if unknown or not pattern:
            raise text.wrong("hybrid_override_pattern", pattern, f"a text of the letters {' '.join(_BLOCKS)}")
        kinds = [_BLOCKS[letter] for letter in pattern]
    elif names and "mlp" in (*names, "mlp" if "moe" in names else ""):
        kinds = [_WORDS.get(name, name) for name in names]
    else:
        return None
    wide = text.size("intermediate_size") if "mlp" in kinds else 0
    layers = {
        "mamba": Layer(LINEAR, 0, False),
        "attention": Layer(FULL, 0, False),
        "mlp": Layer(NO_MIXER, wide, False),
        "moe": Layer(NO_MIXER, 0, True),
    }
    if not set(kinds) <= set(layers):
        raise text.wrong("layers_block_type", names, f"a list of {', '.join(layers)}")
    return tuple(layers[kind] for kind in kinds)


def state_mixers(text: Fields, number: int) -> list[str] | None:
    """Returns the token mixer of each layer where the config says which layers keep a state; None where no layer does.
    Raises Missing where some layers do and no field says which."""
    if "mamba_d_ssm" in text:
        return [BOTH] * number  # Falcon-H1: each layer has attention and a state space side by side
    if "attn_layer_period" in text:
        period, offset = text.size("attn_layer_period"), text.count("attn_layer_offset", default=0)
        return [FULL if i % period == offset else LINEAR for i in range(number)]
    listed = next((name for name in ("attn_layer_indices", "full_attn_idxs") if name in text), None)
    if listed is not None:
        attention = text.numbers(listed)
        return [FULL if i in attention else LINEAR for i in range(number)]
    blocks = text.words("layers_block_type")
    if len(blocks) >= number:
        return [LINEAR if is_state(name) else FULL for name in blocks[:number]]
    nested = text.part("linear_attn_config")
    if nested is not None:
        if "full_attn_layers" not in nested:
            raise Missing(f"{nested.prefix}full_attn_layers")
        attention = nested.numbers("full_attn_layers")  # counted from 1
        return [FULL if i + 1 in attention else LINEAR for i in range(number)]
    if "layer_group_size" in text and "short_conv_kernel_size" in text:  # Ling 3 (0.5.23 configs/bailing_hybrid.py:176)
        every = text.size("layer_group_size")
        return [FULL if (i + 1) % every == 0 else LINEAR for i in range(number)]
    if "full_attention_interval" in text or "linear_num_value_heads" in text:
        interval = text.size("full_attention_interval")
        return [FULL if (i + 1) % interval == 0 else LINEAR for i in range(number)]
    for size, which in _WHICH_LAYERS.items():
        if size in text:
            raise Missing(f"{text.prefix}{which}")
    return None


def read_linear(text: Fields, hidden: int, attention_heads: int) -> Linear:
    """Reads the sizes of the layers that keep a state. Raises Missing."""
    nested = text.part("linear_attn_config")
    if nested is not None or "linear_num_heads" in text:
        part, start = (text, "linear_") if nested is None else (nested, "")
        heads, size = part.size(f"{start}num_heads"), part.size(f"{start}head_dim")
        kernel = part.size("linear_conv_kernel_dim" if nested is None else "short_conv_kernel_size")
        return Linear(heads, heads, size, size, kernel, KIMI_DELTA, int(part.flag("use_full_rank_gate")))
    if "short_conv_kernel_size" in text:  # Ling 3: the heads of its attention
        size, kernel = text.size("head_dim"), text.size("short_conv_kernel_size")
        whole = 2 if text.flag("no_kda_lora") else 0
        return Linear(attention_heads, attention_heads, size, size, kernel, KIMI_DELTA, whole)
    if "conv_L_cache" in text:
        return Linear(0, 1, 0, hidden, text.size("conv_L_cache"), SHORT_CONVOLUTION)
    if "mamba_dt_rank" in text:
        inner = text.size("mamba_expand") * hidden
        rank = -(-hidden // 16) if text.get("mamba_dt_rank") == "auto" else text.size("mamba_dt_rank")
        return Linear(1, 1, text.size("mamba_d_state"), inner, text.size("mamba_d_conv"), MAMBA_1, rank)
    if "mamba_d_state" in text or "ssm_state_size" in text:
        return _mamba(text, hidden)
    return Linear(
        key_heads=text.size("linear_num_key_heads"),
        value_heads=text.size("linear_num_value_heads"),
        key_dim=text.size("linear_key_head_dim"),
        value_dim=text.size("linear_value_head_dim"),
        kernel=text.size("linear_conv_kernel_dim"),
    )


def _mamba(text: Fields, hidden: int) -> Linear:
    heads = text.size("mamba_num_heads", "mamba_n_heads")
    if text.get("mamba_d_head") == "auto" or not ("mamba_head_dim" in text or "mamba_d_head" in text):
        inner = text.count("mamba_d_ssm", default=0) or int(text.number("mamba_expand", "expand") * hidden)
        if inner % heads:
            raise Missing(f"{text.prefix}mamba_d_head")
        size = inner // heads
    else:
        size = text.size("mamba_head_dim", "mamba_d_head")
    groups = text.size("n_groups", "mamba_n_groups", default=1)
    state = text.size("ssm_state_size", "mamba_d_state")
    return Linear(groups, heads, state, size, text.size("conv_kernel", "mamba_d_conv"), MAMBA)


_EXPERT_COUNT = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "moe_top_k")


def expert_pattern(text: Fields, architecture: str, number: int) -> Callable[[int], bool]:
    """Returns a test for the layers with experts, by their number."""
    if _expert_count(text) <= 1:
        return lambda i: False
    listed = text.get("moe_layers_enum")
    if isinstance(listed, str):
        items = [item.strip() for item in listed.split(",")]
        if not all(item.isdecimal() and len(item) < 10 for item in items):
            raise text.wrong("moe_layers_enum", listed, "layer numbers with commas between them")
        chosen = set(map(int, items))
        return lambda i: i in chosen
    step = text.get("moe_layer_freq")
    if isinstance(step, (list, tuple)):
        marks = text.numbers("moe_layer_freq")
        return lambda i: i < len(marks) and bool(marks[i])
    kinds = text.words("mlp_layer_types")
    if kinds:
        return lambda i: i < len(kinds) and kinds[i] == "sparse"
    if "expert_layer_period" in text:
        period, offset = text.size("expert_layer_period"), text.count("expert_layer_offset", default=0)
        return lambda i: i % period == offset
    if "interleave_moe_layer_step" in text:
        every = text.count("interleave_moe_layer_step")
        return lambda i: every == 0 or (i + 1) % every == 0
    if "moe_layer_start_index" in text:
        first, every = text.count("moe_layer_start_index"), text.size("moe_layer_interval", default=1)
        last = -1 if text.get("moe_layer_end_index") == -1 else text.count("moe_layer_end_index", default=number - 1)
        return lambda i: first <= i <= (last % number) and (i - first) % every == 0
    if architecture.startswith("LongcatFlash"):
        return lambda i: True
    if "num_dense_layers" in text:  # LFM2 MoE, AFMoE
        dense_first = text.count("num_dense_layers")
        return lambda i: i >= dense_first
    if "n_routed_experts" in text or "first_k_dense_replace" in text:
        none = 0 if "compress_ratios" in text else None
        first, every = text.count("first_k_dense_replace", default=none), text.size("moe_layer_freq", default=1)
        return lambda i: i >= first and i % every == 0
    dense, every = text.numbers("mlp_only_layers"), text.size("decoder_sparse_step", default=1)
    return lambda i: i not in dense and (i + 1) % every == 0


def read_experts(text: Fields, architecture: str, traits: Traits) -> Experts:
    nested = text.part("ffn_config")
    if nested is not None:
        return Experts(_expert_count(text), nested.size("ffn_hidden_size"), 0, nested.count("moe_top_k", default=0))
    width = next((_first(text, name) for name in _EXPERT_WIDTH if name in text), 0) or text.size(*_EXPERT_WIDTH)
    chosen = next((_first(text, name) for name in _CHOSEN if name in text), 0)
    return Experts(
        number=_expert_count(text),
        width=width,
        shared=_shared_width(text, architecture, width),
        chosen=chosen,
        biased=traits.biased_experts,
        latent=text.count("moe_latent_size", "routed_expert_hidden_size", default=0),
    )


def _shared_width(text: Fields, architecture: str, width: int) -> int:
    """Returns the total width of a layer's shared experts; 0 where the family has none."""
    stated = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
    if any(name in text for name in stated):
        return text.count(*stated)
    if architecture.startswith("Llama4"):
        return width
    if "share_expert_dim" in text or "share_expert_dims" in text:
        return text.count("share_expert_dim", "share_expert_dims")
    if text.flag("use_mixed_mlp_moe"):
        return text.size("intermediate_size") * _first(text, "num_shared_expert")
    return width * text.count("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0)


def _expert_count(text: Fields) -> int:
    nested = text.part("ffn_config")
    if nested is not None:
        return nested.size("moe_num_experts")
    return next((_first(text, name) for name in _EXPERT_COUNT if name in text), 0)


def _first(text: Fields, name: str) -> int:
    """Returns a number; where a family states a list, one for each layer, its first item."""
    value = text.get(name)
    if isinstance(value, (list, tuple)):
        if not value:
            raise text.wrong(name, value, "a whole number, or one for each layer,")
        return text.numbers(name)[0]
    return text.count(name)


ALWAYS, NEVER, CONFIG = "always", "never", "config"


class Traits(NamedTuple):
    """One class of models.

    ``tied``: whether lm_head is the embedding (ALWAYS, NEVER, or CONFIG: the config says, with ``tied_default`` as its
    default). ``gated``: the MLP has a gate beside its up projection. ``norms``: norms of the hidden size in each layer.
    ``shares_attention``: the class supports DP attention. ``embedding_repeated``: every GPU holds the whole embedding.
    ``head``: False for reward and classification models. ``biased_experts``: experts have biases, kept in float32.
    ``windows``: layers may have a separate KV pool for their window (the class has get_attention_sliding_window_size,
    or hybrid_kvcache_ratio is for it); ``pools_windows``: releases from 0.5.8 on make one (0.5.23
    configs/model_config.py:2655-2679, is_hybrid_swa_model). ``head_on_every_stage``: each pipeline stage makes an
    lm_head, though only the last one is used."""

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


_TABLE: JsonObject = json_beside(str(Path(__file__).with_name("architectures")))
_SHARED = {name: Traits(**stated) for name, stated in _TABLE["traits"].items()}


def _read(part: str) -> Mapping[str, Traits]:
    """Reads the traits of each class: the table names shared traits or states them."""
    rows = _TABLE[part].items()
    return {name: _SHARED[row] if isinstance(row, str) else Traits(**row) for name, row in rows}


KNOWN = _read("release_0_5_2")
"""The classes of 0.5.2 by architecture, as config.json spells it."""

LATER = _read("later")
"""Classes of later releases and of transformers, whose tensors are counted like those of 0.5.2."""

ENCODERS: Sequence[str] = _TABLE["encoders"]
"""Models without a decoder to size here."""

FA3_BY_DEFAULT: Sequence[str] = _TABLE["fa3_by_default"]
"""utils.is_fa3_default_architecture; linear attention also needs FlashAttention 3 (hybrid_linear_attn)."""


def traits_of(architecture: str) -> tuple[Traits, bool | None]:
    """Returns the traits of a class, and whether SGLang 0.5.2 has it. The latter is None for an unknown class, which
    gets the tensors of the usual decoder."""
    if architecture in KNOWN:
        return KNOWN[architecture], True
    if architecture in LATER:
        return LATER[architecture], False
    return _SHARED["dp_attention"], None
