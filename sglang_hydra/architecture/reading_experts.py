"""Reading a mixture of experts from config.json: which layers have one, how many experts, how wide."""

from __future__ import annotations

from collections.abc import Callable

from sglang_hydra.architecture.architectures import Traits
from sglang_hydra.architecture.decoder import Experts
from sglang_hydra.architecture.known import Fields

_EXPERT_COUNT = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "moe_top_k")


def expert_pattern(text: Fields, architecture: str, number: int) -> Callable[[int], bool]:
    """Returns which layers have experts."""
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
    """Returns the width of all shared experts of a layer together; 0 where the family has none."""
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
    """Returns a number that some families state once for each layer: the first."""
    value = text.get(name)
    if isinstance(value, (list, tuple)):
        if not value:
            raise text.wrong(name, value, "a whole number, or one for each layer,")
        return text.numbers(name)[0]
    return text.count(name)
