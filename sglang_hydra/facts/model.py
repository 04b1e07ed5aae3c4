"""What a plan knows of a model: the fields of its config.json, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model's HF ``config.json`` as published, before ``json_model_override_args``.

    ``config`` is None where the facts are unknown: then the model's rules are not applied and the plan says so.
    ``gguf`` says that ``model_path`` is a local GGUF file. ``source`` is shown to the user; ``unknown`` lists
    config fields that could not be read. ``revision`` is the hub revision that was read, if known. ``draft`` is what is
    known of the model that speculative_draft_model_path names, None where nothing is or none is named. ``config_class``
    is the class whose defaults ``config`` holds where the file leaves a field out, None for an excerpt; ``refused``
    says why no class of SGLang 0.5.2 reads the file.
    """

    config: Mapping[str, Any] | None
    gguf: bool = False
    source: str = "given"
    revision: str | None = None
    unknown: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    draft: ModelFacts | None = None
    config_class: str | None = None
    refused: str | None = None

    @property
    def known(self) -> bool:
        return self.config is not None
