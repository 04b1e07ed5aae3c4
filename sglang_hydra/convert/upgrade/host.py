"""Compares what a release needs with this machine, by the doctor's own probes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sglang_hydra.convert.upgrade.releases import needs_of
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.run.doctor.phrases import dotted

if TYPE_CHECKING:
    from sglang_hydra.run.doctor.machine_state import Interpreter, Nvidia

OK, NO, INSTALL, UNKNOWN = "ok", "no", "install", "unknown"
_PACKAGES = ("torch", "transformers")


@dataclass(frozen=True)
class Need:
    """One thing that the release needs. ``before`` is what the old release needed, ``here`` what this machine has,
    None where that is not known. ``state``: ok; ``no`` it cannot run; ``install`` its installation brings it;
    ``unknown``."""

    name: str
    before: str | None
    needed: str | None
    here: str | None
    state: str
    note: str = ""


@dataclass(frozen=True)
class Host:
    """Whether this machine can run the release. ``state`` is ok, no or unknown."""

    needs: tuple[Need, ...]

    @property
    def state(self) -> str:
        states = [need.state for need in self.needs]
        return NO if NO in states else UNKNOWN if UNKNOWN in states else OK

    @property
    def text(self) -> str:
        """The verdict in one clause."""
        wrong = [need.name for need in self.needs if need.state == self.state]
        if self.state == NO:
            return f"this machine cannot run it: {', '.join(wrong)}"
        if self.state == UNKNOWN:
            return f"cannot tell whether this machine can run it: {', '.join(wrong)}"
        brings = [need.name for need in self.needs if need.state == INSTALL]
        once = f", once {' and '.join(brings)} are as it wants them" if len(brings) > 1 else ""
        return f"this machine can run it{once}"

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state, "needs": [asdict(need) for need in self.needs]}


def host_for(old: str, new: str, gpu: GpuFacts, python: str | None) -> Host:
    """Compares this machine with what ``new`` needs to serve on ``gpu``; ``python`` is the interpreter of the engine
    (None: ours). Starts nothing but a short question to another interpreter."""
    from sglang_hydra.run.doctor import interpreter, nvml

    one = interpreter.read_interpreter(python)
    found = [_python(old, new, one)]
    if gpu.vendor == "nvidia":
        nvidia = nvml.survey_nvidia()
        found += [_gpus(gpu, nvidia), *_driver(old, new, nvidia)]
    elif gpu.device not in (None, "cpu"):
        found.append(
            Need(
                "GPU",
                None,
                gpu.name,
                None,
                UNKNOWN,
                f"the table knows the needs of NVIDIA's GPUs, not of {gpu.vendor}'s",
            )
        )
    elif gpu.device is None:
        found.append(Need("GPU", None, None, None, UNKNOWN, "the plan names no GPU: gpu=h200"))
    return Host((*found, *_packages(old, new, one)))


def _python(old: str, new: str, one: Interpreter) -> Need:
    before, needed = (str(needs_of(version)["python"]) for version in (old, new))
    if one.version is None:
        return Need("Python", before, needed, None, UNKNOWN, one.problem or "its version cannot be read")
    here = dotted(one.version)
    fits = _satisfies(here, needed)
    note = "" if fits else "engine.python=the python of an environment that has a newer one"
    return Need("Python", before, needed, here, OK if fits else NO, note)


def _gpus(gpu: GpuFacts, nvidia: Nvidia) -> Need:
    names = [one.name or "a GPU that does not answer" for one in nvidia.gpus]
    here = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or None
    if here:
        return Need("GPU", None, gpu.name, here, OK)
    return Need("GPU", None, gpu.name, "none", NO, nvidia.problem or "no NVIDIA GPU answers")


def _driver(old: str, new: str, nvidia: Nvidia) -> Iterator[Need]:
    """Compares the driver, and the CUDA that it runs. Within one major version CUDA runs on an older driver too."""
    before, needs = needs_of(old), needs_of(new)
    driver = needs["driver"]
    here = nvidia.driver
    if here is None or driver is None:
        yield Need("NVIDIA driver", before["driver"], _or_newer(driver), here, UNKNOWN, "")
    else:
        fits = _numbers(here) >= _numbers(driver)
        note = "" if fits else f"install driver {driver} or newer"
        yield Need("NVIDIA driver", before["driver"], _or_newer(driver), here, OK if fits else NO, note)
    cuda = needs["cuda"]
    if nvidia.cuda is None or cuda is None:
        yield Need("CUDA", before["cuda"], cuda, None, UNKNOWN)
        return
    runs = f"{nvidia.cuda[0]}.{nvidia.cuda[1]}"
    if nvidia.cuda >= _numbers(cuda)[:2]:
        yield Need("CUDA", before["cuda"], cuda, f"up to {runs}", OK)
    elif nvidia.cuda[0] == _numbers(cuda)[0]:
        note = "it runs by minor version compatibility; kernels compiled from PTX at run time fail"
        yield Need("CUDA", before["cuda"], cuda, f"up to {runs}", OK, note)
    else:
        yield Need("CUDA", before["cuda"], cuda, f"up to {runs}", NO, f"a driver for CUDA {cuda}")


def _packages(old: str, new: str, one: Interpreter) -> Iterator[Need]:
    """Packages that an installation brings: never an obstacle, but shown."""
    wanted, before = needs_of(new)["packages"], needs_of(old)["packages"]
    noted = False
    for name in _PACKAGES:
        if name in wanted:
            here = one.versions.get(name)
            state = OK if here is not None and _satisfies(here, wanted[name]) else INSTALL
            note = (
                f'pip install "sglang=={new}" into an environment of its own' if state == INSTALL and not noted else ""
            )
            noted = noted or state == INSTALL
            if one.problem:
                state, note = UNKNOWN, one.problem
            yield Need(name, before.get(name), wanted[name], here, state, note)


def _or_newer(version: str | None) -> str | None:
    return f">={version}" if version else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _satisfies(version: str, wanted: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version) in SpecifierSet(wanted, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False
