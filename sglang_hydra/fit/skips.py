"""Which modules a quantized checkpoint leaves alone: the lists in its quantization_config."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

_LAYER = re.compile(r"layers(?:\\\.|\.)(\d+)(?:(?:\\\.|\.)(.*))?$")


class Skips(NamedTuple):
    """Patterns for modules of any layer, and for modules of one layer by its number (None: the whole layer)."""

    everywhere: tuple[re.Pattern[str], ...]
    in_layer: dict[int, list[re.Pattern[str] | None]]

    def skipped(self, module: str, layers: Collection[int]) -> int:
        """In how many of ``layers`` the module (``self_attn.o_proj``) is not quantized."""
        if any(pattern.search(module) for pattern in self.everywhere):
            return len(layers)
        if not self.in_layer:
            return 0
        return sum(
            number in layers and any(pattern is None or pattern.search(module) for pattern in patterns)
            for number, patterns in self.in_layer.items()
        )

    def names(self, module: str) -> bool:
        """Whether a module outside the layers (``lm_head``) is left alone."""
        return any(pattern.search(module) for pattern in self.everywhere)


def read_skips(lists: Iterable[Sequence[str]]) -> Skips:
    return _parse(tuple(pattern for patterns in lists for pattern in patterns))


@lru_cache(maxsize=64)
def _parse(patterns: tuple[str, ...]) -> Skips:
    everywhere: list[re.Pattern[str]] = []
    in_layer: dict[int, list[re.Pattern[str] | None]] = {}
    for written in patterns:
        regular = written.startswith("re:")
        pattern = written[3:] if regular else written.rstrip("*.")
        place = _LAYER.search(pattern)
        if place is not None:
            tail = place.group(2)
            in_layer.setdefault(int(place.group(1)), []).append(_compiled(tail, regular) if tail else None)
            continue
        tail = re.sub(r"^.*layers(?:\\?\.)(?:\*|\.\*|\\d\+|\[0-9\]\+)(?:\\?\.)", "", pattern)
        compiled = _compiled(tail, regular)
        if compiled is not None:
            everywhere.append(compiled)
    return Skips(tuple(everywhere), in_layer)


def _compiled(tail: str, regular: bool) -> re.Pattern[str] | None:
    """A pattern that matches whole components of a module's path, so that mlp.gate is not mlp.gate_proj."""
    if not regular:
        text = re.escape(tail).replace(r"\*", ".*")
        return re.compile(rf"(?:^|\.){text}(?:$|\.)")
    try:
        return re.compile(tail.removeprefix("^"))
    except re.error:
        return None  # a pattern that nobody can match
