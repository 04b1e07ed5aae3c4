"""Reads what the engine's interpreter has installed from metadata on disk; nothing of it is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions

from sglang_hydra.facts.environments import environment_settings
from sglang_hydra.facts.installed import interpreter_paths, torch_build
from sglang_hydra.facts.trust import may_start
from sglang_hydra.run.doctor.machine_state import Interpreter

_TIMEOUT_S = 20.0
_ASK = "import sys, sysconfig; print(*sys.version_info[:3], sysconfig.get_paths()['include'])"


def read_interpreter(python: str | None) -> Interpreter:
    """The environment of ``python`` (None: ours). Another interpreter that may be started is run once and imports
    nothing but its own standard library."""
    from sglang_hydra.facts.packages import find_python, installed

    path = find_python(python)
    packages = installed(python)
    if path is None or packages.problem:
        return Interpreter(path, problem=packages.problem)
    ask = _asked if may_start(path) else _on_disk
    answer = _ourselves() if path == sys.executable else ask(path)
    if answer is None and not may_start(path):
        return Interpreter(path, problem=f"{path} was not asked, as a file names it and nobody typed it")
    if answer is None:
        return Interpreter(path, problem=f"{path} is no Python interpreter that runs here")
    version, include = answer
    folders = interpreter_paths(python)
    header = _metadata(folders) if "sglang" in packages.versions else {}
    return Interpreter(
        path=path,
        version=version,
        headers=os.path.isfile(os.path.join(include, "Python.h")),
        versions=packages.versions,
        requires=tuple(header.get("Requires-Dist", ())),
        requires_python=next(iter(header.get("Requires-Python", ())), None),
        torch_build=torch_build(folders),
    )


def _ourselves() -> tuple[tuple[int, int, int], str]:
    return sys.version_info[:3], sysconfig.get_paths()["include"]


def _asked(path: str) -> tuple[tuple[int, int, int], str] | None:
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        major, minor, patch, include = done.stdout.strip().split(" ", 3)
        return (int(major), int(minor), int(patch)), include
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _on_disk(path: str) -> tuple[tuple[int, int, int], str] | None:
    """What the pyvenv.cfg of a virtual environment says, which is not started; None where it does not say enough."""
    settings = environment_settings(path)
    version = re.match(r"(3)\.([0-9]{1,3})\.([0-9]{1,3})", settings.get("version_info") or settings.get("version", ""))
    if version is None or "home" not in settings:
        return None
    major, minor, patch = (int(part) for part in version.groups())
    return (major, minor, patch), os.path.join(os.path.dirname(settings["home"]), "include", f"python{major}.{minor}")


def _metadata(folders: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """What SGLang's METADATA says of its requirements; empty if it is not installed or cannot be read."""
    found = next(iter(distributions(name="sglang", path=list(folders))), None)
    header = found.metadata if found is not None else None
    names = ("Requires-Dist", "Requires-Python")
    return {name: header.get_all(name) or () for name in names} if header is not None else {}
