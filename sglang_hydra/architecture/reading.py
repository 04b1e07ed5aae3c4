"""Reads a decoder from config.json, in the spellings of the families that SGLang 0.5.2 serves (srt/models/*.py).

Single families: models/gemma3n_causal.py; of later releases models/gemma4_causal.py, mimo_v2.py, step3p5.py. Attention
that caches less: SGLang 0.5.23 configs/model_config.py:188-245 (is_deepseek_dsa), 446-523 (layers with an indexer,
MiniMax-M3's sparse layers), 1385-1512 (sizes of latent and compressed attention)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sglang_hydra.architecture.decoder import (
    BOTH,
    CROSS,
    FULL,
    LINEAR,
    NO_MIXER,
    SLIDING,
    Compressed,
    Decoder,
    Extra,
    Heads,
    Indexer,
    Latent,
    Layer,
)
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.architecture.reading_layers import (
    ALWAYS,
    ENCODERS,
    NEVER,
    Traits,
    block_layers,
    expert_pattern,
    is_state,
    not_modelled,
    read_experts,
    read_linear,
    state_mixers,
    traits_of,
)

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
_WIDTH = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")

_ALTERNATING = ("Gemma2", "GptOss")
_GATED_QUERIES = ("Qwen3Next", "Qwen3_5")
# Their classes read the whole config and ignore the language model's part (models/qwen3_vl.py, glm4v.py).
_TIED_OUTSIDE = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Glm4v", "Glm46V")
_WITHOUT_ROTARY = ("NemotronH", "KimiLinear", "Jamba")
_MOST_LAYERS = 10_000
_LEARNED_POSITIONS = ("GPT2LMHeadModel", "GPTBigCodeForCausalLM", "OPTForCausalLM", "Bert", "XLMRoberta")


def architecture_of(config: Fields) -> str:
    """Returns the first architecture, which SGLang uses. Raises Missing where none is stated."""
    names = config.words("architectures")
    if not names:
        if config.get("model_type") == "multi_modality":
            return "MultiModalityCausalLM"
        raise Missing("architectures")
    return names[0]


def read_decoder(config: Fields, architecture: str) -> Decoder:
    """Reads the language model that ``config`` describes. Raises Missing with the first missing field.

    A class unknown to SGLang 0.5.2 is read by its fields alone and marked ``assumed``."""
    traits, known = traits_of(architecture)
    text = text_part(config)
    unmodelled = not_modelled(text)
    if unmodelled is not None or architecture in ENCODERS:
        raise Missing(f"architectures ({architecture}: {unmodelled or 'an encoder'} is not modelled)")
    hidden = text.size(*_HIDDEN)
    heads = text.size(*_HEADS)
    layers = _layers(text, architecture, hidden, traits)
    vocabulary = text.size("vocab_size", "padded_vocab_size")
    size = text.size("head_dim", "attention_head_dim", "kv_channels", default=max(1, hidden // heads))
    kv_heads = _kv_heads(text, heads)
    full, windowed = read_heads(text, architecture, heads, kv_heads, size)
    latent = read_latent(text, architecture)
    asks_outside = architecture.startswith(_TIED_OUTSIDE) and "tie_word_embeddings" in config
    tied = _is_tied(config if asks_outside else text, traits)
    compressed = read_compressed(text)
    rotary, positions = _rotary(text, architecture, getattr(compressed or latent, "rope", full.key))
    if compressed:  # each of its bases has a table of numbers and one of angles (0.5.23 deepseek_v4.py:1171-1207, 1395)
        positions *= 2 * len({bool(layer.kind) for layer in layers})
    context = text.count("max_position_embeddings", "seq_length", "n_positions", default=0)
    decoder = Decoder(
        architecture=architecture,
        hidden=hidden,
        vocabulary=vocabulary,
        heads=heads,
        kv_heads=full.kv,
        head_dim=full.key,
        value_dim=full.value,
        windowed=windowed,
        layers=layers,
        latent=latent,
        linear=read_linear(text, hidden, heads) if {LINEAR, BOTH} & {layer.mixer for layer in layers} else None,
        experts=read_experts(text, architecture, traits) if any(layer.experts for layer in layers) else None,
        indexer=read_indexer(text, latent),
        gated=traits.gated,
        query_gate=architecture.startswith(_GATED_QUERIES) or text.flag("attn_output_gate"),
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
        compressed=compressed,
        attention_chunk=text.count("attention_chunk_size", default=0),
        head_on_every_stage=traits.head_on_every_stage,
        learned_positions=_learned_positions(text, architecture, context),
        assumed=known is None,
        served=known is True,
        extras=read_extras(text, architecture, hidden, len(layers)),
    )
    return _completed(decoder, text, architecture, traits)


def _completed(decoder: Decoder, text: Fields, architecture: str, traits: Traits) -> Decoder:
    """Returns ``decoder`` with the parts that only few families have."""
    return decoder._replace(
        layer_positions=_layer_positions(text, architecture),
        window=_window(text),
        state_dtype=str(text.get("mamba_ssm_dtype") or "float32"),
        pools_windows=traits.pools_windows or text.flag("is_hybrid_swa"),
        shared_query=text.count("share_q_dim", default=0),
    )


def _window(text: Fields) -> int:
    """Returns the sliding window in tokens, or 0 where there is none (some configs say -1)."""
    stated = next((text.get(name) for name in ("sliding_window_size", "sliding_window") if name in text), 0)
    return max(0, stated) if isinstance(stated, int) else 0


def _layers(text: Fields, architecture: str, hidden: int, traits: Traits) -> tuple[Layer, ...]:
    blocks = text.get("block_configs")
    if blocks is not None:
        if not isinstance(blocks, (list, tuple)) or not 0 < len(blocks) <= _MOST_LAYERS:
            raise text.wrong("block_configs", blocks, f"a list of 1 to {_MOST_LAYERS} layers")
        return tuple(_searched_layer(text, block, hidden) for block in blocks)
    listed = block_layers(text)
    if listed is not None:
        return listed
    number = text.size(*_LAYERS, most=_MOST_LAYERS)
    mixers = _mixers(text, architecture, number, traits.windows)
    has_experts = expert_pattern(text, architecture, number)
    if architecture.startswith("Grok1") and "moe_intermediate_size" in text and "residual_moe" not in text:
        raise Missing(f"{text.prefix}residual_moe")  # Grok 2 has a dense MLP beside its experts
    beside = text.flag("residual_moe") or architecture.startswith(("LongcatFlash", "Gemma4"))
    sparse = [has_experts(i) for i in range(number)]
    kinds = layer_kinds(text, number)
    if all(sparse) and not beside:
        return tuple(map(_layer, mixers, (0,) * number, sparse, kinds))
    widths = _dense_widths(text, architecture, hidden, number)
    dense = (0 if experts and not beside else width for experts, width in zip(sparse, widths, strict=True))
    return tuple(map(_layer, mixers, dense, sparse, kinds))


_layer = lru_cache(maxsize=256)(Layer)  # equal layers are one object, which is fast to count and compare


def _dense_widths(text: Fields, architecture: str, hidden: int, number: int) -> tuple[int, ...]:
    """Returns the width of each layer's dense MLP; some families state a list of widths."""
    if isinstance(text.get("intermediate_size"), (list, tuple)):
        stated = text.numbers("intermediate_size")
        if len(stated) != number or 0 in stated:
            raise text.wrong("intermediate_size", text.get("intermediate_size"), f"one width, or {number} of them,")
        return stated
    width = _dense_width(text, architecture, hidden)
    shared = text.count("num_kv_shared_layers", default=0) if text.flag("use_double_wide_mlp") else 0
    return (width,) * (number - shared) + (2 * width,) * shared  # Gemma 4: twice as wide where KV is shared


