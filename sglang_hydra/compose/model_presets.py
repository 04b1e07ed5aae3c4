"""What the model presets of an app know of checkpoints: found by the ``model_path`` that they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from sglang_hydra.facts.model import ModelFacts

if TYPE_CHECKING:
    from sglang_hydra.compose.presets import Preset


class ModelPresets:
    """The facts of the checkpoints that presets are for. The presets are read when one is first looked for."""

    def __init__(self, read_presets: Callable[[], Sequence[Preset]]) -> None:
        self._read_presets = read_presets

    def facts_of(self, path: str) -> ModelFacts | None:
        """What is known of a hub id: a preset's model, or the same weights in another published format."""
        from sglang_hydra.architecture.published_checkpoints import facts_as, find_published, originals

        if path in self._facts:
            return self._facts[path]
        published = find_published(path)
        known = (self._facts.get(original) for original in originals(published)) if published else ()
        return next((facts_as(published, facts) for facts in known if published and facts), None)

    def same_weights(self, path: str, other: str) -> bool:
        """Whether ``path`` is the checkpoint ``other`` or one of the same shapes, in whatever format."""
        from sglang_hydra.architecture.published_checkpoints import find_published, originals

        published = find_published(path)
        return path == other or (published is not None and other in originals(published))

    @cached_property
    def _facts(self) -> Mapping[str, ModelFacts]:
        """By checkpoint. Of several presets for one, those that name it come before those that inherit its name."""
        found: dict[str, ModelFacts] = {}
        for preset in sorted(self._read_presets(), key=lambda preset: "model_path" not in preset.own_keys):
            path, config = preset.node["model_path"], preset.node["config"]
            if path is not None and config is not None:
                source = f"preset {preset.name}, which has this model_path"
                found.setdefault(path, ModelFacts(config, source=source))
        return found
