"""What a release needs of a machine, held against what this one has."""

from __future__ import annotations

import pytest

from sglang_hydra.convert.upgrade.host import host_for
from sglang_hydra.run.doctor import interpreter, nvml
from sglang_hydra.run.doctor.machine_state import Gpu, Interpreter, Nvidia
from tests.plans import planned, without_accelerator, without_engines

H200 = ("gpu=h200", "model=qwen3_8b")

ENVIRONMENT = Interpreter("/venv/bin/python", (3, 12, 1), versions={"torch": "2.14.1", "transformers": "5.19.0"})
MACHINES = {
    "all there": (Nvidia(None, "580.82.07", (13, 0), (Gpu(0, "NVIDIA H200"),)), ENVIRONMENT, "ok", []),
    "an old driver": (
        Nvidia(None, "550.54", (12, 4), (Gpu(0, "NVIDIA H200"),)),
        ENVIRONMENT,
        "no",
        ["NVIDIA driver", "CUDA"],
    ),
    "an old Python": (
        Nvidia(None, "580.82.07", (13, 0), (Gpu(0, "NVIDIA H200"),)),
        ENVIRONMENT._replace(version=(3, 10, 4)),
        "no",
        ["Python"],
    ),
    "no GPU": (Nvidia("no driver"), ENVIRONMENT, "no", ["GPU"]),
    "a silent driver": (
        Nvidia(None, None, None, (Gpu(0, "NVIDIA H200"),)),
        ENVIRONMENT,
        "unknown",
        ["NVIDIA driver", "CUDA"],
    ),
    "an environment without it": (
        Nvidia(None, "580.82.07", (13, 0), (Gpu(0, "NVIDIA H200"),)),
        ENVIRONMENT._replace(versions={}),
        "ok",
        [],
    ),
}


@pytest.mark.parametrize("case", MACHINES)
def test_this_machine_is_held_against_what_the_release_needs(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia, one, state, named = MACHINES[case]
    monkeypatch.setattr(nvml, "survey_nvidia", lambda: nvidia)
    monkeypatch.setattr(interpreter, "read_interpreter", lambda python: one)
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)
    host = host_for("0.5.2", "0.5.23", planned(*H200).gpu, None)
    assert (host.state, [need.name for need in host.needs if need.state == host.state and state != "ok"]) == (
        state,
        named,
    )
    assert all(name in host.text for name in named)
    cpu = host_for("0.5.2", "0.5.23", planned("gpu=cpu", "model=qwen3_8b").gpu, None)
    assert [need.name for need in cpu.needs] == ["Python", "torch", "transformers"]
    amd = host_for("0.5.2", "0.5.23", planned("gpu=mi300x", "model=qwen3_8b").gpu, None)
    assert amd.state in ("unknown", "no")
