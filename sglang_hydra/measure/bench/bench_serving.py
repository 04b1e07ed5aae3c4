"""SGLang's own load generator, run in the engine's environment: what people compare with."""

from __future__ import annotations

import functools
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sglang_hydra.facts.packages import installed
from sglang_hydra.measure.bench.client import Builtin, Run
from sglang_hydra.measure.bench.json_child import JsonChild, last_line
from sglang_hydra.measure.bench.load import Load
from sglang_hydra.measure.bench.measures import Sample
from sglang_hydra.measure.bench.prompts import point_seed
from sglang_hydra.measure.bench.server import Server, read_metrics
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.findings import Finding

# What its file imports beside the standard library (0.5.2 and 0.5.23).
_NEEDS = ("sglang", "aiohttp", "numpy", "requests", "tqdm", "transformers")
_CHILD = Path(__file__).with_name("child_bench_serving.py")
_LONGEST_COUNT = 1_000_000
_HINT = "bench.client=builtin measures the same numbers"

PILOT_S = 2.0
"""Without ``num_prompts`` the warm-up lasts at least this long, to find out how many requests a run of
``min_duration`` needs: bench_serving sends a number of requests and knows no duration."""

MARGIN = 1.2
"""So many more requests are sent than the warm-up calls for: a run is rather too long than too short."""


