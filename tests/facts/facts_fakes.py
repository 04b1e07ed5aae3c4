"""Stand-ins for a machine's hardware: a pynvml module, and command-line tools that print recorded text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

DATA = Path(__file__).parent.parent / "data"
MIB = 1 << 20


class NVMLError(Exception):
    pass


def gpu(
    name: str = "NVIDIA H200",
    mib: int | None = 143771,
    capability: tuple[int, int] | None = (9, 0),
    uuid: str = "GPU-0",
    mig: bool | None = False,
    slices: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """One GPU as the library would describe it; None for what it refuses to tell."""
    return {"name": name, "mib": mib, "capability": capability, "uuid": uuid, "mig": mig, "slices": slices}


def fake_pynvml(gpus: Sequence[Mapping[str, Any]] = (), *, broken: str | None = None) -> ModuleType:
    """A module with the part of pynvml that the probe uses. ``broken`` is why nvmlInit fails."""
    module: Any = ModuleType("pynvml")

    def told(handle: Mapping[str, Any], key: str) -> Any:
        if handle.get(key) is None:
            raise NVMLError("Not Supported")
        return handle[key]

    def init() -> None:
        if broken:
            raise NVMLError(broken)

    def slice_at(handle: Mapping[str, Any], index: int) -> Any:
        if index >= len(handle["slices"]):
            raise NVMLError("Not Found")
        return handle["slices"][index]

    module.NVMLError = NVMLError
    module.shut_down = 0
    module.nvmlInit = init
    module.nvmlShutdown = lambda: setattr(module, "shut_down", module.shut_down + 1)
    module.nvmlDeviceGetCount = lambda: len(gpus)
    module.nvmlDeviceGetHandleByIndex = lambda index: gpus[index]
    module.nvmlDeviceGetName = lambda handle: told(handle, "name")
    module.nvmlDeviceGetUUID = lambda handle: told(handle, "uuid")
    module.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=told(handle, "mib") * MIB + 12345)
    module.nvmlDeviceGetCudaComputeCapability = lambda handle: told(handle, "capability")
    module.nvmlDeviceGetMigMode = lambda handle: [int(told(handle, "mig")), 0]
    module.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    module.nvmlDeviceGetMigDeviceHandleByIndex = slice_at
    result: ModuleType = module
    return result


def tool(folder: Path, name: str, *, prints: str = "", fails: str | None = None, hangs: bool = False) -> None:
    """Puts a command ``name`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    answer = folder / f"{name}.out"
    answer.write_text(prints, encoding="utf-8")
    body = f'exec /bin/cat "{answer}"'
    if fails is not None:
        body = f"echo '{fails}' >&2; exit 9"
    if hangs:
        body = "exec /bin/sleep 60"
    script = folder / name
    script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    script.chmod(0o755)


def site(folder: Path, *packages: str, torch: Mapping[str, str | None] | None = None) -> list[str]:
    """A folder of installed packages, empty inside; ``torch`` maps cuda, hip, xpu to what its build states."""
    for name in packages:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    if torch is not None:
        (folder / "torch").mkdir(parents=True, exist_ok=True)
        (folder / "torch" / "__init__.py").touch()
        lines = ["from typing import Optional", "__version__ = '2.8.0'"]
        lines += [f"{key}: Optional[str] = {value!r}" for key, value in torch.items()]
        (folder / "torch" / "version.py").write_text("\n".join(lines), encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    return [str(folder)]


def recorded(name: str) -> str:
    return (DATA / "probe" / name).read_text(encoding="utf-8")


def catalog(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DATA / "catalog" / name).read_text(encoding="utf-8"))
    return content
