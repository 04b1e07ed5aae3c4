"""Measures one client point: waits for an idle server, empties the cache, sends the load, judges the result."""

from __future__ import annotations

import functools
import os
import platform
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

from sglang_hydra.facts.installed import installed
from sglang_hydra.facts.nvml import MIB, NoNvml, ask_nvml, nvml_library
from sglang_hydra.measure.bench.checks import check_quality
from sglang_hydra.measure.bench.client import Builtin
from sglang_hydra.measure.bench.load import Load
from sglang_hydra.measure.bench.measures import measure, moved_by_client, moved_by_server_waits
from sglang_hydra.measure.bench.prompts import point_seed
from sglang_hydra.measure.bench.server import Endpoint, Watch, Window, empty_cache, inside
from sglang_hydra.measure.bench.validity import Seen, invalid_reasons
from sglang_hydra.measure.periodic import Repeating
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.version import VERSION

VALID, INVALID, FAILED = "valid", "invalid", "failed"


@dataclass(frozen=True)
class PointResult:
    """The result of a point. ``state`` is valid or invalid; ``reasons`` say why it is invalid.

    ``seed`` made the prompts. ``details`` are the single requests, for closer analysis."""

    state: str
    reasons: tuple[str, ...]
    seed: int
    cache: str
    cache_hit_rate: float | None
    measures: JsonDict
    client: JsonDict
    server: JsonDict | None
    gpus: list[JsonDict] | None
    quality: JsonDict | None
    waited_s: float
    started: str
    ended: str
    machine: JsonDict
    details: tuple[JsonDict, ...] = ()

    def to_json(self) -> JsonDict:
        """Returns everything except the single requests."""
        return {name: value for name, value in self.__dict__.items() if name != "details"}


def run_point(server: Endpoint, client: Builtin, load: Load, *, point_id: str, repeat: int = 0) -> PointResult:
    """Measures one point. Raises ServerError if the server does not become idle; failed requests raise nothing."""
    seed = point_seed(load.seed, point_id, repeat)
    started = _now()
    if load.warmup:
        client.warm_up(load, point_seed(seed, "warm-up", 0))
    waited = empty_cache(server, load.timeout) if server.flushes else 0.0
    if load.cache == "warm" and server.flushes:
        client.run(load, seed)
    with GpuWatch(server.gpu_ids) as gpus, Watch(server) as watch:
        began = time.monotonic()
        run = client.run(load, seed)
        wall_s = time.monotonic() - began
        gpus.window = watch.window = run.window
    measures = measure(run.samples, gpus=server.gpus, slo=asdict(load.slo), streamed=load.stream)
    quality = check_quality(server, load.quality) if load.quality else None
    hit_rate = measures["cache_hit_rate"]
    if hit_rate is None and watch.record is not None:
        hit_rate = watch.record["cache_hit_rate"]
    latency_from = "sent" if measures["from_sent"] is None else "due"
    moved, server_moved = moved_by_client(run.samples), moved_by_server_waits(run.samples)
    seen = Seen(load, run.samples, hit_rate, watch.retracted, gpus.throttled, quality, moved, server_moved)
    reasons = invalid_reasons(seen)
    return PointResult(
        state=INVALID if reasons else VALID,
        reasons=tuple(reasons),
        seed=seed,
        cache=load.cache,
        cache_hit_rate=hit_rate,
        measures=measures,
        client={
            "name": client.name,
            "cpu": run.client_cpu,
            "wall_s": wall_s,
            "latency_from": latency_from,
            **run.own,
            "moved": moved,
            "server_moved": server_moved,
        },
        server=watch.record,
        gpus=gpus.record,
        quality=quality,
        waited_s=waited,
        started=started,
        ended=_now(),
        machine=machine(server.python),
        details=tuple({**sample.__dict__, "gaps": list(sample.gaps)} for sample in run.samples),
    )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


# Describes the machine of a measurement, so that points can be compared.

_ENGINE_PACKAGES = ("sglang", "transformers", "torch", "sgl-kernel", "sglang-kernel", "flashinfer-python")


@functools.cache
def machine(python: str | None) -> JsonDict:
    """Returns the host, its CPU and GPU driver, and the versions of this package and of the engine in ``python``, as of
    the first call. Omits unknown entries."""
    found = installed(python).versions
    packages = {f"engine's {name}": str(found[name]) for name in _ENGINE_PACKAGES if name in found}
    return {**_host(), **packages}


@functools.cache
def _host() -> dict[str, object]:
    known = {
        "host": socket.gethostname(),
        "operating system": platform.platform(),
        "cpu": f"{_cpu() or platform.machine()}, {os.cpu_count()} cores",
        "gpu driver": driver_version(),
        "python": platform.python_version(),
        "sglang-hydra": VERSION,
    }
    return {name: value for name, value in known.items() if value is not None}


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


_SAMPLE_S = 0.5

# The problem bits of NVML's nvmlClocksEventReasons. The power cap is none: a GPU reaches it normally at full load.
_REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class Sight(NamedTuple):
    """One sample of a GPU: watts, MHz, MiB, and the reasons for lowered clocks. None for an unreported value."""

    power_w: float | None
    sm_clock_mhz: float | None
    memory_used_mib: float | None
    reasons: int


class GpuWatch:
    """Samples the given GPUs twice per second. ``record`` is None without NVML.

    It holds watts, MHz and MiB: mean and maximum of each GPU over all samples, or over those inside ``window`` if that
    is set before the end. ``throttled`` lists the reasons for lowered clocks."""

    def __init__(self, gpu_ids: Sequence[int]) -> None:
        self._ids = tuple(gpu_ids)
        self._opened = ExitStack()
        self._sampling: Repeating | None = None
        self._samples: dict[int, list[tuple[float, Sight]]] = {index: [] for index in gpu_ids}
        self.window: Window | None = None
        self.throttled: tuple[str, ...] = ()
        self.record: list[JsonDict] | None = None

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
        found = reduce(or_, (sample.reasons for samples in seen.values() for sample in samples), 0)
        self.throttled = tuple(words for bit, words in _REASONS.items() if found & bit)

    def _look(self, nvml: Any) -> None:
        for index in self._ids:
            with suppress(nvml.NVMLError):
                sight = _sample(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
                self._samples[index].append((time.monotonic(), sight))


def driver_version() -> str | None:
    """Returns the version of NVIDIA's driver, or None."""
    with suppress(NoNvml), nvml_library() as nvml:
        return str(nvml.nvmlSystemGetDriverVersion())
    return None


def _sample(nvml: Any, handle: Any) -> Sight:
    """Samples the values that a GPU reports; some report only a part."""
    watts = ask_nvml(nvml, "nvmlDeviceGetPowerUsage", handle)
    clock = ask_nvml(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
    memory = ask_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    reasons = ask_nvml(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return Sight(watts and watts / 1000, clock, memory and memory.used / MIB, int(reasons or 0))


def _summary(index: int, samples: Sequence[Sight]) -> JsonDict:
    seen = {name: [getattr(sample, name) for sample in samples] for name in Sight._fields[:3]}
    known = {name: [value for value in values if value is not None] for name, values in seen.items()}
    spreads = {name: {"mean": sum(of) / len(of), "max": max(of)} for name, of in known.items() if of}
    return {"index": index, **spreads}
