"""Sizes a matrix in bytes in each storage format (SGLang 0.5.2, layers/quantization/*).

A quantization_config lists modules: the unquantized ones, and the targets of each group of formats."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

WHOLE_ROW = -1


class Stored(NamedTuple):
    """A storage format: ``bits`` for each weight, and its scales and zero points.

    ``group`` weights along a row share a scale of ``scale_bytes`` (WHOLE_ROW: one scale a row, 0: scales too small to
    count), and so do ``scale_rows`` rows; ``zero_bits`` is the zero point of a group in each row. ``scale_copies``
    counts the copies of the scales. ``pad``: the width of experts and the hidden size are rounded up to these
    multiples."""

    name: str
    bits: float
    group: int = 0
    scale_bytes: float = 0.0
    scale_rows: int = 1
    zero_bits: float = 0.0
    scale_copies: int = 1
    pad: tuple[int, int] = (1, 1)

    def weights(self, rows: int, columns: int) -> float:
        """Returns the bytes of the weights of a matrix with ``rows`` outputs and ``columns`` inputs."""
        return rows * columns * self.bits / 8

    def scales(self, rows: int, columns: int) -> float:
        """Returns the bytes of the scales and zero points, which are tensors of their own."""
        if not self.group:
            return 0.0
        groups = 1 if self.group == WHOLE_ROW else -(-columns // self.group)
        scales = -(-rows // self.scale_rows) * groups * self.scale_bytes * self.scale_copies
        return scales + rows * groups * self.zero_bits / 8

    def tensors(self, rows: int, columns: int) -> tuple[float, float]:
        """Returns the bytes of the weights, then of the scales and zero points."""
        return self.weights(rows, columns), self.scales(rows, columns)

    def size(self, rows: int, columns: int) -> float:
        """Returns the bytes of weights, scales and zero points together."""
        return sum(self.tensors(rows, columns))


def plain(element_bytes: int) -> Stored:
    """Stores ``element_bytes`` for each weight: not quantized."""
    return Stored({2: "16 bit", 4: "float32"}.get(element_bytes, f"{8 * element_bytes} bit"), 8.0 * element_bytes)


def blocks(name: str, rows: int, columns: int) -> Stored:
    """Stores 8 bits a weight and a float32 scale for each block (fp8.py, blockwise_int8.py: weight_scale_inv)."""
    return Stored(name, 8, group=columns, scale_bytes=4, scale_rows=rows)


def channels(name: str) -> Stored:
    """Stores 8 bits a weight and a float32 scale for each output (w8a8_int8.py, w8a8_fp8.py, fp8.py when it quantizes
    itself)."""
    return Stored(name, 8, group=WHOLE_ROW, scale_bytes=4)


def grouped(name: str, bits: float, group: int, zero_bits: float = 0.0) -> Stored:
    """Stores packed integers with a 16 bit scale for each group (awq.py, gptq.py, moe_wna16.py)."""
    return Stored(name, bits, group=group, scale_bytes=2, zero_bits=zero_bits)


FP8_TENSOR = Stored("fp8", 8)
"""One scale for each matrix, too small to count."""
NVFP4_LINEAR = Stored("nvfp4", 4, group=16, scale_bytes=1, scale_copies=2)
"""modelopt_quant.py keeps the scales twice: as loaded, and interleaved."""
NVFP4_EXPERTS = Stored("nvfp4", 4, group=16, scale_bytes=1)
"""modelopt_quant.py drops the loaded scales of experts after interleaving; from 0.5.14 on also those of linear layers
(alias_or_bind_derived_param)."""
MXFP8 = Stored("mxfp8", 8, group=32, scale_bytes=1)
"""8 bits a weight, with an 8 bit exponent for 32 weights."""
NF4 = Stored("nf4", 4, group=64, scale_bytes=4)
"""bitsandbytes without double quantization."""


def mxfp4(pad: tuple[int, int] = (1, 1)) -> Stored:
    """Stores 4 bits a weight with an 8 bit exponent for 32 weights (mxfp4.py), padded for the GPU's kernel."""
    return Stored("mxfp4", 4, group=32, scale_bytes=1, pad=pad)


UNPACKED = "mxfp4 unpacked to 16 bit"


class Group(NamedTuple):
    """The formats of the modules that match ``targets``."""

    targets: Skips
    linear: Stored
    experts: Stored


class Scheme(NamedTuple):
    """The formats of one model. ``online``: SGLang loads all weights in full precision, then quantizes them on the GPU.
    ``element`` is the bytes of an unquantized weight. ``groups`` are modules with formats of their own; ``linear`` and
    ``experts`` are the formats of all other modules. ``embedding`` is None where it is not quantized."""

    name: str
    element: int
    linear: Stored
    experts: Stored
    head: Stored
    vision: Stored
    online: bool
    skips: Skips
    groups: tuple[Group, ...] = ()
    embedding: Stored | None = None

    def formats(self, kind: str, module: str, layers: Sequence[int]) -> list[tuple[Stored, int]]:
        """Returns the formats of a module (``self_attn.o_proj``), each with the number of ``layers`` that have it.
        ``kind`` selects a group's format: ``linear`` or ``experts``; any other kind is never quantized."""
        if kind not in ("linear", "experts"):
            return [(self.plain, len(layers))]
        usual = self.linear if kind == "linear" else self.experts
        if usual == self.plain and not self.groups:
            return [(usual, len(layers))]
        left = self.skips.skipped(module, layers)
        found = [(self.plain, len(left))] if left else []
        rest = [number for number in layers if number not in left]
        for group in self.groups:
            mine = group.targets.skipped(module, rest)
            if mine:
                found.append((group.linear if kind == "linear" else group.experts, len(mine)))
                rest = [number for number in rest if number not in mine]
        return [*found, (usual, len(rest))] if rest else found

    @property
    def as_stored(self) -> bool:
        """Returns whether the GPU holds weights in the checkpoint's formats."""
        return not self.online and self.experts.name != UNPACKED

    @property
    def plain(self) -> Stored:
        return plain(self.element)


