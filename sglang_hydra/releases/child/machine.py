"""Replaces accelerator and host by the facts: torch, the vendors' tools, the operating system, random numbers."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib
import json
import platform
import random
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .questions import Asked, is_importing, refuse

AITER = "SGLANG_USE_AITER"
"""AMD's published images set it: an answer names it for a machine whose environment does not."""
_GFX = {(9, 0): "gfx90a", (9, 4): "gfx942", (9, 5): "gfx950"}
_TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_TOOLS: Mapping[str, str] = _TABLE["tools"]
"""The vendors' programs, with their kinds of accelerator."""


class Machine(dict[str, Any]):
    """The facts of one machine; ``memory_mib``, ``count`` and ``name`` may change from case to case. ``device`` is
    cuda, hip, xpu, npu, hpu, musa, cpu or none. ``assumed`` has values for undeclared facts; a fact that is neither
    declared nor assumed is refused by its name."""

    drawn = 0
    """The number of ids that the case has drawn."""

    def fact(self, name: str, question: str) -> Any:
        """Returns a declared or assumed fact. Raises Unanswered without one."""
        value = self.get(name)
        if value is None:
            value = self.get("assumed", {}).get(name)
            if value is None:
                raise refuse(f"{question} (the fact {name})")
            if not Asked.is_running or not is_importing():  # a module is imported once for all cases
                Asked.assumed[name] = value
        return value

    @property
    def capability(self) -> tuple[int, int]:
        major, minor = self.fact("capability", "the compute capability")
        return int(major), int(minor)

    @property
    def memory_bytes(self) -> int:
        return int(self.fact("memory_mib", "the memory of the accelerator") * 1024 * 1024)


def install(machine: Machine) -> None:
    """Puts ``machine`` in place of the real machine, for the life of the process."""
    _install_torch(machine)
    _install_tools(machine)
    if machine["device"] == "hip" and AITER not in machine["environment"]:
        Asked.assumed[AITER] = None
    _install_host(machine)
    _install_libc()
    platform.machine = lambda: str(machine.fact("processor", "the processor's architecture"))
    platform.system = lambda: "Linux"
    sys.platform = "linux"

    def randint(low: int, high: int) -> int:
        return int(machine.fact("seed", f"a random number from {low} to {high}"))

    random.randint = randint  # type: ignore[assignment]
    uuid.uuid4 = functools.partial(_next_id, machine)


def _next_id(machine: Machine) -> uuid.UUID:
    """Returns an id that a server draws anew at each start: the first, the second, ... of the case."""
    machine.drawn += 1
    if not is_importing():
        Asked.assumed["drawn_ids"] = machine.drawn
    return uuid.UUID(int=machine.drawn)


def _install_host(machine: Machine) -> None:
    """Installs the host's memory and processors, as psutil and lscpu report them."""
    psutil: Any = importlib.import_module("psutil")

    def memory() -> SimpleNamespace:
        is_cpu = machine["device"] == "cpu"
        name = "memory_mib" if is_cpu else "host_memory_mib"
        size = int(machine.fact(name, "the memory of the host") * 1024 * 1024)
        return SimpleNamespace(total=size, available=size)

    class Process:
        def __init__(self, *_: Any) -> None:
            pass

        def cpu_affinity(self) -> list[int]:
            return list(range(_cores(machine)))

        def __getattr__(self, name: str) -> Any:
            raise refuse(f"psutil.Process().{name}")

    psutil.virtual_memory, psutil.Process = memory, Process
    socket.gethostname = lambda: str(machine.fact("hostname", "the name of the host"))


def _install_libc() -> None:
    """Lets the release find the C library and declare its functions; calls none, and provides no other library."""
    real = ctypes.CDLL

    class Function:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, *_: Any) -> Any:
            raise refuse(f"what {self.name} of the C library does")

    class Libc:
        def __getattr__(self, name: str) -> Any:
            setattr(self, name, Function(name))
            return vars(self)[name]

    def find_library(name: str) -> str:
        if name != "c":
            raise refuse(f"whether there is the library {name}")
        return "libc.so.6"

    def load(name: Any, *values: Any, **options: Any) -> Any:
        return Libc() if name == "libc.so.6" else real(name, *values, **options)

    ctypes.util.find_library = find_library
    ctypes.CDLL = load  # type: ignore[assignment,misc]


