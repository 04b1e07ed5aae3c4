"""Two real SGLang servers behind the real router: planned, started, asked, one killed, and everything stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.real.servers import GONE_S, SGLANG_ON_CPU, Served, all_gone, interrupt, served
from tests.run.launch.processes import wait_until

PROMPTS = 8
NOTICED_S = 60.0


def words(server: Served, number: int) -> str:
    """A streamed answer. Fails unless it came whole."""
    messages = [{"role": "user", "content": f"Tell me {number} things."}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 8, "stream": True, "temperature": 0}
    status, content = server.request("POST", "/v1/chat/completions", body)
    assert status == 200, content
    events = [line.removeprefix("data: ") for line in content.decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]", events
    return "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events[:-1])


def finished(log: Path) -> int:
    """How many requests a server has answered, by its log."""
    return log.read_text(errors="replace").count('POST /v1/chat/completions HTTP/1.1" 200')


def test_two_servers_share_the_requests_and_one_goes_on_alone(sglang_python: str, tmp_path: Path) -> None:
    router = os.environ.get("ROUTER_PYTHON")
    overrides = [
        *("engine=sglang", f"engine.python={sglang_python}", "model=tiny", "gpu=cpu", *SGLANG_ON_CPU),
        *("topology=replicas", "replicas=2", "topology.router.policy=round_robin"),
        *([f"topology.router.python={router}"] if router else []),
    ]
    with served(tmp_path, *overrides) as server:
        plans = [json.loads((server.folder / f"replica-{index}" / "plan.json").read_text()) for index in range(2)]
        assert plans[0]["server_id"] == plans[1]["server_id"]
        assert "replica 0, replica 1\n210 of 210 as planned" in server.printed
        logs = [server.folder / f"replica-{index}" / "server.log" for index in range(2)]
        before = [finished(log) for log in logs]
        answers = [words(server, number) for number in range(PROMPTS)]
        assert all(answers)
        # A log has the line of an answer a moment after the client has the answer.
        each = [seen + PROMPTS // 2 for seen in before]
        assert wait_until(lambda: [finished(log) for log in logs] == each, NOTICED_S), [finished(log) for log in logs]
        _kill(server, plans[0]["values"]["port"])
        noticed = wait_until(lambda: "requests go on through replica 1" in server.printed, NOTICED_S)
        assert noticed, server.printed[-4000:]
        words(server, PROMPTS)  # the one that shows the router that a server is gone
        # The same weights and greedy: the other server says the same.
        assert [words(server, number) for number in range(PROMPTS)] == answers
        processes = server.processes()
        assert interrupt(server) == 130
        assert all_gone(processes, GONE_S)


def _kill(server: Served, port: int) -> None:
    """Kills the server on a port, past its guard; SGLang's processes go by names of their own."""
    guards = [process for process in server.processes() if "guard.py" in " ".join(process.cmdline()[:4])]
    for child in [child for guard in guards if str(port) in guard.cmdline() for child in guard.children()]:
        child.kill()
