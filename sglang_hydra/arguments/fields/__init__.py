"""The 210 arguments of SGLang 0.5.2's server: names, types, defaults, and what each one means.

``server_args.py`` has a line for each argument, its name, type and default; arguments.json says by concern what it
means (``arg.Arg``). What belongs here is about one argument alone. What one argument does to another is a rule
(``sglang_hydra.rules``), what must hold between them a check (``sglang_hydra.rules.checks``).
"""

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
"""What each concern is about, in the order in which help pages and tables show them."""


def _read(table: Mapping[str, Mapping[str, Any]], kind: type) -> dict[str, Field]:
    """Reads every field by name. Raises TypeError where the table and the class do not name the same arguments."""
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
    """Reads what is said of an argument. Choices that other code may extend are named by their list."""
    named = row.get("choices")
    listed = getattr(choices, named) if isinstance(named, str) else named and tuple(named)
    return Arg(**{**row, "choices": listed, "flags": tuple(row.get("flags", ()))})


FIELDS: Mapping[str, Field] = MappingProxyType(_read(_TABLE, ServerArgs))
_DEFAULTS = {name: None if field.required else field.default for name, field in FIELDS.items()}


def fresh_defaults() -> dict[str, Any]:
    """Returns all 210 names with SGLang's defaults; ``model_path``, is None. The dict is the caller's."""
    return _DEFAULTS.copy()


def sealed(values: Mapping[str, Any]) -> ServerArgs:
    """Returns the arguments as one read-only object. ``values`` must have all 210 names and no other (TypeError)."""
    if values.keys() != _DEFAULTS.keys():
        raise TypeError(f"missing or unknown arguments: {sorted(values.keys() ^ _DEFAULTS.keys())}")
    made = object.__new__(SealedServerArgs)
    made.__dict__.update(values)
    return made
