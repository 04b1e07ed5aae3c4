"""Queries a running server during a benchmark: waits until it is idle, empties its prefix cache, and reads its
counters."""

from __future__ import annotations

import math
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx

from sglang_hydra.measure.periodic import Repeating
from sglang_hydra.run.launch.log import LogTail
from sglang_hydra.text.errors import ServerError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject

Seen = TypeVar("Seen")

_POLL_S = 0.2
_ASK_S = 30.0
_SAMPLE_S = 1.0
_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(?P<value>[^\s}]+)")

# Every release logs these for each prefill, and for a retraction.
_BATCH = "Prefill batch"
_RETRACTED = re.compile(r"#retracted_reqs: (\d+)")

Window = tuple[float, float]
"""The begin and end of a load, on ``time.monotonic``."""

# The server prefixes them with sglang:. 0.5.2 and 0.5.23 count retractions under different names.
COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "cached_tokens_total", "num_aborted_requests_total")
RETRACTIONS = ("total_retracted_reqs", "num_retracted_requests_total")
# Both releases have this gauge; 0.5.23 publishes the counter only after the first retraction.
_NOW_RETRACTED = "num_retracted_reqs"
GAUGES = ("num_running_reqs", "num_queue_reqs", "token_usage", "gen_throughput", "cache_hit_rate")
# Averaged over data parallel ranks; every other metric is summed.
_SHARES = ("token_usage", "cache_hit_rate")


@dataclass(frozen=True)
class Endpoint:
    """A server that a point runs against.

    ``flushes``: it has a prefix cache that can be emptied. ``gpus`` is its number of GPUs (None: it uses none),
    ``gpu_ids`` their numbers on this machine. ``python`` is the interpreter that runs it, ``log`` the file with its
    output. ``alive`` returns whether it still runs, as far as its starter knows."""

    url: str
    model: str
    engine: str
    model_path: str
    vocab_size: int
    flushes: bool = False
    python: str | None = None
    gpus: int | None = None
    gpu_ids: tuple[int, ...] = ()
    log: Path | None = None
    api_key: str | None = field(default=None, repr=False)
    alive: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def ask(
        self, method: str, path: str, body: JsonObject | None = None, timeout_s: float = _ASK_S
    ) -> httpx.Response | None:
        """Returns the answer to a request with ``body`` as JSON; None without an answer."""
        try:
            # trust_env: a proxy of the environment would be between us and the server.
            with httpx.Client(
                timeout=timeout_s, trust_env=False, headers=self.headers(), verify=_trusted(self.url)
            ) as client:
                return client.request(method, self.url + path, json=body)
        except (httpx.HTTPError, OSError):
            return None


def authorities(url: str) -> str | None:
    """Returns the file of trusted certificates, in addition to ``SSL_CERT_FILE``; None for plain HTTP. Loading them
    takes 15 ms of a core per client."""
    if not url.startswith("https:"):
        return None
    import certifi

    return certifi.where()


def _trusted(url: str) -> ssl.SSLContext | bool:
    file = authorities(url)
    if file is None:
        return False
    context = ssl.create_default_context()
    context.load_verify_locations(file)
    return context


def empty_cache(server: Endpoint, timeout_s: float) -> float:
    """Waits until the server is idle and its prefix cache is empty. Returns the seconds that it took.

    SGLang refuses to empty the cache while requests run (400), so its consent means both. Raises ServerError if it does
    not agree within ``timeout_s``, or has ended."""
    began = time.monotonic()
    reply = "nothing"
    while time.monotonic() - began <= timeout_s:
        answer = server.ask("POST", "/flush_cache")
        if answer is not None and answer.status_code == 200:
            return time.monotonic() - began
        reply = f"HTTP {answer.status_code}" if answer is not None else "no answer"
        if not server.alive():
            raise ServerError(Finding("error", "BEN010", f"{server.url} has ended before its cache was emptied"))
        threading.Event().wait(_POLL_S)
    message = f"{server.url} did not empty its prefix cache within {timeout_s:g} s ({reply}): requests still run in it"
    hint = "is someone else using this server? bench.timeout=1200 waits longer"
    raise ServerError(Finding("error", "BEN010", message, ("bench.timeout",), hint))


