"""Power, clocks and memory of the GPUs while a point runs, by NVIDIA's library where there is one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from sglang_hydra.facts.nvml import MIB, NoNvml, ask_nvml, nvml_library
from sglang_hydra.measure.bench.server import Window, inside
from sglang_hydra.measure.periodic import Repeating

_SAMPLE_S = 0.5

# NVML's nvmlClocksEventReasons bits that say that something is wrong. Reaching the power cap under load is not: it is
# how a GPU works at full load.
_REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class Sight(NamedTuple):
    """One look at a GPU: watts, MHz, MiB, and why its clocks are lower than they could be. None: it does not say."""

    power_w: float | None
    sm_clock_mhz: float | None
    memory_used_mib: float | None
    reasons: int


class GpuWatch:
    """Samples the given GPUs twice a second. ``record`` is None where NVML is not to be had.

    Watts, MHz and MiB: the mean and the largest over all samples of each GPU, of those inside ``window`` where one is
    set before it ends. ``throttled`` says why the clocks were lowered, if they were.
    """

    def __init__(self, gpu_ids: Sequence[int]) -> None:
        self._ids = tuple(gpu_ids)
        self._opened = ExitStack()
        self._sampling: Repeating | None = None
        self._samples: dict[int, list[tuple[float, Sight]]] = {index: [] for index in gpu_ids}
        self.window: Window | None = None
        self.throttled: tuple[str, ...] = ()
        self.record: list[dict[str, Any]] | None = None

    def __enter__(self) -> GpuWatch:
        with suppress(NoNvml):
            if self._ids:
                nvml = self._opened.enter_context(nvml_library())
                self._sampling = Repeating(partial(self._look, nvml), _SAMPLE_S, "gpu-watch", at_once=True)
                self._sampling.start()
        return self

    def __exit__(self, *reason: object) -> None:
        if self._sampling is None:
            return
        self._sampling.end()
        self._opened.close()
        seen = {index: inside(samples, self.window) for index, samples in self._samples.items() if samples}
        self.record = [_summary(index, samples) for index, samples in seen.items()]
        found = 0
        for samples in seen.values():
            for sample in samples:
                found |= sample.reasons
        self.throttled = tuple(words for bit, words in _REASONS.items() if found & bit)

    def _look(self, nvml: Any) -> None:
        for index in self._ids:
            with suppress(nvml.NVMLError):
                sight = _sample(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
                self._samples[index].append((time.monotonic(), sight))


def driver_version() -> str | None:
    """Returns the version of NVIDIA's driver; None where there is none."""
    with suppress(NoNvml), nvml_library() as nvml:
        return str(nvml.nvmlSystemGetDriverVersion())
    return None


def _sample(nvml: Any, handle: Any) -> Sight:
    """Samples what the GPU reports; some report only a part."""
    watts = ask_nvml(nvml, "nvmlDeviceGetPowerUsage", handle)
    clock = ask_nvml(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
    memory = ask_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    reasons = ask_nvml(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return Sight(watts and watts / 1000, clock, memory and memory.used / MIB, int(reasons or 0))


def _summary(index: int, samples: Sequence[Sight]) -> dict[str, Any]:
    record: dict[str, Any] = {"index": index}
    for name in Sight._fields[:3]:
        values = [value for sample in samples if (value := getattr(sample, name)) is not None]
        if values:
            record[name] = {"mean": sum(values) / len(values), "max": max(values)}
    return record
