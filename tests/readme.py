"""The blocks of README.md and of docs/ and how tests run them: a comment before each block says what it is.

``run`` a script or program, ``file: PATH`` a file for later blocks, ``screen: COMMAND`` what a command prints; ``run:
package`` needs the built package, ``run: make`` the Makefile, ``run: server`` and ``run: client`` a real server, ``run:
serving`` any server, and ``shows`` what the block before prints there, but for numbers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests import forked

REPOSITORY = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?:<!-- (?P<kind>[^\n]+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL)


class Block(NamedTuple):
    """One fenced block. ``kind`` is the comment before it, empty where there is none."""

    kind: str
    language: str
    text: str


def blocks(*kinds: str, page: str = "README.md") -> list[Block]:
    """The blocks of the README or of another page in order, all or those of some kinds."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = [Block(match["kind"] or "", match["language"], match["text"]) for match in BLOCK.finditer(text)]
    return [block for block in found if not kinds or block.kind.partition(": ")[0] in kinds or block.kind in kinds]


def run_block(block: Block, workplace: Path, env: dict[str, str], timeout_s: float = 250) -> str:
    """Runs or writes one block of the kinds ``run`` and ``file``; what it printed. Fails where it does."""
    if block.kind.startswith("file: "):
        path = workplace / block.kind.removeprefix("file: ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return ""
    program = ["bash", "-c", as_script(block.text)] if block.language == "bash" else ["python", "-c", block.text]
    run = subprocess.run(
        program, cwd=workplace, env=env, capture_output=True, encoding="utf-8", timeout=timeout_s, check=False
    )
    assert run.returncode == 0, f"{block.text}{run.stdout}{run.stderr}"
    return run.stdout + run.stderr


def as_script(text: str) -> str:
    """The text of a block as a strict script; ``# exit 2`` at the end of a line is what that line must exit with."""
    expected = re.sub(
        r"^(.+?) +# exit (\d+)$", r"{ if \1; then false; else [ $? -eq \2 ]; fi; }", text, flags=re.MULTILINE
    )
    return f"set -euo pipefail\n{expected}"


def environment(programs: Path, *, forks: bool = True) -> dict[str, str]:
    """Variables under which ``sglang-hydra`` and ``python`` are this checkout and this interpreter. With ``forks``
    scripts skip their imports, and no signal reaches them."""
    python, serve = f"'{sys.executable}'", f"'{REPOSITORY / 'serve.py'}'"
    fork = f"{python} -I -S '{forked.__file__}' '{forked.server()}'" if forks else python
    for name, program in {
        "sglang-hydra": f'exec {fork} {serve} "$@"',
        "python": f'case "$1" in *.py) exec {fork} "$@";; *) exec {python} "$@";; esac',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_", "CUDA_", "HYDRA_"))}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
    }
