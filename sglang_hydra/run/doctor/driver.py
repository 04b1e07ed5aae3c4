"""Checks the NVIDIA driver against the CUDA version of the installed torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sglang_hydra.arguments.tables.table import nearest_known, release
from sglang_hydra.releases.records import default_release, newest_release
from sglang_hydra.run.doctor.examination import Checked, check, dotted
from sglang_hydra.run.doctor.machine_state import World
from sglang_hydra.text.json_types import JsonObject, json_beside

Version = tuple[int, ...]


def read_version(text: str | None) -> Version | None:
    """Returns ``580.82.07`` as (580, 82, 7); None without a leading number."""
    found = re.match(r"\d+(\.\d+)*", text or "")
    return tuple(int(part) for part in found[0].split(".")) if found else None


_TABLE: JsonObject = json_beside(__file__)

TOOLKIT_DRIVERS = {read_version(cuda): least for cuda, least in _TABLE["toolkit_drivers"].items()}
"""Maps a CUDA toolkit to the driver of its first Linux release, which supports all of its features. Source: the table
of toolkits and drivers in NVIDIA's CUDA toolkit release notes; since 13.2 the driver in the installer's name
(cuda_13.2.0_595.45.04_linux.run)."""

FAMILY_DRIVERS = {int(cuda): least for cuda, least in _TABLE["family_drivers"].items()}
"""Maps a CUDA major version to the oldest driver that runs programs of any of its toolkits, without later features:
CUDA's minor version compatibility. Source: NVIDIA's CUDA compatibility guide (>= 450, 525, 580) and release notes."""

# Maps a GPU architecture to the first CUDA toolkit that builds for it. Source: NVIDIA's toolkit release notes.
_ARCHITECTURES: Mapping[str, tuple[str, Sequence[int]]] = _TABLE["architectures"]


class Need(NamedTuple):
    """The drivers that a CUDA version needs: for all features, and at least. None without a source."""

    full: str | None
    least: str | None


def driver_for(cuda: Version) -> Need:
    return Need(TOOLKIT_DRIVERS.get((*cuda, 0)[:2]), FAMILY_DRIVERS.get(cuda[0]))


@check("DOC001", "NVIDIA driver")
def check_driver(world: World) -> Checked:
    """
    What: the NVIDIA driver answers, and runs the CUDA version that the engine's torch was built for; where none is
        installed for CUDA, the one that SGLang asks for.
    Why: torch refuses a driver older than its CUDA's major version; within one major version it runs, but code that is
        compiled for the GPU at run time and newer driver functions do not.
    Source: NVIDIA's CUDA toolkit release notes and CUDA compatibility guide; torch/version.py of the engine.
    Example: driver 550.54 with a torch for CUDA 13.0 -> error, 580.65.06 is needed"""
    nvidia = world.nvidia
    values = {
        "driver": nvidia.driver,
        "driver_cuda": dotted(nvidia.cuda) if nvidia.cuda else None,
        "torch_cuda": (world.interpreter.torch_build or {}).get("cuda"),
    }
    verdict = partial(Checked, values=values)
    if nvidia.problem is not None or not nvidia.gpus:
        return _without_gpu(world, values)
    shown = f"{nvidia.driver or 'version unknown'} (runs CUDA up to {dotted(nvidia.cuda)})"
    wanted = read_version(values["torch_cuda"])
    if wanted is None:
        return _before_torch(world, shown, values)
    need = driver_for(wanted)
    values |= {"driver_needed": need.full, "driver_least": need.least}
    found = f"{shown}; torch is built for CUDA {values['torch_cuda']}"
    newer = need.full or f"for CUDA {values['torch_cuda']}"
    fix = f"install driver {newer} or newer, or a torch built for an older CUDA"
    if _runs(nvidia.cuda, wanted) or _at_least(nvidia.driver, need.full):
        return verdict("ok", found)
    if nvidia.cuda is None and read_version(nvidia.driver) is None:
        return verdict("unknown", found)
    if (nvidia.cuda is not None and nvidia.cuda[0] == wanted[0]) or _at_least(nvidia.driver, need.least):
        limits = "kernels compiled at run time from PTX and newer driver functions fail"
        return verdict("warning", f"{found}: it runs by minor version compatibility, but {limits}", fix)
    return verdict("error", found + (f", which needs driver {need.least} or newer" if need.least else ""), fix)


def _before_torch(world: World, shown: str, values: dict[str, str | None]) -> Checked:
    """Compares the driver with the torch that SGLang would install, when no torch for CUDA is installed."""
    version = world.interpreter.versions.get("sglang") or default_release()
    needs = release(nearest_known(version) or newest_release()).needs
    wanted = read_version(needs["cuda"])
    if wanted is None or (nvidia := world.nvidia).cuda is None:
        return Checked("ok", f"{shown}; no torch for CUDA is installed to compare it with", values=values)
    need = driver_for(wanted)
    values |= {"driver_needed": need.full, "driver_least": need.least}
    torch = needs["packages"]["torch"].removeprefix("==")
    found = f"{shown}; SGLang {version} brings torch {torch} for CUDA {needs['cuda']}"
    if _runs(nvidia.cuda, wanted) or _at_least(nvidia.driver, need.least):
        return Checked("ok", found, values=values)
    fix = f"install driver {need.full or need.least} or newer before SGLang"
    return Checked("warning", f"{found}, which needs driver {need.least} or newer", fix, values=values)


def _without_gpu(world: World, values: dict[str, str | None]) -> Checked:
    nvidia = world.nvidia
    if not nvidia.on_bus:
        return Checked("ok", "no NVIDIA GPU is on this machine's PCI bus, so none is needed", values=values)
    there = f"{nvidia.on_bus} NVIDIA GPU(s) on the PCI bus"
    problem = nvidia.problem or "the driver lists none of them"
    fixes = _TABLE["without_gpu"]
    place = world.container if world.container in fixes else "job" if world.job else "host"
    fix = fixes["mismatch" if "mismatch" in problem.lower() else place]
    return Checked("error", f"{there}, but the driver does not answer: {problem}", fix, values=values)


@check("DOC017", "torch for this accelerator")
def check_torch_build(world: World) -> Checked:
    """
    What: the engine's torch was built for the kind of accelerator that is here, and its CUDA knows the architecture.
    Why: a torch for the CPU, which some package indexes give by default, sees no GPU; one built for a CUDA from before
        an architecture has no kernels for it ("no kernel image is available").
    Source: torch/version.py of the engine's environment, read as text; NVIDIA's toolkit release notes.
    Example: torch 2.8.0+cpu beside 8 x H200 -> error"""
    build = world.interpreter.torch_build
    version = world.interpreter.versions.get("torch")
    values = {"torch": version, **{name: (build or {}).get(name) for name in ("cuda", "hip", "xpu")}}
    verdict = partial(Checked, values=values)
    vendor = "nvidia" if world.visible else world.other.vendor if world.other else "none"
    if build is None:
        found = "torch is not installed in the engine's environment"
        needed = world.interpreter.versions.get("sglang") is not None
        return verdict("error" if needed else "unknown", found, _install_torch(world) if needed else None)
    labels = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}
    kinds = " and ".join(f"{label} {build[name]}" for name, label in labels.items() if build.get(name))
    shown = f"torch {version or '(version unknown)'} is built for {kinds or 'the CPU alone'}"
    wanted = {"nvidia": "cuda", "amd": "hip", "intel": "xpu"}.get(vendor)
    if wanted is not None and not build.get(wanted):
        return verdict("error", f"{shown}, but the accelerator here is {vendor}'s", _install_torch(world))
    cuda = read_version(build.get("cuda"))
    for gpu in world.visible:
        name, first = _ARCHITECTURES.get(str((gpu.capability or (0, 0))[0]), ("", [0]))
        if cuda is not None and cuda < tuple(first):
            found = f"{shown}; {gpu.name} is {name} and needs CUDA {dotted(first)} or newer"
            return verdict("error", found, _install_torch(world))
    return verdict("ok", shown)


def _install_torch(world: World) -> str:
    python = world.interpreter.path or "python"
    version = world.interpreter.versions.get("torch", "").partition("+")[0]
    pin = f"torch=={version}" if version else "torch"
    channel = {"amd": "rocm6.3", "intel": "xpu"}.get(world.other.vendor if world.other else "", "cu128")
    return f'{python} -m pip install --force-reinstall "{pin}" from PyTorch\'s own wheel index for {channel}'


def _runs(driver_cuda: tuple[int, int] | None, wanted: Version) -> bool:
    return driver_cuda is not None and driver_cuda >= wanted[:2]


def _at_least(driver: str | None, wanted: str | None) -> bool:
    here, there = read_version(driver), read_version(wanted)
    return here is not None and there is not None and here >= there
