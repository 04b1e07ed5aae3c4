"""Lists of modules in a quantization_config: those that are left alone, and those that a group of formats is for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

_LAYER = re.compile(r"layers(?:\\\.|\.)(\d+)(?:(?:\\\.|\.)(.*))?$")
# What stands before a layer's own modules, in language models and in the multimodal models around them.
_PREFIXES = ("model.layers.", "language_model.model.layers.", "model.language_model.layers.", "backbone.layers.")


# How checkpoints call modules, and what tensors.py calls them. Of merged matrices one name stands for all.
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
    """Patterns for modules of any layer, for modules of one layer by its number (None: the whole layer), and regular
    expressions for whole paths."""

    everywhere: tuple[re.Pattern[str], ...]
    in_layer: dict[int, list[re.Pattern[str] | None]]
    regular: tuple[re.Pattern[str], ...]
    seen: dict[tuple[str, tuple[int, ...]], frozenset[int]]

    def skipped(self, module: str, layers: Collection[int]) -> frozenset[int]:
        """Returns those of ``layers`` whose module (``self_attn.o_proj``) is named here. ``seen`` keeps answers."""
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
        """Returns whether a module outside the layers (``lm_head``) is named."""
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
            except re.error:
                continue  # a pattern that nobody can match
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
    """Returns a pattern that matches whole components of a module's path, so that mlp.gate is not mlp.gate_proj."""
    text = re.escape(tail).replace(r"\*", ".*")
    return re.compile(rf"(?:^|\.){text}(?:$|\.)")
