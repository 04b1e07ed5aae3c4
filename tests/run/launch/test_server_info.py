"""The look at a running server: bounded in time, whatever it answers, and never its end."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.planning.comparing.actual import Comparison
from sglang_hydra.planning.engines.base import Command
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch import server_info
from sglang_hydra.run.launch.local import Launch
from sglang_hydra.run.launch.server_info import NoServerInfo, after_start, compared_with_written_plan, read_server_info
from sglang_hydra.text.errors import ServerError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from tests.commands import must_follow
from tests.plans import planned, without_engines

ON_CPU = ("gpu=cpu", "model=tiny", "attention_backend=torch_native", "sampling_backend=pytorch")
KEY = "sk-correct-horse"
SOON_S = 0.5

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[tuple[int, list[tuple[str, str | None]]]]:
    """A server on a free port that answers every GET so, and the pages and keys that it was asked."""
    asked: list[tuple[str, str | None]] = []

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            with contextlib.suppress(OSError):
                answer(self)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        server.server_close()


def reply(page: http.server.BaseHTTPRequestHandler, status: int, content: bytes) -> None:
    page.send_response(status)
    page.send_header("Content-Length", str(len(content)))
    page.end_headers()
    page.wfile.write(content)


def answering(content: Any, status: int = 200, only: str | None = None) -> Answer:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda page: reply(page, status, text) if only in (None, page.path) else reply(page, 404, b"")


def info_of(plan: Plan, **other: Any) -> dict[str, Any]:
    values = {name: plain(value) for name, value in plan.values.items()}
    return {**values, "api_key": plan.secrets.get("api_key"), "version": "0.5.2", "max_total_num_tokens": 99, **other}


def said(lines: Any) -> str:
    """The lines as one text, however they were folded."""
    return " ".join(" ".join("".join(content for content, _ in line) for line in lines).split())


@pytest.mark.parametrize(
    ("version", "has", "asked"),
    [
        ("0.5.2", "/get_server_info", ["/get_server_info"]),
        ("0.5.5.post3", "/get_server_info", ["/get_server_info"]),
        ("0.5.6", "/server_info", ["/server_info"]),
        ("0.5.23", "/server_info", ["/server_info"]),
        ("0.5.2", "/server_info", ["/get_server_info", "/server_info"]),
        ("0.5.23", "/get_server_info", ["/server_info", "/get_server_info"]),
        ("unheard", "/server_info", ["/get_server_info", "/server_info"]),
    ],
)
def test_the_page_that_the_release_has_is_asked_first(version: str, has: str, asked: list[str]) -> None:
    with serving(answering({"model_path": "x"}, only=has)) as (port, pages):
        assert read_server_info("127.0.0.1", port, None, version) == {"model_path": "x"}
        assert pages == [(page, None) for page in asked]


def test_a_guarded_server_is_asked_with_its_key_and_the_key_is_shown_nowhere(tmp_path: Path) -> None:
    plan = planned(*ON_CPU, f"api_key={KEY}")
    with serving(answering(info_of(plan))) as (port, pages):
        lines = after_start(plan, "127.0.0.1", port, tmp_path)
    assert pages == [("/get_server_info", f"Bearer {KEY}")]
    assert "210 of 210 as planned" in said(lines)
    assert "no memory fit on the CPU" in said(lines)
    written = (tmp_path / "actual.json").read_text()
    assert KEY not in written + said(lines)
    must_follow(json.loads(written), "actual")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["actual.json"]


@pytest.mark.parametrize("words", [(), (f"api_key={KEY}",), ("engine.env.SGLANG_X=1", "random_seed=7")])
def test_a_plan_that_was_written_down_is_compared_as_it_was_made(words: tuple[str, ...], tmp_path: Path) -> None:
    plan = planned(*ON_CPU, *words)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    with serving(answering(info_of(plan))) as (port, pages):
        command = Command([], [], secret=plan.secrets.get("api_key"))
        compared = compared_with_written_plan(Launch(command, "127.0.0.1", port), tmp_path)
    assert isinstance(compared, Comparison)
    assert compared.summary == "210 of 210 as planned"
    assert pages == [("/get_server_info", f"Bearer {KEY}" if plan.secrets else None)]
    record = json.loads((tmp_path / "actual.json").read_text())
    assert record["server_id"] == plan.server_id
    assert KEY not in json.dumps(record)


def test_a_plan_that_cannot_be_read_any_more_is_a_warning(tmp_path: Path) -> None:
    found = compared_with_written_plan(Launch(Command([], []), "127.0.0.1", 9), tmp_path)
    assert isinstance(found, Finding)
    assert (found.id, found.level) == ("ACT003", "warning")
    assert "plan.json" in found.message


def test_differences_are_shown_with_their_reasons(tmp_path: Path) -> None:
    plan = planned(*ON_CPU)
    with serving(answering(info_of(plan, stream_interval=3, random_seed=1))) as (port, _):
        with pytest.raises(ServerError) as caught:
            after_start(plan, "127.0.0.1", port, tmp_path)
        (finding,) = caught.value.findings
        assert (finding.id, caught.value.exit_code) == ("ACT005", 4)
        assert "stream_interval: planned 1, the server has 3" in finding.message
        assert "random_seed: planned 42, the server has 1: it was drawn when the server started" in finding.message
        forced = planned(*ON_CPU, "launch.force=true")
        shown = said(after_start(forced, "127.0.0.1", port, tmp_path))
    assert "208 of 210 as planned" in shown
    assert "1 -> 3" in shown
    record = json.loads((tmp_path / "actual.json").read_text())
    assert [item["field"] for item in record["differences"]] == ["random_seed", "stream_interval"]


def _trickle(page: http.server.BaseHTTPRequestHandler) -> None:
    """Never silent for long, and never done."""
    page.send_response(200)
    page.send_header("Content-Length", str(1 << 20))
    page.end_headers()
    while True:
        page.wfile.write(b" ")
        page.wfile.flush()
        threading.Event().wait(0.02)


def _cut(page: http.server.BaseHTTPRequestHandler) -> None:
    page.send_response(200)
    page.send_header("Content-Length", "5000")
    page.end_headers()
    page.wfile.write(b'{"model_path"')


def _endless(page: http.server.BaseHTTPRequestHandler) -> None:
    page.send_response(200)
    page.end_headers()
    while True:
        page.wfile.write(b" " * (1 << 20))


BROKEN: dict[str, tuple[Answer, str]] = {
    "no such page": (answering({}, 404), "answered 404"),
    "a wrong key": (answering({}, 401), "answered 401"),
    "a failure": (answering({}, 500), "answered 500"),
    "an error page": (answering(b"<html>oops</html>"), "did not answer with JSON"),
    "nothing": (answering(b""), "did not answer with JSON"),
    "deep nesting": (answering(b"[" * 100_000), "did not answer with JSON"),
    "a list": (answering([1]), "with a list"),
    "another mapping": (answering({"detail": "x"}), "no arguments of a server"),
    "a cut answer": (_cut, "could not be compared"),
    "a trickle": (_trickle, "did not answer within 0.5 s"),
    "silence": (lambda page: threading.Event().wait(30) and None, "did not answer within 0.5 s"),
    "no end": (_endless, "longer than 16 MiB"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_answer_is_a_warning_in_bounded_time(case: str, tmp_path: Path) -> None:
    answer, why = BROKEN[case]
    # What is no matter of time gets time enough on a busy machine.
    wait_s = SOON_S if "within" in why else 60.0
    with serving(answer) as (port, _):
        shown = said(after_start(planned(*ON_CPU), "127.0.0.1", port, tmp_path, wait_s=wait_s))
    assert "warning ACT003" in shown
    assert why in shown
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_gone_is_a_warning() -> None:
    with serving(answering({})) as (port, _):
        pass
    assert "warning ACT003" in said(after_start(planned(*ON_CPU), "127.0.0.1", port))
    with pytest.raises(NoServerInfo):
        read_server_info("127.0.0.1", port)


def test_a_mistake_of_ours_is_a_warning_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **named: Any) -> None:
        raise AssertionError("of ours")

    monkeypatch.setattr(server_info, "read_server_info", broken)
    shown = said(after_start(planned(*ON_CPU), "127.0.0.1", 1))
    assert "ACT003" in shown
    assert "a mistake of this program: AssertionError: of ours" in shown


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    plan = planned(*ON_CPU)
    with serving(answering(info_of(plan))) as (port, _):
        assert "ACT003" in said(after_start(plan, "127.0.0.1", port, tmp_path / "gone"))


def test_what_a_server_says_does_not_reach_the_terminal_as_it_is() -> None:
    plan = planned(*ON_CPU)
    with serving(answering(info_of(plan, version="\x1b[2Jx", dtype="\x1b]0;evil\x07"))) as (port, _):
        shown = said(after_start(plan, "127.0.0.1", port))
    assert "\x1b" not in shown
    assert "\\x1b]0;evil" in shown


@pytest.mark.parametrize("overrides", [("engine=transformers",), ("nnodes=2", "tp_size=2", "node_rank=1")], ids=str)
def test_who_has_nothing_to_compare_is_not_asked(overrides: tuple[str, ...]) -> None:
    with serving(answering({})) as (port, pages):
        assert after_start(planned(*ON_CPU, *overrides), "127.0.0.1", port) == []
        assert pages == []
