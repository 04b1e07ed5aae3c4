"""Runs in the engine's environment, as a script: SGLang's bench_serving, imported once and run for point after point.

argv: the seconds in which a server must say something. stdin: one JSON request a line, {"flags": [bench_serving's own
flags], "output": file for what it prints, "report": file}. stdout: {"ready": true} once it is imported, then one JSON
line in answer to each, {"exit": code}. The report tells how the load went: {"cpu_s": seconds of a core that it took,
"ended": when it ended, on the machine's monotonic clock}. It ends with its stdin, and so does what runs then.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import runpy
import select
import signal
import sys
import time
import traceback
from typing import Any

_MODULE = "sglang.bench_serving"


def main() -> None:
    _adapt(float(sys.argv[1]))
    # Importing it takes many seconds of a core: it brings torch. Every run is a fork that has it already.
    importlib.import_module(_MODULE)
    _answer({"ready": True})
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        _answer({"exit": _forked(request)})


def _adapt(timeout_s: float) -> None:
    """Mends, from outside, what a measurement cannot have."""
    # 0.5.2 sends prompts of numpy integers, which json does not know; aiohttp takes json.dumps when it is imported.
    json.dumps = functools.partial(json.dumps, default=int)
    aiohttp: Any = importlib.import_module("aiohttp")
    # It would wait six hours for an answer.
    aiohttp.ClientTimeout = functools.partial(aiohttp.ClientTimeout, sock_read=timeout_s)
    _start_prompts_apart(importlib.import_module("numpy").random)


def _start_prompts_apart(random: Any) -> None:
    """Its random prompts count upwards from a drawn token, prompt i from one i further. Of n prompts over V tokens
    n / 2V begin like another and are found in the prefix cache: with 2560 prompts over 128k tokens that is 1 %. Here
    no two begin alike, as long as there are tokens."""
    drawn, permutation = random.randint, random.permutation

    def randint(low: Any, high: Any = None, size: Any = None, **settings: Any) -> Any:
        # Lengths are drawn from 1 upwards, first tokens from 0.
        if low != 0 or not isinstance(size, int) or high is None or size > high:
            return drawn(low, high, size, **settings)
        return (permutation(high)[:size] - range(size)) % high

    random.randint = randint


def _forked(request: dict[str, Any]) -> int:
    """Runs it in a process of its own, which ends when our stdin does. The exit code."""
    ends, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ends)
        _run(request)
    os.close(held)
    # Nothing is sent while a run is on, so what can be read from stdin is its end.
    ready, _, _ = select.select([sys.stdin.fileno(), ends], [], [])
    if ends not in ready:
        os.kill(child, signal.SIGKILL)
    os.close(ends)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _run(request: dict[str, Any]) -> None:
    """Never returns."""
    code = 1
    try:
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _report_to(request["report"])
        sys.argv = [_MODULE, *request["flags"]]
        runpy.run_module(_MODULE, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    finally:
        if code and sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _report_to(file: str) -> None:
    """It gathers its warm-up, sleeps for a second, and gathers the load: the load is what lies between their ends."""
    everything: Any = asyncio
    gather = everything.gather
    begun: list[float] = []

    async def timed(*tasks: Any, **settings: Any) -> Any:
        try:
            return await gather(*tasks, **settings)
        finally:
            begun.append(time.process_time())
            with open(file, "w", encoding="utf-8") as report:
                json.dump({"cpu_s": begun[-1] - begun[0], "ended": time.monotonic()}, report)

    everything.gather = timed


def _answer(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
