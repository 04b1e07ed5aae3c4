"""What the model presets of an app know of checkpoints: found by the ``model_path`` that they are for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text
from sglang_hydra.text.quick_yaml import quick_load

_MODEL_PATH = re.compile(r"^model_path: (?P<quote>[\"']?)(?P<path>.*?)(?P=quote)[ \t]*$", re.MULTILINE)


class ModelPresets:
    """The presets in these files. Each file is read when a checkpoint is first looked for, and only the one that has
    it is parsed."""

    def __init__(self, files: Sequence[str]) -> None:
        self._texts: list[tuple[str, str]] = []
        self._unread = iter(files)
        self._known: dict[str, ModelFacts | None] = {}

    def facts_of(self, path: str) -> ModelFacts | None:
        """What is known of a hub id: a preset's model, or the same weights in another published format."""
        if path not in self._known:
            self._known[path] = self._of_preset(path) or self._of_format(path)
        return self._known[path]

    def same_weights(self, path: str, other: str) -> bool:
        """Whether ``path`` is the checkpoint ``other`` or one of the same shapes, in whatever format."""
        from sglang_hydra.architecture.published_checkpoints import find_published, originals

        published = find_published(path)
        return path == other or (published is not None and other in originals(published))

    def _of_preset(self, path: str) -> ModelFacts | None:
        for named, text in self._named():
            declared = _declared(text) if named == path else None
            if declared is not None:
                return ModelFacts(declared["config"], source=f"preset {declared['name']}, which has this model_path")
        return None

    def _named(self) -> Iterator[tuple[str, str]]:
        """The checkpoint that each file names, and the file's text."""
        yield from self._texts
        for file in self._unread:
            found = _paths_in(file)
            self._texts += found
            yield from found

    def _of_format(self, path: str) -> ModelFacts | None:
        from sglang_hydra.architecture.published_checkpoints import facts_as, find_published, originals

        published = find_published(path)
        for original in originals(published) if published else ():
            facts = self._of_preset(original)
            if facts is not None and published is not None:
                return facts_as(published, facts)
        return None


def _paths_in(file: str) -> list[tuple[str, str]]:
    """The checkpoint that a file names, and its text; nothing where it names none or cannot be read."""
    try:
        text = read_text(file, CONFIG_BYTES)
    except (OSError, UnicodeDecodeError):
        return []  # it is not what was asked for; whoever chooses it is told
    return [(found["path"], text) for found in _MODEL_PATH.finditer(text)]


def _declared(text: str) -> Mapping[str, Any] | None:
    """The content of a preset; None where it holds no facts of a model."""
    import yaml

    try:
        declared = quick_load(text)
    except yaml.YAMLError:
        return None
    known = isinstance(declared, dict) and isinstance(declared.get("config"), dict) and "name" in declared
    return declared if known else None
