"""Types of JSON values, and readers of the JSON tables beside our modules."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

Json: TypeAlias = Any
"""A JSON value. The reader checks its type."""
JsonObject: TypeAlias = Mapping[str, Json]
"""A JSON object, or values of arguments by name."""
JsonDict: TypeAlias = dict[str, Json]
"""A JSON object that is still being filled."""

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
EMPTY: Final[JsonObject] = {}
"""The default of a record's mapping. Nobody writes into it: it is typed as read-only."""
NOT_FINITE = ("nan", "inf", "-inf")


def plain(value: Json) -> Json:
    """Converts ``value`` to JSON types: tuples and sets become lists (sets sorted), dataclasses become objects.

    JSON has no nan and no infinity: they become the texts ``nan``, ``inf`` and ``-inf``."""
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


def by_identity(make: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Caches ``make`` by the identity of its first argument, which nobody changes and which stays here, and by the
    values of the others. Forgets all results when there are 16. Threads may share it."""
    known: dict[Hashable, tuple[T, R]] = {}

    @functools.wraps(make)
    def kept(first: T, /, *rest: P.args, **named: P.kwargs) -> R:
        key = (id(first), *rest, *named.items())
        found = known.get(key)
        if found is None:
            if len(known) >= 16:
                known.clear()
            found = known[key] = first, make(first, *rest, **named)
        return found[1]

    return kept


def value_at(tree: object, key: str) -> Any:
    """Returns the value at a dotted key (``gpu.count``), or None where it is missing."""
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def tree_of(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nests values with dotted keys into a tree of dicts."""
    root: dict[str, Any] = {}
    for key, value in flat.items():
        *above, last = key.split(".")
        node = root
        for name in above:
            node = node.setdefault(name, {})
        node[last] = value
    return root


def json_beside(module: str) -> Json:
    """Reads the JSON file with the name of a module, beside it; ``module`` is the module's ``__file__``."""
    import json

    return json.loads(Path(module).with_suffix(".json").read_text(encoding="utf-8"))