def read_metrics(server: Endpoint) -> dict[str, float] | None:
    """Returns the server's metrics, combined over labels; None if it publishes none (``enable_metrics`` is off)."""
    answer = server.ask("GET", "/metrics/") if server.engine == "sglang" else None
    if answer is not None and answer.status_code in (301, 302, 307, 308, 404):
        answer = server.ask("GET", "/metrics")
    return parse_metrics(answer.text) if answer is not None and answer.status_code == 200 else None


def parse_metrics(content: str) -> dict[str, float]:
    """Returns the metrics of a Prometheus page by name without ``sglang:``. Over the labels, averages shares and sums
    all others. Skips values that are not finite numbers."""
    found: dict[str, list[float]] = {}
    for line in content.splitlines():
        match = _LINE.match(line.strip()) if not line.startswith("#") else None
        try:
            value = float(match["value"]) if match is not None else math.nan
        except ValueError:
            continue
        if match is not None and math.isfinite(value):
            found.setdefault(match["name"].removeprefix("sglang:"), []).append(value)
    return {name: sum(values) / (len(values) if name in _SHARES else 1) for name, values in found.items()}


class Watch:
    """Reads the server's gauges once per second while a point runs, and its counters before and after. With a
    ``window``, set before the end, only the gauges inside it count.

        with Watch(server) as watch: ...
        watch.record"""

    def __init__(self, server: Endpoint) -> None:
        self._server = server
        self._sampling = Repeating(self._look, _SAMPLE_S, "server-metrics")
        self._seen: list[tuple[float, Mapping[str, float]]] = []
        self._before: Mapping[str, float] | None = None
        self._log = LogTail(server.log or Path(os.devnull))
        self.window: Window | None = None
        self.record: JsonDict | None = None
        self.retracted: int | None = None

    def __enter__(self) -> Watch:
        self._log.last(0)
        self._before = read_metrics(self._server)
        if self._before is not None:
            self._sampling.start()
        return self

    def __exit__(self, *reason: object) -> None:
        logged = logged_retractions(self._log.rest())
        self.retracted = logged
        if self._before is None:
            return
        self._sampling.end()
        after = read_metrics(self._server)
        if after is not None:
            self.record = _summary(self._before, after, inside(self._seen, self.window) or [after])
            if logged is None:
                self.retracted = self.record["retracted"]
            self.record["retracted"] = self.retracted

    def _look(self) -> None:
        seen = read_metrics(self._server)
        if seen is not None:
            self._seen.append((time.monotonic(), seen))


def logged_retractions(lines: Iterable[str]) -> int | None:
    """Counts the retracted requests in these lines of a log; None if the log reports no batches, because it then omits
    retractions too.

    The server's metrics are late: 0.5.2 updates them only at every ``decode_log_interval``-th step, so the last
    retractions of a point would count in the next one."""
    found = [_BATCH in line or _RETRACTED.search(line) for line in lines]
    counts = [0 if each is True else int(each[1]) for each in found if each]
    return sum(counts) if counts else None


def inside(seen: Sequence[tuple[float, Seen]], window: Window | None) -> list[Seen]:
    """Returns the samples within the window; all samples if none is inside."""
    found = [item for at, item in seen if window is None or window[0] <= at <= window[1]]
    return found or [item for _, item in seen]


def _summary(before: Mapping[str, float], after: Mapping[str, float], seen: Iterable[Mapping[str, float]]) -> JsonDict:
    """Returns the increase of the counters, and mean and maximum of every gauge."""
    counted = {name: after[name] - before.get(name, 0.0) for name in COUNTERS if name in after}
    retracted = next((after[name] - before.get(name, 0.0) for name in RETRACTIONS if name in after), None)
    if retracted is None and _NOW_RETRACTED in after:
        retracted = 0.0
    prompts, cached = counted.get("prompt_tokens_total"), counted.get("cached_tokens_total", 0.0)
    seen = list(seen)
    values = {name: [item[name] for item in seen if name in item] for name in GAUGES}
    return {
        "counted": counted,
        "gauges": {name: {"mean": sum(of) / len(of), "max": max(of)} for name, of in values.items() if of},
        "retracted": None if retracted is None else int(retracted),
        "cache_hit_rate": cached / prompts if prompts else None,
    }
