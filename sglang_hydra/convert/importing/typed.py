"""Reads the overrides after a source: choices and values that win over it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject, value_at

_GROUPS = ("gpu", "model", "engine", "launch", "topology")


@dataclass(frozen=True)
class Typed:
    """``choices`` of groups, ``values`` of arguments, ``nodes`` by dotted keys."""

    choices: Mapping[str, str] = field(default_factory=dict)
    values: JsonObject = field(default_factory=dict)
    nodes: JsonObject = field(default_factory=dict)


def read_typed(requests: Sequence[Request], composer: Composer) -> Typed:
    """Sorts the overrides into choices, values and keys of ours. Raises ConfigError for others, and for keys that an
    experiment of one server lacks."""
    if not requests:
        return Typed()
    composer.check(requests)
    composition = composer.compose(requests)
    choices: dict[str, str] = {}
    values: dict[str, object] = {}
    nodes: dict[str, object] = {}
    for request in requests:
        key, _, value = request.text.lstrip("+").partition("=")
        if key in EVERY:
            values[key] = composition.intent.get(key)
        elif key == "model" and ("/" in value or os.path.exists(value)):
            values["model_path"] = composition.intent.get("model_path")
        elif key in _GROUPS:
            choices[key] = str(composition.choices.get(key) or value)
        elif "." in key or key in composition.nodes.plain:
            nodes[key] = value_at(composition.nodes.plain, key)
        else:
            message = f"{request.text}: an imported server has no {key}"
            raise ConfigError(Finding("error", "IMP014", message, (key,), "gpu=..., model=..., or an argument"))
    return Typed(choices, values, nodes)
