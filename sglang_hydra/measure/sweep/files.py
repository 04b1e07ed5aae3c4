"""Writes files completely or not at all, even after a crash, on a full disk or a shared file system."""

from __future__ import annotations

import errno
import os
import shlex
import threading
from collections.abc import Mapping
from pathlib import Path

from sglang_hydra.text import budget
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.json_types import JsonDict, json_beside
from sglang_hydra.text.whole_file import draft, flush_folder, write_whole

_ALONE = threading.Lock()
_HINTS: Mapping[str, str] = json_beside(__file__)
"""Hints by the name of a file system error."""


def write_below(path: Path, content: str) -> None:
    """Writes ``path`` as ``write_whole`` does, and makes its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def publish(path: Path, content: str) -> bool:
    """Writes ``path`` unless it exists; returns whether it did. Of several writers one succeeds.

    A hard link, unlike a rename, never replaces. On a file system without links it checks and renames: there only the
    claim on a point separates two writers. Raises OSError if it cannot write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft(path, content) as written:
        try:
            os.link(written, path)
        except FileExistsError:
            return False
        except OSError:
            with _ALONE:
                if path.exists():
                    return False
                written.replace(path)
    flush_folder(path.parent)
    return True


def create(path: Path, content: str = "") -> bool:
    """Creates ``path`` unless it exists; returns whether it did. Atomic on local disks and on NFS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    try:
        left = memoryview(content.encode())
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    return True


def read_json(path: Path) -> JsonDict | None:
    """Returns the object in a file; None without a file. Raises ValueError for anything but a JSON object."""
    try:
        content = budget.read_json(read_text(path), "record", parse_constant=_refused)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no object")
    return content


def _refused(name: str) -> None:
    """Refuses NaN and Infinity, which Python reads although they are not JSON."""
    raise ValueError(f"{name} is no number in JSON")


def cannot_write(failure: OSError, folder: Path) -> tuple[str, str]:
    """Returns why nothing can be written below ``folder``, as a clause with the path, and a hint."""
    path = str(failure.filename2 or failure.filename or folder)
    why = f"{failure.strerror or failure} ({path})"
    if failure.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "the quota" if failure.errno == errno.EDQUOT else "the disk"
        return why, f"df -h and df -i {shlex.quote(str(folder))} show what is left; free space on {what}"
    return why, _HINTS.get(errno.errorcode.get(failure.errno or 0, ""), "sweep.folder=/another/folder")
