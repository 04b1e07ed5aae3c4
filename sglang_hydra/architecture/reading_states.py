"""Reading layers that keep a state instead of a KV cache: gated delta nets, Mamba, Kimi delta attention, convolutions.

Fields and shapes: SGLang 0.5.2 configs/qwen3_next.py; for the families that later releases serve their own classes in
configs/ (nemotron_h.py, falcon_h1.py, granitemoehybrid.py, kimi_linear.py, lfm2.py) and transformers (jamba, bamba).
"""

from __future__ import annotations

from sglang_hydra.architecture.decoder import (
    BOTH,
    FULL,
    KIMI_DELTA,
    LINEAR,
    MAMBA,
    MAMBA_1,
    NO_MIXER,
    SHORT_CONVOLUTION,
    Layer,
    Linear,
)
from sglang_hydra.architecture.known import Fields, Missing

_STATES = ("linear", "mamba", "conv", "hybrid")
# Nemotron-H writes one letter for each block, newer files of it a word.
_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}
# A size of a state, and the field that says which layers have attention instead: never all of them.
_WHICH_LAYERS = {
    "mamba_dt_rank": "attn_layer_period",
    "mamba_d_state": "attn_layer_indices",
    "ssm_state_size": "hybrid_override_pattern",
    "conv_L_cache": "full_attn_idxs",
}
# State spaces whose tensors are known neither here nor to SGLang 0.5.2.
_NOT_MODELLED = ("attn_type_list", "time_step_rank", "attn_layer_pattern", "hybrid_layer_ids")


def not_modelled(text: Fields) -> str | None:
    """Returns the first field of a kind of layer that nothing here knows the tensors of. MiniMax writes attention as 1
    (its models/minimax_m2.py reads no other kind)."""
    usual = {"attn_type_list"} if set(text.get("attn_type_list") or ()) == {1} else ()
    return next((name for name in _NOT_MODELLED if name in text and name not in usual), None)


def is_state(kind: str) -> bool:
    """Returns whether a layer that a config calls ``kind`` keeps a state."""
    return kind.startswith(_STATES)


def block_layers(text: Fields) -> tuple[Layer, ...] | None:
    """Returns the layers of a model whose mixers and MLPs are layers of their own (Nemotron-H); None if not."""
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
    """Returns how each layer mixes tokens where some fields of their own say which ones keep a state; None where none
    keeps one. Raises Missing where some do and nothing says which."""
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
    """Returns the sizes of the layers that keep a state. Raises Missing."""
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
