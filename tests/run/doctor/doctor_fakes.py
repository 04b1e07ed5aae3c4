"""Stand-ins for what is asked: NVIDIA's library and the hub's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

MIB = 1 << 20


class NVMLError(Exception):
    pass


CARD: dict[str, Any] = {
    "name": b"NVIDIA H200",
    "uuid": "GPU-0",
    "total": 143771,
    "used": 4,
    "capability": (9, 0),
    "mig": [0, 0],
    "slices": [],
    "processes": [],
}
"""One card as the library describes it; None for what it refuses to tell. ``lost`` is why it has no handle."""


def card(**changes: Any) -> dict[str, Any]:
    return {**CARD, **changes}


def process(pid: int, mib: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib * MIB)


def fake_nvml(
    cards: Sequence[Mapping[str, Any]],
    *,
    names: Mapping[int, str] | None = None,
    driver: str | None = "570.124.06",
    cuda: int | None = 12080,
    broken: str | None = None,
    without: Sequence[str] = (),
) -> ModuleType:
    """A pynvml with these cards. ``names`` maps process ids to command lines, ``broken`` is why it cannot be started,
    ``without`` lists the functions that its release lacks."""
    module: Any = ModuleType("pynvml")

    def told(value: Any) -> Any:
        if value is None:
            raise NVMLError("Not Supported")
        return value

    def key(name: str) -> Any:
        return lambda handle, *rest: told(handle.get(name))

    def init() -> None:
        if broken:
            raise NVMLError(broken)

    def handle_of(index: int) -> Mapping[str, Any]:
        if cards[index].get("lost"):
            raise NVMLError(cards[index]["lost"])
        return cards[index]

    def memory(handle: Mapping[str, Any]) -> Any:
        total, used = told(handle["total"]) * MIB, handle.get("used", 0) * MIB
        return SimpleNamespace(total=total, used=used, free=total - used)

    def slice_at(handle: Mapping[str, Any], place: int) -> Any:
        return told(handle["slices"][place] if place < len(handle["slices"]) else None)

    functions: dict[str, Any] = {
        "nvmlInit": init,
        "nvmlShutdown": lambda: setattr(module, "shut_down", True),
        "nvmlSystemGetDriverVersion": lambda: told(driver),
        "nvmlSystemGetCudaDriverVersion_v2": lambda: told(cuda),
        "nvmlSystemGetProcessName": lambda pid: told((names or {}).get(pid)),
        "nvmlDeviceGetCount": lambda: len(cards),
        "nvmlDeviceGetHandleByIndex": handle_of,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetName": key("name"),
        "nvmlDeviceGetUUID": key("uuid"),
        "nvmlDeviceGetCudaComputeCapability": key("capability"),
        "nvmlDeviceGetMigMode": key("mig"),
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": slice_at,
        "nvmlDeviceGetComputeRunningProcesses": key("processes"),
    }
    module.NVMLError = NVMLError
    for name, function in functions.items():
        if name not in without:
            setattr(module, name, function)
    result: ModuleType = module
    return result


def fake_hub(answer: Exception | Sequence[tuple[str, int | None]]) -> dict[str, ModuleType]:
    """A huggingface_hub that fails so, or that lists these files with their sizes; ``asked`` collects its calls."""
    hub: Any = ModuleType("huggingface_hub")
    errors: Any = ModuleType("huggingface_hub.errors")
    for name in ("GatedRepoError", "RepositoryNotFoundError", "HFValidationError", "EntryNotFoundError"):
        setattr(errors, name, type(name, (Exception,), {}))
    hub.asked = []

    def metadata(url: str, **options: Any) -> None:
        hub.asked.append((url, options))
        if isinstance(answer, Exception):
            kind = getattr(errors, type(answer).__name__, type(answer))
            raise kind(*answer.args)

    files = () if isinstance(answer, Exception) else answer
    info = SimpleNamespace(siblings=[SimpleNamespace(rfilename=name, size=size) for name, size in files])
    hub.errors = errors
    hub.hf_hub_url = lambda repository, name: f"https://hub.invalid/{repository}/{name}"
    hub.get_hf_file_metadata = metadata
    hub.HfApi = lambda: SimpleNamespace(model_info=lambda *names, **options: info)
    return {"huggingface_hub": hub, "huggingface_hub.errors": errors}
