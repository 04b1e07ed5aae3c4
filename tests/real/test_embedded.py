"""The embedded engine, `transformers serve`: what `make serve` gives on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

from tests.real.servers import GONE_S, all_gone, interrupt, served


def test_a_chat_completion_streams_and_an_interrupt_leaves_nothing(embedded_python: str, tmp_path: Path) -> None:
    overrides = ["engine=transformers", f"engine.python={embedded_python}", "model=tiny", "gpu=cpu"]
    with served(tmp_path, *overrides) as server:
        status, answer = server.chat(model="tiny", stream=True)
        assert status == 200
        events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
        words = [choice["delta"].get("content") or "" for event in events for choice in event["choices"]]
        assert len([word for word in words if word]) > 3
        assert "".join(words).isascii()
        assert server.request("GET", "/v1/models")[0] == 200
        processes = server.processes()
        assert len(processes) >= 3
        assert interrupt(server) == 130
        assert all_gone(processes, GONE_S)


def test_the_name_may_be_left_out_and_the_seed_decides_the_text(embedded_python: str, tmp_path: Path) -> None:
    overrides = ["engine=transformers", f"engine.python={embedded_python}", "model=tiny", "gpu=cpu", "random_seed=5"]
    texts = []
    for attempt in ("first", "second"):
        with served(tmp_path / attempt, *overrides) as server:
            status, answer = server.chat()
            assert status == 200
            texts.append(json.loads(answer)["choices"][0]["message"]["content"])
    assert texts[0] == texts[1]
