"""Runs one release's argument code in this interpreter, which has nothing else to do: the child of a page.

What ``sglang_hydra.releases.child`` does under a process of its own is done here in a second Pyodide, which nothing
of the planner shares. The files lie below FOLDER as those of unpacked wheels do, and each is compared with its wheel's
list, and that with the planner's table, as it is opened.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

_LIBRARY = "/lib"
_SCRATCH = "/tmp/CHILD"  # no small letter: see sglang_hydra.releases.process


_BELOW = ("_multiprocessing", "_posixshmem", "_posixsubprocess", "pty", "tty")
"""What is missing below other parts of the standard library, or cannot do without what is missing."""


def _is_missing(name: str) -> bool:
    """Returns whether a browser has not a part of the standard library, as fcntl, resource, ssl and termios."""
    return name in _BELOW or (name[0] != "_" and name not in sys.modules and find_spec(name) is None)


def start(options: str, facts: str) -> Callable[[str], str]:
    """Imports a release on a machine with these facts, both as the child's own main has them. Returns what answers a
    case, JSON in and out."""
    asked = {**json.loads(options), "machine": json.loads(facts)}
    gc.disable()
    warnings.simplefilter("ignore")
    sys.argv = ["sglang"]
    inert: Any = importlib.import_module("child.inert")
    for name in filter(_is_missing, sys.stdlib_module_names):  # releases import them; a question to one is refused
        sys.modules[name] = inert.InertModule(name)
    importlib.import_module("encodings").__path__.append(f"{_LIBRARY}/python3.13/encodings")  # the rest of them
    importlib.import_module("msgspec")
    main: Any = importlib.import_module("child.main")
    files: Any = importlib.import_module("child.files")
    questions: Any = importlib.import_module("child.questions")
    importlib.import_module("os").makedirs(_SCRATCH)
    make = files.Files.__init__

    def with_library(self: Any, roots: Any, *values: Any) -> None:
        make(self, [*roots, _LIBRARY], *values)

    files.Files.__init__ = with_library
    try:
        runner, _, _ = main._load({**asked, "codes": "/none", "key": ""}, asked["machine"], _SCRATCH)
    except (Exception, questions.Unanswered) as error:  # noqa: BLE001 - whatever a release raises while it is imported
        text = main.not_imported(error)
        return lambda case: json.dumps({"failed": text})

    def ask(case: str) -> str:
        answer = runner.run(json.loads(case))
        answer |= {"changed": questions.Asked.changed} if questions.Asked.changed else {}
        answer |= {"missing": questions.Asked.missing} if questions.Asked.missing else {}
        return json.dumps(answer)

    return ask
