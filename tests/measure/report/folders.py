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
    """``points``: words, workload, and either result or failure, or neither for an open one; ``server`` is the id of
    another server, ``values`` what its plan holds otherwise."""
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
        "servers": {
            each: {"gpus": 2, "nodes": 1} for each in {SERVER, *(p["server"] for p in points if "server" in p)}
        },
        "refused": [
            {"id": "MOE003", "count": 3, "words": ["tp_size=3"], "message": "<script>alert(1)</script>", "hint": None}
        ],
    }
    write_below(store.server(SERVER) / "plan.json", json.dumps(plan))
    for number, point in enumerate(points):
        point_id = f"{number:016x}"
        if "server" in point:
            other = {**plan, "values": {**values, **point["values"]}}
            write_below(store.server(point["server"]) / "plan.json", json.dumps(other))
        record["points"][point_id] = {
            "server_id": point.get("server", SERVER),
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


def three_servers(speed: float = 1.0, repeats: int = 3, slo: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """tp_size=1,2,4 at six concurrencies: more GPUs are faster for one user and bring less for each GPU."""
    points = []
    for gpus in (1, 2, 4):
        for concurrency in (1, 2, 4, 8, 16, 32):
            workload: dict[str, Any] = {"concurrency": concurrency, "input_len": 1024, "output_len": 128}
            for repeat in range(1, repeats + 1):
                itl = speed * (4 + 8 / gpus + 0.35 * concurrency / gpus) * (1 + 0.02 * (repeat - 2))
                ttft = speed * (30 + 20 * concurrency / gpus) * (1 + 0.04 * (repeat - 2))
                found = result(0.1, {**workload, "slo": slo} if slo else workload)
                of_gpu = 1000 * concurrency / (itl + ttft / 128) / gpus
                measures = {"output_throughput_per_gpu": of_gpu, "output_throughput": of_gpu * gpus}
                found["measures"] |= {**measures, "interactivity": 1000 / itl}
                for name, value in (("ttft_ms", ttft), ("itl_ms", itl), ("tpot_ms", itl)):
                    found["measures"][name] |= {"p50": value, "p90": 1.2 * value, "p99": 1.5 * value, "mean": value}
                points.append(
                    {
                        "words": [f"tp_size={gpus}", f"bench.concurrency={concurrency}"],
                        "workload_id": f"load{concurrency}",
                        "server": f"{gpus:016x}",
                        "values": {"tp_size": gpus},
                        "repeat": repeat,
                        "result": found,
                    }
                )
    return points


def many_servers(number: int, loads: int = 6) -> list[dict[str, Any]]:
    """Servers of 1 to 8 GPUs at these many loads, 1, 2, 4, ...: no two are alike."""
    points = []
    for server in range(number):
        gpus, chunk = (8, 4, 2, 1)[server % 4], 1024 * (1 + server // 4)
        for concurrency in (2**power for power in range(loads)):
            itl = (4 + 8 / gpus + 0.35 * concurrency / gpus) * (1 + 0.013 * (server * 7 % 23))
            ttft = (30 + 20 * concurrency / gpus) * (1 + 0.021 * (server * 11 % 19))
            workload = {"concurrency": concurrency, "input_len": 1024, "output_len": 128}
            found = result(0.1, workload)
            of_gpu = 1000 * concurrency / (itl + ttft / 128) / gpus
            found["measures"] |= {"output_throughput_per_gpu": of_gpu, "output_throughput": of_gpu * gpus}
            found["measures"] |= {"interactivity": 1000 / itl}
            found["measures"]["ttft_ms"]["p50"], found["measures"]["itl_ms"]["p50"] = ttft, itl
            values = {"tp_size": gpus, "chunked_prefill_size": chunk}
            words = [*(f"{key}={value}" for key, value in values.items()), f"bench.concurrency={concurrency}"]
            points.append(
                {
                    "words": words,
                    "workload_id": f"c{concurrency}",
                    "server": f"5e{server:014x}",
                    "values": values,
                    "result": {**found, "started": "2026-11-28T09:00:00.000+00:00"},
                }
            )
    return points
