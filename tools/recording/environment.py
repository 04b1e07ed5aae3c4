"""The environment that holds one released SGLang without its dependencies, and the process that runs there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("child.py")
INSTALL_SECONDS = 300


class RecorderError(Exception):
    """What keeps the recorder from recording; the text is for its user."""


def interpreter(version: str, folder: Path) -> Path:
    """The Python of the environment in `folder`, which is made with `sglang==version` alone unless it is there.

    It is built beside `folder` and moved, so that an interrupted build leaves nothing that looks finished and of two
    builds at once one is kept.
    """
    python = folder / "bin" / "python"
    if python.exists():
        return python
    if not re.fullmatch(r"\d[\w.+!]*", version):
        raise RecorderError(f"{version!r} is not a version: give one such as 0.5.2")
    if folder.exists():
        raise RecorderError(f"{folder} is there and is not an environment: give another folder with --env")
    print(f"making {folder}: sglang {version} without its dependencies", file=sys.stderr)
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        _call(sys.executable, "-m", "venv", str(draft))
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile", "--no-deps")
        _call(str(draft / "bin" / "python"), "-m", "pip", "install", *quiet, f"sglang=={version}")
        try:
            draft.rename(folder)
        except OSError:
            if not python.exists():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return python


def _call(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise RecorderError(f"{' '.join(command)} did not end within {INSTALL_SECONDS} s") from error
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise RecorderError("\n".join([f"{' '.join(command)} failed:", *output[-5:]]))


def ask(python: Path, version: str, requests: Sequence[Mapping[str, Any]], timeout: float) -> list[Any]:
    """The child's answers to `requests`, in their order; `timeout` in seconds is for all of them.

    {"refused": reason} answers a request that the release cannot be recorded for.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    try:
        done = subprocess.run(
            [str(python), "-I", "-X", "utf8", str(CHILD)],
            input="".join(json.dumps(request) + "\n" for request in requests),
            capture_output=True,
            encoding="utf-8",
            env=environment,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RecorderError(f"{len(requests)} answers took longer than {timeout:g} s: see --timeout") from error
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if lines and "refused" in lines[0]:
        raise RecorderError(f"sglang {version} cannot be recorded: {lines[0]['refused']}")
    if done.returncode or len(lines) != len(requests) + 1:
        raise RecorderError(f"the recording process failed:\n{done.stderr.strip()[-2000:]}")
    if lines[0]["version"] != version:
        raise RecorderError(f"{python.parents[1]} holds sglang {lines[0]['version']}, not {version}: see --env")
    return lines[1:]
