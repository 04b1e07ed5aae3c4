"""Whether a record that was read back has what its readers need, by its JSON Schema in ``sglang_hydra.schemas``."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_KINDS: Mapping[str, Any] = {
    "string": str,
    "boolean": bool,
    "object": dict,
    "array": list,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
_LARGEST = 1e300
"""Sums of larger numbers are none."""


@functools.cache
def _schema_of(kind: str) -> dict[str, Any]:
    file = Path(__file__).parents[1] / "schemas" / f"{kind}.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def misfit(kind: str, record: Any, needed: Mapping[str, Sequence[str]]) -> str | None:
    """Returns what in a record that was read does not fit its schema, in words; None where all that is there fits.

    ``needed`` are the keys that must be there: of the record (``""``), of an object in it (``gpu``), of each one in a
    list or a table (``points.*``). Keys, and values of a choice, that the schema does not have are left to later
    releases.
    """
    schema = _schema_of(kind)
    return next(_misfits("", "", record, schema, schema, needed), None)


def _misfits(
    path: str,
    place: str,
    value: Any,
    schema: Mapping[str, Any],
    whole: Mapping[str, Any],
    needed: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """``place`` is the path as ``needed`` has it."""
    if "$ref" in schema:
        schema = functools.reduce(operator.getitem, schema["$ref"].split("/")[1:], whole)
    kinds = schema.get("type", ())
    of_kind = any(_is(kind, value) for kind in ([kinds] if isinstance(kinds, str) else kinds)) or not kinds
    if not of_kind or not any(type(value) is type(one) for one in schema.get("enum", (value,))):
        yield f"{path or 'it'} is {value!r}"[:100]
    elif isinstance(value, dict):
        inside, known, others = f"{path}." if path else "", schema.get("properties", {}), "additionalProperties"
        yield from (f"{inside}{name} is missing" for name in needed.get(place, ()) if name not in value)
        for name, item in value.items():
            if isinstance(own := known.get(name, schema.get(others)), dict):
                below = name if name in known else "*"
                yield from _misfits(f"{inside}{name}", f"{place}.{below}".lstrip("."), item, own, whole, needed)
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{path} is {value!r}"[:100]
        for item in value if isinstance(schema.get("items"), dict) else ():
            yield from _misfits(path, f"{place}.*", item, schema["items"], whole, needed)


def _is(kind: str, value: Any) -> bool:
    """In Python true is an int; in JSON it is none."""
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind]) and not (isinstance(value, (int, float)) and not abs(value) < _LARGEST)
