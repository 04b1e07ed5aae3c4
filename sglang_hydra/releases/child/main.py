"""Runs the child's loop: JSON lines in and out.

The first line has the options: ``version``; ``release``, the folder of SGLang; ``folders``, those of ``libraries``
(transformers and its requirements) by name; ``real_parts``; ``parent``, the process with which it ends; ``scratch``, an
empty folder. For unpacked wheels: ``lists``, the permitted sha256 of each list of files; ``codes``, the place of their
byte code; ``key``, which marks it. The second line is the machine; the answer is the greeting (``version``,
``start_s``, ``sandbox``). Each further line is a case, ``{id, machine, argv, models, files}``, with ``why`` for the
reasons, and gets one line as answer. The release's own output goes to stderr. Every answer names a file that differs
from its wheel, as ``changed``."""

from __future__ import annotations

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
from typing import Any

from . import files, inert, libraries, machine, packages, sandbox
from .case import HOME, Runner
from .questions import Asked, Unanswered, frames_of, short_path
from .sealed import Sealed

_LOOK_S = 2.0
_OBJECTS = 100_000
"""The first case imports half of a release, which stays too: larger numbers of objects are searched for cycles."""
_FIXED = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "LC_ALL": "C"}


CODES = "codes"
"""In the scratch folder, at the end: new byte code, with its mark."""


def main() -> int:
    begun = time.perf_counter()
    gc.disable()  # a release never frees its imports
    options = json.loads(sys.stdin.readline())
    _end_with(options["parent"], options["scratch"])
    sys.argv = ["sglang"]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)

        def answer(record: dict[str, Any]) -> None:
            record |= {"changed": Asked.changed} if Asked.changed else {}
            record |= {"missing": Asked.missing} if Asked.missing else {}
            lines.write(json.dumps(record) + "\n")
            lines.flush()

        try:
            runner, sealed, given = _load(options, json.loads(sys.stdin.readline()), options["scratch"])
        except (Exception, Unanswered) as error:  # noqa: BLE001 - whatever a release raises while it is imported
            answer({"unanswered": not_imported(error)})
            return 1
        answer({"version": options["version"], "start_s": round(time.perf_counter() - begun, 3), "sandbox": given})
        gc.freeze()
        gc.set_threshold(_OBJECTS)
        gc.enable()
        for line in sys.stdin:
            answer(runner.run(json.loads(line)))
        if sealed is not None and Asked.changed is None:
            sealed.keep_codes(os.path.join(options["scratch"], CODES), bytes.fromhex(options["key"]))
        os.chdir("/")
    return 0


def _load(
    options: dict[str, Any], facts: dict[str, Any], scratch: str
) -> tuple[Runner, Sealed | None, dict[str, bool]]:
    """Imports the release on a machine with these facts, and reports what the sandbox blocks."""
    known = machine.Machine(facts)
    os.environ.clear()
    os.environ.update({**_FIXED, "HOME": scratch, "HF_HOME": scratch, "TMPDIR": scratch, **facts["environment"]})
    tempfile.tempdir = scratch
    sealed = Sealed(options["lists"]) if options.get("lists") else None
    if sealed is not None:
        sys.dont_write_bytecode = True  # not read: Packages has its own loaders
        sealed.take_codes(options["codes"], bytes.fromhex(options["key"]))
    found = packages.Packages(
        options["release"], options["folders"], options["libraries"], options["real_parts"], known, sealed
    )
    world = files.Files([*found.places(found.real), os.path.dirname(os.__file__)], scratch, sealed)
    given = sandbox.enter(found.folders, scratch)
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
    return Runner(release, known, world, found), sealed, given


def _end_with(parent: int, scratch: str) -> None:
    """Ends this process, and removes its scratch folder, when its parent has ended."""

    def look(*_: Any) -> None:
        if os.getppid() != parent:
            shutil.rmtree(scratch, ignore_errors=True)
            os._exit(1)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)


def not_imported(error: BaseException) -> str:
    """Returns why a release cannot be imported, with the last place in its own code."""
    text = str(error) if isinstance(error, Unanswered) else f"{type(error).__name__}: {error}"
    place = [f" ({short_path(frame.filename)}:{frame.lineno})" for frame in frames_of(error)[-1:]]
    return "".join(["it cannot be imported: ", text, *place])