def _dense_width(text: Fields, architecture: str, hidden: int) -> int:
    if architecture == "QWenLMHeadModel":
        return text.size("intermediate_size") // 2  # the first Qwen counts gate and up together
    nested = text.part("ffn_config")
    if nested is not None:
        return nested.size("ffn_hidden_size")
    if architecture in ("GPT2LMHeadModel", "GPTBigCodeForCausalLM"):
        return text.size("n_inner", default=4 * hidden)
    if text.flag("block_auto_adjust_ff_dim"):  # LFM2: two thirds, times a factor, rounded up
        wide = int(text.number("block_ffn_dim_multiplier", default=1.0) * int(2 * text.size(*_WIDTH) / 3))
        multiple = text.size("block_multiple_of", default=1)
        return -(-wide // multiple) * multiple
    own = next((name for name in ("intermediate_size_mlp", "dense_intermediate_size") if name in text), _WIDTH[0])
    return text.size(own, *_WIDTH)


def _searched_layer(text: Fields, block: object, hidden: int) -> Layer:
    """Reads a layer of a searched architecture (DeciLM): each block states its own attention and MLP width."""
    stated = Fields({"block_configs": block}, text.source, text.prefix).part("block_configs")
    attention, ffn = (stated.part("attention"), stated.part("ffn")) if stated is not None else (None, None)
    if attention is None or ffn is None or not ("no_op" in attention and "no_op" in ffn):
        raise text.wrong("block_configs", block, "an object with attention.no_op and ffn.no_op")
    width = 0 if ffn.flag("no_op") else int(2 * ffn.number("ffn_mult") * hidden / 3)
    return Layer(NO_MIXER if attention.flag("no_op") else FULL, -(-width // 256) * 256, False)


def _mixers(text: Fields, architecture: str, number: int, windows: bool) -> list[str]:
    """Returns the token mixer of each layer. Without KV pools for windows (``windows`` False), a window is full
    attention."""
    named = text.words("layer_types")
    if len(named) >= number:
        return [_mixer(name, windows) for name in named[:number]]
    crossing = text.numbers("cross_attention_layers")
    if crossing:
        return [CROSS if i in crossing else FULL for i in range(number)]
    states = state_mixers(text, number)
    if states is not None:
        return states
    marks = text.numbers("hybrid_layer_pattern")  # MiMo-V2: 1 for a window
    if len(marks) >= number:
        return [SLIDING if mark and windows else FULL for mark in marks[:number]]
    every = _window_pattern(text, architecture) if windows else 1
    return [SLIDING if (i + 1) % every else FULL for i in range(number)]


def _window_pattern(text: Fields, architecture: str) -> int:
    """Returns N where every Nth layer has full attention and the others a window; 1 without windows."""
    if architecture.startswith(("Gemma3", "Gemma4")):
        return text.size("sliding_window_pattern", default=5 if architecture.startswith("Gemma3n") else 6)
    if architecture.startswith(_ALTERNATING):
        return 2
    return 4 if architecture.startswith("Llama4") else 1


def _mixer(name: str, windows: bool) -> str:
    if name.startswith(("sliding", "chunked")):
        return SLIDING if windows else FULL
    return LINEAR if is_state(name) else FULL


def _learned_positions(text: Fields, architecture: str, context: int) -> int:
    """Returns the rows of a learned embedding of positions, plus an encoder's token types."""
    return context + text.count("type_vocab_size", default=0) if architecture.startswith(_LEARNED_POSITIONS) else 0


def _kv_heads(text: Fields, heads: int) -> int:
    nested = text.part("attn_config")  # DBRX
    if nested is not None and "kv_n_heads" in nested:
        return nested.size("kv_n_heads")
    if text.flag("multi_query"):
        return 1
    if "multi_query_attention" in text and not text.flag("multi_query_attention"):
        return heads
    return text.size(*_KV_HEADS, default=heads)


def _is_tied(config: Fields, traits: Traits) -> bool:
    """Returns whether lm_head is the embedding; ``config`` is the part that the model class reads."""
    stated = config.flag("tie_word_embeddings", default=traits.tied_default)
    return traits.tied == ALWAYS if traits.tied in (ALWAYS, NEVER) else stated


def _rotary(text: Fields, architecture: str, head_dim: int) -> tuple[int, int]:
    """Returns the dimensions and rows of the table of rotary angles (layers/rotary_embedding.get_rope)."""
    if not _rotates(text, architecture):
        return head_dim, 0
    scaling = text.part("rope_scaling", "rope_parameters")  # the latter is transformers 5's name for both
    stated = text.part("rope_parameters") or text
    share = stated.number("partial_rotary_factor", default=1.0)
    factor = text.number("partial_rotary_factor", "rotary_pct", default=share)
    rows = text.count("max_position_embeddings", "seq_length", default=0)
    kind = (scaling.get("rope_type") or scaling.get("type")) if scaling else None
    stretch = scaling.number("factor", default=1.0) if scaling else 1.0
    if scaling and "factor" in scaling and kind in ("linear", "dynamic", "yarn", "deepseek_yarn"):
        rows = int(scaling.count("original_max_position_embeddings", default=rows) * stretch)
    return int(head_dim * factor), rows


def _rotates(text: Fields, architecture: str) -> bool:
    """Returns whether the class makes a table of rotary angles. Some hybrids leave the token order to layers with a
    state (0.5.23: models/nemotron_h.py, kimi_linear.py, granitemoehybrid.py; transformers: jamba)."""
    if architecture.startswith("GraniteMoeHybrid"):
        return str(text.get("position_embedding_type")) == "rope"
    return not architecture.startswith(_WITHOUT_ROTARY)


def _layer_positions(text: Fields, architecture: str) -> int:
    """Returns the rows of each layer's own table of rotary angles. Grok's class makes one wherever its config names a
    rope_type, and does not use the shared cache of tables (srt/models/grok.py, ScalingRotaryEmbedding)."""
    if not architecture.startswith("Grok1") or "rope_type" not in text:
        return 0
    return int(text.size("original_max_position_embeddings") * text.number("scaling_factor"))


_ENCODERS = ("Bert", "XLMRoberta")


def read_extras(text: Fields, architecture: str, hidden: int, layers: int) -> tuple[Extra, ...]:
    """Returns the special matrices of Gemma 3n and Gemma 4 (an embedding for each layer), Gemma 3n's side streams, and
    an encoder's last layer. The prefix ``small.`` marks matrices that are never quantized."""
    width = text.count("hidden_size_per_layer_input", default=0)
    extras: list[Extra] = []
    if width and architecture.startswith(("Gemma3n", "Gemma4")):
        split = architecture.startswith("Gemma3n")  # Gemma 4 repeats its projections on every GPU
        extras += [
            Extra("embed_tokens_per_layer", text.size("vocab_size_per_layer_input"), layers * width, False, False),
            Extra("per_layer_model_projection", layers * width, hidden, split, False),
            Extra("per_layer_input_gate", width, hidden, split, True),
            Extra("per_layer_projection", hidden, width, split, True),
        ]
    streams = text.count("altup_num_inputs", default=0)
    if streams:
        rank = text.size("laurel_rank")
        extras += [
            Extra("altup_projections", 2 * (streams - 1) * hidden, hidden, True, False),
            Extra("small.modality_router", streams, hidden, False, True),
            Extra("laurel.linear_left", rank, hidden, True, True),
            Extra("laurel.linear_right", hidden, rank, True, True),
            Extra("small.norms", 4, hidden, False, True),  # of the router, of both side streams, and a scale
        ]
    if text.flag("use_head_wise_attn_gate"):
        extras.append(Extra("self_attn.g_proj", text.size("num_attention_heads"), hidden, True, True))
    if architecture.startswith("Afmoe"):  # transformers, modeling_afmoe.py: attention is gated by number
        size = text.size("num_attention_heads") * text.size("head_dim")
        extras.append(Extra("self_attn.gate_proj", size, hidden, True, True))
    if architecture.startswith(_ENCODERS):
        biases = 5 * hidden + text.size("intermediate_size")
        extras += [Extra("pooler.dense", hidden, hidden, False, False), Extra("small.biases", 1, biases, False, True)]
    return tuple(extras)


def read_windowed(text: Fields, usual: Heads) -> Heads | None:
    """Returns the heads of sliding-window layers where the config states them apart, else None."""
    other = text.part("attention_other_setting")
    if other is not None:
        number, kv = other.size("num_attention_heads"), other.size("num_attention_groups")
        size = other.size("head_dim", "true_head_dim", default=usual.key)
        return Heads(number, kv, size, size)
    if "swa_num_key_value_heads" not in text and "swa_num_attention_heads" not in text:
        return None
    key = text.size("swa_head_dim", default=usual.key)
    return Heads(
        number=text.size("swa_num_attention_heads", default=usual.number),
        kv=text.size("swa_num_key_value_heads", default=usual.kv),
        key=key,
        value=text.size("swa_v_head_dim", default=usual.value if key == usual.key else key),
    )


def read_heads(text: Fields, architecture: str, heads: int, kv_heads: int, size: int) -> tuple[Heads, Heads | None]:
    """Returns the heads of layers with full attention, and those of windowed layers where they differ (else None).
    Gemma 4 states the windowed heads under the usual names and the full ones as global heads."""
    if architecture.startswith("Gemma4"):
        usual = Heads(heads, kv_heads, size, size)
        wide = text.size("global_head_dim", default=size)
        few = text.size("num_global_key_value_heads", default=kv_heads) if text.flag("attention_k_eq_v") else kv_heads
        full = Heads(heads, few, wide, wide)
        return full, None if full == usual else usual
    value = text.size("v_head_dim", default=size) if architecture.startswith("MiMoV2") else size
    usual = Heads(heads, kv_heads, size, value)
    return usual, read_windowed(text, usual)


def read_latent(text: Fields, architecture: str) -> Latent | None:
    """Returns multi-head latent attention, or None where keys and values have heads of their own."""
    if "kv_lora_rank" not in text or not text.flag("use_mla", default=True):
        return None
    if "q_lora_rank" not in text.values:
        raise Missing(f"{text.prefix}q_lora_rank")
    value = text.size("v_head_dim")
    gates = {"head_wise": 1, "element_wise": value}
    gated = gates.get(str(text.get("gated_attention_proj_granularity_type")), 0)
    return Latent(
        query_rank=text.count("q_lora_rank", default=0),
        kv_rank=text.size("kv_lora_rank"),
        nope=text.size("qk_nope_head_dim"),
        rope=0 if text.flag("use_mla_nope") and architecture.startswith("Bailing") else text.count("qk_rope_head_dim"),
        value=value,
        gate=value if text.flag("mla_use_output_gate") else gated,
    )


def read_indexer(text: Fields, latent: Latent | None) -> Indexer | None:
    """Returns the indexer of sparse attention: DeepSeek's beside a latent cache, MiniMax-M3's beside KV heads; else
    None."""
    sparse = text.part("sparse_attention_config")
    if sparse is not None and sparse.flag("use_sparse_attention", default=True):
        return Indexer(sparse.size("sparse_num_index_heads"), sparse.size("sparse_index_dim"), 0)
    if latent is None or "index_n_heads" not in text:
        return None
    pool = text.size("index_kpool", default=1)
    return Indexer(text.size("index_n_heads"), text.size("index_head_dim"), latent.query_rank, pool=pool)


def read_compressed(text: Fields) -> Compressed | None:
    """Returns DeepSeek-V4's attention, or None for other models."""
    if "compress_ratios" not in text:
        return None
    if "kv_source_layer_ids" in text:  # DeepSeek-V4.1: ratios 1 and 2, tables of n-grams
        raise Missing(f"{text.prefix}kv_source_layer_ids (layers that share a compressed cache are not modelled)")
    return Compressed(
        query_rank=text.size("q_lora_rank"),
        dim=text.size("head_dim"),
        rope=text.size("qk_rope_head_dim"),
        groups=text.size("o_groups"),
        rank=text.size("o_lora_rank"),
        window=text.size("sliding_window"),
        streams=text.size("hc_mult", default=1),
        index_heads=text.size("index_n_heads"),
        index_dim=text.size("index_head_dim"),
        listed=len(text.numbers("compress_ratios")),
    )


def layer_kinds(text: Fields, number: int) -> tuple[int, ...]:
    """Returns ``Layer.kind`` of each layer in order: it separates layers of sparse or compressed attention."""
    if "compress_ratios" in text:
        ratios = text.numbers("compress_ratios")
        if len(ratios) < number or not set(ratios) <= {0, 4, 128}:
            raise text.wrong("compress_ratios", text.get("compress_ratios"), f"{number} ratios of 0, 4 or 128")
        return ratios[:number]
    sparse = text.part("sparse_attention_config")
    if sparse is not None:
        marks = sparse.numbers("sparse_attention_freq")
        return tuple(0 if i < len(marks) and marks[i] else 1 for i in range(number))
    if "index_n_heads" not in text:
        return (0,) * number
    shares = _shares_index(text)
    return tuple(int(shares(i)) for i in range(number))


def _shares_index(text: Fields) -> Callable[[int], bool]:
    """Returns a test for layers without an indexer, which reuse the previous layer's choice (0.5.23
    dsa_layer_skips_topk)."""
    named = text.words("indexer_types")
    if named:
        return lambda i: i < len(named) and named[i] == "shared"
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, str):
        return lambda i: i < len(pattern) and pattern[i] == "S"
    every = text.size("index_topk_freq", default=1)
    offset = text.size("index_skip_topk_offset", default=2)
    return lambda i: max(i - offset + 1, 0) % every != 0
