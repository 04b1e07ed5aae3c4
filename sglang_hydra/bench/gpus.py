"""Power, clocks and memory of the GPUs while a point runs, by NVIDIA's library where there is one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_SAMPLE_S = 0.5

# NVML's nvmlClocksEventReasons bits that say that something is wrong. Reaching the power cap under load is not: it is
# how a GPU works at full load.
_REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class GpuWatch:
    """Samples the given GPUs twice a second. ``record`` is None where NVML is not to be had.

    Watts, MHz and MiB: the mean and the largest over all samples of each GPU.
    """

    def __init__(self, gpu_ids: Sequence[int]) -> None:
        self._ids = tuple(gpu_ids)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples: dict[int, list[tuple[float, float, float, int]]] = {index: [] for index in gpu_ids}
        self.throttled: tuple[str, ...] = ()
        self.record: list[dict[str, Any]] | None = None

    def __enter__(self) -> GpuWatch:
        nvml = _library() if self._ids else None
        if nvml is not None:
            self._thread = threading.Thread(target=self._look, args=(nvml,), name="gpu-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._over.set()
        if self._thread is None:
            return
        self._thread.join()
        self.record = [_summary(index, samples) for index, samples in self._samples.items() if samples]
        seen = 0
        for samples in self._samples.values():
            for sample in samples:
                seen |= sample[3]
        self.throttled = tuple(words for bit, words in _REASONS.items() if seen & bit)

    def _look(self, nvml: Any) -> None:
        try:
            while True:
                for index in self._ids:
                    with suppress(nvml.NVMLError):
                        self._samples[index].append(_sample(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
                if self._over.wait(_SAMPLE_S):
                    return
        finally:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def _library() -> Any:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _sample(nvml: Any, handle: Any) -> tuple[float, float, float, int]:
    watts = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    used = nvml.nvmlDeviceGetMemoryInfo(handle).used / (1 << 20)
    return watts, clock, used, int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _summary(index: int, samples: Sequence[tuple[float, float, float, int]]) -> dict[str, Any]:
    names = ("power_w", "sm_clock_mhz", "memory_used_mib")
    record: dict[str, Any] = {"index": index}
    for name, values in zip(names, zip(*(sample[:3] for sample in samples), strict=True), strict=True):
        record[name] = {"mean": sum(values) / len(values), "max": max(values)}
    return record
