"""The checks of driver and GPUs: one row a machine, with what must be said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.run.doctor import driver, gpus
from sglang_hydra.run.doctor.machine_state import Examinee, Holder, Nvidia, World
from tests.run.doctor.doctor_worlds import HEALTHY, LAPTOP, engine, gpu, judge, nvidia, with_gpus

FOUR = [gpu(number) for number in range(4)]
AMD = replace(
    HEALTHY, nvidia=Nvidia("none"), other=GpuProbe("amd", "cuda", ("AMD Instinct MI300X",), 196592.0, count=8)
)
ON_BUS = Nvidia("Driver Not Loaded", on_bus=8)


def on(driver_version: str | None, cuda: tuple[int, int] | None, torch_cuda: str | None) -> World:
    world = engine(torch_build={"cuda": torch_cuda, "hip": None, "xpu": None})
    return replace(world, nvidia=nvidia(*FOUR, driver=driver_version, cuda=cuda))


@pytest.mark.parametrize(
    ("world", "state", "words"),
    [
        (HEALTHY, "ok", ("570.124.06", "CUDA up to 12.8", "built for CUDA 12.8")),
        (on("580.82.07", (13, 0), "12.8"), "ok", ("580.82.07",)),
        (on("570.26", None, "12.8"), "ok", ("unknown",)),
        (on("550.54.14", (12, 4), "12.8"), "warning", ("minor version compatibility", "type: install driver 570.26")),
        (on("550.54.14", None, "12.8"), "warning", ("minor version compatibility",)),
        (on("570.124.06", (12, 8), "13.0"), "error", ("needs driver 580.65.06", "type: install driver 580.65.06")),
        (on("470.82.01", None, "12.1"), "error", ("525.60.13",)),
        (on(None, None, "12.8"), "unknown", ()),
        (on("570.124.06", (12, 8), "14.2"), "error", ("install driver for CUDA 14.2 or newer",)),
        (on("570.124.06", (12, 8), None), "ok", ("SGLang 0.5.2 brings torch 2.8.0 for CUDA 12.8",)),
        (on("470.57.02", (11, 4), None), "warning", ("525.60.13", "type: install driver 570.26 or newer before")),
        (on("570.26", None, None), "ok", ("no torch for CUDA",)),
        (LAPTOP, "ok", ("no NVIDIA GPU is on this machine's PCI bus",)),
        (AMD, "ok", ("none is needed",)),
        (replace(HEALTHY, nvidia=ON_BUS), "error", ("8 NVIDIA GPU(s)", "Driver Not Loaded", "nvidia-smi")),
        (replace(HEALTHY, nvidia=ON_BUS, container="docker"), "error", ("--gpus all",)),
        (replace(HEALTHY, nvidia=ON_BUS, container="kubernetes"), "error", ("nvidia.com/gpu",)),
        (replace(HEALTHY, nvidia=ON_BUS, container="apptainer"), "error", ("--nv",)),
        (replace(HEALTHY, nvidia=ON_BUS, job="Slurm job 7"), "error", ("--gres=gpu",)),
        (
            replace(HEALTHY, nvidia=Nvidia("Driver/library version mismatch", on_bus=1)),
            "error",
            ("mismatch", "sudo reboot"),
        ),
    ],
)
def test_the_driver_is_judged_by_the_cuda_of_torch(world: World, state: str, words: tuple[str, ...]) -> None:
    judge(driver.check_driver, world, state, *words)


def test_a_newer_cuda_never_needs_an_older_driver() -> None:
    needs = [driver.read_version(driver.TOOLKIT_DRIVERS[cuda]) for cuda in sorted(driver.TOOLKIT_DRIVERS)]
    assert needs == sorted(needs)  # type: ignore[type-var]
    for (major, _), full in driver.TOOLKIT_DRIVERS.items():
        least = driver.read_version(driver.FAMILY_DRIVERS[major])
        assert least is not None
        assert least <= (driver.read_version(full) or ())


@pytest.mark.parametrize(
    ("world", "state", "words"),
    [
        (HEALTHY, "ok", ("torch 2.8.0 is built for CUDA 12.8",)),
        (
            engine(torch_build={"cuda": None, "hip": None, "xpu": None}),
            "error",
            ("CPU alone", "nvidia's", "index for cu128"),
        ),
        (engine(torch_build={"cuda": None, "hip": "6.3", "xpu": None}), "error", ("ROCm 6.3",)),
        (engine(torch_build=None), "error", ("torch is not installed",)),
        (engine(torch_build=None, versions={}), "unknown", ("torch is not installed",)),
        (
            replace(engine(torch_build={"cuda": "12.6"}), nvidia=nvidia(gpu(0, name="B200", capability=(10, 0)))),
            "error",
            ("B200 is Blackwell", "CUDA 12.8 or newer"),
        ),
        (
            replace(AMD, interpreter=engine(torch_build={"cuda": "12.8"}).interpreter),
            "error",
            ("amd's", "index for rocm"),
        ),
        (replace(AMD, interpreter=engine(torch_build={"hip": "6.3"}).interpreter), "ok", ("ROCm 6.3",)),
        (replace(LAPTOP, interpreter=engine(torch_build={}).interpreter), "ok", ("CPU alone",)),
    ],
)
def test_torch_must_fit_the_accelerator(world: World, state: str, words: tuple[str, ...]) -> None:
    judge(driver.check_torch_build, world, state, *words)


@pytest.mark.parametrize(
    ("world", "state", "words"),
    [
        (HEALTHY, "ok", ("8 x NVIDIA H200, 143771 MiB, compute capability 9.0",)),
        (with_gpus(*FOUR, env={"CUDA_VISIBLE_DEVICES": "1,2"}), "ok", ("2 x NVIDIA H200", "visible of 4")),
        (with_gpus(*FOUR, env={"CUDA_VISIBLE_DEVICES": ""}), "error", ("none is visible", "hides every GPU")),
        (
            with_gpus(*FOUR, env={"CUDA_VISIBLE_DEVICES": "0-3"}),
            "error",
            ("names no GPU", "unset CUDA_"),
        ),
        (with_gpus(*FOUR, env={"CUDA_VISIBLE_DEVICES": "1,1"}), "error", ("twice",)),
        (with_gpus(*FOUR, env={"CUDA_VISIBLE_DEVICES": "0,9"}), "warning", ("1 x NVIDIA H200", "'9' names no GPU")),
        (
            with_gpus(gpu(0), gpu(1, problem="GPU is lost")),
            "error",
            ("GPU 1 does not answer: GPU is lost", "--gpu-reset -i 1"),
        ),
        (
            with_gpus(gpu(0), gpu(1, name="NVIDIA A100", total_mib=81920.0), gpu(2)),
            "warning",
            ("smallest decides", "CUDA_VISIBLE_DEVICES=0,2"),
        ),
        (with_gpus(gpu(0, capability=(7, 0))), "error", ("GPU 0 too old", "engine=transformers")),
        (with_gpus(gpu(0), gpu(1, capability=(6, 1))), "error", ("CUDA_VISIBLE_DEVICES=0",)),
        (with_gpus(gpu(0, name=None, total_mib=None, capability=None)), "ok", ("unnamed, unknown",)),
        (LAPTOP, "warning", ("no accelerator was found", "rocminfo: not found", "gpu=h100", "model=tiny")),
        (replace(LAPTOP, request=Examinee(device="cpu", gpu="cpu")), "ok", ("gpu=cpu needs none",)),
        (
            replace(LAPTOP, request=Examinee(device="cuda", gpu="h200")),
            "error",
            ("the plan is for h200", "plan and fit"),
        ),
        (replace(LAPTOP, other=GpuProbe(device="cpu")), "ok", ("SGLANG_USE_CPU_ENGINE=1",)),
        (AMD, "ok", ("8 x AMD Instinct MI300X, 196592 MiB (amd)",)),
    ],
)
def test_accelerators_are_named_and_counted(world: World, state: str, words: tuple[str, ...]) -> None:
    judge(gpus.check_accelerators, world, state, *words)


SERVER = Holder(4242, "python", 141000.0)
HELD = gpu(1, used_mib=142571.0, free_mib=1200.0, holders=(SERVER,))


@pytest.mark.parametrize(
    ("world", "state", "words"),
    [
        (HEALTHY, "ok", ("143767 MiB free on the fullest of 8 GPUs",)),
        (
            with_gpus(gpu(0), HELD, gpu(2)),
            "warning",
            (
                "1200 MiB free",
                "GPU 1: 142571 MiB of 143771 MiB used",
                "process 4242 (python) holds 141000 MiB",
                "less than 90 %",
                "stop process 4242 (python), or CUDA_VISIBLE_DEVICES=0,2",
            ),
        ),
        (with_gpus(gpu(0, used_mib=9000.0, free_mib=134771.0)), "warning", ("of another user", "sudo nvidia-smi")),
        (with_gpus(HELD), "error", ("stop process 4242",)),
        (
            replace(with_gpus(gpu(0, used_mib=9000.0, free_mib=134771.0, holders=None)), container="docker"),
            "warning",
            ("in another container or on the host",),
        ),
        (with_gpus(HELD, env={"CUDA_VISIBLE_DEVICES": ""}), "ok", ("no NVIDIA GPU to ask",)),
        (with_gpus(gpu(0), HELD, gpu(2), env={"CUDA_VISIBLE_DEVICES": "0,2"}), "ok", ("fullest of 2 GPUs",)),
        (with_gpus(gpu(0, free_mib=None, used_mib=None)), "unknown", ("MIG",)),
        (
            with_gpus(gpu(0, used_mib=9000.0, free_mib=134771.0, holders=(Holder(7),))),
            "warning",
            ("process 7 holds unk",),
        ),
        (LAPTOP, "ok", ("no NVIDIA GPU",)),
        (AMD, "unknown", ("no NVIDIA GPU",)),
    ],
)
def test_who_holds_gpu_memory_is_said(world: World, state: str, words: tuple[str, ...]) -> None:
    judge(gpus.check_gpu_memory, world, state, *words)
