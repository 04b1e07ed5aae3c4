"""Which engine serves here: a table of what is installed, what is asked for and how much memory there is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from sglang_hydra.planning.engines.base import Machine, free_memory_bytes
from sglang_hydra.planning.engines.planned import choose, engines
from sglang_hydra.text.errors import MachineError
from tests.planning.engines.test_packages import environment

GIB = 1 << 30
SGLANG = ["sglang-0.5.2"]
EMBEDDED = ["torch-2.13.0", "transformers-5.23.0", "accelerate-1.15.0", "fastapi-0.1", "uvicorn-0.5", "openai-3.5"]
OLD = [part if not part.startswith("transformers") else "transformers-4.56.1" for part in EMBEDDED]


def python_with(tmp_path: Path, parts: list[str]) -> str:
    return environment(tmp_path, *(f"{part}.dist-info" for part in parts))


@pytest.mark.parametrize(
    ("setting", "parts", "weights", "machine", "chosen", "version"),
    [
        ("auto", SGLANG, None, Machine(None), "sglang", "0.5.2"),
        ("auto", SGLANG + EMBEDDED, 700 * GIB, Machine(GIB), "sglang", "0.5.2"),
        ("auto", EMBEDDED, GIB, Machine(2 * GIB), "transformers", "5.23.0"),
        ("auto", EMBEDDED, GIB, Machine(GIB, "cuda", 2 * GIB), "transformers", "5.23.0"),
        ("sglang", SGLANG + EMBEDDED, GIB, Machine(GIB), "sglang", "0.5.2"),
        ("transformers", SGLANG + EMBEDDED, GIB, Machine(2 * GIB), "transformers", "5.23.0"),
        ("transformers", EMBEDDED, None, Machine(GIB), "transformers", "5.23.0"),
    ],
)
def test_an_engine_is_chosen(
    tmp_path: Path, setting: str, parts: list[str], weights: int | None, machine: Machine, chosen: str, version: str
) -> None:
    choice = choose(setting, python_with(tmp_path, parts), machine, weights)
    assert (choice.engine.name, choice.version) == (chosen, version)


@pytest.mark.parametrize(
    ("setting", "parts", "weights", "machine", "says"),
    [
        ("auto", [], GIB, Machine(9 * GIB), "has no package sglang; transformers: "),
        ("auto", [], GIB, Machine(9 * GIB), "lacks torch, transformers, accelerate, fastapi, uvicorn, openai"),
        ("auto", EMBEDDED[1:], GIB, Machine(9 * GIB), "-m pip install torch 'transformers[serving]' accelerate"),
        ("auto", OLD, GIB, Machine(9 * GIB), "has transformers 4.56.1, before 5.8"),
        ("auto", EMBEDDED, GIB, Machine(int(1.29 * GIB)), "the weights times 1.3 need 1.3 GiB, 1.3 GiB are free"),
        ("auto", EMBEDDED, 9 * GIB, Machine(99 * GIB, "cuda", GIB), "need 11.7 GiB, 1.0 GiB are free"),
        ("auto", EMBEDDED, None, Machine(99 * GIB), "how large the weights are is not known"),
        ("auto", EMBEDDED, GIB, Machine(None), "how much memory is free here is not known"),
        ("sglang", EMBEDDED, GIB, Machine(9 * GIB), "has no package sglang"),
        ("transformers", SGLANG, GIB, Machine(9 * GIB), "lacks torch"),
        ("transformers", EMBEDDED, 9 * GIB, Machine(GIB), "need 11.7 GiB"),
    ],
)
def test_a_machine_that_cannot_serve_is_told_why_and_what_to_type(
    tmp_path: Path, setting: str, parts: list[str], weights: int | None, machine: Machine, says: str
) -> None:
    with pytest.raises(MachineError) as caught:
        choose(setting, python_with(tmp_path, parts), machine, weights)
    (finding,) = caught.value.findings
    assert finding.id == "ENG002"
    assert says in finding.message
    assert "pip install 'sglang-hydra[local]'" in str(finding.hint)
    assert "engine.python=" in str(finding.hint)


def test_an_interpreter_that_is_not_there_is_named() -> None:
    with pytest.raises(MachineError, match=r"engine\.python=/nowhere/python is not a program here"):
        choose("auto", "/nowhere/python", Machine(GIB), GIB)


def test_every_file_with_an_engine_is_found_and_sglang_is_tried_first() -> None:
    assert list(engines()) == ["sglang", "transformers"]


@pytest.mark.parametrize(
    ("available", "limit", "used", "stat", "expected"),
    [
        (8192, None, None, "", 8192),
        (8192, "max", "4096", "", 8192),
        (8192, "8000", "4000", "", 4000),
        (8192, "8000", "4000", "anon 1\ninactive_file 3000\n", 7000),
        (8192, "1000", "4000", "inactive_file 10\n", 0),
    ],
)
def test_free_memory_is_what_the_system_and_the_container_leave(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    available: int,
    limit: str | None,
    used: str | None,
    stat: str,
    expected: int,
) -> None:
    for name, content in {"memory.max": limit, "memory.current": used, "memory.stat": stat}.items():
        if content is not None:
            (tmp_path / name).write_text(content)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
    assert free_memory_bytes(tmp_path) == expected


def test_free_memory_is_this_machines(tmp_path: Path) -> None:
    assert (free_memory_bytes(tmp_path) or 0) > 1 << 20
