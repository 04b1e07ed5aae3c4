"""The faked machine around the released package: its accelerator, its tools, its files and its random numbers.

The package's own probes run. What is faked is what they ask: torch, the vendors' command-line tools, the presence of
optional packages, the hub and the port table.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from .inert import Unfaked

OPTIONAL_PACKAGES = frozenset({"flashinfer", "triton_kernels", "torch_npu", "habana_frameworks"})
SEED = 42
NOTHING = {"device": "none", "memory_mib": None, "capability": None, "flashinfer": False, "triton_kernels": False}


def no_cuda(*_: Any) -> Any:
    """Stands for a function of torch.cuda where torch was built without it."""
    raise AssertionError("Torch not compiled with CUDA enabled")


class Machine:
    """What torch, the tools and the search for optional packages say; `use` swaps the machine between two cases."""

    def __init__(self) -> None:
        self.hardware: Mapping[str, Any] = NOTHING
        self.randint_calls: list[list[int]] = []
        self.randint_value = SEED

    def use(self, hardware: Mapping[str, Any], randint_value: int = SEED) -> None:
        """Become the machine of one case: no probe may remember an answer of the case before."""
        self.hardware = hardware
        self.randint_calls = []
        self.randint_value = randint_value
        for name in OPTIONAL_PACKAGES:
            sys.modules.pop(name, None)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "sglang":
                for value in list(vars(module).values()):
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
        self._tell_torch()

    def present(self) -> frozenset[str]:
        """The optional packages that this machine has."""
        by_device = {"npu": "torch_npu", "hpu": "habana_frameworks"}
        names = {name for name in ("flashinfer", "triton_kernels") if self.hardware[name]}
        return frozenset(names | {by_device.get(self.hardware["device"], "")})

    def randint(self, low: int, high: int) -> int:
        self.randint_calls.append([low, high])
        return self.randint_value

    def run_tool(self, command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        """subprocess.run for the tools that report the memory, in MiB, of each accelerator; fails without output where
        there is no such accelerator."""
        line = command if isinstance(command, str) else " ".join(command)
        device, memory = self.hardware["device"], self.hardware["memory_mib"]
        # In rocminfo's pipeline the number is in KiB, in the two others in MiB.
        tools = {
            "nvidia-smi": ("cuda", "{0}"),
            "rocminfo": ("hip", "{1}"),
            "hl-smi": ("hpu", "Memory Total : {0} MiB"),
        }
        for tool, (owner, answer) in tools.items():
            if tool in line:
                if device != owner or memory is None:
                    return subprocess.CompletedProcess(command, 1, "", "")
                return subprocess.CompletedProcess(command, 0, answer.format(memory, memory * 1024) + "\n", "")
        raise Unfaked(f"it runs {line!r}, which the faked machine has not")

    def install(self) -> None:
        """Put this machine in the place of the real one, for the whole life of the process."""
        mock.patch("subprocess.run", self.run_tool).start()
        mock.patch("random.randint", self.randint).start()
        # SGLang's CPU engine exists on x86 only, and the CPU is one that it is made for.
        mock.patch("platform.machine", return_value="x86_64").start()
        cpu: Any = importlib.import_module("torch._C._cpu")
        cpu._is_amx_tile_supported = functools.partial(bool, True)
        self._tell_torch()

    def _tell_torch(self) -> None:
        device, memory = self.hardware["device"], self.hardware["memory_mib"]
        capability = tuple(self.hardware["capability"] or (0, 0))
        memory_bytes = 0 if memory is None else int(memory * 1024 * 1024)
        owners = {
            "torch.cpu": {device},
            "torch.cuda": {"cuda", "hip"},
            "torch.xpu": {"xpu"},
            "torch.npu": {"npu"},
            "torch.hpu": {"hpu"},
        }
        for name, devices in owners.items():
            module: Any = importlib.import_module(name)
            module.is_available = functools.partial(bool, device in devices)
            module.mem_get_info = lambda *_: (memory_bytes, memory_bytes)
            module.get_device_capability = (
                no_cuda if self.hardware.get("torch_cuda") is False else lambda *_: capability
            )
        version: Any = importlib.import_module("torch.version")
        version.cuda = "12.8" if device == "cuda" else None
        version.hip = "6.3" if device == "hip" else None


class EndlessSearch(BaseException):
    """A port search that has gone on for longer than it could take to end."""


class Ports:
    """The port table of one case; `available` is "all", {"free": [ports]} or {"busy": [ports]}."""

    LIMIT = 400

    def __init__(self, available: Any) -> None:
        self.available = available
        self.probed: list[int] = []

    def is_port_available(self, port: int) -> bool:
        self.probed.append(port)
        if len(self.probed) > self.LIMIT:
            raise EndlessSearch
        if self.available == "all":
            return True
        return port in self.available["free"] if "free" in self.available else port not in self.available["busy"]


class HfConfig:
    """An attribute view of a model's config.json, with transformers' `update` and its None for no architectures.

    Nested configs are views too, but for quantization_config, which transformers keeps as a dict.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.architectures = None
        self.model_type = ""
        for name, value in values.items():
            nested = isinstance(value, dict) and name.endswith("_config") and name != "quantization_config"
            setattr(self, name, HfConfig(value) if nested else value)

    def update(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


class Hub:
    """What the package's `get_config` and `ModelConfig.from_server_args` give for the config.json of one case.

    `is_multimodal_model` is the package's own; `text_only` are the architectures that it serves without their vision
    part unless asked.
    """

    def __init__(self, is_multimodal_model: Any, text_only: list[str]) -> None:
        self.values: Mapping[str, Any] = {}
        self.is_multimodal_model = is_multimodal_model
        self.text_only = text_only

    def get_config(self, model: str, *args: Any, model_override_args: Any = None, **kwargs: Any) -> HfConfig:
        config = HfConfig(self.values)
        if model_override_args:
            config.update(model_override_args)
        return config

    def from_server_args(self, server_args: Any, *args: Any, **kwargs: Any) -> SimpleNamespace:
        overrides = json.loads(server_args.json_model_override_args)
        config: Any = self.get_config(server_args.model_path, model_override_args=overrides)
        wanted = server_args.enable_multimodal
        if wanted is None:
            wanted = config.architectures[0] not in self.text_only
        is_multimodal = wanted and self.is_multimodal_model(config.architectures)
        return SimpleNamespace(hf_config=config, is_multimodal=is_multimodal)


@contextlib.contextmanager
def surroundings(files: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[None]:
    """A fresh working directory with `files`, and `environment` as the only SGLANG_* variables; both are undone."""
    before, directory = dict(os.environ), os.getcwd()
    for name in [name for name in os.environ if name.startswith("SGLANG_")]:
        del os.environ[name]
    os.environ.update(environment)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
            os.chdir(folder)
            try:
                yield
            finally:
                os.chdir(directory)
    finally:
        os.environ.clear()
        os.environ.update(before)
