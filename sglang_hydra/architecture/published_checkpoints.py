"""Published checkpoints of a model in other formats: what of their config differs from the original's.

Only checkpoints of exactly the same weights are listed: another format is a remedy, another model is not. The
format is what each repository's config.json (or hf_quant_config.json) states; ``source`` says where that was read.
The table is published_checkpoints.json, which names each ``quantization_config`` and each source once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sglang_hydra.facts.model import ModelFacts


class Published(NamedTuple):
    """A checkpoint: its id, the one it was made from, its quantization_config (None: not quantized)."""

    path: str
    original: str
    format: str
    quantization: Mapping[str, Any] | None
    source: str


_TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

CHECKPOINTS = tuple(
    Published(
        row["path"],
        row["original"],
        row["format"],
        row["quantization"] and _TABLE["quantizations"][row["quantization"]],
        _TABLE["sources"][row["source"]],
    )
    for row in _TABLE["checkpoints"]
)

_SAME_SHAPES: Mapping[str, str] = _TABLE["same_shapes"]
"""Checkpoints with other weights of the same shapes: their facts size each other, but neither replaces the other."""


def find_published(path: str) -> Published | None:
    """The listed checkpoint with this id."""
    return next((checkpoint for checkpoint in CHECKPOINTS if checkpoint.path == path), None)


def originals(checkpoint: Published) -> tuple[str, ...]:
    """The ids whose config has the shapes of ``checkpoint``."""
    same = _SAME_SHAPES.get(checkpoint.original)
    return (checkpoint.original,) if same is None else (checkpoint.original, same)


def others(path: str) -> Iterator[Published]:
    """Smaller checkpoints of the same weights as ``path``."""
    for checkpoint in CHECKPOINTS:
        if checkpoint.original == path and checkpoint.format != "bf16":
            yield checkpoint


def facts_as(checkpoint: Published, original: ModelFacts) -> ModelFacts:
    """The facts of ``checkpoint``, from those of its original."""
    if original.config is None:
        return original
    config = {name: value for name, value in original.config.items() if name != "quantization_config"}
    if checkpoint.quantization is not None:
        config["quantization_config"] = dict(checkpoint.quantization)
    source = f"{original.source}; its format ({checkpoint.format}) from {checkpoint.source}"
    return replace(original, config=config, source=source, revision=None)
