"""How the client holds its connections: kept, cut anywhere, closed without a word, encrypted, shared by processes."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sglang_hydra.measure.bench import client
from sglang_hydra.measure.bench.client import LoadProcesses, run_load
from sglang_hydra.measure.bench.connections import Addresses, Framing, ProtocolError, request_head
from sglang_hydra.measure.bench.measures import Sample, measure
from sglang_hydra.measure.bench.prompts import Prompt
from sglang_hydra.measure.bench.server import Endpoint
from sglang_hydra.measure.bench.wires import Arrived, Generate, Target
from sglang_hydra.text.errors import MachineError
from tests.measure.bench.conftest import Start, load
from tests.measure.bench.test_client import DONE, _request, prompts_of, written

CERTIFICATE = Path(__file__).parents[2] / "data" / "bench" / "tls.pem"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


END = b"0\r\n\r\n"
ANSWER = HEAD + chunk(written("日", 1)) + chunk(written("日本", 2)) + chunk(written("日本語", 3)) + chunk(DONE) + END

Talk = Callable[[socket.socket], bool]
"""Answers one request; whether the connection goes on."""


@contextmanager
def serving(talk: Talk, context: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[bytes], list[int]]]:
    """A server with a thread a connection; its address, what it was sent, and a number for each connection."""
    heard: list[bytes] = []
    connections: list[int] = []

    def serve(plain: socket.socket) -> None:
        agreed = (lambda: context.wrap_socket(plain, server_side=True)) if context else (lambda: plain)
        with suppress(OSError, StopIteration), plain, agreed() as wire:
            while True:
                heard.append(_request(wire))  # raises OSError where the client has gone
                if not talk(wire):
                    return

    def accept() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            connections.append(len(connections))
            threads.append(threading.Thread(target=serve, args=(plain,), daemon=True))
            threads[-1].start()

    threads = [threading.Thread(target=accept, daemon=True)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads[0].start()
        scheme = "https" if context else "http"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", heard, connections
        listener.shutdown(socket.SHUT_RDWR)
    threads[0].join(10)


def sent(url: str, count: int = 4, key: str | None = None) -> list[Sample]:
    run = run_load(Target(url, "tiny", Generate(), key), load(num_prompts=count, concurrency=1), prompts_of(3), 1)
    return list(run.samples)


def whole(wire: socket.socket) -> bool:
    wire.sendall(ANSWER)
    return True


def and_closes(wire: socket.socket) -> bool:
    wire.sendall(ANSWER)
    return False


def half_closes(wire: socket.socket) -> bool:
    wire.sendall(ANSWER)
    wire.shutdown(socket.SHUT_WR)
    return True


def says_that_it_closes(wire: socket.socket) -> bool:
    wire.sendall(ANSWER.replace(b"Content-Type", b"Connection: close\r\nContent-Type"))
    return False


def by_the_byte(wire: socket.socket) -> bool:
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(len(ANSWER)):
        wire.sendall(ANSWER[at : at + 1])
    return True


def with_hints(wire: socket.socket) -> bool:
    wire.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ANSWER)
    return True


@pytest.mark.parametrize(
    ("talk", "connections"),
    [(whole, 1), (with_hints, 1), (by_the_byte, 1), (and_closes, 4), (says_that_it_closes, 4), (half_closes, 4)],
)
def test_connections_are_kept_as_long_as_the_server_keeps_them(talk: Talk, connections: int) -> None:
    with serving(talk) as (url, heard, opened):
        samples = sent(url)
    assert [(one.error, one.output_tokens, len(one.gaps)) for one in samples] == [(None, 3, 2)] * 4
    assert len(opened) == connections
    # A request that meets the close on its way is heard, never answered, and sent again.
    assert len(heard) in (range(4, 8) if talk is half_closes else [4])


CUTS = [
    ("chunks", ANSWER, b"".join((written("日", 1), written("日本", 2), written("日本語", 3), DONE)), True),
    ("a length", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", True),
    ("a length of nothing", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True),
    ("no body", b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    ("extensions and trailers", HEAD + b"5;a=b\r\nhello\r\n0\r\nX: y\r\nZ: 1\r\n\r\n", b"hello", True),
    ("what looks like an end", HEAD + chunk(b"0\r\n\r\n") + END, b"0\r\n\r\n", True),
    ("HTTP/1.0", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
]


@pytest.mark.parametrize(("answer", "content", "keeps"), [case[1:] for case in CUTS], ids=[case[0] for case in CUTS])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 10_000])
def test_an_answer_ends_where_it_ends_however_it_is_cut(answer: bytes, content: bytes, keeps: bool, size: int) -> None:
    framing, found = Framing(), b""
    for at in range(0, len(answer), size):
        assert not framing.ended
        found += framing.feed(answer[at : at + size])
    assert (framing.ended, framing.keeps, found) == (True, keeps, content)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        HEAD + b"xyz\r\n",
        HEAD + b"2\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_what_is_no_http_is_refused(answer: bytes) -> None:
    with pytest.raises(ProtocolError):
        Framing().feed(answer)


@pytest.mark.parametrize(
    ("url", "host", "line"),
    [
        ("http://127.0.0.1:30000", "127.0.0.1", b"Host: 127.0.0.1:30000"),
        ("http://[::1]:30000", "::1", b"Host: [::1]:30000"),
        ("http://user@127.0.0.1:1/base/", "127.0.0.1", b"POST /base/generate HTTP/1.1"),
    ],
)
def test_addresses_of_both_families(url: str, host: str, line: bytes) -> None:
    server = Addresses(url, None)
    assert (server.host, server.problem) == (host, None)
    assert server.addresses[0][4][0] == host
    assert line in request_head(url, "/generate", {}).split(b"\r\n")


def test_a_header_cannot_end_its_line() -> None:
    assert b"\nX-Evil" not in request_head("http://h", "/x", {"Authorization": "Bearer a\r\nX-Evil: 1"})


def test_tls_is_spoken_to_whom_one_trusts(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with serving(whole, context) as (url, heard, connections):
        assert "CERTIFICATE_VERIFY_FAILED" in (sent(url, 1)[0].error or "")
        assert heard == []
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        connections.clear()
        samples = sent(url, key="s3cret")
        # What is asked beside the load trusts the same.
        answer = Endpoint(url, "tiny", "sglang", "tiny", 2048).ask("POST", "/flush_cache")
        assert answer is not None
        heard.pop()
        connections.pop()
    assert [(one.error, one.output_tokens, len(one.gaps)) for one in samples] == [(None, 3, 2)] * 4
    assert len(connections) == 1
    assert all(b"Bearer s3cret" in request for request in heard)


def test_a_reset_is_a_failed_request_and_the_next_one_is_sent() -> None:
    turns = iter([False, True, True, True])

    def reset(wire: socket.socket) -> bool:
        if next(turns):
            return whole(wire)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return False

    with serving(reset) as (url, _, _):
        samples = sent(url)
    assert "Error" in (samples[0].error or "")
    assert [one.error for one in samples[1:]] == [None] * 3


def test_latencies_of_an_open_loop_count_from_when_a_request_was_due(start: Start) -> None:
    """One at a time where they come faster: what waits for its turn has waited."""
    server = start(decode_ms=5)
    asked = load(num_prompts=12, concurrency=1, request_rate=1000.0)
    samples = run_load(Target(server.url, "tiny", Generate()), asked, prompts_of(8), 1).samples
    found = measure(samples)
    # Each takes 7 times 5 ms at least, and half of them wait for five others or more.
    assert found["ttft_ms"]["p50"] > 100
    assert found["from_sent"]["ttft_ms"]["p50"] < found["ttft_ms"]["p50"]
    assert found["from_sent"]["e2e_ms"]["max"] < found["e2e_ms"]["max"]
    for one in samples:
        assert one.due is not None
        assert one.e2e == pytest.approx(one.sent - one.due + one.in_flight)
    # That others came before it was not the client's doing.
    assert max(one.send_delay for one in samples) < max(one.sent - (one.due or 0) for one in samples) / 2


def test_a_closed_loop_counts_from_sending(start: Start) -> None:
    server = start(decode_ms=1)
    samples = run_load(Target(server.url, "tiny", Generate()), load(num_prompts=8), prompts_of(4), 1).samples
    assert measure(samples)["from_sent"] is None
    assert all(one.due is None for one in samples)


@pytest.mark.parametrize("settings", [{"concurrency": 7}, {"concurrency": None, "request_rate": 200.0}])
def test_processes_share_a_load(start: Start, settings: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_count_processes", lambda load: 3)
    server = start(decode_ms=2)
    made = load(num_prompts=50, **settings)
    run = run_load(Target(server.url, "tiny", Generate()), made, prompts_of(4), 1)
    assert [(one.error, one.output_tokens) for one in run.samples] == [(None, 4)] * 50
    assert run.own["processes"] == 3


def test_many_streams_take_several_processes_where_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    counts = [client._count_processes(load(concurrency=streams)) for streams in (1, 128, 129, 1024)]
    assert counts == [1, 1, 2, 8]
    assert client._count_processes(load(concurrency=4096, request_rate=900.0)) == 1
    assert client._count_processes(load(concurrency=None, request_rate=200.0)) == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert client._count_processes(load(concurrency=1024)) == 1


def test_a_process_that_ends_ends_the_run(start: Start) -> None:
    server = start(decode_ms=20)
    with LoadProcesses() as processes:
        (process,) = processes.running(1)

        made: list[int] = []

        def prompts(count: int) -> Sequence[Prompt]:
            if made:  # the first are made before the run, further ones while it lasts
                os.kill(process.pid, signal.SIGKILL)
            made.append(count)
            return prompts_of(8)(count)

        endless = load(num_prompts=None, min_duration=60.0)
        with pytest.raises(MachineError, match="BEN016"):
            run_load(Target(server.url, "tiny", Generate()), endless, prompts, 1, processes=processes)
        assert len(made) > 1
        # Others take its place.
        run = run_load(Target(server.url, "tiny", Generate()), load(), prompts_of(2), 1, processes=processes)
    assert [one.error for one in run.samples] == [None] * 40


IDS, TEXT = [[1], [1, 2], [1, 2, 3]], ["a", "ab", "abc"]


@pytest.mark.parametrize(
    ("parts", "claimed", "arrived"),
    [
        (IDS, 3, 3),
        ([[7], [7], [7]], 3, 3),  # what is new each time
        ([[1], [2, 3]], 3, 3),
        (IDS, 6, 3),
        ([[5], [5, 5]], 3, 3),  # two parts may be either
        (IDS, 5, 3),
        ([[5], [6]], 3, 2),
        ([[1, 2, 3]], 3, 3),
        (TEXT, 3, 3),
        (TEXT, 8, 3),
        (["a", "b", "cd"], 4, 4),
        (["a", "a", "a"], 3, 3),
        (["abcd"], 9, 4),
        (["日本", "日本語"], 3, 9),
        (["", "a"], 1, 1),
        ([], 3, None),
        ([""], 3, None),
    ],
)
def test_what_arrived_is_counted_however_it_is_sent(
    parts: list[list[object] | str], claimed: int, arrived: int | None
) -> None:
    counted = Arrived()
    for part in parts:
        counted.add(part)
    assert counted.most_tokens(claimed) == arrived
