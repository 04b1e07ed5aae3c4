"""Command lines of ours in processes of their own that skip the half second of imports.

A server imports once what ``sglang-hydra`` imports and forks for each command line. The fork runs a script as
``__main__`` with the words, folder, environment, input and outputs of whoever asks, and ends as that program ends.
Signals do not reach it: a test that sends one starts a real ``serve.py``.

As a program: ``python -I -S forked.py SOCKET SCRIPT WORDS...`` runs one command line, and ends with its exit code.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import IO

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SERVE = os.path.join(REPOSITORY, "serve.py")
LOADED_BY = ("plan", "gpu=h200", "model=qwen3_8b")
"""What this command line imports is imported before the first fork."""
ALSO = (
    *("sglang_hydra.measure.sweep.runner", "sglang_hydra.run.launch.serve", "rich.status", "rich.table", "httpx"),
    *("hydra.main", "hydra._internal.hydra", "hydra._internal.utils", "hydra._internal.core_plugins.basic_sweeper"),
    *("joblib", "sglang_hydra.run.hydra_app", "sglang_hydra.run.before_hydra"),
)
_started: list[str] = []
LONGEST_REQUEST = 1 << 20
FAILED = 70


def server() -> str:
    """The socket of this test process's server, which is started once and ends with this process."""
    import atexit
    import subprocess
    import tempfile
    import time

    if not _started:
        folder = tempfile.mkdtemp(prefix="forked")
        path = os.path.join(folder, "socket")
        kept = ("PATH", "HOME", "LC_ALL", "TMPDIR")  # each command line brings the whole environment of its own
        env = {**{name: os.environ[name] for name in kept if name in os.environ}, "PYTHONPATH": REPOSITORY}
        process = subprocess.Popen([sys.executable, __file__, "--serve", path], stdin=subprocess.PIPE, env=env)

        def end() -> None:
            process.communicate(timeout=60)
            os.unlink(path)
            os.rmdir(folder)

        atexit.register(end)
        while not os.path.exists(path):
            if process.poll() is not None:
                raise RuntimeError(f"the server of forks ended with {process.returncode}")
            time.sleep(0.02)
        _started.append(path)
    return _started[0]


def run_forked(words: list[str], *, folder: str, env: dict[str, str], script: str = SERVE) -> tuple[int, str]:
    """Runs ``SCRIPT WORDS`` without an input; returns its exit code and what it wrote to both outputs."""
    import tempfile

    with tempfile.TemporaryFile() as written:
        return _run_into(written, written, [script, *words], folder, env), _text(written)


def run_forked_apart(words: list[str], *, folder: str, env: dict[str, str], script: str) -> tuple[int, str, str]:
    """As ``run_forked``, with what it wrote to each of both outputs."""
    import tempfile

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        return _run_into(out, err, [script, *words], folder, env), _text(out), _text(err)


def _run_into(out: IO[bytes], err: IO[bytes], words: list[str], folder: str, env: dict[str, str]) -> int:
    with open(os.devnull, "rb") as nothing:
        files = (nothing.fileno(), out.fileno(), err.fileno())
        return ask(server(), words, folder=folder, env=env, files=files)


def _text(written: IO[bytes]) -> str:
    written.seek(0)
    return written.read().decode()


def ask(path: str, words: list[str], *, folder: str, env: dict[str, str], files: tuple[int, int, int]) -> int:
    """Runs the script and arguments ``words`` with these descriptors as input and outputs; returns the exit code."""
    request = json.dumps({"words": words, "folder": folder, "env": env}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], list(files))
        connection.sendall(request)
        code = connection.recv(1)
    return code[0] if code else FAILED


def serve(path: str) -> None:
    """Answers until standard input ends, which it does when the process that started this one ends."""
    import gc
    import select

    sys.path[0] = REPOSITORY  # as for serve.py
    _import_all()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.new")
    listener.listen(64)
    os.rename(f"{path}.new", path)  # so that who finds it can connect
    gc.freeze()
    forks: set[int] = set()
    while True:
        ready = select.select([listener, 0], [], [])[0]
        if 0 in ready:
            return
        connection, _ = listener.accept()
        fork = os.fork()
        if fork == 0:
            listener.close()
            _answer(connection)
        connection.close()
        forks.add(fork)
        forks -= {fork for fork in forks if os.waitpid(fork, os.WNOHANG)[0]}


def _answer(connection: socket.socket) -> None:
    """Runs the command line in a child, so that its exit code is known however it ends."""
    length, files, _, _ = socket.recv_fds(connection, 4, 3)
    request = b""
    while len(request) < int.from_bytes(length, "big"):
        part = connection.recv(LONGEST_REQUEST)
        if not part:  # whoever asked has gone
            os._exit(0)
        request += part
    child = os.fork()
    if child == 0:
        connection.close()
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, 64)
        asked = json.loads(request)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["env"])
        _run(asked["words"])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(bytes([code & 255]))
    os._exit(0)


def _run(words: list[str]) -> None:
    import atexit
    import runpy
    import threading
    import time

    time.tzset()
    sys.argv = words
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False, encoding="utf-8", errors=errors)  # noqa: SIM115
        for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    code = 0
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as failure:  # noqa: BLE001
        sys.excepthook(type(failure), failure, failure.__traceback__)
        code = 1
    threading._shutdown()  # as at the end of an interpreter: pools of processes wait for their workers here
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # at once: to take the interpreter apart takes longer than most commands


def _import_all() -> None:
    """Imports what a command line imports; its run is left to a child, so that nothing of it stays here."""
    import importlib

    reader, writer = os.pipe()
    if os.fork() == 0:
        from sglang_hydra.cli.main import entry

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        entry(LOADED_BY)
        os.write(writer, "\n".join(sys.modules).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as names:
        loaded = names.read().splitlines()
    for name in (*loaded, *ALSO):
        if name != "__main__" and "." not in name[:1]:
            try:
                importlib.import_module(name)
            except ImportError:  # made while it ran, and not a module that is found by its name
                continue


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:], folder=os.getcwd(), env=dict(os.environ), files=(0, 1, 2)))
