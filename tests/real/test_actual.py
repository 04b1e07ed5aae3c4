"""What real servers say of themselves, against their plans: 0.5.2, whose rules these are, and a late release."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.commands import must_follow
from tests.real.servers import SGLANG_ON_CPU, Served, served

LATER_ON_CPU = [
    "attention_backend=torch_native",
    "sampling_backend=pytorch",
    "disable_radix_cache=true",
    "disable_cuda_graph=true",
    "max_total_tokens=8192",
]
COMPARED_S = 60.0


def compared(server: Served) -> dict[str, Any]:
    """The record that the run folder gets, once it is there."""
    record = server.folder / "actual.json"
    deadline = time.monotonic() + COMPARED_S
    while not record.exists():
        assert time.monotonic() < deadline, server.printed[-3000:]
        time.sleep(0.05)
    content: dict[str, Any] = json.loads(record.read_text())
    must_follow(content, "actual")
    return content


def test_0_5_2_runs_with_every_argument_as_planned(sglang_python: str, tmp_path: Path) -> None:
    overrides = ["engine=sglang", f"engine.python={sglang_python}", "model=tiny", "gpu=cpu", *SGLANG_ON_CPU]
    with served(tmp_path, *overrides, "api_key=sk-hidden", "stream_interval=2") as server:
        record = compared(server)
        assert (record["same"], record["of"], record["absent"]) == (210, 210, [])
        assert record["version"] == "0.5.2"
        assert record["kv_tokens"]["actual"] == 8192
        assert "210 of 210 as planned" in server.printed
        assert "sk-hidden" not in server.printed + json.dumps(record)


def test_0_5_23_runs_with_every_argument_as_planned(sglang_0_5_23_python: str, tmp_path: Path) -> None:
    overrides = ["engine=sglang", f"engine.python={sglang_0_5_23_python}", "model=tiny", "gpu=cpu", *LATER_ON_CPU]
    with served(tmp_path, *overrides) as server:
        record = compared(server)
        assert server.chat(model="tiny")[0] == 200
        assert record["version"] == record["planned_version"] == "0.5.23"
        assert record["differences"] == []
        assert record["same"] == record["of"] > 500
        assert f"{record['same']} of {record['of']} as planned" in server.printed
