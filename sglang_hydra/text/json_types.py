"""Values as JSON has them, and tables that are beside a module as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""A value as JSON has it. Whoever reads one checks what it is."""
JsonObject: TypeAlias = Mapping[str, Json]
"""An object of JSON, or the values of arguments by their names."""
JsonDict: TypeAlias = dict[str, Json]
"""The same while it is filled."""

NOT_FINITE = ("nan", "inf", "-inf")


def plain(value: Json) -> Json:
    """Returns ``value`` in JSON's types: tuples and sets become lists (sets sorted), records become objects.

    JSON has no nan and no infinity: they become the texts ``nan``, ``inf`` and ``-inf``.
    """
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def value_at(tree: object, key: str) -> Any:
    """Returns the value at a dotted key (``gpu.count``); None where there is none."""
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def tree_of(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tree of values by dotted keys."""
    root: dict[str, Any] = {}
    for key, value in flat.items():
        *above, last = key.split(".")
        node = root
        for name in above:
            node = node.setdefault(name, {})
        node[last] = value
    return root


def json_beside(module: str) -> Json:
    """Returns what the JSON file of the same name beside a module holds; ``module`` is its ``__file__``."""
    import json

    return json.loads(Path(module).with_suffix(".json").read_text(encoding="utf-8"))
