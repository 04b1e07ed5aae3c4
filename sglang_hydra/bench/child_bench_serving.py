"""Runs in the engine's environment, as a script: SGLang's bench_serving, and how much of a core its load took.

argv: the file for {"share": share of one core}, then bench_serving's own flags.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import runpy
import signal
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    file = sys.argv.pop(1)
    run: Any = asyncio.run

    def measured(*args: Any, **kwargs: Any) -> Any:
        began, used = time.perf_counter(), time.process_time()
        try:
            return run(*args, **kwargs)
        finally:
            share = (time.process_time() - used) / (time.perf_counter() - began)
            with open(file, "w", encoding="utf-8") as report:
                json.dump({"share": share}, report)

    # 0.5.2 sends prompts of numpy integers, which json does not know; aiohttp takes json.dumps when it is imported.
    json.dumps = functools.partial(json.dumps, default=int)
    _end_with_parent()
    # Its imports take seconds of a core; the load is what is inside its event loop.
    asyncio.run = measured
    runpy.run_module("sglang.bench_serving", run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    """A client whose runner was killed would go on asking. Linux can tell a process of its parent's end."""
    set_signal = getattr(ctypes.CDLL(None), "prctl", None)
    if set_signal is not None:
        set_signal(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
