"""What a plan knows of a model: the fields of its config.json, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from sglang_hydra.text.json_types import JsonDict, JsonObject, plain

QUANTIZATION = "hf_quant_config.json"
"""The file beside a config.json that states the checkpoint's format where that does not."""

KEPT = ("identity", "stated", "files", "published")
"""Keys of ``extra`` that decide values, verdicts and the identity of a server: a saved plan keeps them."""


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
        """Returns the fields that tell this model's server from others: a preset's excerpt, else the whole config."""
        fields: JsonObject | None = self.extra.get("identity", self.config)
        return fields

    def details(self) -> JsonDict:
        """Returns what a saved plan keeps beside ``config``, to be judged alike: see ``with_details``."""
        kept = {key: plain(self.extra[key]) for key in KEPT if key in self.extra}
        found = {**kept, "config_class": self.config_class, "refused": self.refused}
        return {key: value for key, value in found.items() if value is not None}

    def with_details(self, details: JsonObject) -> ModelFacts:
        """Returns these facts with what a saved plan kept."""
        extra = {key: details[key] for key in KEPT if key in details}
        return replace(self, extra=extra, config_class=details.get("config_class"), refused=details.get("refused"))


class KnownModels(Protocol):
    """The models that presets state facts of."""

    def facts_of(self, path: str) -> ModelFacts | None:
        """Returns the facts of a checkpoint by its path; None for an unknown one."""

    def facts_named(self, named: str) -> ModelFacts | None:
        """Returns the facts of a preset by its name or its checkpoint's path; None for an unknown one."""

    def resembling(self, path: str) -> str | None:
        """Returns the preset whose facts are likely those of ``path``; None where none is."""

    def same_weights(self, path: str, other: str) -> bool:
        """Returns whether two paths name the same weights."""
