"""Decides which cache files may be used: in folders that only the user can write, with a mark by the user's key."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import secrets
import shlex
import shutil
import stat
from pathlib import Path

from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.user_settings import settings_folder
from sglang_hydra.text.whole_file import draft

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_KEY = "cache.key"
"""The key's file beside the settings, readable by its owner alone."""


def require_private(folder: Path) -> None:
    """Raises MachineError (REL015) where another user could put files into ``folder`` or replace it: where it, or a
    folder above it, also behind a link, has an owner other than the user or root, or is writable by group or others. A
    folder above it may be sticky, like /tmp: there nobody can rename another user's files."""
    real = Path(os.path.realpath(folder))
    for place in dict.fromkeys((folder, *folder.parents, real, *real.parents)):
        try:
            state = place.stat()
        except OSError:
            continue
        if not stat.S_ISDIR(state.st_mode):
            continue
        is_sticky = place not in (folder, real) and bool(state.st_mode & stat.S_ISVTX)
        if state.st_uid not in (os.getuid(), 0):
            raise _not_private(place, "another user owns it", 'export SGLANG_HYDRA_CACHE="$HOME/.sglang_hydra"')
        if state.st_mode & 0o022 and not is_sticky:
            raise _not_private(place, "group or others can write it", f"chmod go-w {shlex.quote(str(place))}")


def make_private(folder: Path) -> None:
    """Makes ``folder`` and the folders above it, mode 0700. Raises OSError, or MachineError (REL015)."""
    require_private(folder)
    for place in (*reversed(folder.parents), folder):  # mkdir(parents=True) would give the parents the umask's mode
        place.mkdir(mode=0o700, exist_ok=True)
    require_private(folder)


def put_whole(path: Path, source: Path) -> None:
    """Copies ``source`` to ``path`` atomically, readable by the user alone. Raises OSError."""
    written = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(source, "rb") as origin, open(os.open(written, _NEW, 0o600), "wb") as target:
            shutil.copyfileobj(origin, target)
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def mark(purpose: str, content: bytes = b"") -> bytes:
    """Returns the HMAC-SHA256 of ``content`` for one purpose, 32 bytes. Only the user's key can make it."""
    return hmac.digest(_key(settings_folder()), purpose.encode() + b"\0" + content, hashlib.sha256)


@functools.cache
def _key(folder: str | None) -> bytes:
    """Returns the user's key. Makes one where it is missing or was open to others. Without writable settings it returns
    a random key for this process, so marks of other processes do not match."""
    if folder is None:
        return secrets.token_bytes(32)
    path = Path(folder, _KEY)
    try:
        for _ in range(2):
            key = _private_content(path)
            if key is not None:
                return key
            path.unlink(missing_ok=True)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with draft(path, secrets.token_hex(32), mode=0o600) as written:
                try:
                    os.link(written, path)
                except FileExistsError:
                    continue  # another process was first
    except OSError:
        pass
    return _private_content(path) or secrets.token_bytes(32)


def _private_content(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as file:
        state = os.fstat(handle)
        is_private = stat.S_ISREG(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077
        content = file.read(65)
    return content if is_private and len(content) == 64 else None


def _not_private(place: Path, why: str, hint: str) -> MachineError:
    return MachineError.of("REL015", f"the cache is not used: {place}: {why}", hint=hint)
