"""From config.json to a decoder: the spellings of the families that SGLang 0.5.2 serves (srt/models/*.py)."""

from __future__ import annotations

from typing import Any

from sglang_hydra.fit.architectures import ALWAYS, EMBEDDING_MODELS, NEVER, Traits, traits_of
from sglang_hydra.fit.decoder import (
    CROSS,
    FULL,
    LINEAR,
    NO_MIXER,
    SLIDING,
    Decoder,
    Indexer,
    Latent,
    Layer,
    Linear,
)
from sglang_hydra.fit.known import Fields, Missing, text_part
from sglang_hydra.fit.reading_experts import expert_pattern, read_experts

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
_WIDTH = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")

_MOST_LAYERS = 10_000
_LEARNED_POSITIONS = ("GPT2LMHeadModel", "GPTBigCodeForCausalLM", "OPTForCausalLM")

# Fields of layers that nothing here knows the tensors of: other state spaces, side networks, compressed caches.
_NOT_MODELLED = (
    "hybrid_override_pattern",
    "mamba_d_state",
    "mamba_num_heads",
    "ssm_state_size",
    "linear_attn_config",
    "attn_type_list",
    "altup_num_inputs",
    "compress_ratios",
)


def architecture_of(config: Fields) -> str:
    """The first architecture, the one that SGLang goes by. Raises Missing where none is stated."""
    names = config.words("architectures")
    if not names:
        if config.get("model_type") == "multi_modality":
            return "MultiModalityCausalLM"
        raise Missing("architectures")
    return names[0]


