"""What the vendors' command-line tools print, read into plain values. Nothing is run here."""

from __future__ import annotations

import re

from sglang_hydra.facts.visible_gpus import Device
from sglang_hydra.text.budget import read_json

_NUMBER = re.compile(r"\d+(\.\d+)?")
_AFTER_GFX = 100
_AFTER_POOL = 5


def read_gfx(text: str) -> tuple[int, int] | None:
    """Returns AMD's architecture as the (major, minor) that torch reports: gfx942 is (9, 4), gfx90a (9, 0), gfx1100
    (11, 0)."""
    found = re.match(r"gfx(\d+)(\d)[0-9a-f](?![0-9a-f])", text)
    return (int(found[1]), int(found[2])) if found else None


def read_rocminfo(text: str) -> tuple[list[Device], list[float]]:
    """Returns the GPUs that ``rocminfo`` lists, and the pool sizes in MiB of which SGLang takes the smallest.

    SGLang takes the size in the first pool of whatever is within 100 lines of a ``gfx`` name; a GPU's own memory
    here is that of the agent it belongs to.
    """
    lines = text.splitlines()
    return _rocm_agents(lines), _rocm_pools(lines)


def _rocm_agents(lines: list[str]) -> list[Device]:
    devices: list[Device] = []
    agent: dict[str, str] = {}
    pool = ""
    for line in [*lines, "Agent 0"]:
        if re.match(r"Agent \d+", line):
            if agent.get("Device Type") == "GPU":
                devices.append(
                    Device(
                        name=agent.get("Marketing Name") or agent.get("Name"),
                        uuid=agent.get("Uuid"),
                        memory_mib=_kib(agent.get("Size", "")),
                        capability=read_gfx(agent.get("Name", "")),
                    )
                )
            agent, pool = {}, ""
            continue
        key, _, value = (part.strip() for part in line.partition(":"))
        if key.startswith("Pool ") and key != "Pool Info":
            pool = key
        elif key != "Size" or pool == "Pool 1":
            agent.setdefault(key, value)
    return devices


def _rocm_pools(lines: list[str]) -> list[float]:
    near_gfx = _within(lines, "gfx", _AFTER_GFX)
    near_pool = _within(near_gfx, "Pool 1", _AFTER_POOL)
    sizes = (_kib(line.partition("Size:")[2].strip()) for line in near_pool if "Size:" in line)
    return [size for size in sizes if size is not None]


def _within(lines: list[str], mark: str, after: int) -> list[str]:
    """Returns the lines that hold ``mark``, each with the ``after`` lines that follow it."""
    kept, left = [], 0
    for line in lines:
        left = after + 1 if mark in line else left
        if left > 0:
            kept.append(line)
        left -= 1
    return kept


def _kib(text: str) -> float | None:
    """Returns ``200998912(0xbfb0000) KB`` in MiB."""
    found = _NUMBER.match(text)
    return float(found[0]) / 1024 if found else None


def read_hl_smi(text: str) -> list[Device]:
    """Returns the Gaudi cards in the log of ``hl-smi --query``. Its MB are MiB (a 96 GiB card shows 98304)."""
    devices: list[Device] = []
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "Product Name":
            devices.append(Device(name=value))
        elif key == "Total" and _NUMBER.match(value):
            size = float(value.split()[0])
            if devices and devices[-1].memory_mib is None:
                devices[-1] = devices[-1]._replace(memory_mib=size)
            else:
                devices.append(Device(name=None, memory_mib=size))
    return devices


def read_torch_answer(text: str) -> dict[str, object]:
    """Returns the last line that is a JSON object (libraries may print before it); empty if there is none."""

    for line in reversed(text.splitlines()):
        try:
            answer = read_json(line, "record")
        except ValueError:
            continue
        if isinstance(answer, dict):
            return answer
    return {}
