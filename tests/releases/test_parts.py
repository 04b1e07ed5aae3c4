"""Wheels fetched in parts from an index on this machine: what is fetched, what is refused, what is left behind."""

from __future__ import annotations

import base64
import errno
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.releases import fetching, parts, wheels
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import Record
from sglang_hydra.releases.release import ask_release, can_answer
from sglang_hydra.text.errors import MachineError
from tests.releases.fake import FILES, VERSION, make_wheel, recorded_release
from tests.releases.test_wheels import _case

ROOT = Path(__file__).parents[2]
BIG = {f"sglang/srt/big_{number}.py": f"x = {number}\n" + os.urandom(20_000).hex() for number in range(10)}
"""Files that no argument code reads."""
RELEASE = {**FILES, **BIG, "sglang/srt/data.json": "{}"}


class Index(ThreadingHTTPServer):
    """A package index of the wheels in a folder. ``sent`` has the bytes of each file that were sent."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.folder, self.sent, self.asked = folder, 0, 0
        self.gives_parts, self.key = True, ""
        self.wait = threading.Event()
        self.wait.set()
        self.most = -1

    def handle_error(self, *_: Any) -> None:
        """A client that was killed is gone."""

    @property
    def url(self) -> str:
        user = f"{self.key}@" if self.key else ""
        return f"http://{user}127.0.0.1:{self.server_port}/simple"


class Page(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.wait.wait(30)
        wanted = base64.b64encode(self.server.key.encode()).decode()
        if self.server.key and self.headers.get("Authorization") != f"Basic {wanted}":
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name = self.path.rstrip("/").rpartition("/")[2]
        if name.endswith(".whl"):
            self._file((self.server.folder / name).read_bytes())
            return
        links = "".join(
            f'<a href="/files/{file.name}">{file.name}</a>' for file in self.server.folder.glob(f"{name}-*")
        )
        self._send(200, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")

    def _file(self, content: bytes) -> None:
        span = self.headers.get("Range") if self.server.gives_parts else None
        self.server.asked += 1
        if 0 < self.server.most < self.server.asked:
            self._send(410, b"")
            return
        if span is None:
            self._send(200, content)
            return
        first, _, last = span.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(int(last) + 1, len(content)) if first else len(content)
        self._send(206, content[start:end], place=f"bytes {start}-{end - 1}/{len(content)}")

    def _send(self, code: int, content: bytes, kind: str = "application/octet-stream", place: str = "") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if place:
            self.send_header("Content-Range", place)
        self.end_headers()
        self.wfile.write(content)
        if kind != "text/html":
            self.server.sent += len(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    folder = tmp_path / "index"
    folder.mkdir()
    made = Index(folder)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_INDEX_URL", made.url)
    monkeypatch.setattr(parts, "SMALL", 0)
    program = Path(parts.__file__).read_text().replace("SMALL = 300_000", "SMALL = 0").replace("1 << 16", "1 << 10")
    file = tmp_path / "parts.py"
    file.write_text(program)
    monkeypatch.setattr(parts, "__file__", str(file))
    monkeypatch.setattr(fetching, "_was_unreached", False)
    monkeypatch.setattr(wheels, "read_files", lambda: frozenset({*FILES, "transformers/__init__.py"}))
    yield made
    end_children()
    made.wait.set()
    made.shutdown()
    made.server_close()


@pytest.fixture
def record(index: Index, monkeypatch: pytest.MonkeyPatch) -> Record:
    return recorded_release(index.folder, monkeypatch, RELEASE)


def test_what_is_run_is_fetched_and_nothing_else(record: Record, index: Index) -> None:
    lines: list[str] = []
    places = wheels.fetch(record, lines.append)
    assert [line.partition(", once")[0] for line in lines] == [
        f"fetching what is run of SGLang {VERSION} and its libraries"
    ]
    assert index.sent < record.wheel.size / 3
    assert not list(places[0].rglob("big_*.py"))
    assert not (places[0] / "sglang" / "multimodal_gen").exists()
    assert ask_release(VERSION, [_case("--ask", "known")])[0].values["found"] == 42
    sent = index.sent
    assert wheels.fetch(record, lines.append) == places
    assert (index.sent, len(lines)) == (sent, 1)


@pytest.mark.thorough
def test_an_index_without_parts_gives_the_whole_wheel(record: Record, index: Index) -> None:
    index.gives_parts = False
    lines: list[str] = []
    wheels.fetch(record, lines.append)
    assert [line.split(",")[0] for line in lines] == [
        f"fetching sglang {VERSION} whole",
        "fetching transformers 4.56.1 whole",
    ]
    assert can_answer(VERSION)


def test_an_index_that_asks_for_a_name_and_a_key_gets_them(
    record: Record, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.key = "me:secret"
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    wheels.fetch(record)
    assert can_answer(VERSION)


@pytest.mark.thorough
def test_a_client_whose_own_modules_are_others_fetches_whole_wheels(
    record: Record, index: Index, tmp_path: Path
) -> None:
    file = Path(str(parts.__file__))
    file.write_text(file.read_text().replace("pip._internal.commands", "pip._internal.commands_of_another_pip"))
    lines: list[str] = []
    wheels.fetch(record, lines.append)
    assert len(lines) == 2
    assert can_answer(VERSION)


def change_a_member(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["sglang/srt/server_args.py"] = b"raise SystemExit"
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)


def change_the_list(file: Path) -> None:
    make_wheel(file.parent, "sglang", VERSION, {**RELEASE, "sglang/srt/server_args.py": "raise SystemExit"})


def cut_it(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-500])


@pytest.mark.corpus
@pytest.mark.parametrize("attack", [change_a_member, change_the_list, cut_it])
def test_parts_of_another_wheel_are_not_unpacked(attack: Callable[[Path], None], record: Record, index: Index) -> None:
    attack(index.folder / record.wheel.files[0].name)
    with pytest.raises(MachineError, match="REL003") as failure:
        wheels.fetch(record)
    assert failure.value.findings[0].hint == "nothing was unpacked or run"
    assert not can_answer(VERSION)


def test_a_file_that_was_not_fetched_is_fetched_when_it_is_asked_for(
    record: Record, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "read_files", lambda: frozenset({*FILES, "transformers/__init__.py"} - {LAZY}))
    places = wheels.fetch(record)
    assert not (places[0] / LAZY).exists()
    unanswered = ask_release(VERSION, [_case("--ask", "lazy")])[0].unanswered
    assert unanswered == f"it reads {LAZY}, which was not fetched; without --offline it is"
    monkeypatch.delenv(fetching.OFFLINE_VARIABLE, raising=False)
    lines: list[str] = []
    monkeypatch.setattr(fetching, "_progress", lines.append)
    assert ask_release(VERSION, [_case("--ask", "lazy")])[0].values["found"] == "~/lazy"
    assert [line.partition(", into")[0] for line in lines] == [f"fetching 1 more file of sglang {VERSION}"]


LAZY = "sglang/srt/lazy.py"


@pytest.mark.corpus
@pytest.mark.parametrize("how", ["nobody listens", "nobody answers"])
def test_a_plan_does_not_wait_for_an_index_that_says_nothing(how: str, record: Record, index: Index) -> None:
    if how == "nobody listens":
        index.shutdown()
        index.server_close()
    else:
        index.wait.clear()
    started = time.monotonic()
    with pytest.raises(MachineError, match=r"REL002: .* the package index cannot be reached(\n|$)"):
        wheels.fetch(record, wait_s=0.5)
    imported = _time_of("import pip._internal.commands.download")
    assert time.monotonic() - started < 2 * imported + 5
    began = time.monotonic()
    with pytest.raises(MachineError, match="as a moment ago"):
        wheels.fetch(record, wait_s=0.5)
    assert time.monotonic() - began < 0.5, "said once, and not waited for again"
    index.wait.set()
    assert list(wheels.folders()[0].iterdir()) == []


def _time_of(program: str) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.monotonic() - started


@pytest.mark.corpus
@pytest.mark.parametrize("last", [3, 5])
def test_an_index_that_fails_on_the_way_leaves_nothing(last: int, record: Record, index: Index) -> None:
    index.most = last
    with pytest.raises(MachineError, match="REL002"):
        wheels.fetch(record)
    assert list(wheels.folders()[0].iterdir()) == []
    index.most = -1
    wheels.fetch(record)
    assert can_answer(VERSION)


def test_a_killed_fetch_is_swept_at_the_next_call(record: Record, index: Index) -> None:
    index.wait.clear()
    program = f"""
