"""One search for accelerators: the environment it obeys, the tools it runs, the sentences it collects."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sglang_hydra.facts.visible_gpus import Device, Visible

_TOOL_TIMEOUT_S = 20.0
_TORCH_TIMEOUT_S = 120.0

# Runs in the engine's interpreter, for the accelerators that only torch can be asked about. -c puts the working
# directory first on the path: it may be a checkout of somebody else's, with a torch.py.
_ASK_TORCH = """
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.util, json
import torch
for name in ("torch_npu", "habana_frameworks"):
    if importlib.util.find_spec(name):
        __import__(name if name == "torch_npu" else "habana_frameworks.torch.hpu")
found = {}
for kind in ("cuda", "xpu", "npu", "hpu"):
    room = getattr(torch, kind, None)
    if room is None or not room.is_available():
        continue
    found = {"device": kind, "count": room.device_count(), "name": room.get_device_name(0), "hip": torch.version.hip}
    if kind in ("cuda", "npu"):
        found["memory_mib"] = room.mem_get_info()[1] // 1024 // 1024
    if kind == "cuda":
        found["capability"] = room.get_device_capability()
    break
print(json.dumps(found))
"""


class Found(NamedTuple):
    """The accelerators of one vendor: all of them, and what of them is visible."""

    vendor: str
    device: str
    all: tuple[Device, ...]
    seen: Visible
    memory_mib: float | None
    variable: str | None = None


class Search:
    """One probe: the environment it obeys and the sentences it collects."""

    def __init__(self, env: Mapping[str, str], python: str | None, site_paths: Sequence[str] | None) -> None:
        self.env = env
        self.python = os.path.expanduser(python) if python else None
        self.tried: list[str] = []
        self._paths = tuple(site_paths) if site_paths is not None else None

    @property
    def paths(self) -> tuple[str, ...]:
        """The folders that the engine's interpreter imports from."""
        if self._paths is None:
            from sglang_hydra.facts.installed import interpreter_paths

            self._paths = interpreter_paths(self.python)
        return self._paths

    def run(self, command: list[str], timeout: float = _TOOL_TIMEOUT_S) -> str | None:
        """What ``command`` prints; None if it is not there, fails or is not done within ``timeout`` seconds.

        A failure leaves its sentence; a success is the caller's to tell.
        """
        import shutil
        import subprocess

        rocm = os.path.join(self.env.get("ROCM_PATH", "/opt/rocm"), "bin")  # not on PATH in AMD's own packages
        places = os.pathsep.join((self.env.get("PATH", os.defpath), rocm))
        path = shutil.which(command[0], path=places)
        if path is None:
            self.tried.append(f"{command[0]}: not found on PATH")
            return None
        try:
            done = subprocess.run(
                [path, *command[1:]],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=timeout,
                env=dict(self.env),
            )
        except subprocess.TimeoutExpired:
            self.tried.append(f"{command[0]}: no answer within {timeout:g} s")
            return None
        except OSError as failure:
            self.tried.append(f"{command[0]}: cannot be run ({failure})")
            return None
        if done.returncode != 0:
            reason = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            self.tried.append(f"{command[0]}: exit status {done.returncode} ({reason})")
            return None
        return done.stdout

    def first_set(self, *names: str) -> str | None:
        """The first of these variables that the environment sets, if only to an empty string."""
        return next((name for name in names if name in self.env), None)


def ask_torch(search: Search) -> dict[str, Any]:
    """What the engine's torch says of the first kind of accelerator that it sees; empty if it sees none.

    A child process, since importing torch takes seconds and may initialise a device. Keys: device, count, name,
    hip, and where torch knows them memory_mib (of the first) and capability.
    """
    import sys

    from sglang_hydra.facts.trust import may_start
    from sglang_hydra.facts.vendor_tools import read_torch_answer

    if not may_start(search.python):
        search.tried.append(f"torch: {search.python} was not asked, as a file names it")
        return {}
    text = search.run([search.python or sys.executable, "-c", _ASK_TORCH], _TORCH_TIMEOUT_S)
    return read_torch_answer(text) if text is not None else {}


def smallest(devices: Sequence[Device]) -> float | None:
    """The smallest total memory in MiB; None where no device reports it."""
    return min((device.memory_mib for device in devices if device.memory_mib is not None), default=None)


def counted(devices: Sequence[Device]) -> str:
    """``8 x NVIDIA H200 143771 MiB``: the devices for a sentence."""
    if not devices:
        return "no GPU"
    kinds = sorted({f"{device.name or 'unnamed'} {device.memory_mib or 0:g} MiB" for device in devices})
    return f"{len(devices)} x {', '.join(kinds)}"
