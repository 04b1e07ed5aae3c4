"""Machines to examine: a healthy one with eight H200, and what to change of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.run.doctor.examination import Check, Examination
from sglang_hydra.run.doctor.machine_state import (
    Examinee,
    Gpu,
    Interpreter,
    ModelFiles,
    Nvidia,
    Space,
    World,
)

GIB = 1 << 30


def gpu(number: int, **changes: Any) -> Gpu:
    usual = Gpu(
        number=number,
        name="NVIDIA H200",
        uuid=f"GPU-{number:04d}",
        total_mib=143771.0,
        used_mib=4.0,
        free_mib=143767.0,
        capability=(9, 0),
        holders=(),
    )
    return usual._replace(**changes)


def nvidia(*gpus: Gpu, **changes: Any) -> Nvidia:
    usual = Nvidia(driver="570.124.06", cuda=(12, 8), gpus=gpus, on_bus=len(gpus))
    return usual._replace(**changes)


def disk(path: str = "/data", free_gib: float = 2000, **changes: Any) -> Space:
    return Space(path, 4000 * GIB, int(free_gib * GIB), True)._replace(**changes)


ENGINE = Interpreter(
    path="/venv/bin/python",
    versions={
        "sglang": "0.5.2",
        "requests": "2.32.0",
        "torch": "2.8.0",
        "flashinfer-python": "0.3.1",
        "sgl-kernel": "0.3.9.post2",
        "transformers": "4.56.1",
    },
    torch_build={"cuda": "12.8", "hip": None, "xpu": None},
)

HEALTHY = World(
    request=Examinee(model_path="/models/m"),
    nvidia=nvidia(*(gpu(number) for number in range(8))),
    shm=disk("/dev/shm", 500),
    interpreter=ENGINE,
    weights=disk("/data/hub"),
    model=ModelFiles("folder", "/models/m", tokenizer=True, weight_bytes=700 * GIB),
)

LAPTOP = replace(
    HEALTHY,
    nvidia=Nvidia("NVML Shared Library Not Found"),
    other=GpuProbe(tried=("NVML: NVML Shared Library Not Found", "rocminfo: not found on PATH")),
)


def engine(**changes: Any) -> World:
    return replace(HEALTHY, interpreter=ENGINE._replace(**changes))


def with_gpus(*gpus: Gpu, env: dict[str, str] | None = None, **changes: Any) -> World:
    return replace(HEALTHY, nvidia=nvidia(*gpus, **changes), env=env or {})


def said(examination: Examination) -> str:
    """Everything that a person would read of it."""
    return " | ".join((examination.found, *examination.details, f"type: {examination.fix}"))


def judge(check: Check, world: World, state: str, *words: str) -> None:
    """The check ends in ``state`` and says each of ``words``; what is not ok has a fix, what is unknown may."""
    examination = check(world)
    assert (examination.id, examination.subject) == (check.id, check.subject)
    assert examination.state == state, said(examination)
    for word in words:
        assert word in said(examination), said(examination)
    if state in ("warning", "error"):
        assert examination.fix
