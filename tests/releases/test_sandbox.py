"""What the system keeps the child from, each attempt beside one that it is allowed; docs/security.md has the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_hydra.releases import process, wheels
from sglang_hydra.releases.child import sandbox
from sglang_hydra.releases.process import Child, end_children
from tests.releases.fake import unpacked_release
from tests.releases.test_child import H200

_CHILD = Path(sandbox.__file__).parents[1]
_PROGRAM = """
import ctypes, json, mmap, os, signal, socket, sys, threading
sys.path.insert(0, sys.argv[1])
from child import sandbox
wheel, scratch, secret, parent = sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
CALLS = sandbox.calls()
given = sandbox.enter([wheel], scratch)

def call(number, *values):
    if libc.syscall(number, *values) < 0:
        raise OSError(ctypes.get_errno(), "refused")

def thread():
    done = []
    one = threading.Thread(target=lambda: done.append(1))
    one.start()
    one.join()
    assert done

ALLOWED = {
    "read a file of the wheel": lambda: open(f"{wheel}/file").read(),
    "write into the scratch folder": lambda: open(f"{scratch}/file", "w").close(),
    "start a thread": thread,
    "load a library of the interpreter": lambda: __import__("ssl"),
    "read and set its own limits": lambda: (r := __import__("resource")).setrlimit(0, r.getrlimit(0)),
}
REFUSED = {
    "read a file of the user": lambda: open(secret).read(),
    "read a folder of the user": lambda: os.listdir(os.path.dirname(secret)),
    "read /etc/passwd": lambda: open("/etc/passwd").read(),
    "read the parent's environment": lambda: open(f"/proc/{parent}/environ").read(),
    "read the parent's memory": lambda: open(f"/proc/{parent}/mem", "rb").read(1),
    "list the processes": lambda: os.listdir("/proc"),
    "write into the wheel": lambda: open(f"{wheel}/file", "a").close(),
    "write beside a file of the user": lambda: open(f"{secret}.new", "w").close(),
    "truncate a file of the user": lambda: os.truncate(secret, 0),
    "remove a file of the user": lambda: os.unlink(secret),
    "rename a file of the user": lambda: os.rename(secret, f"{scratch}/mine"),
    "link a file of the user": lambda: os.link(secret, f"{scratch}/mine"),
    "read by a symbolic link": lambda: os.symlink(secret, f"{scratch}/link") or open(f"{scratch}/link").read(),
    "change the rights of a file": lambda: os.chmod(secret, 0o777),
    "change the times of a file": lambda: os.utime(secret),
    "change the owner of a file": lambda: os.chown(secret, 65534, 65534),
    "open a TCP socket": lambda: socket.socket(),
    "open a UDP socket": lambda: socket.socket(type=socket.SOCK_DGRAM),
    "open a Unix socket": lambda: socket.socket(socket.AF_UNIX),
    "open a pair of sockets": lambda: socket.socketpair(),
    "run a program": lambda: os.execv("/bin/true", ["true"]),
    "start a process": lambda: os.fork() or os._exit(0),
    "end the parent": lambda: os.kill(int(parent), signal.SIGTERM),
    "watch the parent": lambda: call(CALLS["ptrace"][at], 16, int(parent), 0, 0),
    "copy the parent's memory": lambda: call(CALLS["process_vm_readv"][at], int(parent), 0, 0, 0, 0, 0),
    "take a file of the parent": lambda: call(CALLS["pidfd_open"][at], int(parent), 0),
    "limit the parent": lambda: call(sandbox._LIMIT[at], int(parent), 0, (ctypes.c_ulong * 2)(0, 0), 0),
    "slow the parent": lambda: os.setpriority(os.PRIO_PROCESS, int(parent), 19),
    "keep the parent to a core": lambda: os.sched_setaffinity(int(parent), {0}),
    "share memory": lambda: call(CALLS["shmget"][at], 0, 4096, 0o1600),
    "open a queue of messages": lambda: call(CALLS["msgget"][at], 0, 0o1600),
    "set the clock": lambda: __import__("time").clock_settime(0, __import__("time").time()),
    "name the machine": lambda: call(CALLS["sethostname"][at], socket.gethostname().encode(), 0),
    "watch a file of the user": lambda: call(CALLS["inotify_init1"][at], 0),
    "make an io_uring": lambda: call(CALLS["io_uring_setup"][at], 1, 0),
    "make a namespace": lambda: call(CALLS["unshare"][at], 0x10000000),
    "write more than 256 MiB": lambda: open(f"{scratch}/big", "wb").truncate(1 << 29),
}
at = list(sandbox._ARCHITECTURES).index(os.uname().machine)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
found = {}
for name, attempt in {**ALLOWED, **REFUSED}.items():
    try:
        attempt()
        found[name] = ""
    except OSError as error:
        found[name] = type(error).__name__
