"""From config.json to a decoder: the spellings of the families that SGLang 0.5.2 serves (srt/models/*.py)."""

from __future__ import annotations

from functools import lru_cache

from sglang_hydra.architecture.architectures import ALWAYS, ENCODERS, NEVER, Traits, traits_of
from sglang_hydra.architecture.decoder import (
    BOTH,
    CROSS,
    FULL,
    LINEAR,
    NO_MIXER,
    SLIDING,
    Decoder,
    Layer,
)
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.architecture.reading_experts import expert_pattern, read_experts
from sglang_hydra.architecture.reading_extras import read_extras, read_heads
from sglang_hydra.architecture.reading_sparse import layer_kinds, read_compressed, read_indexer, read_latent
from sglang_hydra.architecture.reading_states import block_layers, is_state, not_modelled, read_linear, state_mixers

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
_WIDTH = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")

_ALTERNATING = ("Gemma2", "GptOss")
_GATED_QUERIES = ("Qwen3Next", "Qwen3_5")
# Their classes ask the whole config, whatever the language model's part of it says (models/qwen3_vl.py, glm4v.py).
_TIED_OUTSIDE = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Glm4v", "Glm46V")
_WITHOUT_ROTARY = ("NemotronH", "KimiLinear", "Jamba")
_MOST_LAYERS = 10_000
_LEARNED_POSITIONS = ("GPT2LMHeadModel", "GPTBigCodeForCausalLM", "OPTForCausalLM", "Bert", "XLMRoberta")


def architecture_of(config: Fields) -> str:
    """Returns the first architecture, the one that SGLang goes by. Raises Missing where none is stated."""
    names = config.words("architectures")
    if not names:
        if config.get("model_type") == "multi_modality":
            return "MultiModalityCausalLM"
        raise Missing("architectures")
    return names[0]


def read_decoder(config: Fields, architecture: str) -> Decoder:
    """Returns the language model that ``config`` describes. Raises Missing with the first field that is missing.

    A class that SGLang 0.5.2 does not have is read by its fields alone and marked ``assumed``.
    """
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
    """Returns the sliding window in tokens; 0 where there is none (-1 in some configs)."""
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


_layer = lru_cache(maxsize=256)(Layer)  # layers that are alike are one object, which is quick to count and to compare


def _dense_widths(text: Fields, architecture: str, hidden: int, number: int) -> tuple[int, ...]:
    """Returns the width of each layer's dense MLP; some families state one for each layer."""
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
    """Returns a layer of a searched architecture (DeciLM): each block states its own attention and MLP width."""
    stated = Fields({"block_configs": block}, text.source, text.prefix).part("block_configs")
    attention, ffn = (stated.part("attention"), stated.part("ffn")) if stated is not None else (None, None)
    if attention is None or ffn is None or not ("no_op" in attention and "no_op" in ffn):
        raise text.wrong("block_configs", block, "an object with attention.no_op and ffn.no_op")
    width = 0 if ffn.flag("no_op") else int(2 * ffn.number("ffn_mult") * hidden / 3)
    return Layer(NO_MIXER if attention.flag("no_op") else FULL, -(-width // 256) * 256, False)


def _mixers(text: Fields, architecture: str, number: int, windows: bool) -> list[str]:
    """Returns how each layer mixes tokens; a window kept from the KV pools (``windows``) is full attention."""
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
    """Returns every how many layers one has full attention."""
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
    """Returns rows of a learned embedding of positions, and of the kinds of a text where an encoder has these."""
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
    """Returns whether lm_head is the embedding, by the part of the config that the class asks."""
    stated = config.flag("tie_word_embeddings", default=traits.tied_default)
    return traits.tied == ALWAYS if traits.tied in (ALWAYS, NEVER) else stated


def _rotary(text: Fields, architecture: str, head_dim: int) -> tuple[int, int]:
    """Dimensions and rows of the table of rotary angles (layers/rotary_embedding.get_rope)."""
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
    """Returns whether the class makes a table of rotary angles: of the hybrids, some leave the token order to layers
    with a state (0.5.23: models/nemotron_h.py, kimi_linear.py, granitemoehybrid.py; transformers: jamba)."""
    if architecture.startswith("GraniteMoeHybrid"):
        return str(text.get("position_embedding_type")) == "rope"
    return not architecture.startswith(_WITHOUT_ROTARY)


def _layer_positions(text: Fields, architecture: str) -> int:
    """Returns rows of a table of rotary angles that each layer has for itself: Grok's class makes one wherever its
    config names a rope_type, past the cache of tables that others share (srt/models/grok.py,
    ScalingRotaryEmbedding)."""
    if not architecture.startswith("Grok1") or "rope_type" not in text:
        return 0
    return int(text.size("original_max_position_embeddings") * text.number("scaling_factor"))
