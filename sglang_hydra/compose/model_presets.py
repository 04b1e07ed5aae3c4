"""The facts of checkpoints in the model presets of an app, found by ``model_path``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.facts.stated_config import preset_facts
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.json_types import JsonObject

if TYPE_CHECKING:
    from sglang_hydra.compose.presets import Preset

_LEAST = 6
"""The fewest letters and digits of a preset's checkpoint name that can be searched for in other names."""
_FORMATS = frozenset(
    (
        *("gguf", "awq", "gptq", "fp8", "fp4", "nvfp4", "mxfp4", "mxfp8", "int4", "int8", "4bit", "8bit", "bnb"),
        *("w4a16", "w4a8", "w8a8", "autoround", "exl2", "exl3", "mlx", "bf16"),
    )
)


class ModelPresets:
    """The facts of the checkpoints with presets. Reads the presets at the first question."""

    def __init__(self, read_presets: Callable[[], Sequence[Preset]]) -> None:
        self._read_presets = read_presets

    def facts_of(self, path: str) -> ModelFacts | None:
        """Returns the facts of a hub id: from a preset, from other weights of the same shapes, or from its weights in
        another published format."""
        from sglang_hydra.architecture.published_checkpoints import SAME_SHAPES, facts_as, find_published, originals

        if path in self._facts:
            return self._facts[path]
        same, source = SAME_SHAPES.get(path, ("", ""))
        if same in self._facts:
            return replace(
                self._facts[same], source=f"the facts of {same}, which has the same shapes: {source}", revision=None
            )
        published = find_published(path)
        known = (self._facts.get(original) for original in originals(published)) if published else ()
        return next((facts_as(published, facts) for facts in known if published and facts), None)

    def facts_named(self, named: str) -> ModelFacts | None:
        """Returns the facts of a preset by its name, or of a checkpoint by its hub id."""
        paths = {preset.name: str(preset.node["model_path"]) for preset in self._presets}
        return self.facts_of(paths.get(named, named))

    def resembling(self, path: str) -> str | None:
        """Returns the hub id of a preset whose name is part of ``path``'s name, as for a fine-tuned model; the longest
        of several. A name with a format (``-AWQ``) only matches a preset with the same format."""
        name, stated = _flat(path), _formats(path)
        known = (own for own in self._facts if len(_flat(own)) >= _LEAST and _flat(own) in name)
        return max((own for own in known if stated <= _formats(own)), key=len, default=None)

    def unsized(self, path: str) -> str | None:
        """Returns what is known of a checkpoint that cannot be sized, with the source. Other formats have its name."""
        from sglang_hydra.architecture.published_checkpoints import UNSIZED

        known = [name for name in UNSIZED if _flat(path).startswith(_flat(name))]
        return "{} ({})".format(*UNSIZED[max(known, key=len)]) if known else None

    def same_weights(self, path: str, other: str) -> bool:
        """Returns whether ``path`` is the checkpoint ``other``, or has the same shapes in any format."""
        from sglang_hydra.architecture.published_checkpoints import find_published, originals

        published = find_published(path)
        return path == other or (published is not None and other in originals(published))

    @cached_property
    def _presets(self) -> Sequence[Preset]:
        return self._read_presets()

    @cached_property
    def _facts(self) -> Mapping[str, ModelFacts]:
        """Returns the facts by checkpoint. If several presets have one, those that name it themselves come first."""
        found: dict[str, ModelFacts] = {}
        for preset in sorted(self._presets, key=lambda preset: "model_path" not in preset.own_keys):
            path = preset.node["model_path"]
            facts = preset_facts({**preset.node, "source": None}, f"preset {preset.name}, which has this model_path")
            if path is not None and facts is not None:
                found.setdefault(path, facts)
        return found


def _formats(path: str) -> frozenset[str]:
    """Returns the weight formats in a name: ``{"nvfp4"}`` for ``nvidia/GLM-5-NVFP4``."""
    words = "".join(letter if letter.isalnum() else " " for letter in path.rpartition("/")[2].lower()).split()
    return _FORMATS.intersection(words)


def _flat(path: str) -> str:
    """Returns ``llama318binstruct`` for ``meta-llama/Llama-3.1-8B-Instruct``."""
    return "".join(filter(str.isalnum, path.rpartition("/")[2])).lower()


def path_of_variant(model: JsonObject) -> str:
    """Returns the checkpoint of ``model.variant``. Raises ConfigError for a format in which none is published."""
    from sglang_hydra.architecture.published_checkpoints import variants

    known, variant = variants(str(model["model_path"])), model["variant"]
    if variant not in known:
        published = ", ".join(sorted(known)) or "no other format"
        message = f"model.variant={variant} is unknown for {model['model_path']}; published: {published}"
        offers = tuple(f"model.variant={name}" for name in sorted(known) or ["null"])
        raise ConfigError.of("FCT005", message, "model.variant", offers=offers)
    return known[variant]
