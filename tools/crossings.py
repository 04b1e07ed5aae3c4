"""What a command runs of the package: ``python tools/crossings.py plan gpu=h200 model=gpt_oss``.

Counts the files of which a function ran, and the calls from a function of one room to one of another, with the most
frequent ones. What runs while a module is imported does not count.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = f"{ROOT / 'sglang_hydra'}/"
_SHOWN = 40


def counted(words: Sequence[str]) -> tuple[set[str], Counter[tuple[str, str]]]:
    """The files and the crossings (caller, called) of a command line; its output is thrown away."""
    sys.path.insert(0, str(ROOT))
    from sglang_hydra.cli.main import entry

    files: set[str] = set()
    crossings: Counter[tuple[str, str]] = Counter()

    running: list[tuple[str, str] | None] = []  # the functions that run, the innermost last; None for others' ones

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and running:
            running.pop()
        if event != "call":
            return
        is_ours = frame.f_code.co_filename.startswith(PACKAGE)
        here = (frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_name) if is_ours else None
        above = [item for item in running if item is not None]
        running.append(here)
        if here is None or any(name == "<module>" for _, name in [*above, here]):
            return
        files.add(here[0])
        if above and here[0].partition("/")[0] != above[-1][0].partition("/")[0]:
            crossings[":".join(above[-1]), ":".join(here)] += 1

    with contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(called)
        try:
            entry(list(words))
        finally:
            sys.setprofile(None)
    return files, crossings


if __name__ == "__main__":
    files, crossings = counted(sys.argv[1:])
    print(f"files: {len(files)}")
    print(f"crossings: {crossings.total()}, from {len(crossings)} places")
    for (caller, called_by_it), count in crossings.most_common(_SHOWN):
        print(f"{count:6} {caller} -> {called_by_it}")
