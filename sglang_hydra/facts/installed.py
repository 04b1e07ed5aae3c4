"""What is installed in an interpreter's environment, found without importing it or starting more than needed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache

_TIMEOUT_S = 20.0


def find_python(python: str | None) -> str | None:
    """The interpreter's absolute path (None asks for ours); None where there is no such program.

    Links are kept: a virtual environment's ``python`` is one, and only its own place says which environment it is.
    """
    if not python:
        return sys.executable
    python = os.path.expanduser(python)
    if os.path.dirname(python):
        return os.path.abspath(python) if os.access(python, os.X_OK) and not os.path.isdir(python) else None
    return _on_path(python, os.environ.get("PATH"))


def interpreter_paths(python: str | None = None) -> tuple[str, ...]:
    """The folders that ``python`` imports from; None is this interpreter.

    A virtual environment is read from its layout, anything else is asked once. Empty when ``python`` cannot be run.
    """
    found = find_python(python)
    if found is None:
        return ()
    if found == os.path.abspath(sys.executable):
        return tuple(path for path in sys.path if path)
    return _venv_paths(found) or _asked_paths(found)


def find_package(name: str, paths: Sequence[str]) -> bool:
    """Whether ``import name`` would find a package or module on ``paths`` (importlib's rules, nothing is imported)."""
    from importlib.machinery import PathFinder

    return PathFinder.find_spec(name, list(paths)) is not None


def torch_build(paths: Sequence[str]) -> Mapping[str, str | None] | None:
    """The accelerators that the installed torch was built for ({cuda, hip, xpu} to a version or None).

    None if there is no torch on ``paths``. Read from ``torch/version.py`` as text.
    """
    for folder in paths:
        try:
            with open(os.path.join(folder, "torch", "version.py"), encoding="utf-8") as file:
                text = file.read()
        except OSError:
            continue
        stated = dict(re.findall(r"^(cuda|hip|xpu)\s*(?::[^=\n]*)?=\s*(\S+)", text, re.MULTILINE))
        return {
            name: None if stated.get(name, "None") == "None" else stated[name].strip("'\"")
            for name in ("cuda", "hip", "xpu")
        }
    return None


def _on_path(program: str, path: str | None) -> str | None:
    found = _looked_up(program, path)
    return found if found and os.access(found, os.X_OK) else _looked_up.__wrapped__(program, path)


@lru_cache(maxsize=16)
def _looked_up(program: str, path: str | None) -> str | None:
    import shutil

    return shutil.which(program, path=path)


def _venv_paths(python: str) -> tuple[str, ...]:
    """The folders of a virtual environment; () if this is none, or one that also sees its base's packages."""
    # The folder is taken as written: resolving a venv's python would lead to the interpreter that it was made from.
    root = os.path.dirname(os.path.dirname(python))
    try:
        with open(os.path.join(root, "pyvenv.cfg"), encoding="utf-8") as file:
            settings = file.read().lower()
    except (OSError, UnicodeDecodeError):
        return ()
    if re.search(r"^include-system-site-packages\s*=\s*true", settings, re.MULTILINE):
        return ()
    import glob

    folders = sorted(glob.glob(os.path.join(glob.escape(root), "lib*", "python3*", "site-packages")))
    return tuple(path for folder in folders for path in (folder, *_pth_paths(folder)))


def _pth_paths(folder: str) -> list[str]:
    """The folders that .pth files add, as editable installs do. Their import lines are not run."""
    found = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".pth"):
            continue
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file]
        except OSError:
            continue
        paths = [os.path.join(folder, line) for line in lines if line and not line.startswith(("#", "import "))]
        found += [path for path in paths if os.path.isdir(path)]
    return found


def _asked_paths(python: str) -> tuple[str, ...]:
    import subprocess

    command = [python, "-c", "import sys; print('\\n'.join(path for path in sys.path if path))"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    return tuple(line for line in answer.stdout.splitlines() if line)
