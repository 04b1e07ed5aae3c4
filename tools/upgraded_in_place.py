"""Takes copies of others' files to a release in place, and judges each: it passes ``check`` then, or is as it was.

    python tools/upgraded_in_place.py FOLDER --to 0.5.21 [gpu=h100 launch.image=...]

The GPU of a file is the class that its name has, else ``gpu=h200``. Exit code: 0 every file is so, and no line has
changed that is none of an argument or an image; 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from sglang_hydra.cli.main import entry

GPUS = ("gb300", "gb200", "b200", "h100", "h20", "mi355x", "mi300x")
_OURS = re.compile(
    r"--|image:|container:|FROM|sglang(?:\[[\w,-]*\])?==|sglang[:@]|sglang_version|^\s*- \"?[\w./]+\"?\s*(#.*)?$"
    r"|^\s+[\w-]+: "
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--to", required=True)
    parser.add_argument("words", nargs="*")
    options = parser.parse_intermixed_args(argv)
    files, counts = sorted(options.folder.resolve().iterdir()), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for file in files:
            copy = Path(file.name)
            copy.write_text(before := file.read_text(encoding="utf-8"), encoding="utf-8")
            gpu = next((f"gpu={each}" for each in GPUS if re.search(rf"(?<![a-z]){each}", file.name)), "gpu=h200")
            code, errors = asked("upgrade", "--to", options.to, "--in-place", file.name, gpu, *options.words)
            after = copy.read_text(encoding="utf-8")
            moved = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
            odd = [line for line in moved if not _OURS.search(line[2:])]
            if not moved:
                kind = "refused" if code else "unchanged"
            else:
                checked, errors = asked("check", file.name, gpu)
                kind = "written and passes" if checked == 0 and not odd else "WRONG"
            counts[kind] += 1
            why = " ".join(errors.partition(" error ")[2].split())[:160] if kind in ("refused", "WRONG") else ""
            print(f"{kind:18}  {file.name}: {len(moved)} lines  {why}{odd or ''}", flush=True)
    print(f"{options.to}: {len(files)} files, {dict(counts)}")
    return int(bool(counts["WRONG"]))


def asked(*words: str) -> tuple[int, str]:
    """The exit code of a command line, and what it writes to stderr."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        code = entry(words)
    return code, errors.getvalue()


if __name__ == "__main__":
    sys.exit(main())
