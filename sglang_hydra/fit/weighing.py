"""The weights of a model as a result: by part, with the error bar and the source that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sglang_hydra.architecture.decoder import Decoder
from sglang_hydra.architecture.known import text_part
from sglang_hydra.architecture.scheme import Scheme
from sglang_hydra.architecture.tensors import OTHER, PARTS, VISION
from sglang_hydra.architecture.understanding import Understanding
from sglang_hydra.fit.checkpoint import CheckpointSize
from sglang_hydra.fit.result import Weights
from sglang_hydra.fit.weights import StageWeights, decoder_weights, lora_bytes, stored_weights

GIB = 1 << 30

# Of the logged "mem usage" 0 to 0.27 GiB are not weights (kernels that were loaded, other processes); it was never less
# than the weights by more than the logs' rounding (cases in the tests).
_UNEXPLAINED = 0.15 * GIB
_RELATIVE, _RELATIVE_ASSUMED, _RELATIVE_FILES = 0.007, 0.05, 0.1
_AGREEMENT = 0.02
_ROUNDING, _ROUNDING_RELATIVE = 0.02 * GIB, 0.003


# Kernels that HIP loads with the weights: what a small model logs on an MI355X beyond what it logs on an H100
# (Qwen3-0.6B 1.21 and 1.18, EmbeddingGemma-300m 0.63 and 0.59 GiB, of one author).
_HIP = 0.03 * GIB


def weigh(known: Understanding, values: Mapping[str, Any], checkpoint: CheckpointSize | None) -> Weights:
    """Returns the weights on the fullest GPU; total None where a part is unknown and no checkpoint says the sum."""
    decoder, scheme = known.decoder, known.scheme
    if decoder is None or scheme is None:
        return _from_checkpoint(known, checkpoint)
    stages = decoder_weights(decoder, scheme, known.ranks, known.tower)
    stage = max(stages, key=lambda stage: stage.total)
    parts: dict[str, float | None] = dict(stage.parts)
    relative = _RELATIVE_ASSUMED if decoder.assumed else _RELATIVE
    if known.tower_missing:
        parts[VISION] = None
        return Weights(parts, None, relative * stage.total, _slack(relative, stage.total), None, scheme.name, "config")
    total, source = stage.total, "config"
    if checkpoint is not None and scheme.as_stored:
        factor = _correction(decoder, scheme, known, checkpoint)
        total *= factor
        parts = {name: None if size is None else size * factor for name, size in parts.items()}
        source = f"config, checked against {checkpoint.source}" if factor == 1.0 else checkpoint.source
    total, loading = _offloaded(total, stage, values, known)
    error, slack = relative * total + _UNEXPLAINED, _slack(relative, total)
    totals = tuple(each.total * total / stage.total for each in stages)
    return Weights(parts, total, error, slack, max(loading, total), scheme.name, source, totals)


def on_hip(weights: Weights) -> Weights:
    """Returns ``weights`` as an AMD GPU logs them."""
    if weights.total is None or weights.loading is None:
        return weights
    parts = {**weights.parts, OTHER: (weights.parts.get(OTHER) or 0.0) + _HIP}
    stages = tuple(stage + _HIP for stage in weights.stages)
    return replace(weights, parts=parts, total=weights.total + _HIP, loading=weights.loading + _HIP, stages=stages)


def lora_of(known: Understanding, values: Mapping[str, Any]) -> float | None:
    """Returns the bytes of the LoRA adapters' buffers on one GPU; None where their rank is unknown."""
    if not values.get("enable_lora") and not values.get("lora_paths"):
        return 0.0
    rank, decoder, scheme = values.get("max_lora_rank"), known.decoder, known.scheme
    if not rank:
        known.unknown.append("max_lora_rank")
        return None
    if decoder is None or scheme is None:
        return None
    targets = tuple(values.get("lora_target_modules") or ())
    return lora_bytes(decoder, scheme, known.ranks, int(rank), int(values.get("max_loras_per_batch") or 8), targets)


def _slack(relative: float, total: float) -> float:
    """Returns how much less than ``total`` the weights may take: only if shapes are assumed."""
    return _ROUNDING + (_ROUNDING_RELATIVE if relative == _RELATIVE else relative) * total


def _correction(decoder: Decoder, scheme: Scheme, known: Understanding, checkpoint: CheckpointSize) -> float:
    """Returns what the files hold, as a multiple of what the config says; 1 where both agree, or cannot be compared."""
    loaded = checkpoint.loaded(len(decoder.layers))
    if loaded is None:
        return 1.0
    config = known.config
    stored_element = 4 if config is not None and text_part(config).get("torch_dtype") == "float32" else 2
    factor = loaded / stored_weights(decoder, scheme, known.tower, stored_element)
    if abs(factor - 1) <= _AGREEMENT:
        return 1.0
    known.notes.append(f"{checkpoint.source}: {factor:.3f} times what the config says; the files count")
    return factor


def _from_checkpoint(known: Understanding, checkpoint: CheckpointSize | None) -> Weights:
    """Estimates the weights without shapes or a format: the files' size is divided by the GPUs; what each GPU repeats
    makes the bar wide."""
    parts: dict[str, float | None] = dict.fromkeys(PARTS, None)
    if checkpoint is None:
        return Weights(parts, None, 0.0, 0.0, None, None, "unknown")
    total = checkpoint.total / known.ranks.gpus
    known.notes.append(f"weights are {checkpoint.source} divided by {known.ranks.gpus} GPUs, to 10 %")
    parts[OTHER] = total
    known.unknown[:] = [name for name in known.unknown if "quantization_config" not in name and "GGUF" not in name]
    error = _RELATIVE_FILES * total
    return Weights(parts, total, error + _UNEXPLAINED, error, total, "as stored", checkpoint.source)


def _offloaded(
    total: float, stage: StageWeights, values: Mapping[str, Any], known: Understanding
) -> tuple[float, float]:
    """Applies cpu_offload_gb, which keeps that many GiB of each GPU's weights in host memory."""
    offload = min(float(values.get("cpu_offload_gb") or 0) * GIB, total)
    if offload:
        known.notes.append(f"{offload / GIB:.1f} GiB of the weights are offloaded to host memory")
    return total - offload, stage.loading - offload
