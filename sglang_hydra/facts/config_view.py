"""A model's config as SGLang sees it: the published config.json with ``json_model_override_args`` applied."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.json_types import Json, JsonObject, json_beside

_NOTHING: Mapping[str, object] = MappingProxyType({})

# The only vision tower that SGLang writes into the config itself; it ignores the published one.
_PHI4MM_VISION: Mapping[str, object] = MappingProxyType({"num_hidden_layers": 26, "hidden_size": 1152})


@functools.cache
def _table() -> JsonObject:
    found: JsonObject = json_beside(__file__)
    return found


def takes_media(architectures: Json) -> bool:
    """Returns whether one of the ``architectures`` takes images or audio (SGLang 0.5.2, configs/model_config.py)."""
    return any(name in architectures for name in _table()["multimodal"])


def is_own_text(config: Mapping[str, object]) -> bool:
    """Returns whether a multimodal config is also its language model's config, whatever its parts say: the LLaVA
    checkpoints that are not transformers' own (hf_transformers_utils.get_hf_text_config)."""
    names = config.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else ""
    return first.startswith("Llava") and first.endswith("ForCausalLM")


_STRETCHED = dict.fromkeys(("Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"), 32_768)
"""The trained positions of these classes, in tokens: their model cards extend them by YaRN, up to four times."""


def yarn_override(config: JsonObject | None, context: int) -> str | None:
    """Returns the word that lets a model without rope scaling take ``context`` tokens, None where the model card of
    its class has no such extension."""
    import json

    config = config or {}
    trained = _STRETCHED.get(next(iter(config.get("architectures") or ()), ""), 0)
    if config.get("rope_scaling") or not trained < context <= 4 * trained:
        return None
    factor = 2.0 if context <= 2 * trained else 4.0
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained}
    stated = json.dumps({"max_position_embeddings": int(factor * trained), "rope_scaling": scaling})
    return f"json_model_override_args='{stated}'"


TEXT_PARTS = ("text_config", "language_config", "llm_config")
"""The keys under which multimodal configs nest their language model."""


class UnreadableOverrides(ValueError):
    """``json_model_override_args`` cannot be applied to a config; the text says why and where."""


class ConfigView(NamedTuple):
    """A model's config for the rules. ``overrides`` replaces whole top-level keys of ``published``."""

    published: JsonObject
    overrides: JsonObject

    def get(self, key: str) -> Json:
        return self.overrides[key] if key in self.overrides else self.published.get(key)

    @property
    def architectures(self) -> Json:
        if "architectures" not in self.overrides and self.published.get("model_type") == "multi_modality":
            return ["MultiModalityCausalLM"]
        return self.get("architectures")

    @property
    def architecture(self) -> Json:
        """Returns the first architecture, which SGLang uses. A malformed list raises as indexing does."""
        return self.architectures[0]

    @property
    def vision(self) -> JsonObject | None:
        """Returns the vision tower's fields; None if there is none.

        SGLang reads attributes of the nested config. A ``vision_config`` from the overrides is a plain dict there,
        without attributes: it counts as present and empty."""
        if "vision_config" in self.overrides:
            return None if self.overrides["vision_config"] is None else _NOTHING
        named = self.published.get("architectures")
        if isinstance(named, list) and named[:1] == ["Phi4MMForCausalLM"]:
            return _PHI4MM_VISION
        nested = self.published.get("vision_config")
        return nested if nested is None or isinstance(nested, Mapping) else _NOTHING

    def is_multimodal(self, enabled: bool | None) -> bool:
        """Returns whether SGLang treats the model as multimodal; ``enabled`` is ``enable_multimodal``."""
        if enabled is None:
            enabled = self.architecture not in _table()["multimodal_on_request"]  # these serve text alone by default
        return bool(enabled) and takes_media(self.architectures)


def read_overrides(text: Json) -> Mapping[str, object]:
    """Returns the value of ``json_model_override_args`` as a mapping. Raises UnreadableOverrides."""
    if text == "{}":
        return _NOTHING
    import json

    try:
        overrides = read_json(text, "argument")
    except json.JSONDecodeError as wrong:
        raise UnreadableOverrides(
            f"json_model_override_args is not JSON: {wrong.msg}, line {wrong.lineno} column {wrong.colno} of {text!r}"
        ) from None
    except (TypeError, ValueError, RecursionError) as wrong:
        raise UnreadableOverrides(f"json_model_override_args is not JSON text: {wrong}") from None
    if not overrides:
        return _NOTHING  # null, 0, [] and "" override nothing
    if not isinstance(overrides, dict):
        raise UnreadableOverrides(f"json_model_override_args is {text!r}, which is JSON, but not an object")
    return overrides


def view_of(model: ModelFacts, override_text: object) -> ConfigView | None:
    """Returns the config under its overrides, or None for an unknown config or unreadable overrides."""
    if model.config is None:
        return None
    try:
        return ConfigView(model.config, read_overrides(override_text))
    except UnreadableOverrides:
        return None


def text_config(view: ConfigView) -> JsonObject:
    """Returns the language model's part of a config: nested in multimodal models, else the whole config.

    SGLang 0.5.2, hf_transformers_utils.get_hf_text_config; InternVL's nested fields fill missing outer ones."""
    whole = {**view.published, **view.overrides}
    if is_own_text(whole):
        return whole
    for keys in (("text_config",), ("language_config",), ("thinker_config", "text_config"), ("thinker_config",)):
        nested: object = whole
        for key in keys:
            nested = nested.get(key) if isinstance(nested, Mapping) else None
        if isinstance(nested, Mapping):
            return nested
    inner = whole.get("llm_config")
    return {**inner, **whole} if isinstance(inner, Mapping) else whole
