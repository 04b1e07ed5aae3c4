"""One client point: an idle server, an empty cache, the load, what was measured, and whether it counts."""

from __future__ import annotations

import functools
import os
import platform
import socket
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sglang_hydra.facts.installed import installed
from sglang_hydra.measure.bench.client import Builtin
from sglang_hydra.measure.bench.gpus import GpuWatch, driver_version
from sglang_hydra.measure.bench.load import Load
from sglang_hydra.measure.bench.measures import measure, moved_by_client, moved_by_server_waits
from sglang_hydra.measure.bench.prompts import point_seed
from sglang_hydra.measure.bench.quality import check_quality
from sglang_hydra.measure.bench.server import Server, Watch, empty_cache
from sglang_hydra.measure.bench.validity import Seen, invalid_reasons
from sglang_hydra.text.version import VERSION

VALID, INVALID, FAILED = "valid", "invalid", "failed"


@dataclass(frozen=True)
class PointResult:
    """The result of a point. ``state`` is valid or invalid; ``reasons`` say why it does not count.

    ``seed`` made the prompts. ``details`` are the single requests, for whoever wants to look closer.
    """

    state: str
    reasons: tuple[str, ...]
    seed: int
    cache: str
    cache_hit_rate: float | None
    measures: dict[str, Any]
    client: dict[str, Any]
    server: dict[str, Any] | None
    gpus: list[dict[str, Any]] | None
    quality: dict[str, Any] | None
    waited_s: float
    started: str
    ended: str
    machine: dict[str, Any]
    details: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns everything but the single requests."""
        return {name: value for name, value in self.__dict__.items() if name != "details"}


def run_point(
    server: Server,
    client: Builtin,
    load: Load,
    *,
    point_id: str,
    repeat: int = 0,
) -> PointResult:
    """Measures one point. Raises ServerError when the server does not become idle; failed requests raise nothing."""
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
    measures = measure(run.samples, gpus=server.gpus, slo=load.slo, streamed=load.stream)
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


# The machine that a point was measured on, so that points can be compared.

_ENGINE_PACKAGES = ("sglang", "transformers", "torch", "sgl-kernel", "sglang-kernel", "flashinfer-python")


@functools.cache
def machine(python: str | None) -> dict[str, Any]:
    """Returns the host, its CPU and GPU driver, and the versions of this package and of the engine in ``python``, as
    they were at the first call. What cannot be known is left out."""
    found = installed(python).versions
    packages = {f"engine's {name}": str(found[name]) for name in _ENGINE_PACKAGES if name in found}
    return {**_host(), **packages}


@functools.cache
def _host() -> dict[str, Any]:
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