print(json.dumps([given, list(ALLOWED), found]))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bool], list[str], dict[str, str]]:
    folder = tmp_path_factory.mktemp("sandbox")
    for name in ("wheel", "scratch", "home"):
        (folder / name).mkdir()
    (folder / "wheel" / "file").write_text("x")
    (folder / "home" / "secret").write_text("secret")
    places = [str(folder / name) for name in ("wheel", "scratch", "home/secret")]
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_CHILD), *places, str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (folder / "home" / "secret").read_text() == "secret"
    assert [file.name for file in (folder / "home").iterdir()] == ["secret"]
    given, allowed, found = json.loads(done.stdout)
    return given, allowed, found


def test_this_linux_has_both(outcome: tuple[dict[str, bool], list[str], dict[str, str]]) -> None:
    given, _, _ = outcome
    assert given == {"files": sandbox.landlock_version() >= 1, "calls": True}


def test_what_a_release_needs_is_allowed(outcome: tuple[dict[str, bool], list[str], dict[str, str]]) -> None:
    _, allowed, found = outcome
    assert [name for name in allowed if found[name]] == []


def test_everything_else_is_refused(outcome: tuple[dict[str, bool], list[str], dict[str, str]]) -> None:
    given, allowed, found = outcome
    assert given["files"], "without Landlock the rows on files do not hold"
    assert [name for name, error in found.items() if name not in allowed and not error] == []
    assert len(found) - len(allowed) == 37


@pytest.mark.parametrize("python", [None, sys.executable], ids=["a pinned release", "an environment"])
def test_a_child_says_what_holds(python: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = unpacked_release(tmp_path, monkeypatch)
    places = [place for wheel in record.wheels if (place := wheels.place_of(wheel))]
    child = Child(record, places, H200, python=python)
    assert child.greeting["sandbox"] == {"files": sandbox.landlock_version() >= 1, "calls": True}
    child.end()


def test_a_child_gets_no_variable_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    record = unpacked_release(tmp_path, monkeypatch)
    child = Child(record, [place for wheel in record.wheels if (place := wheels.place_of(wheel))], H200)
    given = Path(f"/proc/{child._process.pid}/environ").read_bytes().split(b"\0")
    assert {line.partition(b"=")[0].decode() for line in given if line} <= set(process._NEEDED_TO_START)
    child.end()


_HIDDEN = """
import os, sys
sys.path.insert(0, sys.argv[1])
from child import sandbox
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
def read(pid):
    try:
        return "secret" in open(f"/proc/{pid}/environ").read()
    except PermissionError:
        return False
found = []
for hidden in (False, True, False):
    sandbox.hide_memory(hidden)
    mine, pid = os.pipe(), os.fork()
    if not pid:
        os.write(mine[1], str(read(os.getppid())).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    found.append(os.read(mine[0], 9).decode())
print(*found)
"""


def test_without_landlock_a_users_process_hides_its_environment() -> None:
    """As another user than root, from whom nothing is hidden."""
    command = [sys.executable, "-I", "-S", "-c", _HIDDEN, str(_CHILD)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"KEY": "secret"}, cwd="/")
    assert done.stdout.split() == ["True", "False", "True"], done.stderr


def test_without_landlock_the_parent_of_a_child_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(process, "landlock_version", lambda: 0)
    monkeypatch.setattr(process, "hide_memory", calls.append)
    record = unpacked_release(tmp_path, monkeypatch)
    places = [place for wheel in record.wheels if (place := wheels.place_of(wheel))]
    first, second = (Child(record, places, {**H200, "count": count}) for count in (1, 2))
    first.end()
    assert calls == [True, True, True]
    second.end()
    assert calls[-1] is False
    end_children()
