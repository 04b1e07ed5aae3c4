"""Finds sizes that do not divide by a quantized format's blocks or groups: SGLang refuses them while it builds the
layers."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_hydra.architecture.decoder import Decoder, Layer
from sglang_hydra.architecture.formats import WHOLE_ROW, Stored
from sglang_hydra.architecture.ranks import Ranks, kv_share, share
from sglang_hydra.architecture.tensors import EXPERTS_FORMAT, LINEAR_FORMAT
from sglang_hydra.architecture.understanding import Understanding

_SHOWN = 3
_UNCHECKED = ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")
"""Classes that build queries, keys and values without the check of blocks (0.5.9 models/mimo_v2_flash.py:461; 0.5.23
models/mimo_v2.py:724)."""


def misaligned(known: Understanding) -> list[str]:
    """Returns the matrices on one GPU that do not divide by their format's blocks or groups, in words, at most three;
    [] where all do, or where the shapes or the format are unknown.

    Upstream, all SGLang 0.5.2, layers/quantization/: fp8.py and blockwise_int8.py (create_weights of linear layers and
    of experts), awq.py:342-347, gptq.py:417-422."""
    decoder, scheme = known.decoder, known.scheme
    if decoder is None or scheme is None or not scheme.as_stored:
        return []
    found: dict[str, None] = {}
    members: dict[Layer, list[int]] = {}
    for number, layer in enumerate(decoder.layers):
        members.setdefault(layer, []).append(number)
    for layer, numbers in members.items():
        for kind, module, outputs, inputs in _parts(decoder, layer, known.ranks):
            for stored, _ in scheme.formats(kind, module, numbers):
                for problem in _problems(stored, kind, module, outputs, inputs, known.ranks):
                    found[problem] = None
    return list(found)[:_SHOWN]


def _parts(decoder: Decoder, layer: Layer, ranks: Ranks) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    """Yields the divided matrices of a layer: the format's kind, the module, the outputs on one GPU of each merged
    matrix, and the inputs on one GPU where these are divided (else 0)."""
    shape = decoder.heads_of(layer.mixer)
    if decoder.latent is None and layer.mixer in ("full", "sliding") and not decoder.shared_query:
        heads, kv = share(shape.number, ranks.attention), kv_share(shape.kv, ranks.attention)
        queries = heads * shape.key * (2 if decoder.query_gate else 1)
        if decoder.architecture not in _UNCHECKED:
            yield LINEAR_FORMAT, "self_attn.q_proj", (queries, kv * shape.key, kv * shape.value), 0
        yield LINEAR_FORMAT, "self_attn.o_proj", (), heads * shape.value
    if layer.dense:
        width = share(layer.dense, ranks.dense)
        yield LINEAR_FORMAT, "mlp.gate_proj", (width, width), 0
        yield LINEAR_FORMAT, "mlp.down_proj", (), width
    if layer.experts and decoder.experts is not None:
        yield EXPERTS_FORMAT, "mlp.experts.0.gate_proj", (share(decoder.experts.width, ranks.expert_slices),), 0


def _problems(
    stored: Stored, kind: str, module: str, outputs: tuple[int, ...], inputs: int, ranks: Ranks
) -> Iterator[str]:
    name = "the experts" if kind == EXPERTS_FORMAT else module
    if stored.name.endswith("blocks"):
        cut = ranks.attention if module.startswith("self_attn") else ranks.dense
        for size in outputs:
            if size % stored.scale_rows:
                yield f"{name}: {size} outputs on each GPU do not divide by the {stored.name} of {stored.scale_rows}"
                return
        if inputs and cut > 1 and inputs % stored.group:
            yield f"{name}: {inputs} inputs on each GPU do not divide by the {stored.name} of {stored.group}"
    elif inputs and _in_groups(stored) and kind == LINEAR_FORMAT and inputs % stored.group:
        yield f"{name}: {inputs} inputs on each GPU do not divide by the groups of {stored.group}"


def _in_groups(stored: Stored) -> bool:
    return stored.name.startswith(("awq", "gptq")) and stored.group not in (0, WHOLE_ROW)
