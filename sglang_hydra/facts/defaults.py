"""Where a config.json and what transformers makes of it may differ: fields that the file leaves to class defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sglang_hydra.facts.model import ModelFacts

_TEXT_FIELDS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
_LISTED = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth", "num_labels")
"""Config classes make a list of each: with an absurd number they would go on until the memory is full."""
_LONGEST_LIST = 100_000
_REASON_LENGTH = 120  # transformers lists every model type that it knows


def left_out(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that plans read and ``config`` does not state, so that transformers' class defaults hold there."""
    nested = next((key for key in ("text_config", "language_config", "llm_config") if key in config), None)
    text = config.get(nested) if nested else config
    prefix = f"{nested}." if nested else ""
    missing = [
        f"{prefix}{name}"
        for name in _TEXT_FIELDS
        if not isinstance(text, Mapping) or (name not in text and name not in config)
    ]
    architectures = config.get("architectures")
    vision = config.get("vision_config")
    if "ForConditionalGeneration" in str(architectures) and vision is None:
        missing.append("vision_config")
    elif isinstance(vision, Mapping) and "depth" not in vision:
        missing += [f"vision_config.{name}" for name in ("num_hidden_layers", "hidden_size") if name not in vision]
    return tuple(missing)


def fill_defaults(facts: ModelFacts, folder: str, *, trust_remote_code: bool = False) -> ModelFacts:
    """``facts`` with what the installed transformers' config class adds to the config.json in ``folder``.

    Imports transformers (seconds), so nothing calls it for a preset. What the file states stays.
    Facts come back unchanged, with a note, where transformers is not installed or cannot read the config, or would
    not come to an end with it.
    """
    if facts.config is None:
        return facts
    endless = _endless(facts.config)
    if endless is not None:
        return _noted(facts, f"{facts.extra.get('note', '')}; transformers was not asked: {endless} is too large")
    try:
        import transformers

        full = transformers.AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        ).to_dict()
    except Exception as failure:  # noqa: BLE001 - what a config class raises for a bad field is its own affair
        reason = str(failure).strip().partition("\n")[0][:_REASON_LENGTH]
        note = f"{facts.extra.get('note', '')}; transformers filled in nothing ({type(failure).__name__}: {reason})"
        return _noted(facts, note)
    note = f"fields that the file leaves out are the defaults of transformers {transformers.__version__}"
    return _noted(facts, note, _filled(facts.config, full))


def _endless(config: Mapping[str, Any], prefix: str = "") -> str | None:
    """The first field that a config class would count up to for longer than anybody waits."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            below = _endless(value, f"{prefix}{name}.")
            if below is not None:
                return below
        elif name in _LISTED and isinstance(value, (int, float)) and value > _LONGEST_LIST:
            return f"{prefix}{name}"
    return None


def _noted(facts: ModelFacts, note: str, config: Mapping[str, Any] | None = None) -> ModelFacts:
    """``facts`` with another note and, if given, another config."""
    extra = {**facts.extra, "note": note}
    if config is None:
        return replace(facts, extra=extra)
    return replace(facts, config=config, unknown=left_out(config), extra=extra)


def _filled(stated: Mapping[str, Any], full: Mapping[str, Any]) -> dict[str, Any]:
    """``full`` with everything that ``stated`` says laid over it, nested configs alike."""
    filled = dict(full)
    for key, value in stated.items():
        below = filled.get(key)
        filled[key] = _filled(value, below) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return filled
