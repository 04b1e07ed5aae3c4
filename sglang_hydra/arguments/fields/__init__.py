"""The 210 arguments of SGLang 0.5.2's server: names, types, defaults, and meanings.

``server_args.py`` has the name, type and default of each argument; arguments.json has its meaning by concern
(``arg.Arg``). Facts about one argument alone go here. Effects on other arguments are rules (``sglang_hydra.rules``);
required relations between arguments are checks (``sglang_hydra.rules.checks``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sglang_hydra.arguments.fields import choices
from sglang_hydra.arguments.fields.arg import Arg, Field
from sglang_hydra.arguments.fields.server_args import MISSING, LoRARef, SealedServerArgs, ServerArgs
from sglang_hydra.text.json_types import json_beside

__all__ = ["CONCERNS", "FIELDS", "MISSING", "Arg", "Field", "LoRARef", "ServerArgs", "fresh_defaults", "sealed"]

_TABLE: dict[str, dict[str, Any]] = json_beside(str(Path(__file__).with_name("arguments")))
CONCERNS: Mapping[str, str] = {concern: content["about"] for concern, content in _TABLE.items()}
"""A description of each concern, in the order of help pages and tables."""


def _read(table: Mapping[str, Mapping[str, Any]], kind: type) -> dict[str, Field]:
    """Reads every field by name. Raises TypeError where the table and the class differ in their arguments."""
    rows = [(name, row, concern) for concern, content in table.items() for name, row in content["arguments"].items()]
    declared = {field.name: field for field in dataclasses.fields(kind)}
    if [name for name, _, _ in rows] != list(declared):
        differing = sorted({name for name, _, _ in rows} ^ declared.keys()) or "their order"
        raise TypeError(f"arguments.json and {kind.__name__} differ: {differing}")
    return {
        name: Field(name, str(declared[name].type), declared[name].default, _about(row), concern)
        for name, row, concern in rows
    }


def _about(row: Mapping[str, Any]) -> Arg:
    """Reads the meaning of an argument. Choices that other code may extend are the named list of ``choices``."""
    named = row.get("choices")
    listed = getattr(choices, named) if isinstance(named, str) else named and tuple(named)
    return Arg(**{**row, "choices": listed, "flags": tuple(row.get("flags", ()))})


FIELDS: Mapping[str, Field] = MappingProxyType(_read(_TABLE, ServerArgs))
_DEFAULTS = {name: None if field.required else field.default for name, field in FIELDS.items()}


def fresh_defaults() -> dict[str, Any]:
    """Returns a new dict of all 210 names with SGLang's defaults; ``model_path`` is None."""
    return _DEFAULTS.copy()


def sealed(values: Mapping[str, Any]) -> ServerArgs:
    """Makes one read-only object of the arguments. ``values`` must have exactly the 210 names (else TypeError)."""
    if values.keys() != _DEFAULTS.keys():
        raise TypeError(f"missing or unknown arguments: {sorted(values.keys() ^ _DEFAULTS.keys())}")
    made = object.__new__(SealedServerArgs)
    made.__dict__.update(values)
    return made
