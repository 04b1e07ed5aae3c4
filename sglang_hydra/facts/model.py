"""The facts of a model: the fields of its config.json, and their source."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from sglang_hydra.text.json_types import JsonDict, JsonObject, plain

QUANTIZATION = "hf_quant_config.json"
"""The file beside a config.json that states the checkpoint's format where config.json does not."""

KEPT = ("identity", "stated", "files", "published")
"""The keys of ``extra`` that decide values, verdicts and a server's identity: a saved plan keeps them."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model's HF ``config.json`` as published, before ``json_model_override_args``.

    ``config`` is None for unknown facts: then the rules of models are not applied and the plan says so. ``gguf`` says
    that ``model_path`` is a local GGUF file. ``source`` is shown to the user; ``unknown`` lists unreadable config
    fields. ``revision`` is the hub revision read, if known. ``draft`` holds the facts of speculative_draft_model_path's
    model, None where none is named or known. ``config_class`` is the class whose defaults fill ``config``, None for an
    excerpt; ``refused`` says why no class of SGLang 0.5.2 reads the file."""

    config: JsonObject | None
    gguf: bool = False
    source: str = "given"
    revision: str | None = None
    unknown: tuple[str, ...] = ()
    extra: JsonObject = field(default_factory=dict)
    draft: ModelFacts | None = None
    config_class: str | None = None
    refused: str | None = None

    @property
    def known(self) -> bool:
        return self.config is not None

    @property
    def identity(self) -> JsonObject | None:
        """Returns the fields that distinguish this model's server from others: a preset's excerpt, else the whole
        config."""
        fields: JsonObject | None = self.extra.get("identity", self.config)
        return fields

    def details(self) -> JsonDict:
        """Returns the facts that a saved plan keeps beside ``config``, for the same verdicts: see ``with_details``."""
        kept = {key: plain(self.extra[key]) for key in KEPT if key in self.extra}
        found = {**kept, "config_class": self.config_class, "refused": self.refused}
        return {key: value for key, value in found.items() if value is not None}

    def with_details(self, details: JsonObject) -> ModelFacts:
        """Returns these facts with the details of a saved plan."""
        extra = {key: details[key] for key in KEPT if key in details}
        return replace(self, extra=extra, config_class=details.get("config_class"), refused=details.get("refused"))


class KnownModels(Protocol):
    """The models whose facts presets state."""

    def facts_of(self, path: str) -> ModelFacts | None:
        """Returns the facts of a checkpoint by its path, or None."""

    def facts_named(self, named: str) -> ModelFacts | None:
        """Returns the facts of a preset by its name or its checkpoint's path, or None."""

    def resembling(self, path: str) -> str | None:
        """Returns the preset whose facts likely fit ``path``, or None."""

    def unsized(self, path: str) -> str | None:
        """Returns what is known of a checkpoint that cannot be sized, or None."""

    def same_weights(self, path: str, other: str) -> bool:
        """Returns whether two paths name the same weights."""
