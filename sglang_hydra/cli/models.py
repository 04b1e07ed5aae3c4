"""``models`` and ``gpus``: show the presets of ``model=`` and ``gpu=``, one per line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.grammar import has_interpolation
from sglang_hydra.planning.choosing.catalog import gpu_classes, models
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.flags import FILLERS
from sglang_hydra.text.screen import columns, print_json, text, write
from sglang_hydra.text.words import number, program, short, some_of

_MODELS = {
    "model": "model=",
    "weights_gib": "weights GiB",
    "context": "context",
    "variants": "model.variant=",
    "model_path": "checkpoint",
}
_GPUS = {
    "gpu": "gpu=",
    "memory_gib": "memory GiB",
    "count": "GPUs a node",
    "bandwidth_gbps": "GB/s",
    "compute_capability": "capability",
    "vendor": "vendor",
}
"""The columns: the key in a record, and the title in the table."""
_EXAMPLES = {
    "gpus": "gpu=h100 gpu.count=4 gpu.memory_mib=95830 overrides facts; without gpu= the plan is for this machine",
    "models": "any other model: model=org/name, model=./folder",
}


def run(invocation: Invocation) -> int:
    """Shows the presets with every typed word in their line; all presets without a word."""
    verb, composer = invocation.verb, composer_of(invocation)
    titles, rows = (_GPUS, list(_classes(composer))) if verb == "gpus" else (_MODELS, list(_presets(composer)))
    words = [item.text for item in invocation.requests if item.text.lower() not in FILLERS]
    _refuse_options(verb, words)
    asked = [re.sub(r"(?<=\d) ?gi?b$", "gb", word.rpartition("=")[2].lower()) for word in words]
    texts = [" ".join(map(str, row)).lower() for row in rows]
    if verb == "gpus":  # a memory in full GB, as the vendors name it
        texts = [
            f"{text} {math.ceil(row[1])}gb" if isinstance(row[1], float) else text
            for text, row in zip(texts, rows, strict=True)
        ]
    shown = [row for row, text in zip(rows, texts, strict=True) if all(word in text for word in asked)]
    if not shown and all(any(word in text for text in texts) for word in asked):  # names of several
        shown = [row for row, text in zip(rows, texts, strict=True) if any(word in text for word in asked)]
    if not shown:
        message = f"none of the {len(rows)} {verb} has {' '.join(asked)!r}"
        near = some_of(" ".join(asked), [str(row[0]) for row in rows], f"{program()} {verb}")
        raise ConfigError.of("CLI006", message, hint=f"there are {near}")
    if invocation.has("json"):
        records = [dict(zip(titles, row, strict=True)) for row in shown]
        print_json({"schema": "sglang_hydra.presets/1", "presets": records})
        return 0
    table = [[text(title, "bold") for title in titles.values()]]
    table += [
        [text("" if cell is None else cell if isinstance(cell, str) else number(cell)) for cell in row] for row in shown
    ]
    write([*columns(table), [], [text(f"{_EXAMPLES[verb]}; {program()} {verb} WORD finds those with WORD", "dim")]])
    return 0


def _refuse_options(verb: str, words: Sequence[str]) -> None:
    """Raises ConfigError for an option, and for a GPU beside models: their names are all that is searched."""
    option = next((word for word in words if word.startswith("-") or (verb == "models" and word[:4] == "gpu=")), None)
    if option is None:
        return
    name, _, value = (option if "=" in option else " ".join(words[words.index(option) :])).lstrip("-").partition("=")
    name, _, value = (name, "", value) if value else name.partition(" ")
    hint = f"{program()} {verb} {value}".rstrip() + (
        "gb" if name.startswith(("mem", "vram")) and value.isdigit() else ""
    )
    hint = f"{program()} audit gpu={value} judges every model there" if verb == "models" and name == "gpu" else hint
    raise ConfigError.of("CLI026", f"{verb} takes words of a line, and no {short(option)}", hint=hint)


def _presets(composer: Composer) -> Iterator[Sequence[object]]:
    for one in models(composer):
        yield (
            one.name,
            one.weights_gib,
            one.context,
            one.variants,
            "made on this machine" if has_interpolation(one.path) else one.path,
        )


def _classes(composer: Composer) -> Iterator[Sequence[object]]:
    for one in gpu_classes(composer):
        facts = one.facts
        capability = ".".join(map(str, facts.compute_capability or ())) or None
        memory = None if facts.memory_mib is None else round(facts.memory_mib / 1024, 1)
        yield one.name, memory, facts.count, facts.extra.get("memory_bandwidth_gbps"), capability, facts.vendor
