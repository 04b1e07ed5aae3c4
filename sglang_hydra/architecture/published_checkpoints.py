"""Lists published checkpoints of a model in other formats, with the differences of their config from the original's.

Only checkpoints of exactly the same weights are listed: another format is a remedy, another model is not. The format
comes from each repository's config.json (or hf_quant_config.json); ``source`` says where it was read.
published_checkpoints.json names each ``quantization_config`` and each source once; ``whole`` marks a checkpoint whose
own config.json is in conf/configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.facts.stated_config import preset_facts
from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside


class Published(NamedTuple):
    """A checkpoint: its id, the id of its original, its format and quantization_config (None: not quantized), its
    config.json in conf/configs (None: the original's config with another format), and whether it is offered in place of
    its original: not where it is no smaller, and where ``quantization=fp8`` makes the same of the original."""

    path: str
    original: str
    format: str
    quantization: JsonObject | None
    source: str
    config_file: str | None = None
    offered: bool = True


_TABLE: JsonObject = json_beside(__file__)

_WHOLE = "whole"

CHECKPOINTS = tuple(
    Published(
        row["path"],
        row["original"],
        row["format"],
        _TABLE["quantizations"].get(row["quantization"]),
        _TABLE["sources"][row["source"]],
        f"{row['path'].replace('/', '--')}.json" if row["quantization"] == _WHOLE else None,
        row.get("offered", True),
    )
    for row in _TABLE["checkpoints"]
)

SAME_SHAPES: Mapping[str, tuple[str, str]] = _TABLE["same_shapes"]
"""Checkpoints with other weights of the same shapes and format, each with its source: facts of one size the other, but
neither replaces the other."""

UNSIZED: Mapping[str, tuple[str, str]] = _TABLE["unsized"]
"""Checkpoints of which the name is known, and not the config: what is known, and its source."""


def find_published(path: str) -> Published | None:
    """Returns the listed checkpoint with this id."""
    return next((checkpoint for checkpoint in CHECKPOINTS if checkpoint.path == path), None)


def originals(checkpoint: Published) -> tuple[str, ...]:
    """Returns the ids of checkpoints whose config has the shapes of ``checkpoint``."""
    same = SAME_SHAPES.get(checkpoint.original, ())
    return (checkpoint.original, *same[:1])


def others(path: str) -> Iterator[Published]:
    """Returns the checkpoints that are offered in place of ``path``."""
    return (checkpoint for checkpoint in CHECKPOINTS if checkpoint.original == path and checkpoint.offered)


def variants(path: str) -> dict[str, str]:
    """Returns the ids of the checkpoints of ``path`` by format (``model.variant=FORMAT``), of several the first."""
    first = reversed([checkpoint for checkpoint in CHECKPOINTS if checkpoint.original == path])
    return {checkpoint.format: checkpoint.path for checkpoint in first}


def facts_as(checkpoint: Published, original: ModelFacts) -> ModelFacts:
    """Derives the facts of ``checkpoint`` from those of its original."""
    if original.config is None:
        return original
    if checkpoint.config_file is not None:
        node = {"config": None, "config_file": checkpoint.config_file, "source": None}
        return preset_facts(node, f"{checkpoint.path}, {checkpoint.source}") or original
    format = {} if checkpoint.quantization is None else {"quantization_config": dict(checkpoint.quantization)}

    def converted(config: Mapping[str, object]) -> JsonDict:
        return {**{name: value for name, value in config.items() if name != "quantization_config"}, **format}

    extra = dict(original.extra)
    extra |= {name: converted(extra[name]) for name in ("stated", "identity") if name in extra}
    source = f"{original.source}; its format ({checkpoint.format}) from {checkpoint.source}"
    return replace(original, config=converted(original.config), source=source, revision=None, extra=extra)
