"""Refreshes the screens in README.md and in docs/: what the commands that they show really print.

    python tools/readme_screens.py [--check] [FILE...]

A line ``<!-- screen: COMMAND -->`` and the fenced block after it make a screen: the block holds the command and all
that it prints. COMMAND may be several, joined by ``&&``, each with ``> FILE`` or ``| head -N`` behind it. The files
that the page writes (``<!-- file: PATH -->``) are there, and those of the screens before. ``--check`` writes nothing;
it shows what differs and exits with 1 if anything does.
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
FILE = re.compile(r"<!-- file: (?P<path>.+?) -->\n```\w+\n(?P<content>.*?)```\n", re.DOTALL)
# What would make the same command print something else on another machine.
UNWANTED = ("SGLANG_", "CUDA_", "HYDRA_", "HIP_")


def printed_by(command: str, folder: str) -> str:
    """What a command of ours prints, run by this interpreter from the checkout in ``folder``."""
    command, _, file = command.partition(" > ")
    command, _, lines = command.partition(" | head -")
    words = shlex.split(command)
    if words[0] != PROGRAM:
        raise ValueError(f"a screen shows {PROGRAM}, not {words[0]}")
    env = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
    alone = {"HF_HUB_OFFLINE": "1", "SGLANG_HYDRA_OFFLINE": "1", "SGLANG_HYDRA_CACHE": f"{folder}/.cache"}
    code, printed = run_serve(words[1:], folder=folder, env={**env, **alone})
    if code not in (0, 2):
        raise RuntimeError(f"{command} ended with {code}:\n{printed}")
    if file:
        Path(folder, file).write_text(printed, encoding="utf-8")
        return ""
    shown = re.sub(r" python(\n *)serve\.py", rf"\1{PROGRAM}", printed).replace("python serve.py", PROGRAM)
    shown = shown.lstrip("\n").rstrip()
    return "\n".join(shown.splitlines()[: int(lines)]).rstrip() if lines else shown


def run_serve(words: list[str], *, folder: str, env: dict[str, str]) -> tuple[int, str]:
    """Runs ``serve.py WORDS``; returns its exit code and what it wrote to both outputs."""
    run = subprocess.run(
        [sys.executable, str(REPOSITORY / "serve.py"), *words],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return run.returncode, run.stdout


def refreshed(text: str) -> str:
    """The text with every screen as it prints now. The other lines stay as they are."""

    def screen(match: re.Match[str]) -> str:
        shown = [
            text for command in match["command"].split(" && ") for text in (f"$ {command}", printed_by(command, folder))
        ]
        return "\n".join([f"{match['mark']}```console", *filter(None, shown), "```\n"])

    with tempfile.TemporaryDirectory() as folder:
        for match in FILE.finditer(text):
            path = Path(folder, match["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(match["content"], encoding="utf-8")
        return SCREEN.sub(screen, text)


def pages() -> list[Path]:
    """README.md and the pages in docs/ that have a screen."""
    docs = sorted((REPOSITORY / "docs").glob("*.md"))
    return [REPOSITORY / "README.md", *(page for page in docs if SCREEN.search(page.read_text(encoding="utf-8")))]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Refreshes the screens in Markdown files.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a screen is not current")
    options = parser.parse_args(argv)
    stale = False
    for page in options.files or pages():
        before = page.read_text(encoding="utf-8")
        after = refreshed(before)
        if not options.check:
            page.write_text(after, encoding="utf-8")
            continue
        shown, printed = before.splitlines(True), after.splitlines(True)
        sys.stdout.writelines(difflib.unified_diff(shown, printed, f"{page.name} shows", "printed"))
        stale |= before != after
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