def _cores(machine: Machine) -> int:
    nodes = int(machine.fact("numa_nodes", "the number of NUMA nodes"))
    return nodes * int(machine.fact("cores_per_node", "the processor cores of a NUMA node"))


def _lscpu(machine: Machine) -> str:
    """Returns the lines ``CPU,Core,Socket,Node``, without hardware threads."""
    cores = _cores(machine)
    each = cores // int(machine["numa_nodes"] if machine.get("numa_nodes") else machine["assumed"]["numa_nodes"])
    return "".join(f"{core},{core},{core // each},{core // each}\n" for core in range(cores))


def _install_torch(machine: Machine) -> None:
    torch: Any = importlib.import_module("torch")
    version: Any = importlib.import_module("torch.version")
    torch.version = version
    library: Any = importlib.import_module("torch.library")
    library.Library = lambda name, *_, **__: SimpleNamespace(m=SimpleNamespace(name=name))
    device = machine["device"]
    version.cuda = machine.get("cuda") if device == "cuda" else None
    version.hip = machine.fact("hip", "the version of HIP") if device == "hip" else None
    version.musa = version.xpu = None
    _install_dtypes(torch)
    for kind in ("cuda", "cpu", "xpu", *({device} & {"npu", "hpu", "musa"})):
        module: Any = importlib.import_module(f"torch.{kind}")
        setattr(torch, kind, module)
        is_there = {"cuda": device in ("cuda", "hip"), "cpu": True}.get(kind, device == kind)
        module.is_available = functools.partial(bool, is_there)
        if kind != "cpu":
            _install_accelerator(module, machine, is_there)
    _install_backends(torch, machine)


