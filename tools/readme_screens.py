"""Refreshes the screens in README.md: what the commands that it shows really print.

    python tools/readme_screens.py [--check] [FILE]

A line ``<!-- screen: COMMAND -->`` and the fenced block after it make a screen: the block holds the command and all
that it prints. ``--check`` writes nothing; it shows what differs and exits with 1 if anything does.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PROGRAM = "sglang-hydra"
SCREEN = re.compile(r"(?P<mark><!-- screen: (?P<command>.+?) -->\n)```console\n(?P<shown>.*?)```\n", re.DOTALL)
# What would make the same command print something else on another machine.
UNWANTED = ("SGLANG_", "CUDA_", "HYDRA_", "HIP_")


def printed_by(command: str) -> str:
    """What a command of ours prints, run by this interpreter from the checkout in an empty folder."""
    words = shlex.split(command)
    if words[0] != PROGRAM:
        raise ValueError(f"a screen shows {PROGRAM}, not {words[0]}")
    env = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, str(REPOSITORY / "serve.py"), *words[1:]],
            cwd=folder,
            env={**env, "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
    if run.returncode not in (0, 2):
        raise RuntimeError(f"{command} ended with {run.returncode}:\n{run.stdout}")
    return run.stdout


def refreshed(text: str) -> str:
    """The text with every screen as it prints now. The other lines stay as they are."""

    def screen(match: re.Match[str]) -> str:
        command = match["command"]
        shown = printed_by(command).lstrip("\n").rstrip()
        return f"{match['mark']}```console\n$ {command}\n{shown}\n```\n"

    return SCREEN.sub(screen, text)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Refreshes the screens in a Markdown file.")
    parser.add_argument("file", nargs="?", type=Path, default=REPOSITORY / "README.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a screen is not current")
    options = parser.parse_args(argv)
    before = options.file.read_text(encoding="utf-8")
    after = refreshed(before)
    if not options.check:
        options.file.write_text(after, encoding="utf-8")
        return 0
    sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "shown", "printed"))
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main())
