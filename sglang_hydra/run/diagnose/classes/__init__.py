"""Reads the table of failure classes: one YAML file for each family, read when a log is first diagnosed.

A class is one entry under ``classes``, with the fields of ``FailureClass``. A signature is a text that a line holds, or
a mapping with the fields of ``Signature``; ``needles`` gives several texts that share the rest. ``shared`` holds what
several entries refer to. The order of the entries decides between classes that one line fits equally well, so the more
telling ones come first. Ids never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sglang_hydra.run.diagnose.failure_class import Detail, FailureClass, Signature, Stage, Weight
from sglang_hydra.text.quick_yaml import quick_load

_FAMILIES = ("memory", "checkpoint", "model", "arguments", "gpu", "cluster", "host", "software", "process")
_LISTS = ("fields", "changes", "signals")


@cache
def failure_classes() -> tuple[FailureClass, ...]:
    """Every class of failure, in the order in which they are tried."""
    files = (Path(__file__).with_name(f"{family}.yaml") for family in _FAMILIES)
    return tuple(failure for file in files for failure in read_classes(file.read_text(encoding="utf-8"), file.name))


@cache
def classes_by_kind() -> Mapping[str, FailureClass]:
    return {failure.kind: failure for failure in failure_classes()}


def read_classes(text: str, name: str) -> list[FailureClass]:
    """The classes of one file. Raises ValueError, with the file and the id, for an entry that is not whole."""
    found = []
    for row in quick_load(text)["classes"]:
        try:
            found.append(_failure_class(dict(row)))
        except (KeyError, TypeError) as invalid:
            raise ValueError(f"{name}: {row.get('id')}: {invalid}") from None
    return found


def _failure_class(row: dict[str, Any]) -> FailureClass:
    row.update({key: tuple(row[key]) for key in _LISTS if key in row})
    row["advice"] = tuple(row["advice"])
    row["details"] = tuple(Detail(**detail) for detail in row.get("details", ()))
    row["signatures"] = tuple(one for item in row["signatures"] for one in _signatures(item))
    return FailureClass(**row)


def _signatures(item: str | Mapping[str, Any]) -> list[Signature]:
    if isinstance(item, str):
        return [Signature(item)]
    row = dict(item)
    needles = row.pop("needles", None) or [row.pop("needle")]
    if "weight" in row:
        row["weight"] = Weight[row["weight"].upper()]
    if "stage" in row:
        row["stage"] = Stage[row["stage"].upper()]
    if "advice" in row:
        row["advice"] = tuple(row["advice"])
    return [Signature(needle, **row) for needle in needles]