class BenchServing:
    """``python -m sglang.bench_serving`` with random token ids against ``/generate``.

    It is imported once, by a process that is kept and that forks for every run: importing it takes longer than many
    a measurement.
    """

    name = "bench_serving"

    def __init__(self, server: Server) -> None:
        obstacle = _obstacle(server)
        if obstacle:
            message = f"bench.client=bench_serving: {obstacle}"
            raise ConfigError(Finding("error", "BEN012", message, ("bench.client",), _HINT))
        self._server = server
        self._child: JsonChild | None = None
        self._rate: float | None = None

    @staticmethod
    def suits(server: Server, load: Load) -> bool:
        """Whether it is there, can put this load on the server, and leaves a cold cache to be proven: it does not say
        what came from the cache, so the server's metrics have to."""
        if _obstacle(server) is not None or _unsuited(load) is not None:
            return False
        return read_metrics(server) is not None

    def warm_up(self, load: Load, seed: int) -> None:
        """It warms up by itself, and empties the cache after it. Without ``num_prompts`` our own client finds out how
        many requests a second the server answers."""
        self._rate = None
        if load.num_prompts is not None or load.request_rate is not None:
            return
        pilot_client = Builtin(self._server)
        pilot = replace(load, min_duration=min(PILOT_S, load.min_duration))
        run = pilot_client.run(pilot, seed, fewest=load.concurrency or 1)
        pilot_client.close()
        done = [sample for sample in run.samples if sample.completed]
        if done:
            seconds = max(sample.end for sample in done) - min(sample.sent for sample in run.samples)
            self._rate = len(done) / seconds

    def close(self) -> None:
        """Ends the process that has it imported."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def run(self, load: Load, seed: int) -> Run:
        """Raises ConfigError for a load that it cannot express, MachineError where it does not run."""
        unsuited = _unsuited(load)
        if unsuited:
            message = f"bench.client=bench_serving cannot {unsuited}"
            raise ConfigError(Finding("error", "BEN012", message, ("bench.client",), "bench.client=builtin can"))
        count = _count(load, self._rate)
        run = self._once(load, seed, count)
        duration = run.duration_s or 0.0
        if load.num_prompts is None and 0 < duration < load.min_duration and all(one.completed for one in run.samples):
            more = min(_LONGEST_COUNT, math.ceil(count * MARGIN * load.min_duration / duration))
            run = self._once(load, point_seed(seed, "longer", more), more)
        return run

    def _once(self, load: Load, seed: int, count: int) -> Run:
        if self._child is None:
            self._child = _child(self._server, load.timeout)
        with tempfile.TemporaryDirectory(prefix="sglang-hydra-bench-") as folder:
            results, report, output = (Path(folder) / name for name in ("result.jsonl", "report.json", "output.txt"))
            flags = _flags(self._server, load, seed, count, results)
            answer = self._child.ask({"flags": flags, "output": str(output), "report": str(report)})
            if not results.is_file():
                raise MachineError(_no_result(int(answer["exit"]), output))
            record = json.loads(results.read_text(encoding="utf-8").splitlines()[-1])
            timing = json.loads(report.read_text(encoding="utf-8"))
        duration = float(record["duration"])
        window = (timing["ended"] - duration, timing["ended"])
        return Run(samples_of(record, load), timing["cpu_s"] / duration, duration, window)


def _child(server: Server, timeout_s: float) -> JsonChild:
    """The process that has bench_serving imported. Raises MachineError where it cannot be imported."""
    command = [str(server.python), "-W", "ignore", str(_CHILD), str(timeout_s)]
    child = JsonChild(command, _not_runnable, env=_environment(server), cwd=tempfile.gettempdir())
    child.answer()
    return child


def _not_runnable(exit_code: int, reason: str) -> Finding:
    return Finding("error", "BEN013", f"bench_serving cannot be run (exit {exit_code}): {reason}", hint=_HINT)


class _Row(NamedTuple):
    input_len: int
    output_len: int
    ttft: float
    gaps: list[float]
    error: str | None


def samples_of(record: Mapping[str, Any], load: Load) -> list[Sample]:
    """The requests of a result with ``--output-details``, each on a clock of its own: it does not say when they were
    sent."""
    names = ("input_lens", "output_lens", "ttfts", "itls", "errors")
    return [_sample(_Row(*row), load) for row in zip(*(record[name] for name in names), strict=True)]


def _sample(row: _Row, load: Load) -> Sample:
    # With drawn lengths it does not say which one it asked for: one of these.
    shortest = max(1, int(load.output_len * load.range_ratio))
    asked = min(max(row.output_len, shortest), load.output_len)
    end = row.ttft + math.fsum(row.gaps)
    sample = Sample(asked, 0.0, None, row.ttft, end, list(row.gaps), row.input_len, row.output_len)
    if row.error:
        sample.error = last_line(row.error)
    elif not row.ttft:
        # It counts an answer without text as completed.
        sample.error = "the answer has no content" if row.output_len else "the request failed"
    return sample


def _count(load: Load, rate: float | None) -> int:
    """How many requests are sent: ``smallest_count``, or more where ``min_duration`` takes more."""
    if load.num_prompts is not None:
        return load.num_prompts
    rate = load.request_rate or rate or 0.0
    return min(_LONGEST_COUNT, max(load.smallest_count, math.ceil(rate * load.min_duration * MARGIN)))


def _flags(server: Server, load: Load, seed: int, count: int, results: Path) -> list[str]:
    """Flags that 0.5.2 and 0.5.23 both have. No secret is among them."""
    flags = {
        "--backend": "sglang",
        "--base-url": server.url,
        "--model": server.model_path,
        "--tokenizer": server.model_path,
        "--dataset-name": "random-ids",
        "--random-input-len": load.input_len,
        "--random-output-len": load.output_len,
        "--random-range-ratio": load.range_ratio,
        "--num-prompts": count,
        "--request-rate": load.request_rate or "inf",
        "--seed": seed % (1 << 31),
        "--warmup-requests": load.warmup,
        "--output-file": results,
    }
    if load.concurrency:
        flags["--max-concurrency"] = load.concurrency
    words = [str(word) for flag in flags.items() for word in flag]
    words += ["--tokenize-prompt", "--output-details", "--disable-tqdm", "--flush-cache"]
    return words if load.stream else [*words, "--disable-stream"]


def _environment(server: Server) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "API_KEY")}
    key = {"OPENAI_API_KEY": server.api_key} if server.api_key else {}
    return {**kept, **key, "NO_PROXY": "*", "no_proxy": "*"}


def cannot_measure(engine: str, python: str | None, load: Load) -> str | None:
    """Why it cannot put this load on a server of this engine, whose interpreter is ``python``; None where it can."""
    unsuited = _unsuited(load)
    return _absent(engine, python) or (f"it cannot {unsuited}" if unsuited else None)


def _obstacle(server: Server) -> str | None:
    return _absent(server.engine, server.python)


def _absent(engine: str, python: str | None) -> str | None:
    return f"it is part of SGLang, and {engine} runs" if engine != "sglang" else _lack(python)


@functools.cache
def _lack(python: str | None) -> str | None:
    """Looked up once: asking another interpreter takes as long as a short request."""
    packages = installed(python)
    lacking = [name for name in _NEEDS if name not in packages.versions]
    where = f"the environment of {python}" if python else "this environment"
    return packages.problem or (f"{where} lacks {', '.join(lacking)}" if lacking else None)


def _unsuited(load: Load) -> str | None:
    """What of a load it cannot express, as what follows "cannot"."""
    if load.trace is not None:
        return "replay bench.trace"
    if load.dataset != "random":
        return f"send bench.dataset={load.dataset} with lengths of our choosing"
    if load.cache == "warm":
        return "keep the cache warm: it empties it after its warm-up"
    if load.output_len * load.range_ratio < 1:
        return f"draw lengths from bench.range_ratio={load.range_ratio:g} of {load.output_len}: 0.5.2 asks for none"
    return None


def _no_result(code: int, output: Path) -> Finding:
    text = output.read_text(encoding="utf-8", errors="replace") if output.is_file() else ""
    return Finding("error", "BEN013", f"bench_serving left no result (exit {code}): {last_line(text)}", hint=_HINT)
