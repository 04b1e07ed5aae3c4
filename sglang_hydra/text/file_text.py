"""Opens untrusted paths without waiting: only regular files of a readable size.

A pipe without a writer would block forever, and a device would never end."""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, cast

CONFIG_BYTES = 1 << 20
"""The largest YAML file to read as a configuration: 1 MiB, which takes PyYAML some seconds."""
RECORD_BYTES = 1 << 28
"""The largest record of a program to read (a plan, a sweep, a config.json): 256 MiB."""

_OF_THE_SHELL = re.compile(r"/dev/fd/\d+|/proc/self/fd/\d+")
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file for reading bytes. Raises OSError, also for a pipe, a device or a socket."""
    return cast(BinaryIO, open(path, "rb", opener=_opener))


def open_typed(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a typed path like ``open_plain``, and also accepts a pipe of the shell: ``<(kubectl logs POD)``."""
    return cast(BinaryIO, open(path, "rb")) if _OF_THE_SHELL.fullmatch(str(path)) else open_plain(path)


def read_text(
    path: str | os.PathLike[str],
    most: int = RECORD_BYTES,
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    newline: str | None = None,
) -> str:
    """Returns the text of a regular file of at most ``most`` bytes; ``newline`` is as for ``open``.

    Raises UnicodeError, and OSError with the reason in words in ``strerror``."""
    with open(path, encoding=encoding, errors=errors, newline=newline, opener=_opener) as file:
        if os.fstat(file.fileno()).st_size > most or len(text := file.read(most + 1)) > most:
            raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
        return text


def reason_of(failure: Exception) -> str:
    """Returns why a file cannot be read or written, without its name."""
    text = "it is not UTF-8 text" if isinstance(failure, UnicodeError) else str(failure)
    if isinstance(failure, UnicodeDecodeError) and failure.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        text = "it is UTF-16 text, as PowerShell writes it: save it as UTF-8 (Out-File -Encoding utf8)"
    return getattr(failure, "strerror", None) or text


def special_kind(path: str | os.PathLike[str]) -> str | None:
    """Returns the kind of a special file ("a pipe"), or None for a regular file or folder. Raises OSError."""
    return _kind(os.stat(path).st_mode)


def link_problem(file: Path, folder: Path) -> str | None:
    """Returns why a file found below ``folder`` is not read (a broken link, a link out of the folder, a pipe, a
    device), or None for a readable file."""
    try:
        target = Path(os.path.realpath(file, strict=True))
        kind = special_kind(target)
    except FileNotFoundError:
        return "it is a link to a file that is not there"
    except OSError as failure:
        return "it is a link that leads to itself" if failure.errno == errno.ELOOP else str(failure.strerror)
    if not target.is_relative_to(os.path.realpath(folder)):
        return "it is a link that leads out of the folder that was given"
    return f"it is {kind}, not a file" if kind else None


def _opener(path: str, flags: int) -> int:
    _refuse(os.stat(path).st_mode, path)
    number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _refuse(os.fstat(number).st_mode, path)
    except OSError:
        os.close(number)
        raise
    return number


def _refuse(mode: int, path: str) -> None:
    if kind := _kind(mode):
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", path)


def _kind(mode: int) -> str | None:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), None)
