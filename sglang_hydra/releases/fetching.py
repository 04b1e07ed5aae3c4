"""Fetches wheels by the package client of this interpreter, and decides whether this process may do so now."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.releases import parts
from sglang_hydra.releases.records import Wheel, WheelFile
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

OFFLINE_VARIABLE = "SGLANG_HYDRA_OFFLINE"
"""With any value, nothing is fetched; ``--offline`` does it for one command."""
ANSWER_S = 1.0
"""Seconds that a plan waits for the first answer of the package index."""
_SECONDS = 1800
_LAST = "3.12"
"""The Python for which wheels of SGLang are requested: their sources are the same for each."""
_UNREACHED = "the package index cannot be reached"

Progress = Callable[[str], None]
_progress: Progress | None = None
_was_unreached = False


def allow(progress: Progress) -> None:
    """Lets this process fetch from now on; ``progress`` gets a line for each fetch. The command line calls it; a
    library call never fetches."""
    global _progress
    _progress = progress


def progress_if_allowed() -> Progress | None:
    """Returns the receiver of progress lines; None if fetching is not allowed."""
    return None if os.environ.get(OFFLINE_VARIABLE) else _progress


@contextlib.contextmanager
def nothing_fetched() -> Iterator[None]:
    """Plans within this block use only local data: they are trials, and nobody asked for their release."""
    global _progress
    kept, _progress = _progress, None
    try:
        yield
    finally:
        _progress = kept


def fetch_parts(
    wanted: Sequence[Wheel],
    read: Collection[str],
    folder: Path,
    begun: Callable[[list[Wheel]], None],
    wait_s: float | None = None,
) -> dict[Wheel, Path]:
    """Fetches the files in ``read`` into files of ``folder`` with the names of the ``wanted`` wheels; skips wheels of
    which the index gives no parts. ``begun`` gets the fetched wheels. With ``wait_s``, an index that does not answer
    for that time is not waited for, and not asked again by this process.

    Raises MachineError (REL002)."""
    global _was_unreached
    if wait_s and _was_unreached:
        raise not_fetched(wanted[0], f"{_UNREACHED}, as a moment ago")
    rows = [
        {**each._asdict(), "files": [file.name for file in each.files], "tags": list(_tags(each))} for each in wanted
    ]
    asked = {"wheels": rows, "read": sorted(read), "folder": str(folder), "wait_s": wait_s}
    program = Path(parts.__file__).read_text(encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        json.dump(asked, client.stdin)
        client.stdin.close()
        line = client.stdout.readline()
        found = [each for each in wanted if f"{each.name} {each.version}" in json.loads(line or "[]")]
        if found:
            begun(found)
        errors = client.stderr.read() if client.stderr is not None else ""
    if client.returncode == parts.UNREACHED:
        _was_unreached = True
        raise not_fetched(wanted[0], _UNREACHED)
    if found and client.returncode:
        raise not_fetched(found[0], _why_of(errors))
    return {each: next(path for file in each.files if (path := folder / file.name).is_file()) for each in found}


def download(wheel: Wheel, scratch: Path, wanted: Sequence[str] = ()) -> Path:
    """Downloads one whole file of ``wheel`` into the empty folder ``scratch``; for a wheel without files any file with
    the ``wanted`` tags. Raises MachineError (REL002, REL003)."""
    lines = f"{wheel.name}=={wheel.version} " + " ".join(f"--hash=sha256:{file.sha256}" for file in wheel.files)
    (scratch / "requirements.txt").write_text(lines + "\n", encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input"),
        *("--disable-pip-version-check", "-r", "requirements.txt", "-d", "."),
        *(("--require-hashes",) if wheel.files else ()),
        *(_tags(wheel) or wanted),
    ]
    try:
        done: Any = subprocess.run(
            command, cwd=scratch, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise not_fetched(wheel, str(failure)) from failure
    found = next(scratch.glob("*.whl"), None)
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise other_file(wheel)
    if done.returncode or found is None:
        raise not_fetched(wheel, _why_of(done.stderr))
    return found


def _tags(wheel: Wheel) -> Sequence[str]:
    return tags(wheel.files[0]) if len(wheel.files) == 1 else ()


def tags(file: WheelFile) -> Sequence[str]:
    """Returns the options for the package client with which any system and Python gets this file."""
    python, abi, platforms = file.name.removesuffix(".whl").split("-")[-3:]
    if platforms == "any":
        return ("--python-version", _LAST)
    asked = [word for platform in platforms.split(".") for word in ("--platform", platform)]
    number = f"{python[2]}.{python[3:]}"
    return ("--python-version", number, "--implementation", "cp", "--abi", abi, *asked)


def not_fetched(wheel: Wheel, why: str) -> MachineError:
    message = f"{wheel.name} {wheel.version} was not fetched: {why}"
    hint = "the package client is pip of this interpreter, with your PIP_INDEX_URL, mirrors and proxies"
    return MachineError(Finding("error", "REL002", message, hint=hint))


def other_file(wheel: Wheel) -> MachineError:
    message = f"{wheel.name} {wheel.version} is not the recorded wheel: its sha256 differs"
    return MachineError(Finding("error", "REL003", message, hint="nothing was unpacked or run"))


def _why_of(text: str) -> str:
    """Returns why the package client brought nothing. It reports a missing file like an unreachable index, except for
    its warnings."""
    if "Retrying (Retry(" in text:
        return _UNREACHED
    if "(from versions: none)" in text:
        return f"{_UNREACHED}, or has no such file"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return (lines[-1] if lines else "pip printed nothing")[:300]
