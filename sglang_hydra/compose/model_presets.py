"""What the model presets of an app know of checkpoints: found by the ``model_path`` that they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.facts.stated_config import preset_facts

if TYPE_CHECKING:
    from sglang_hydra.compose.presets import Preset

_LEAST = 6
"""Letters and digits of a checkpoint's name, without its organisation: a shorter one is part of many."""
_FORMATS = frozenset(
    (
        *("gguf", "awq", "gptq", "fp8", "fp4", "nvfp4", "mxfp4", "mxfp8", "int4", "int8", "4bit", "8bit", "bnb"),
        *("w4a16", "w4a8", "w8a8", "autoround", "exl2", "exl3", "mlx", "bf16"),
    )
)


class ModelPresets:
    """The facts of the checkpoints that presets are for. The presets are read when one is first looked for."""

    def __init__(self, read_presets: Callable[[], Sequence[Preset]]) -> None:
        self._read_presets = read_presets

    def facts_of(self, path: str) -> ModelFacts | None:
        """Returns what is known of a hub id: a preset's model, other weights of its shapes, or its weights in another
        published format."""
        from sglang_hydra.architecture.published_checkpoints import alike, facts_as, find_published, originals

        if path in self._facts:
            return self._facts[path]
        same, source = alike(path) or ("", "")
        if same in self._facts:
            return replace(self._facts[same], source=f"those of {same}, whose shapes it has: {source}", revision=None)
        published = find_published(path)
        known = (self._facts.get(original) for original in originals(published)) if published else ()
        return next((facts_as(published, facts) for facts in known if published and facts), None)

    def facts_named(self, named: str) -> ModelFacts | None:
        """Returns what is known of a preset, by its name, or of a checkpoint, by its hub id."""
        path = self._paths.get(named, named)
        return self.facts_of(path)

    def resembling(self, path: str) -> str | None:
        """Returns the hub id of a preset whose name is part of that of ``path``, as of a model that was tuned
        further; of several the longest. A name that states a format (``-AWQ``) has a preset's shapes only where that
        states it."""
        name, stated = _flat(path), _formats(path)
        known = (own for own in self._facts if len(_flat(own)) >= _LEAST and _flat(own) in name)
        return max((own for own in known if stated <= _formats(own)), key=len, default=None)

    def same_weights(self, path: str, other: str) -> bool:
        """Returns whether ``path`` is the checkpoint ``other`` or one of the same shapes, in whatever format."""
        from sglang_hydra.architecture.published_checkpoints import find_published, originals

        published = find_published(path)
        return path == other or (published is not None and other in originals(published))

    @cached_property
    def _paths(self) -> Mapping[str, str]:
        """Returns the checkpoint of each preset by the preset's name."""
        return {preset.name: str(preset.node["model_path"]) for preset in self._presets}

    @cached_property
    def _presets(self) -> Sequence[Preset]:
        return self._read_presets()

    @cached_property
    def _facts(self) -> Mapping[str, ModelFacts]:
        """Returns the facts by checkpoint. Of several presets for one, those that name it come first."""
        found: dict[str, ModelFacts] = {}
        for preset in sorted(self._presets, key=lambda preset: "model_path" not in preset.own_keys):
            path = preset.node["model_path"]
            facts = preset_facts({**preset.node, "source": None}, f"preset {preset.name}, which has this model_path")
            if path is not None and facts is not None:
                found.setdefault(path, facts)
        return found


def _formats(path: str) -> frozenset[str]:
    """Returns the formats of weights that a name states: ``{"nvfp4"}`` of ``nvidia/GLM-5-NVFP4``."""
    words = "".join(letter if letter.isalnum() else " " for letter in path.rpartition("/")[2].lower()).split()
    return _FORMATS.intersection(words)


def _flat(path: str) -> str:
    """Returns ``llama318binstruct`` of ``meta-llama/Llama-3.1-8B-Instruct``."""
    return "".join(filter(str.isalnum, path.rpartition("/")[2])).lower()