from sglang_hydra.releases import parts, wheels
from sglang_hydra.releases.records import Record, Wheel, WheelFile
parts.__file__ = {str(parts.__file__)!r}
wheels.fetch({record!r})
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as fetching_one:
        cache = wheels.folders()[0]
        deadline = time.monotonic() + 60
        while not list(cache.glob(".fetch-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        (left,) = cache.glob(".fetch-*")
        wheels.stale_folders()
        assert left.is_dir(), "another process uses it"
        fetching_one.send_signal(signal.SIGKILL)
    index.wait.set()
    assert left.is_dir()
    assert wheels.stale_folders() == []
    assert not left.exists()


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


STEPS: dict[str, tuple[Any, str]] = {
    "a file is written": (wheels, "_put"),
    "the folder is named": (Path, "rename"),
    "the parts are fetched": (subprocess, "Popen"),
}


@pytest.mark.corpus
@pytest.mark.parametrize("error", [full_disk, KeyboardInterrupt])
@pytest.mark.parametrize("step", STEPS)
def test_each_step_that_is_refused_or_interrupted_leaves_a_whole_cache(
    step: str, error: Any, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*values: Any, **_: Any) -> Any:
        if error is KeyboardInterrupt:
            raise KeyboardInterrupt
        return full_disk(*values)

    with monkeypatch.context() as patched:
        patched.setattr(*STEPS[step], failing)
        with pytest.raises((MachineError, KeyboardInterrupt)) as failure:
            wheels.fetch(record)
    if isinstance(failure.value, MachineError):
        assert failure.value.findings[0].id == "REL002"
        assert "No space left on device" in failure.value.findings[0].message
    assert list(wheels.folders()[0].iterdir()) == []
    wheels.fetch(record)
    assert can_answer(VERSION)


@pytest.mark.thorough
def test_two_processes_that_fetch_at_once_end_with_one_cache(record: Record, index: Index) -> None:
    program = f"""
from sglang_hydra.releases import parts, wheels
from sglang_hydra.releases.records import Record, Wheel, WheelFile
parts.__file__ = {str(parts.__file__)!r}
print(len(wheels.fetch({record!r})))
"""
    both = [subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)]
    assert [each.communicate()[0] for each in both] == [b"2\n", b"2\n"]
    assert {place.name for place in wheels.folders()[0].iterdir()} == {wheel.folder for wheel in record.wheels}
