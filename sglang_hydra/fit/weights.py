"""Sizes the weights on each GPU, by part, for the fullest pipeline stage, with the losses of PyTorch's allocator."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sglang_hydra.architecture.decoder import LINEAR, NO_MIXER, Decoder, Layer
from sglang_hydra.architecture.formats import Group, Scheme, Stored, plain
from sglang_hydra.architecture.ranks import Ranks, padded_vocabulary, ranks_of, share, stage_layers
from sglang_hydra.architecture.tensors import (
    ATTENTION,
    EMBEDDING,
    HEAD,
    LINEAR_FORMAT,
    NORMS,
    OTHER,
    PARTS,
    PLAIN_FORMAT,
    ROTARY,
    VISION,
    Matrix,
    extra_matrix,
    latent_copies,
    layer_matrices,
    layer_tensors,
)
from sglang_hydra.architecture.vision import Tower
from sglang_hydra.arguments.layout import Layout

_MERGED = {"q_proj": ("q_proj", "k_proj", "v_proj", "qkv_proj"), "gate_proj": ("gate_proj", "up_proj", "gate_up_proj")}
_ANGLE_BYTES = 4  # CUDA keeps the table of rotary angles in float32 (layers/rotary_embedding.py)
_NO_TABLE = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")  # compute angles on the fly, without a table


class StageWeights(NamedTuple):
    """Bytes by part on each GPU of one pipeline stage; ``loading`` is their size before an online quantization."""

    parts: dict[str, float]
    loading: float

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def decoder_weights(decoder: Decoder, scheme: Scheme, ranks: Ranks, tower: Tower | None) -> list[StageWeights]:
    """Returns the weights of each stage, first to last. The last answers are cached, because most trial changes to a
    plan that does not fit leave the weights as they are, and so do most GPUs."""
    asked = (decoder, scheme, ranks, tower)
    for kept, answer in _LAST:
        if kept == asked:
            return answer
    stages = stage_layers(len(decoder.layers), ranks.stages)
    found = [
        _stage(decoder, scheme, ranks, layers, tower, first=number == 0, last=number == len(stages) - 1)
        for number, layers in enumerate(stages)
    ]
    _LAST.append((asked, found))
    return found


_LAST: deque[tuple[tuple[object, ...], list[StageWeights]]] = deque(maxlen=8)


def stored_weights(decoder: Decoder, scheme: Scheme, tower: Tower | None, element: int) -> float:
    """Returns the bytes of the tensors in the checkpoint's files, with ``element`` bytes for unquantized weights."""
    once = ranks_of(Layout(), shares_attention=False)

    def kept(stored: Stored) -> Stored:
        return plain(element) if stored == scheme.plain else stored._replace(scale_copies=1, pad=(1, 1))

    linear, experts, head, vision = map(kept, (scheme.linear, scheme.experts, scheme.head, scheme.vision))
    groups = tuple(Group(group.targets, kept(group.linear), kept(group.experts)) for group in scheme.groups)
    as_stored = scheme._replace(
        element=element, linear=linear, experts=experts, head=head, vision=vision, groups=groups
    )
    bare = decoder._replace(positions=0, layer_positions=0, embedding_repeated=False, copied=False)
    return decoder_weights(bare, as_stored, once, tower)[0].total


def lora_bytes(decoder: Decoder, scheme: Scheme, ranks: Ranks, rank: int, slots: int, targets: Sequence[str]) -> float:
    """Returns the bytes of the adapters: an A and a B for each target matrix, layer and slot (lora/mem_pool.py)."""
    per_rank = 0
    for layer, number in Counter(decoder.layers).items():
        for matrix in layer_matrices(decoder, layer, ranks, scheme.experts):
            if matrix.format != LINEAR_FORMAT or not (_is_target(matrix, targets)):
                continue
            stacked = 3 if matrix.module.endswith("q_proj") else 1
            per_rank += number * matrix.copies * (matrix.rows + stacked * matrix.columns)
    return float(per_rank * rank * slots * 2)


def _is_target(matrix: Matrix, targets: Sequence[str]) -> bool:
    name = matrix.module.rpartition(".")[2]
    return not targets or "all" in targets or any(target in targets for target in _MERGED.get(name, (name,)))