class Properties(SimpleNamespace):
    """The properties of an accelerator as torch names them; any other property is a question."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(f"the property {name} of the accelerator")


def _install_accelerator(module: Any, machine: Machine, is_there: bool) -> None:
    def properties(*_: Any) -> Properties:
        if not is_there:
            raise _no_cuda()
        major, minor = machine.capability
        return Properties(
            name=str(machine.fact("name", "the accelerator's name")),
            total_memory=machine.memory_bytes,
            major=major,
            minor=minor,
            gcnArchName=_GFX.get((major, minor), "gfx942"),
            has_fp64=True,
        )

    def capability(*_: Any) -> tuple[int, int]:
        if machine.get("torch_cuda") is False:
            raise _no_cuda()
        return machine.capability if is_there else (0, 0)

    module.get_device_capability, module.get_device_properties = capability, properties
    module.device_count = lambda: int(machine.fact("count", "the number of accelerators")) if is_there else 0
    module.mem_get_info = lambda *_: (machine.memory_bytes, machine.memory_bytes)
    module.get_device_name = lambda *_: str(machine.fact("name", "the accelerator's name"))
    module.current_device = functools.partial(int, 0)
    module.is_initialized = functools.partial(bool, False)


def _no_cuda() -> AssertionError:
    return AssertionError("Torch not compiled with CUDA enabled")


def _install_backends(torch: Any, machine: Machine) -> None:
    backends: Any = importlib.import_module("torch.backends")
    torch.backends = backends
    for name in ("mps", "cudnn", "cuda"):
        setattr(backends, name, importlib.import_module(f"torch.backends.{name}"))
    backends.mps.is_available = backends.mps.is_built = functools.partial(bool, False)
    backends.cudnn.version = lambda: int(machine.fact("cudnn", "the version of cuDNN"))

    def no_nvml(*_: Any) -> Any:
        if machine.fact("nvml", "what NVML says"):
            raise refuse("what NVML says")
        raise RuntimeError("NVML Shared Library Not Found")

    torch.cuda._get_nvml_device_index = no_nvml
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit = no_nvml
    intel: Any = importlib.import_module("torch._C._cpu")

    intel._is_amx_tile_supported = lambda: bool(machine.fact("amx", "whether the processor has AMX"))
    torch.cpu._is_amx_tile_supported = intel._is_amx_tile_supported


class Device:
    """torch.device: ``cuda:0``."""

    def __init__(self, type: str, index: int | None = None) -> None:
        self.type, _, number = str(type).partition(":")
        self.index = int(number) if number else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


def _install_dtypes(torch: Any) -> None:
    class dtype:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return f"torch.{self.name}"

        def __deepcopy__(self, memo: object) -> Any:
            return self

    torch.dtype, torch.device = dtype, Device
    for name in _TABLE["dtypes"].split():
        setattr(torch, name, dtype(name))
    for alias, name in _TABLE["aliases"].items():
        setattr(torch, alias, getattr(torch, name))


def _install_tools(machine: Machine) -> None:
    def run(command: Any, *values: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
        text = tool_output(command, machine)
        if text is None and options.get("check"):
            raise FileNotFoundError(_words(command))
        as_text = options.get("text") or options.get("universal_newlines") or options.get("encoding")
        out: Any = (text or "") if as_text else (text or "").encode()
        return subprocess.CompletedProcess(command, 1 if text is None else 0, out, out[:0])

    def check_output(command: Any, *values: Any, **options: Any) -> Any:
        return run(command, **{**options, "check": True}).stdout

    class NoProcess(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, command: Any, *values: Any, **options: Any) -> None:
            raise refuse(f"what {_words(command)!r} does")

    def which(name: str, *values: Any, **options: Any) -> str | None:
        if name not in _TOOLS:
            raise refuse(f"whether there is the program {name}")
        return f"/usr/bin/{name}" if _TOOLS[name] == machine["device"] else None

    subprocess.run, subprocess.check_output = run, check_output  # type: ignore[assignment]
    subprocess.Popen = NoProcess  # type: ignore[assignment,misc]
    shutil.which = which  # type: ignore[assignment]


def _words(command: Any) -> str:
    return command if isinstance(command, str) else " ".join(map(str, command))


def tool_output(command: Any, machine: Machine) -> str | None:
    """Returns the output of a vendor's tool on ``machine``; None without such an accelerator. Raises Unanswered for
    another program, and for a query that no fact answers."""
    line = _words(command)
    if line == "lscpu -p=CPU,Core,Socket,Node":
        return _lscpu(machine)
    tool = next((name for name in _TOOLS if line.startswith(name)), None)
    if tool is None:
        raise refuse(f"what {line!r} prints")
    if _TOOLS[tool] != machine["device"]:
        return None
    if tool == "nvidia-smi":
        return _nvidia_smi(line, machine)
    memory = machine.fact("memory_mib", "the memory of the accelerator")
    if tool == "rocminfo" and "grep 'Size:'" in line:  # in KiB
        return f"{memory * 1024}\n"
    if tool == "hl-smi" and "grep 'Total'" in line:
        return f"Memory Total : {memory} MiB\n"
    raise refuse(f"what {line!r} prints")


def _nvidia_smi(line: str, machine: Machine) -> str:
    answers: Mapping[str, Any] = {
        "memory.total": lambda: machine.fact("memory_mib", "the memory of the GPU"),
        "compute_cap": lambda: "{}.{}".format(*machine.capability),
        "driver_version": lambda: machine.fact("driver", "the version of the GPU's driver"),
        "name": lambda: machine.fact("name", "the GPU's name"),
    }
    query = next((word.partition("=")[2] for word in line.split() if word.startswith("--query-gpu=")), "")
    fields = [field.strip() for field in query.split(",")]
    if not query or any(field not in answers for field in fields):
        raise refuse(f"what {line!r} prints")
    return ", ".join(str(answers[field]()) for field in fields) + "\n"
