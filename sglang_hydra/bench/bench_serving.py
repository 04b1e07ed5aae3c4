"""SGLang's own load generator, run in the engine's environment: what people compare with."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sglang_hydra.bench.client import Run
from sglang_hydra.bench.measures import Sample
from sglang_hydra.bench.server import Server
from sglang_hydra.bench.settings import Load
from sglang_hydra.engines.packages import installed
from sglang_hydra.errors import ConfigError, MachineError
from sglang_hydra.findings import Finding

# What its file imports beside the standard library (0.5.2 and 0.5.23).
_NEEDS = ("sglang", "aiohttp", "numpy", "requests", "tqdm", "transformers")
_CHILD = Path(__file__).with_name("child_bench_serving.py")


class BenchServing:
    """``python -m sglang.bench_serving`` with random token ids against ``/generate``."""

    name = "bench_serving"

    def __init__(self, server: Server) -> None:
        obstacle = _obstacle(server)
        if obstacle:
            hint = "bench.client=builtin measures the same numbers"
            raise ConfigError(
                Finding("error", "BEN012", f"bench.client=bench_serving: {obstacle}", ("bench.client",), hint)
            )
        self._server = server

    @staticmethod
    def suits(server: Server, load: Load) -> bool:
        """Whether it is there and can put this load on the server."""
        return _obstacle(server) is None and _unsuited(load) is None

    def warm_up(self, load: Load, seed: int) -> None:
        """It warms up by itself, and empties the cache after it."""

    def close(self) -> None:
        """It keeps nothing."""

    def run(self, load: Load, seed: int, on_progress: Callable[[int], None] | None = None) -> Run:
        """Raises ConfigError for a load that it cannot express, MachineError where it does not run."""
        unsuited = _unsuited(load)
        if unsuited:
            message = f"bench.client=bench_serving cannot {unsuited}"
            raise ConfigError(Finding("error", "BEN012", message, ("bench.client",), "bench.client=builtin can"))
        with tempfile.TemporaryDirectory(prefix="sglang-hydra-bench-") as folder:
            results, used = Path(folder) / "result.jsonl", Path(folder) / "cpu.json"
            ended = subprocess.run(
                [str(self._server.python), str(_CHILD), str(used), *self._flags(load, seed, results)],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                cwd=folder,
            )
            if not results.is_file():
                raise MachineError(_silent(ended))
            record = json.loads(results.read_text(encoding="utf-8").splitlines()[-1])
            share = json.loads(used.read_text(encoding="utf-8"))["share"]
        return Run(_samples(record, load), share, record["duration"])

    def _flags(self, load: Load, seed: int, results: Path) -> list[str]:
        flags = {
            "--backend": "sglang",
            "--base-url": self._server.url,
            "--model": self._server.model_path,
            "--tokenizer": self._server.model_path,
            "--dataset-name": "random-ids",
            "--random-input-len": load.input_len,
            "--random-output-len": load.output_len,
            "--random-range-ratio": load.range_ratio,
            "--num-prompts": load.smallest_count,
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

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "API_KEY")}
        key = {"OPENAI_API_KEY": self._server.api_key} if self._server.api_key else {}
        return {**kept, **key, "NO_PROXY": "*", "no_proxy": "*"}


def _obstacle(server: Server) -> str | None:
    if server.engine != "sglang":
        return f"it is part of SGLang, and {server.engine} runs"
    packages = installed(server.python)
    lacking = [name for name in _NEEDS if name not in packages.versions]
    return f"the environment of {server.python} lacks {', '.join(lacking)}" if lacking else packages.problem


def _unsuited(load: Load) -> str | None:
    """What of a load it cannot express, as what follows "cannot"."""
    if load.dataset != "random":
        return f"send bench.dataset={load.dataset} with lengths of our choosing"
    if load.cache == "warm":
        return "keep the cache warm: it empties it after its warm-up"
    if load.num_prompts is None and load.min_duration > 0:
        return "go on until bench.min_duration is over (bench.num_prompts=N sends N requests)"
    return None


def _samples(record: Mapping[str, Any], load: Load) -> list[Sample]:
    """The requests, each on a clock of its own: it does not say when they were sent."""
    samples = []
    rows = zip(
        record["input_lens"], record["output_lens"], record["ttfts"], record["itls"], record["errors"], strict=True
    )
    for input_len, output_len, ttft, gaps, error in rows:
        asked = load.output_len if load.range_ratio == 1 else output_len
        sample = Sample(asked, 0.0, None, ttft, ttft + math.fsum(gaps), list(gaps), input_len, output_len)
        sample.error = error or None
        samples.append(sample)
    return samples


def _silent(ended: subprocess.CompletedProcess[str]) -> Finding:
    lines = [line.strip() for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
    said = lines[-1][:500] if lines else "it said nothing"
    hint = "bench.client=builtin measures the same numbers"
    return Finding("error", "BEN013", f"bench_serving left no result (exit {ended.returncode}): {said}", hint=hint)
