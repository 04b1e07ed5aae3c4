"""Our own client: what measures the embedded engine, and every load that bench_serving cannot express."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sglang_hydra.measure.bench.client import LoadProcesses, Run, run_load
from sglang_hydra.measure.bench.load import Load
from sglang_hydra.measure.bench.prompts import Prompt, make_prompts, point_seed
from sglang_hydra.measure.bench.server import Server
from sglang_hydra.measure.bench.text_prompts import TextMaker
from sglang_hydra.measure.bench.wires import Completions, Generate, Target


class Builtin:
    """It keeps what makes texts, and the processes of the load, between points."""

    name = "builtin"

    def __init__(self, server: Server) -> None:
        wire = Generate() if server.engine == "sglang" else Completions()
        self._target = Target(server.url, server.model, wire, server.api_key)
        self._server = server
        self._processes = LoadProcesses()
        self._texts = None if wire.takes_ids else TextMaker(server.python, server.model_path)

    def run(self, load: Load, seed: int, fewest: int | None = None) -> Run:
        """The load; at least ``fewest`` requests instead of ``load.smallest_count``."""
        return run_load(self._target, load, self._source(load, seed), seed, fewest, self._processes)

    def warm_up(self, load: Load, seed: int) -> None:
        few = replace(load, num_prompts=load.warmup, concurrency=load.warmup, request_rate=None)
        run_load(self._target, few, self._source(few, seed), seed, processes=self._processes)

    def close(self) -> None:
        self._processes.close()
        if self._texts is not None:
            self._texts.close()

    def _source(self, load: Load, seed: int) -> Callable[[int], Sequence[Prompt]]:
        """Gives the next prompts: each call goes on where the one before ended."""
        batch = given = 0

        def more(count: int) -> Sequence[Prompt]:
            nonlocal batch, given
            batch += 1
            part = seed if batch == 1 else point_seed(seed, "batch", batch)
            prompts = make_prompts(load, count, part, self._server.vocab_size, shared=seed, start=given)
            given += count
            if self._texts is None or load.dataset == "file":
                return prompts
            return self._texts.texts(prompts, part)

        return more
