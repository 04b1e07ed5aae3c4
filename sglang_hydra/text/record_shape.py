"""Checks a record read from a file against its JSON Schema in ``sglang_hydra.schemas`` and the needs of its readers."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglang_hydra.text.json_types import Json, JsonObject

_KINDS: JsonObject = {
    "string": str,
    "boolean": bool,
    "object": dict,
    "array": list,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
_LARGEST = 1e300
"""The largest accepted number: sums of larger ones may overflow to infinity."""


@functools.cache
def _schema_of(kind: str) -> dict[str, object]:
    file = Path(__file__).parents[1] / "schemas" / f"{kind}.schema.json"
    schema: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def misfit(kind: str, record: object, needed: Mapping[str, Sequence[str]]) -> str | None:
    """Returns what in a record does not fit its schema, in words, or None where everything fits.

    ``needed`` names the required keys: of the record (``""``), of an object in it (``gpu``), of each item of a list or
    table (``points.*``). Keys and enum values unknown to the schema are accepted: later releases may add them."""
    schema = _schema_of(kind)
    found = _misfit("", record, schema, schema, needed)
    return None if found is None else f"{'.'.join(found[:-1]) or 'it'} {found[-1]}"


def _misfit(
    place: str, value: Json, schema: JsonObject, whole: JsonObject, needed: Mapping[str, Sequence[str]]
) -> tuple[str, ...] | None:
    """Returns the path to the first misfit, then the problem; None where all fits. ``place`` is the path of ``value``
    in the form that ``needed`` uses."""
    if "$ref" in schema:
        schema = functools.reduce(operator.getitem, schema["$ref"].split("/")[1:], whole)
    if not _fits(value, schema):
        return (f"is {value!r}"[:100],)
    if isinstance(value, dict):
        for name in needed.get(place.lstrip("."), ()):
            if name not in value:
                return name, "is missing"
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            below = name if name in known else "*"
            own = known.get(name, others)
            if isinstance(own, dict) and (found := _misfit(f"{place}.{below}", item, own, whole, needed)):
                return name, *found
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for item in value:
            if found := _misfit(f"{place}.*", item, items, whole, needed):
                return found
    return None


def _fits(value: Json, schema: JsonObject) -> bool:
    kinds = schema.get("type", ())
    if not (_is(kinds, value) if isinstance(kinds, str) else not kinds or any(_is(kind, value) for kind in kinds)):
        return False
    if isinstance(value, list):
        return bool(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)))
    return any(type(value) is type(one) for one in schema.get("enum", (value,)))


def _is(kind: str, value: Json) -> bool:
    """Returns whether a value has a JSON type. A Python bool is an int, but a JSON boolean is no number."""
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind]) and (not isinstance(value, (int, float)) or abs(value) < _LARGEST)
