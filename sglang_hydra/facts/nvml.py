"""Opens and closes NVIDIA's management library, and reads from it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sglang_hydra.facts.visible_gpus import Slice

MIB = 1 << 20


class NoNvml(Exception):
    """The library is unusable; the text is the reason, as a clause."""


@contextmanager
def nvml_library() -> Iterator[Any]:
    """Yields the started module ``pynvml`` for the block. Raises NoNvml where it cannot be imported or started, and for
    its errors within the block."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an outdated package of the same name warns when imported
            import pynvml
    except ImportError as failure:
        raise NoNvml(f"the package nvidia-ml-py cannot be imported ({failure})") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as failure:
        raise NoNvml(str(failure)) from None
    try:
        yield pynvml
    except pynvml.NVMLError as failure:
        raise NoNvml(str(failure)) from None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def ask_nvml(nvml: Any, name: str, *arguments: object) -> Any:
    """Calls a function of the library. Returns None where an older library lacks it, or where this GPU, driver or
    container does not support it."""
    function = getattr(nvml, name, None)
    try:
        return function(*arguments) if function else None
    except nvml.NVMLError:
        return None


def text_of(value: Any) -> str | None:
    """Decodes a text of the library; older versions return bytes."""
    return value.decode() if isinstance(value, bytes) else value


def slices_of(nvml: Any, handle: Any) -> tuple[Slice, ...]:
    """Returns the MIG slices of a GPU; empty where it is not split."""
    mode = ask_nvml(nvml, "nvmlDeviceGetMigMode", handle)
    most = ask_nvml(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) if mode and mode[0] else 0
    found = []
    for place in range(most or 0):
        piece = ask_nvml(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if piece is not None:  # most places have no slice
            memory = ask_nvml(nvml, "nvmlDeviceGetMemoryInfo", piece)
            uuid = text_of(ask_nvml(nvml, "nvmlDeviceGetUUID", piece))
            found.append(Slice(uuid or "", float(memory.total // MIB) if memory else None))
    return tuple(found)