def _stage(
    decoder: Decoder, scheme: Scheme, ranks: Ranks, layers: range, tower: Tower | None, *, first: bool, last: bool
) -> StageWeights:
    parts = dict.fromkeys(PARTS, 0.0)
    loading = _add_layers(parts, decoder, scheme, ranks, layers)
    if first:
        for matrix in (extra_matrix(extra, ranks) for extra in decoder.extras if not extra.layer):
            kind = scheme.plain if matrix.format == PLAIN_FORMAT else scheme.linear
            parts[matrix.part] += kind.size(matrix.rows, matrix.columns)
        rows = share(padded_vocabulary(decoder.embedding_rows), 1 if decoder.embedding_repeated else ranks.embedding)
        parts[EMBEDDING] += (scheme.embedding or scheme.plain).size(rows, decoder.hidden)
        parts[EMBEDDING] += decoder.learned_positions * decoder.hidden * scheme.element
        if tower is not None:
            linear, whole = tower.on_gpu(ranks.attention, ranks.tp)
            parts[VISION] += linear * scheme.vision.bits / 8 + whole * scheme.element
            loading += linear * (scheme.plain.bits - scheme.vision.bits) / 8
    rows = decoder.head_rows if last or decoder.head_on_every_stage else 0
    if last and not first and decoder.tied:
        rows = decoder.embedding_rows
    parts[HEAD] += scheme.head.size(share(padded_vocabulary(rows), ranks.head), decoder.hidden) if rows else 0.0
    if last:
        parts[NORMS] += decoder.hidden * scheme.element
    if decoder.architecture not in _NO_TABLE and not decoder.learned_positions:
        rows = decoder.positions + decoder.layer_positions * len(layers)
        parts[ROTARY] += decoder.rotary * rows * _ANGLE_BYTES
    total = sum(parts.values())
    return StageWeights(parts, total + loading if scheme.online else total)


def _add_layers(parts: dict[str, float], decoder: Decoder, scheme: Scheme, ranks: Ranks, layers: range) -> float:
    """Adds the layers of a stage to ``parts``; returns the additional bytes before quantization."""
    more = lost = 0.0
    members: dict[Layer, list[int]] = {}
    for number in layers:
        members.setdefault(decoder.layers[number], []).append(number)
    for layer, numbers in members.items():
        tensors: list[tuple[float, int]] = []
        for part, count, weights, scales, unquantized in layer_tensors(decoder, layer, ranks, scheme, numbers):
            parts[part] += (weights + scales) * count
            more += (unquantized - weights - scales) * count
            tensors += ((weights, count), (scales, count))
        if decoder.copied and layer.mixer not in (LINEAR, NO_MIXER) and decoder.latent is not None:
            copies = latent_copies(decoder, ranks) * scheme.element
            parts[ATTENTION] += copies * len(numbers)
            tensors += ((copies / 2, len(numbers)),) * 2
        lost += lost_bytes(tensors)
    parts[OTHER] += lost if decoder.copied else 0.0
    return more


MIB = 1 << 20
_SMALL, _MEDIUM = 1 * MIB, 10 * MIB
_SEGMENT, _ROUND = 20 * MIB, 2 * MIB


def lost_bytes(tensors: Iterable[tuple[float, int]]) -> float:
    """Returns the bytes that the driver allocates beyond ``tensors``: a layer's tensors in the order of their
    creation, each with the number of layers that have it. Other allocations are assumed to fill the gaps that remain
    at the end."""
    sizes = [(size, number) for size, number in tensors if size > _SMALL and number]
    least = min((size for size, _ in sizes), default=0.0)
    gaps: list[float] = []
    lost: list[float] = [0.0]
    seen: dict[tuple[float, ...], int] = {}
    alike = len({number for _, number in sizes}) == 1
    layers = max((number for _, number in sizes), default=0)
    for layer in range(layers):
        first = seen.setdefault(tuple(gaps), layer) if alike else layer
        if first < layer:  # the pattern repeats from here on
            turns, rest = divmod(layers - layer, layer - first)
            return lost[layer] + turns * (lost[layer] - lost[first]) + lost[first + rest] - lost[first]
        more = sum(_place(size, gaps, least) for size, number in sizes if layer < number)
        lost.append(lost[layer] + more)
    return lost[layers]


def _place(size: float, gaps: list[float], least: float) -> float:
    """Places ``size`` bytes in the smallest gap or a new segment; returns the part too small for any later tensor."""
    place = bisect_left(gaps, size)
    if place < len(gaps):
        left = gaps.pop(place) - size
    else:
        left = _SEGMENT - size if size < _MEDIUM else -size % _ROUND
    if left < least:
        return left
    insort(gaps, left)
    return 0.0
