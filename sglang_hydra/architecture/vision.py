"""The weights of vision and audio towers (SGLang 0.5.2, srt/models/*.py of the multimodal classes)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sglang_hydra.architecture.decoder import Decoder
from sglang_hydra.architecture.known import Fields, Missing

_ASPECT_RATIOS = 8  # of Mllama, with 4 tiles


class Tower(NamedTuple):
    """Weights of a tower: attention and MLPs, which GPUs may share, and the rest, which each GPU holds whole."""

    attention: int
    mlp: int
    whole: int

    def on_gpu(self, attention_gpus: int, gpus: int) -> tuple[int, int]:
        """Returns the weights of linear layers and the other weights on one GPU."""
        return self.attention // attention_gpus + self.mlp // gpus, self.whole


def has_tower(config: Fields, architecture: str, values: Mapping[str, object]) -> bool:
    """Returns whether the server builds a tower. Llama 4 does so only with enable_multimodal (mllama4.py). Other
    classes always do, except Grok, whose config.json names a model type (git) that has a tower (models/grok.py has
    none)."""
    if architecture not in _TOWERS and config.part("vision_config") is None:
        return False
    if architecture.startswith("Llama4"):
        return bool(values.get("enable_multimodal"))
    return architecture not in ("Llama4ForCausalLM", "Grok1ForCausalLM")


def read_tower(config: Fields, architecture: str, decoder: Decoder) -> Tower:
    """Reads the tower of a multimodal model. Raises Missing for missing fields or an unknown kind."""
    reader = _TOWERS.get(architecture)
    vision = config.part("vision_config", "audio_config")
    if vision is None:
        raise Missing("vision_config")
    if reader is None:
        reader = _merged if "out_hidden_size" in vision else _unlike_others
    tower, audio = reader(vision, decoder), config.part("audio_config")
    if audio is None or reader is not _gemma_4:
        return tower
    # Gemma 4's conformers: two MLPs of 4 d, attention, a gated convolution (0.5.23 models/gemma4_audio.py).
    hidden, out = audio.size("hidden_size"), audio.size("output_proj_dims")
    layers = 24 * audio.size("num_hidden_layers") * hidden * hidden
    return tower._replace(mlp=tower.mlp + layers + hidden * (hidden + out), whole=tower.whole + out * decoder.hidden)


def _blocks(vision: Fields, *, gated: bool, width: int | None = None) -> tuple[int, int, int, int]:
    """Returns the layers, the hidden size, the weights of all attention and the weights of all MLPs."""
    layers = vision.size("num_hidden_layers", "depth", "layers", "vt_num_hidden_layers", "encoder_layers")
    hidden = vision.size("embed_dim", "hidden_size", "width", "vt_hidden_size", "d_model")
    if width is None:
        width = vision.size("intermediate_size", "vt_intermediate_size", "encoder_ffn_dim", "mlp_dim")
    return layers, hidden, layers * 4 * hidden * hidden, layers * (3 if gated else 2) * hidden * width


def _patches(vision: Fields, hidden: int, *, frames: int = 1, default: int = 14) -> int:
    patch = _side(vision, "patch_size", default)
    return 3 * frames * patch * patch * hidden


def _merger(vision: Fields, hidden: int, out: int) -> int:
    """Counts the weights of a merger, which joins k neighbouring patches and projects them: (k d)^2 + k d x out."""
    joined = vision.size("spatial_merge_size", default=2) ** 2 * hidden
    return joined * joined + joined * out


def _qwen2(vision: Fields, decoder: Decoder) -> Tower:
    hidden = vision.size("embed_dim")
    _, _, attention, mlp = _blocks(vision, gated=False, width=int(hidden * vision.number("mlp_ratio", default=4)))
    merger = _merger(vision, hidden, vision.size("hidden_size", default=decoder.hidden))
    return Tower(attention, mlp + merger, _patches(vision, hidden, frames=2))


def _qwen2_5(vision: Fields, decoder: Decoder) -> Tower:
    _, hidden, attention, mlp = _blocks(vision, gated=True)
    merger = _merger(vision, hidden, vision.size("out_hidden_size", default=decoder.hidden))
    return Tower(attention, mlp + merger, _patches(vision, hidden, frames=2))


def _merged(vision: Fields, decoder: Decoder) -> Tower:
    """Describes Qwen3-VL and later: one more merger for each layer that feeds the language model."""
    _, hidden, attention, mlp = _blocks(vision, gated=False)
    mergers = 1 + len(vision.numbers("deepstack_visual_indexes"))
    merger = mergers * _merger(vision, hidden, vision.size("out_hidden_size"))
    positions = vision.count("num_position_embeddings", default=0) * hidden
    return Tower(attention, mlp + merger, _patches(vision, hidden, frames=2, default=16) + positions)


def _glm4(vision: Fields, decoder: Decoder) -> Tower:
    _, hidden, attention, mlp = _blocks(vision, gated=True, width=vision.size("out_hidden_size"))
    out, width = vision.size("out_hidden_size"), vision.size("intermediate_size")
    merge = vision.size("spatial_merge_size", default=2) ** 2
    merger = out * out + 3 * out * width
    return Tower(attention, mlp + merger, _patches(vision, hidden, frames=2) + merge * hidden * out)


def _projected(vision: Fields, decoder: Decoder) -> Tower:
    """Describes Gemma 3: SigLIP and one projection."""
    _, hidden, attention, mlp = _blocks(vision, gated=False)
    return Tower(attention, mlp, _patches(vision, hidden) + _positions(vision, hidden) + hidden * decoder.hidden)


def _two_projections(vision: Fields, decoder: Decoder) -> Tower:
    """Describes LLaVA: the towers of transformers, whole on each GPU, and an MLP of two layers."""
    _, hidden, attention, mlp = _blocks(vision, gated=False)
    projector = decoder.hidden * (hidden + decoder.hidden)
    return Tower(0, 0, attention + mlp + projector + _patches(vision, hidden) + _positions(vision, hidden))


def _pixtral(vision: Fields, decoder: Decoder) -> Tower:
    _, hidden, attention, mlp = _blocks(vision, gated=True)
    projector = 4 * hidden * hidden + decoder.hidden * (hidden + decoder.hidden)
    return Tower(attention, mlp, projector + _patches(vision, hidden, default=16))


def _intern(vision: Fields, decoder: Decoder) -> Tower:
    """Describes InternViT: every GPU holds its MLPs and the projector whole."""
    _, hidden, attention, mlp = _blocks(vision, gated=False)
    projector = decoder.hidden * (4 * hidden + decoder.hidden)
    return Tower(attention, 0, mlp + projector + _patches(vision, hidden) + _positions(vision, hidden))


def _moon(vision: Fields, decoder: Decoder) -> Tower:
    """Describes MoonViT, whole on each GPU. Kimi K3's queries have their own size (0.5.23
    models/kimi_k3_vl.py:388-420)."""
    layers, hidden, attention, mlp = _blocks(vision, gated=False)
    attention = layers * 4 * hidden * vision.size("qkv_hidden_size", default=hidden)
    joined = 4 * hidden
    projector = joined * joined + joined * decoder.hidden
    rows, columns = (vision.count(f"init_pos_emb_{side}", default=64) for side in ("height", "width"))
    return Tower(0, 0, attention + mlp + projector + rows * columns * hidden + _patches(vision, hidden))


def _gemma_4(vision: Fields, decoder: Decoder) -> Tower:
    """Describes Gemma 4: a gated MLP, two learned position tables (0.5.23 models/gemma4_vision.py:141-315, 427-432)."""
    layers, hidden, _, mlp = _blocks(vision, gated=True)
    queries, keys = vision.size("num_attention_heads"), vision.size("num_key_value_heads")
    attention = layers * 2 * hidden * vision.size("head_dim") * (queries + keys)
    tables = 2 * vision.size("position_embedding_size") * hidden
    return Tower(attention, mlp, _patches(vision, hidden, default=16) + tables + hidden * decoder.hidden)


def _minimax(vision: Fields, decoder: Decoder) -> Tower:
    """Describes MiniMax-M3: a projector of two layers, one for merged patches (0.5.23 models/minimax_vl_common.py)."""
    _, hidden, attention, mlp = _blocks(vision, gated=False)
    merged = vision.part("img_token_compression_config")
    frames = merged.size("temporal_patch_size", default=1) if merged else 1
    side = merged.size("spatial_merge_size", default=1) if merged else 1
    out = vision.size("projection_dim", default=decoder.hidden)
    projector = hidden * out + out * decoder.hidden + (side * side + 1) * decoder.hidden**2
    return Tower(attention, mlp + projector, _patches(vision, hidden, frames=frames))


def _perception(vision: Fields, decoder: Decoder) -> Tower:
    """Describes Step-3.7: two convolutions of 3 x 3 that double the width, a projection (0.5.23
    models/step3_vl_10b.py:297-390, step3p7.py:55-75)."""
    hidden = vision.size("width")
    _, _, attention, mlp = _blocks(vision, gated=False, width=round(hidden * vision.number("mlp_ratio")))
    convolutions = 9 * (2 + 8) * hidden * hidden
    whole = convolutions + _patches(vision, hidden) + _positions(vision, hidden)
    return Tower(attention, mlp + 4 * hidden * decoder.hidden, whole)


def _mllama(vision: Fields, decoder: Decoder) -> Tower:
    layers, hidden, attention, mlp = _blocks(vision, gated=False)
    both = layers + vision.size("num_global_layers")
    tiles = vision.size("max_num_tiles")
    patches = (_side(vision, "image_size", 448) // _side(vision, "patch_size", 14)) ** 2 + 1
    ratios = vision.size("max_aspect_ratio_id", default=_ASPECT_RATIOS) + 1
    embeddings = ratios * tiles * hidden * (patches + 2) + patches * hidden
    projector = vision.size("vision_output_dim") * decoder.hidden
    return Tower(attention // layers * both, mlp // layers * both, embeddings + projector + _patches(vision, hidden))


def _llama4(vision: Fields, decoder: Decoder) -> Tower:
    _, hidden, attention, mlp = _blocks(vision, gated=False)
    narrow, wide = vision.size("projector_input_dim", default=4096), vision.size("projector_output_dim", default=4096)
    adapter = vision.size("intermediate_size") * narrow + narrow * wide
    projector = vision.size("vision_output_dim", default=wide) * decoder.hidden
    positions = _positions(vision, hidden, default=336)
    return Tower(attention, mlp + adapter, _patches(vision, hidden) + positions + projector)


def _deepseek_vl2(vision: Fields, decoder: Decoder) -> Tower:
    hidden = vision.size("width")
    _, _, attention, mlp = _blocks(vision, gated=False, width=int(hidden * vision.number("mlp_ratio", default=4)))
    projector = decoder.hidden * (4 * hidden + decoder.hidden)
    return Tower(0, 0, attention + mlp + projector + _patches(vision, hidden) + _positions(vision, hidden, default=384))


def _resampled(vision: Fields, decoder: Decoder) -> Tower:
    """Describes MiniCPM-V: SigLIP and a resampler with one cross attention."""
    _, hidden, attention, mlp = _blocks(vision, gated=False)
    resampler = decoder.hidden * (hidden + 5 * decoder.hidden)
    return Tower(attention, mlp, resampler + _patches(vision, hidden) + _positions(vision, hidden))


def _whisper(audio: Fields, decoder: Decoder) -> Tower:
    _, hidden, attention, mlp = _blocks(audio, gated=False)
    convolutions = 3 * hidden * (audio.size("num_mel_bins", default=128) + hidden)
    return Tower(0, 0, attention + mlp + convolutions + hidden * decoder.hidden)


def _unlike_others(vision: Fields, decoder: Decoder) -> Tower:
    raise Missing(f"vision_config (the tower of {decoder.architecture} is not modelled)")


def _positions(vision: Fields, hidden: int, default: int = 224) -> int:
    return ((_side(vision, "image_size", default) // _side(vision, "patch_size", 14)) ** 2 + 1) * hidden


def _side(vision: Fields, name: str, default: int) -> int:
    """Returns the side of a square in pixels; the larger one where a config states two."""
    if isinstance(vision.get(name), (list, tuple)):
        return Fields({name: max(vision.numbers(name), default=default)}, vision.source, vision.prefix).size(name)
    return vision.size(name, default=default)


_TOWERS: Mapping[str, Callable[[Fields, Decoder], Tower]] = {
    "DeepseekVL2ForCausalLM": _deepseek_vl2, "Gemma3ForConditionalGeneration": _projected,
    "Gemma4ForConditionalGeneration": _gemma_4, "Glm46VForConditionalGeneration": _glm4,
    "Glm46VMoeForConditionalGeneration": _glm4, "Glm4vForConditionalGeneration": _glm4,
    "Glm4vMoeForConditionalGeneration": _glm4, "InternS1ForConditionalGeneration": _intern,
    "InternVLChatModel": _intern, "InternVLForConditionalGeneration": _intern,
    "KimiK25ForConditionalGeneration": _moon, "KimiK3ForConditionalGeneration": _moon,
    "KimiVLForConditionalGeneration": _moon, "Llama4ForConditionalGeneration": _llama4,
    "LlavaForConditionalGeneration": _two_projections, "LlavaLlamaForCausalLM": _two_projections,
    "LlavaMistralForCausalLM": _two_projections, "LlavaQwenForCausalLM": _two_projections,
    "MiniCPMO": _unlike_others, "MiniCPMV": _resampled, "MiniMaxM3SparseForConditionalGeneration": _minimax,
    "Mistral3ForConditionalGeneration": _pixtral, "MllamaForConditionalGeneration": _mllama,
    "MultiModalityCausalLM": _unlike_others, "Phi4MMForCausalLM": _unlike_others,
    "Qwen2AudioForConditionalGeneration": _whisper, "Qwen2VLForConditionalGeneration": _qwen2,
    "Qwen2_5_VLForConditionalGeneration": _qwen2_5, "Step3VLForConditionalGeneration": _unlike_others,
    "Step3p7ForConditionalGeneration": _perception, "VILAForConditionalGeneration": _unlike_others,
}  # fmt: skip
