"""Reads the table of failure classes: one YAML file for each family, read at the first diagnosis.

An entry under ``classes`` is one class, with the fields of ``FailureClass``. A signature is a text that a line
contains, or a mapping with the fields of ``Signature``; ``needle`` gives one text. ``places`` name libraries and
directories of SGLang: an exception raised there means the class, whatever its message. ``shared`` holds values that
several entries refer to. When a line fits two classes equally well, the earlier entry decides, so the more specific
entries come first. Ids never change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sglang_hydra.run.diagnose.failure_class import Detail, FailureClass, Signature, Stage, Weight
from sglang_hydra.text.budget import quick_load
from sglang_hydra.text.json_types import JsonDict, JsonObject

_FAMILIES = ("memory", "checkpoint", "model", "arguments", "gpu", "cluster", "host", "software", "process")
_LISTS = ("fields", "changes", "signals")
# Python raises these by itself; they are no deliberate error of any code.
_ON_PURPOSE = r"^(?:\w+\.)*(?!(?:Type|Attribute|Index|Name|UnboundLocal|ZeroDivision|ModuleNotFound)Error)\w+\b(?s:.*?)"


@cache
def failure_classes() -> tuple[FailureClass, ...]:
    """Returns all classes of failure, in the order in which they are tried."""
    files = (Path(__file__).with_name(f"{family}.yaml") for family in _FAMILIES)
    return tuple(failure for file in files for failure in read_classes(file.read_text(encoding="utf-8"), file.name))


@cache
def classes_by_kind() -> Mapping[str, FailureClass]:
    return {failure.kind: failure for failure in failure_classes()}


def read_classes(text: str, name: str) -> list[FailureClass]:
    """Returns the classes of one file. Raises ValueError, with the file and the id, for an incomplete entry."""
    found = []
    for row in quick_load(text)["classes"]:
        try:
            found.append(_failure_class(dict(row)))
        except (KeyError, TypeError) as invalid:
            raise ValueError(f"{name}: {row.get('id')}: {invalid}") from None
    return found


def _failure_class(row: JsonDict) -> FailureClass:
    row.update({key: tuple(row[key]) for key in _LISTS if key in row})
    row["advice"] = tuple(row["advice"])
    row["details"] = tuple(Detail(**detail) for detail in row.get("details", ()))
    row["signatures"] = tuple(map(_signature, row["signatures"]))
    row["places"] = tuple(map(_place, row.get("places", ())))
    return FailureClass(**row)


def _signature(item: str | JsonObject) -> Signature:
    if isinstance(item, str):
        return Signature((item,))
    row = dict(item)
    for name, kinds in (("weight", Weight), ("stage", Stage)):
        if name in row:
            row[name] = kinds[row[name].upper()]
    row["advice"] = tuple(row.get("advice", ()))
    return Signature(tuple(row.pop("needles", None) or (row.pop("needle"),)), **row)


def _place(item: JsonObject) -> Signature:
    """Returns a signature for any exception that code below ``within`` raises on purpose."""
    row = {"weight": "effect", **item, "needles": ("Error", "Exception"), "exception": True}
    row["frame"] = f"^at .*/(?:{row.pop('within')})"
    row["pattern"] = _ON_PURPOSE + row.get("pattern", "")
    return _signature(row)