_LAYER = re.compile(r"layers(?:\\\.|\.)([0-9]{1,9})(?:(?:\\\.|\.)(.*))?$")
# The prefixes of a layer's own modules, in language models and in the multimodal models around them.
_PREFIXES = ("model.layers.", "language_model.model.layers.", "model.language_model.layers.", "backbone.layers.")


# Module names in checkpoints, and their names in tensors.py. One name represents all merged matrices.
_OTHER_NAMES = (
    (
        re.compile(
            r"(?:^|(?<=\.))(?:block_sparse_moe|ffn|feed_forward|mixer(?=\.(?:experts|shared_experts|up|down|gate)))"
        ),
        "mlp",
    ),
    (re.compile(r"(?:^|(?<=\.))(?:mixer(?=\.[qkvo]_proj)|attn(?=$|\.|\*)|attention(?=$|\.|\*))"), "self_attn"),
    (re.compile(r"shared_expert(?=\.|$)"), "shared_experts"),
    (re.compile(r"in_proj_(?:qkv|z)$"), "in_proj_qkvz"),
    (re.compile(r"in_proj_[ba]$"), "in_proj_ba"),
    (re.compile(r"(?<=\.)(?:up_proj|gate_up_proj|w1|w3)$"), "gate_proj"),
    (re.compile(r"(?<=\.)w2$"), "down_proj"),
)


class Skips(NamedTuple):
    """Patterns for modules of any layer; patterns for modules of one layer, by its number (None: the whole layer);
    regular expressions for whole paths; and a cache of answers."""

    everywhere: tuple[re.Pattern[str], ...]
    in_layer: dict[int, list[re.Pattern[str] | None]]
    regular: tuple[re.Pattern[str], ...]
    seen: dict[tuple[str, tuple[int, ...]], frozenset[int]]

    def skipped(self, module: str, layers: Collection[int]) -> frozenset[int]:
        """Returns those of ``layers`` whose module (``self_attn.o_proj``) matches. ``seen`` caches the answers."""
        asked = (module, tuple(layers))
        answer = self.seen.get(asked)
        if answer is None:
            answer = self.seen[asked] = self._skipped(module, layers)
        return answer

    def _skipped(self, module: str, layers: Collection[int]) -> frozenset[int]:
        if any(pattern.search(module) for pattern in self.everywhere):
            return frozenset(layers)
        found = {
            number
            for number, patterns in self.in_layer.items()
            if number in layers and any(pattern is None or pattern.search(module) for pattern in patterns)
        }
        for pattern in self.regular:
            if "layers" not in pattern.pattern and layers:  # it says the same of each layer
                found |= set(layers) if _matches(pattern, 0, module) else set()
            else:
                found |= {number for number in layers if _matches(pattern, number, module)}
        return frozenset(found)

    def names(self, module: str) -> bool:
        """Returns whether a module outside the layers (``lm_head``) matches."""
        return any(pattern.search(module) for pattern in self.everywhere) or any(
            pattern.match(module) for pattern in self.regular
        )


def read_skips(lists: Iterable[Sequence[str]]) -> Skips:
    return _parse(tuple(pattern for patterns in lists for pattern in patterns))


def _matches(pattern: re.Pattern[str], layer: int, module: str) -> bool:
    return any(pattern.match(f"{prefix}{layer}.{module}") for prefix in _PREFIXES)


@lru_cache(maxsize=64)
def _parse(patterns: tuple[str, ...]) -> Skips:
    everywhere: list[re.Pattern[str]] = []
    in_layer: dict[int, list[re.Pattern[str] | None]] = {}
    regular: list[re.Pattern[str]] = []
    for written in patterns:
        if written.startswith("re:"):
            try:
                regular.append(re.compile(written[3:]))
            except (re.error, RecursionError, OverflowError):
                continue  # an invalid pattern, which matches nothing
            continue
        pattern = _renamed(written.rstrip("*."))
        place = _LAYER.search(pattern)
        if place is not None:
            tail = place.group(2)
            in_layer.setdefault(int(place.group(1)), []).append(_compiled(tail) if tail else None)
            continue
        everywhere.append(_compiled(re.sub(r"^.*layers\.\*\.", "", pattern)))
    return Skips(tuple(everywhere), in_layer, tuple(regular), {})


def _renamed(pattern: str) -> str:
    for other, name in _OTHER_NAMES:
        pattern = other.sub(name, pattern)
    return pattern


def _compiled(tail: str) -> re.Pattern[str]:
    """Compiles a pattern for whole components of a module's path, so that mlp.gate does not match mlp.gate_proj."""
    text = re.escape(tail).replace(r"\*", ".*")
    return re.compile(rf"(?:^|\.){text}(?:$|\.)")
