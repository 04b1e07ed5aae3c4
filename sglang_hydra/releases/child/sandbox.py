"""Restricts this process for the rest of its life: files by Landlock; sockets, programs and other processes by seccomp.
Both need no rights, and only Linux has them."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""The number of rights over files in each version of Landlock; the first four are to execute, to write a file, to read
a file and to read a folder."""
_READ = 0b1100
_MOST_WRITTEN = 1 << 28
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER, _DUMPABLE = 38, 22, 2, 4

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS = os.path.join(os.path.dirname(__file__), "calls.json")
"""The refused system calls, by their numbers on x86-64 and on 64-bit ARM: sockets, programs, other processes and shared
resources, calls for system tools, and rights and times of files, which Landlock does not cover."""
_LIMIT = (302, 261)
"""prlimit64: limits of this process alone."""
_CLONE, _CLONE3, _THREAD = (56, 220), (435, 435), 0x10000
"""The older of the two calls can make a thread, but no process."""
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_BIT, _END = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


def enter(readable: Iterable[str], writable: str) -> dict[str, bool]:
    """Restricts this process to ``readable`` folders, the interpreter's and system's libraries, and ``writable``.
    Returns the granted parts: ``files``, and ``calls`` for sockets, programs and other processes."""
    if not sys.platform.startswith("linux"):
        return {"files": False, "calls": False}
    import resource  # a browser has none

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    refused = calls()  # its file is closed for this process next
    return {"files": _restrict_files(libc, [*readable, *_libraries()], writable), "calls": _refuse_calls(libc, refused)}


def calls() -> dict[str, list[int | None]]:
    """Returns the refused system calls."""
    with open(_CALLS, encoding="utf-8") as file:
        found: dict[str, list[int | None]] = json.load(file)
    return found


def landlock_version() -> int:
    """Returns the system's version of Landlock; below 1 without one."""
    if not sys.platform.startswith("linux"):
        return 0
    return int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def hide_memory(hidden: bool) -> None:
    """Makes this process's memory and environment unreadable, or readable again, for the user's other processes."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_DUMPABLE, int(not hidden), 0, 0, 0)


def _libraries() -> Iterable[str]:
    yield from {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.join(sys.base_prefix, "lib")}
    yield from ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/urandom", "/dev/null")


def _restrict_files(libc: ctypes.CDLL, readable: Iterable[str], writable: str) -> bool:
    version = landlock_version()
    if version < 1:
        return False
    rights = (1 << _RIGHTS[max(known for known in _RIGHTS if known <= version)]) - 1
    network, scope = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    handled = struct.pack("<QQQ", rights, network, scope)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    rules = libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if rules < 0:
        return False
    for path, allowed in [*((path, _READ) for path in readable), (writable, rights & ~1)]:
        _allow(libc, rules, path, allowed)
    is_restricted: bool = libc.syscall(_RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return is_restricted


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        rights &= 0b0110
    libc.syscall(_ADD_RULE, rules, 1, struct.pack("<Qi", rights, place), 0)
    os.close(place)


def _refuse_calls(libc: ctypes.CDLL, refused: Mapping[str, Sequence[int | None]]) -> bool:
    """Installs a filter of system calls, also for those by another architecture's numbers."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return False
    mine = list(_ARCHITECTURES).index(machine)
    steps = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 1, 0, _ARCHITECTURES[machine]), (_END, 0, 0, _EPERM), (_LOAD, 0, 0, 0)]
    for number in (each[mine] for each in refused.values()):
        steps += [(_IF_EQUAL, 0, 1, number), (_END, 0, 0, _EPERM)] if number is not None else []
    steps += [(_IF_EQUAL, 0, 4, _LIMIT[mine]), (_LOAD, 0, 0, 16), (_IF_EQUAL, 1, 0, 0), (_END, 0, 0, _EPERM)]
    steps += [(_LOAD, 0, 0, 0), (_IF_AT_LEAST, 0, 1, 1 << 30), (_END, 0, 0, _EPERM), (_IF_EQUAL, 0, 1, _CLONE3[mine])]
    steps += [(_END, 0, 0, _ENOSYS), (_IF_EQUAL, 0, 3, _CLONE[mine]), (_LOAD, 0, 0, 16), (_IF_BIT, 1, 0, _THREAD)]
    steps += [(_END, 0, 0, _EPERM), (_END, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("<H6xQ", len(steps), ctypes.addressof(code))
    return bool(libc.prctl(_SECCOMP, _FILTER, program, 0, 0) == 0)
