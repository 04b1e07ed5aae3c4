"""Sweep folders for reports, written as a runner writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.measure.bench.measures import Sample, measure
from sglang_hydra.measure.sweep.files import write_below
from sglang_hydra.measure.sweep.store import SWEEP_SCHEMA, Store

SERVER = "5e00000000000001"


def samples(seconds: float, count: int = 20, tokens: int = 8) -> list[Sample]:
    """Requests one after the other, each of ``seconds``, a tenth of it to the first token."""
    made = []
    for number in range(count):
        begun = number * seconds
        gap = seconds * 0.9 / (tokens - 1)
        made.append(
            Sample(tokens, begun, None, begun + seconds / 10, begun + seconds, [gap] * (tokens - 1), 64, tokens, 0)
        )
    return made


def result(
    seconds: float, workload: dict[str, Any], state: str = "valid", reasons: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "state": state,
        "reasons": list(reasons),
        "workload": workload,
        "measures": measure(samples(seconds), gpus=2, slo=workload.get("slo")),
    }


def write_sweep(folder: Path, points: Sequence[dict[str, Any]], words: Sequence[str] = ("model=tiny",)) -> Path:
    """``points``: words, workload, and either result or failure, or neither for an open one."""
    store = Store(folder)
    values = {"model_path": "tiny", "tp_size": 2, "random_seed": 1}
    plan = {
        "values": values,
        "seed_drawn": True,
        "engine": {"name": "sglang", "version": "0.5.2"},
        "gpu": {"name": "h100", "memory_mib": 81559},
        "inherited": {},
        "environment": {},
    }
    record: dict[str, Any] = {
        "schema": SWEEP_SCHEMA,
        "words": [*words, "bench.concurrency=1,2"],
        "shared": list(words),
        "points": {},
        "servers": {SERVER: {"gpus": 2, "nodes": 1}},
        "refused": [
            {"id": "MOE003", "count": 3, "words": ["tp_size=3"], "message": "<script>alert(1)</script>", "hint": None}
        ],
    }
    write_below(store.server(SERVER) / "plan.json", json.dumps(plan))
    for number, point in enumerate(points):
        point_id = f"{number:016x}"
        record["points"][point_id] = {
            "server_id": SERVER,
            "workload_id": point.get("workload_id", point_id),
            "repeat": point.get("repeat", 1),
            "words": list(point["words"]),
        }
        if "result" in point:
            store.add_result(point_id, point["result"])
        elif "failure" in point:
            store.add_failure(point_id, {"final": True, **point["failure"]})
    write_below(folder / "sweep.json", json.dumps(record))
    return folder


def grid(speed: float = 1.0, repeats: int = 1) -> list[dict[str, Any]]:
    """Concurrency by output length: more in flight brings more throughput and later tokens; repeats differ by a
    percent."""
    points = []
    for concurrency in (1, 2, 4):
        for output_len in (8, 16):
            workload = {"concurrency": concurrency, "output_len": output_len}
            for repeat in range(1, repeats + 1):
                seconds = speed * 0.1 * output_len / 8 / concurrency**0.5 * (1 + 0.01 * repeat)
                found = result(seconds, workload)
                for name in ("ttft_ms", "itl_ms"):
                    found["measures"][name]["p50"] *= concurrency
                points.append(
                    {
                        "words": [f"bench.concurrency={concurrency}", f"bench.output_len={output_len}"],
                        "workload_id": f"{concurrency}-{output_len}",
                        "repeat": repeat,
                        "result": found,
                    }
                )
    return points
