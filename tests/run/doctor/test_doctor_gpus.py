"""The checks of driver and GPUs: one row a machine, with what must be said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.facts.visible_gpus import Slice
from sglang_hydra.run.doctor import driver, gpus, links
from sglang_hydra.run.doctor.machine_state import Holder, Nvidia, Request, World
from tests.run.doctor.doctor_worlds import HEALTHY, LAPTOP, engine, gpu, judge, nvidia, pairs, with_gpus

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
        (on("570.124.06", (12, 8), None), "ok", ("SGLang 0.5.2 brings torch 2.8 for CUDA 12.8",)),
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
        (with_gpus(*FOUR, env={"CUDA_VISIBLE_DEVICES": ""}), "error", ("none is visible", "DOC006")),
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
        (replace(LAPTOP, request=Request(device="cpu", gpu="cpu")), "ok", ("gpu=cpu needs none",)),
        (
            replace(LAPTOP, request=Request(device="cuda", gpu="h200")),
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


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({}, "ok", ("no memory errors",)),
        ({"compute_mode": "prohibited"}, "error", ("prohibited", "sudo nvidia-smi -i 0 -c DEFAULT")),
        ({"compute_mode": "exclusive"}, "warning", ("one process only",)),
        ({"remap_failed": True, "ecc_errors": 2}, "error", ("could not be replaced", "2 uncorrected memory errors")),
        ({"remap_pending": True}, "warning", ("--gpu-reset -i 0",)),
        ({"ecc_errors": 1}, "warning", ("1 uncorrected memory error",)),
        ({"mig": True, "slices": (Slice("MIG-1", 20000.0),)}, "warning", ("1 slice", "tp_size=1")),
        ({"persistence": False}, "ok", ("persistence mode is off", "nvidia-smi -pm 1")),
        ({"compute_mode": None, "ecc_errors": None, "persistence": None}, "unknown", ("does not tell",)),
    ],
)
def test_modes_and_errors_of_a_gpu_are_said(change: dict[str, object], state: str, words: tuple[str, ...]) -> None:
    judge(gpus.check_gpu_modes, with_gpus(gpu(0, **change)), state, *words)


def test_a_machine_without_nvidia_gpus_has_no_modes() -> None:
    judge(gpus.check_gpu_modes, LAPTOP, "ok")
    judge(gpus.check_gpu_modes, AMD, "unknown")


NO_LINK = {"nvlink": False}
CUT = {"nvlink": False, "obstacle": "the chipset does not support it"}


@pytest.mark.parametrize(
    ("world", "state", "words"),
    [
        (HEALTHY, "ok", ("28 of 28 pairs linked by NVLink",)),
        (with_gpus(*FOUR, pairs=pairs(4, **NO_LINK)), "warning", ("0 of 6 pairs", "NCCL's", "6 pairs within one NUMA")),
        (with_gpus(*FOUR[:2], pairs=pairs(2, **NO_LINK)), "ok", ("0 of 1 pair linked", "the rest by PCIe")),
        (
            with_gpus(*FOUR[:2], pairs=pairs(2, **CUT)),
            "warning",
            ("1 without peer access", "GPU 0 and 1: no peer access, the chipset", "disable_custom_all_reduce=true"),
        ),
        (with_gpus(*FOUR, pairs=pairs(4, **CUT), env={"CUDA_VISIBLE_DEVICES": "3"}), "ok", ("fewer than two",)),
        (with_gpus(*FOUR, pairs=pairs(4, obstacle=None, nvlink=None)), "unknown", ("topo",)),
        (with_gpus(*FOUR, pairs=()), "unknown", ()),
        (
            with_gpus(gpu(0, fabric="not started"), gpu(1)),
            "error",
            ("fabric of GPU 0 is not started", "802", "nvidia-fabricmanager"),
        ),
        (with_gpus(gpu(0, fabric="in progress")), "warning", ("802",)),
        (with_gpus(gpu(0, fabric=None), gpu(1, fabric=None)), "ok", ()),
        (LAPTOP, "ok", ("none is needed",)),
    ],
)
def test_links_between_gpus_are_judged(world: World, state: str, words: tuple[str, ...]) -> None:
    judge(links.check_links, world, state, *words)


@pytest.mark.parametrize(
    ("value", "state", "words"),
    [
        (None, "ok", ("every GPU is visible",)),
        ("0,2", "ok", ("GPUs 0, 2",)),
        ("0-3", "error", ("names no GPU", "export CUDA_VISIBLE_DEVICES=0,1,2,3")),
        ("", "error", ("hides every GPU",)),
        ("1,1", "error", ("twice",)),
        ("0,9", "warning", ("'9' names no GPU", "visible: GPU 0")),
        ("GPU-0001,GPU-0003", "warning", ("fails on a UUID", "export CUDA_VISIBLE_DEVICES=1,3")),
        ("GPU-0001", "ok", ("GPU 1",)),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(value: str | None, state: str, words: tuple[str, ...]) -> None:
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    judge(links.check_visible, with_gpus(*FOUR, env=env), state, *words)


def test_numbers_of_mixed_gpus_need_the_bus_order() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0"}
    mixed = with_gpus(gpu(0), gpu(1, name="NVIDIA A100"), env=env)
    judge(links.check_visible, mixed, "warning", "export CUDA_DEVICE_ORDER=PCI_BUS_ID")
    judge(links.check_visible, replace(mixed, env={**env, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}), "ok")


def test_without_a_gpu_the_variable_selects_nothing() -> None:
    judge(links.check_visible, LAPTOP, "ok", "there is no NVIDIA GPU")
    judge(links.check_visible, replace(LAPTOP, env={"CUDA_VISIBLE_DEVICES": "0"}), "ok", "no NVIDIA GPU to select")