def read_decoder(config: Fields, architecture: str) -> Decoder:
    """The language model that ``config`` describes. Raises Missing with the first field that is needed and not there.

    A class that SGLang 0.5.2 does not have is read by its fields alone and marked ``assumed``.
    """
    traits, assumed = traits_of(architecture)
    text = text_part(config)
    if architecture in EMBEDDING_MODELS or any(name in text for name in _NOT_MODELLED):
        raise Missing(f"architectures ({architecture}: its tensors are not modelled)")
    hidden = text.size(*_HIDDEN)
    heads = text.size(*_HEADS)
    nested = _grouped_attention(text)
    layers = _layers(text, architecture, hidden, traits)
    vocabulary = text.size("vocab_size", "padded_vocab_size")
    head_dim = text.size("head_dim", "attention_head_dim", "kv_channels", default=max(1, hidden // heads))
    latent = _latent(text)
    tied = _is_tied(text, traits)
    rotary, positions = _rotary(text, latent.rope if latent else head_dim)
    context = text.count("max_position_embeddings", "seq_length", "n_positions", default=0)
    return Decoder(
        architecture=architecture,
        hidden=hidden,
        vocabulary=vocabulary,
        heads=heads,
        kv_heads=nested.size("kv_n_heads") if nested else _kv_heads(text, heads),
        head_dim=head_dim,
        layers=layers,
        latent=latent,
        linear=_linear(text) if any(layer.mixer == LINEAR for layer in layers) else None,
        experts=read_experts(text, architecture, traits) if any(layer.experts for layer in layers) else None,
        indexer=_indexer(text, latent),
        gated=traits.gated,
        query_gate=architecture.startswith("Qwen3Next") or text.flag("attn_output_gate"),
        shared_query=text.count("share_q_dim", default=0),
        blocks=2 if architecture.startswith("LongcatFlash") else 1,
        head_rows=0 if tied or not traits.head else text.size("draft_vocab_size", default=vocabulary),
        tied=tied,
        embedding_rows=vocabulary + (8 if architecture == "MllamaForConditionalGeneration" else 0),
        embedding_repeated=traits.embedding_repeated,
        norms=traits.norms,
        shares_attention=traits.shares_attention,
        context=context,
        rotary=rotary,
        positions=positions,
        attention_chunk=text.count("attention_chunk_size", default=0),
        head_on_every_stage=traits.head_on_every_stage,
        learned_positions=context if architecture in _LEARNED_POSITIONS else 0,
        assumed=assumed,
    )


def _grouped_attention(text: Fields) -> Fields | None:
    """The nested object in which DBRX states its KV heads."""
    nested = text.part("attn_config")
    return nested if nested is not None and "kv_n_heads" in nested else None


def _layers(text: Fields, architecture: str, hidden: int, traits: Traits) -> tuple[Layer, ...]:
    blocks = text.get("block_configs")
    if blocks is not None:
        if not isinstance(blocks, (list, tuple)) or not 0 < len(blocks) <= _MOST_LAYERS:
            raise text.wrong("block_configs", blocks, f"a list of 1 to {_MOST_LAYERS} layers")
        return tuple(_searched_layer(text, block, hidden) for block in blocks)
    number = text.size(*_LAYERS, most=_MOST_LAYERS)
    mixers = _mixers(text, architecture, number, traits.windows)
    has_experts = expert_pattern(text, architecture, number)
    if architecture.startswith("Grok1") and "moe_intermediate_size" in text and "residual_moe" not in text:
        raise Missing(f"{text.prefix}residual_moe")  # Grok 2 has a dense MLP beside its experts
    if all(map(has_experts, range(number))) and not text.flag("residual_moe"):
        return tuple(Layer(mixers[i], 0, True) for i in range(number))
    width = _dense_width(text, architecture, hidden)
    beside = text.flag("residual_moe") or architecture.startswith("LongcatFlash")
    return tuple(Layer(mixers[i], 0 if has_experts(i) and not beside else width, has_experts(i)) for i in range(number))


def _dense_width(text: Fields, architecture: str, hidden: int) -> int:
    if architecture == "QWenLMHeadModel":
        return text.size("intermediate_size") // 2  # the first Qwen counts gate and up together
    nested = text.part("ffn_config")
    if nested is not None:
        return nested.size("ffn_hidden_size")
    if architecture in ("GPT2LMHeadModel", "GPTBigCodeForCausalLM"):
        return text.size("n_inner", default=4 * hidden)
    return text.size("intermediate_size_mlp" if "intermediate_size_mlp" in text else _WIDTH[0], *_WIDTH)


def _searched_layer(text: Fields, block: Any, hidden: int) -> Layer:
    """A layer of a searched architecture (DeciLM): each block states its own attention and MLP width."""
    stated = Fields({"block_configs": block}, text.source, text.prefix).part("block_configs")
    attention, ffn = (stated.part("attention"), stated.part("ffn")) if stated is not None else (None, None)
    if attention is None or ffn is None or not ("no_op" in attention and "no_op" in ffn):
        raise text.wrong("block_configs", block, "an object with attention.no_op and ffn.no_op")
    width = 0 if ffn.flag("no_op") else int(2 * ffn.number("ffn_mult") * hidden / 3)
    return Layer(NO_MIXER if attention.flag("no_op") else FULL, -(-width // 256) * 256, False)


def _mixers(text: Fields, architecture: str, number: int, windows: bool) -> list[str]:
    """How each layer mixes tokens; a window that the class keeps from the KV pools (``windows``) is full attention."""
    named = text.words("layer_types")
    if len(named) >= number:
        return [_mixer(name, windows) for name in named[:number]]
    crossing = text.numbers("cross_attention_layers")
    if crossing:
        return [CROSS if i in crossing else FULL for i in range(number)]
    if "full_attention_interval" in text or "linear_num_value_heads" in text:
        interval = text.size("full_attention_interval")
        return [FULL if (i + 1) % interval == 0 else LINEAR for i in range(number)]
    every = _window_pattern(text, architecture) if windows else 1
    return [SLIDING if (i + 1) % every else FULL for i in range(number)]


def _window_pattern(text: Fields, architecture: str) -> int:
    """Every how many layers one has full attention."""
    if architecture.startswith("Gemma3"):
        return text.size("sliding_window_pattern", default=6)
    return 4 if architecture.startswith("Llama4") else 2


def _mixer(name: str, windows: bool) -> str:
    if name.startswith(("sliding", "chunked")):
        return SLIDING if windows else FULL
    return LINEAR if name.startswith("linear") else FULL


def _latent(text: Fields) -> Latent | None:
    if "kv_lora_rank" not in text or not text.flag("use_mla", default=True):
        return None
    if "q_lora_rank" not in text.values:
        raise Missing(f"{text.prefix}q_lora_rank")
    return Latent(
        query_rank=text.count("q_lora_rank", default=0),
        kv_rank=text.size("kv_lora_rank"),
        nope=text.size("qk_nope_head_dim"),
        rope=text.size("qk_rope_head_dim"),
        value=text.size("v_head_dim"),
    )


def _linear(text: Fields) -> Linear:
    return Linear(
        key_heads=text.size("linear_num_key_heads"),
        value_heads=text.size("linear_num_value_heads"),
        key_dim=text.size("linear_key_head_dim"),
        value_dim=text.size("linear_value_head_dim"),
        kernel=text.size("linear_conv_kernel_dim"),
    )


def _indexer(text: Fields, latent: Latent | None) -> Indexer | None:
    if latent is None or "index_n_heads" not in text:
        return None
    return Indexer(text.size("index_n_heads"), text.size("index_head_dim"), latent.query_rank)


def _kv_heads(text: Fields, heads: int) -> int:
    if text.flag("multi_query"):
        return 1
    if "multi_query_attention" in text and not text.flag("multi_query_attention"):
        return heads
    return text.size(*_KV_HEADS, default=heads)


def _is_tied(text: Fields, traits: Traits) -> bool:
    """Whether lm_head is the embedding."""
    stated = text.flag("tie_word_embeddings", default=traits.tied_default)
    return traits.tied == ALWAYS if traits.tied in (ALWAYS, NEVER) else stated


def _rotary(text: Fields, head_dim: int) -> tuple[int, int]:
    """Dimensions and rows of the table of rotary angles (layers/rotary_embedding.get_rope)."""
    factor = text.number("partial_rotary_factor", "rotary_pct", default=1.0)
    rows = text.count("max_position_embeddings", "seq_length", default=0)
    scaling = text.part("rope_scaling")
    kind = (scaling.get("rope_type") or scaling.get("type")) if scaling else None
    stretch = scaling.number("factor", default=1.0) if scaling else 1.0
    if scaling and "factor" in scaling and kind in ("linear", "dynamic", "yarn", "deepseek_yarn"):
        rows = int(scaling.count("original_max_position_embeddings", default=rows) * stretch)
    return int(head_dim * factor), rows
