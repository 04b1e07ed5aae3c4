"""For the tests of composing and planning: one composer over conf/, and plans that ask nothing of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.facts import probe
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.planning.engines import planned as planned_engines
from sglang_hydra.planning.engines.base import Availability
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

SEED = 42
H200 = ("gpu=h200", "model=qwen3_8b")
"""A plan that is valid as it stands."""


@cache
def composer() -> Composer:
    """Over conf/ alone. Reading the YAML takes most of composing, and one composer need not do it twice."""
    return Composer()


def requests(*overrides: str) -> list[Request]:
    return [Request(text, f"argument {number}") for number, text in enumerate(overrides, 1)]


def composed(*overrides: str, using: Composer | None = None) -> Composition:
    return (using or composer()).compose(requests(*overrides))


def planned(
    *overrides: str, using: Composer | None = None, env: Mapping[str, str] | None = None, seed: int = SEED
) -> Plan:
    return make_plan(using or composer(), requests(*overrides), seed=seed, env=env or {})


def refused(*overrides: str, using: Composer | None = None) -> Sequence[Finding]:
    """The findings of overrides that cannot be planned."""
    try:
        made = planned(*overrides, using=using)
    except ConfigError as failure:
        return failure.findings
    raise AssertionError(f"{overrides} were planned: {dict(made.intent)}")


def without_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without any engine: what is installed here must not decide a test."""
    missing = Availability(False, None, "not installed")
    for engine in (planned_engines.SGLANG, planned_engines.TRANSFORMERS):
        monkeypatch.setattr(type(engine), "available", lambda self, python: missing)


def without_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe_gpu", lambda env, python=None: GpuProbe(tried=("NVML: not found",)))


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """``folder`` with these files in it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder


def origins(made: Plan | Composition, name: str) -> list[tuple[str, str, Any]]:
    return [(origin.layer, origin.place, origin.value) for origin in made.origins[name]]
