"""The child's loop: JSON lines in and out.

Its one argument is JSON: ``version``; ``release``, the folder that has SGLang; ``folders``, those of ``libraries``,
which are transformers and what it needs, by name; ``real_parts``; ``parent``, the process that it ends with;
``limit_s``, for one case.
The first line is the machine, which is answered with the greeting (``version``, ``start_s``). Each further line is a
case, ``{id, machine, argv, models, files}`` and ``why`` for the reasons, answered by one line. What the release prints
goes to stderr.
"""

from __future__ import annotations

import contextlib
import ctypes  # noqa: F401 - this one and sysconfig look at the interpreter, and a release imports both
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import sysconfig  # noqa: F401
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import files, inert, libraries, machine, packages
from .case import HOME, Runner
from .questions import Asked, Unanswered, frames_of, short_path

_LOOK_S = 2.0
_FIXED = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "LC_ALL": "C",
}


def main() -> int:
    begun = time.perf_counter()
    gc.disable()  # nothing that a release imports is ever given back
    options = json.loads(sys.argv[1])
    watch = Watch(options["parent"], options["limit_s"])
    watch.start()
    sys.argv = ["sglang"]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines, _scratch() as scratch:
        os.dup2(2, 1)
        answer, watch.scratch = _writer(lines), scratch
        try:
            runner = _load(options, json.loads(sys.stdin.readline()), scratch)
        except (Exception, Unanswered) as error:  # noqa: BLE001 - whatever a release raises while it is imported
            text = str(error) if isinstance(error, Unanswered) else f"{type(error).__name__}: {error}"
            answer({"unanswered": f"it cannot be imported: {text}{_last_place(error)}"})
            return 1
        answer({"version": options["version"], "start_s": round(time.perf_counter() - begun, 3)})
        watch.wait()
        gc.freeze()
        gc.enable()
        for line in sys.stdin:
            watch.begin()
            answer(runner.run(json.loads(line)))
            watch.wait()
        os.chdir("/")
    return 0


def _load(options: dict[str, Any], facts: dict[str, Any], scratch: str) -> Runner:
    """Imports the release on a machine with these facts."""
    known = machine.Machine(facts)
    os.environ.clear()
    os.environ.update({**_FIXED, "HOME": scratch, "HF_HOME": scratch, "TMPDIR": scratch, **facts["environment"]})
    tempfile.tempdir = scratch
    found = packages.Packages(
        options["release"], options["folders"], options["libraries"], options["real_parts"], known
    )
    compiled = [os.path.join(folder, "__pycache__") for folder in found.folders]
    world = files.Files([*found.places(found.real), *compiled, os.path.dirname(os.__file__)], scratch)
    found.install()
    inert.refuse_hasattr()
    machine.install(known)
    world.install()
    world.begin(0, {"models": {}}, known)
    libraries.install(known["device"], found.real)
    release = importlib.import_module(HOME)
    world.end()
    Asked.at_start, Asked.is_running = Asked.assumed, True
    Asked.clear()
    return Runner(release, known, world, found)


class Watch:
    """Ends this process, and removes its scratch folder, when its parent is gone or a case takes too long."""

    def __init__(self, parent: int, limit_s: float) -> None:
        self.parent, self.limit_s = parent, limit_s
        self.deadline = time.monotonic() + limit_s
        self.scratch = ""

    def start(self) -> None:
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)

    def begin(self) -> None:
        self.deadline = time.monotonic() + self.limit_s

    def wait(self) -> None:
        self.deadline = float("inf")

    def _look(self, *_: Any) -> None:
        if os.getppid() != self.parent or time.monotonic() > self.deadline:
            shutil.rmtree(self.scratch, ignore_errors=True)
            os._exit(1)


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """A folder without a small letter in its name: transformers reads a config without ``model_type`` by the first
    type that occurs anywhere in the model's path, and a random name has one at times (``tmp`` and ``t``: MPT)."""
    folder = os.path.join(tempfile.gettempdir(), f"SGLANG_HYDRA-{os.getpid()}-{time.time_ns()}")
    os.mkdir(folder, 0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _writer(lines: Any) -> Callable[[dict[str, Any]], None]:
    def answer(record: dict[str, Any]) -> None:
        lines.write(json.dumps(record) + "\n")
        lines.flush()

    return answer


def _last_place(error: BaseException) -> str:
    frames = frames_of(error)
    return f" ({short_path(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
