"""Every exception class of the package: a job that raises it in another process hands it over as it is."""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import sglang_hydra
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.findings import Finding

ROOT = Path(sglang_hydra.__file__).parent
_CLASS = re.compile(r"^class (\w+)\(.*(?:Exception|Error)\b.*\):", re.MULTILINE)


def exception_classes() -> list[type[Exception]]:
    """They are looked for in the sources: modules that define none need not be imported."""
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        names = _CLASS.findall(file.read_text(encoding="utf-8"))
        if names:
            module = ".".join(("sglang_hydra", *file.relative_to(ROOT).with_suffix("").parts))
            found += [getattr(importlib.import_module(module), name) for name in names]
    return [kind for kind in found if issubclass(kind, Exception)]


def instance_of(kind: type[Exception]) -> Exception:
    if issubclass(kind, SglangHydraError) and (kind is SglangHydraError or "__init__" not in vars(kind)):
        return kind(Finding("error", "CLI001", "why", ("tp_size",), "tp_size=2"), Finding("error", "CLI002", "and"))
    if "__init__" not in vars(kind):
        return kind("why")
    parameters = inspect.signature(kind).parameters.values()
    needed = [item for item in parameters if item.default is item.empty and item.kind is not item.VAR_KEYWORD]
    words: list[Any] = [f"{item.name} of it" for item in needed]
    return kind(*words)


CLASSES = exception_classes()


def test_they_are_all_found() -> None:
    names = {kind.__name__ for kind in CLASSES}
    assert {"ConfigError", "DamagedError", "Refused", "NotAPlan", "ProtocolError"} <= names
    assert len(CLASSES) > 20


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_exception_survives_pickling(kind: type[Exception]) -> None:
    before = instance_of(kind)
    after = pickle.loads(pickle.dumps(before))
    assert (type(after), str(after), after.args) == (type(before), str(before), before.args)
    assert vars(after) == vars(before)


def test_the_findings_are_handed_over() -> None:
    finding = Finding("error", "CLI001", "why", ("tp_size",), "tp_size=2")
    after = pickle.loads(pickle.dumps(ConfigError(finding)))
    assert after.findings == (finding,)
