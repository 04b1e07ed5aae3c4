"""What our client makes of answers, of good ones and of all that a server can do wrong."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sglang_hydra.measure.bench.client import run_load
from sglang_hydra.measure.bench.load import Load
from sglang_hydra.measure.bench.measures import Sample
from sglang_hydra.measure.bench.prompts import Prompt
from sglang_hydra.measure.bench.wires import Completions, Generate, Target, Wire
from tests.measure.bench.conftest import Start, load

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
EVENTS = OK + b"Content-Type: text/event-stream\r\n\r\n"
JSON = OK + b"Content-Type: application/json\r\n\r\n"


def event(**record: Any) -> bytes:
    return b"data: " + json.dumps(record, ensure_ascii=False).encode() + b"\n\n"


def written(text: str, tokens: int, **meta: Any) -> bytes:
    return event(text=text, meta_info={"completion_tokens": tokens, "prompt_tokens": 3, "cached_tokens": 0, **meta})


DONE = b"data: [DONE]\n\n"


@contextmanager
def answering(*parts: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that says the parts to everybody and hangs up; its address, and what it was sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    talk, _ = listener.accept()
                except OSError:
                    return
                with talk:
                    try:
                        heard.append(_request(talk))
                        for part in parts:
                            talk.sendall(part)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _request(talk: socket.socket) -> bytes:
    """One whole request: an answer before its end would be a reset."""
    content = _received(talk)
    while b"\r\n\r\n" not in content:
        content += _received(talk)
    head, _, body = content.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += _received(talk)
    return head + b"\r\n\r\n" + body


def _received(talk: socket.socket) -> bytes:
    content = talk.recv(1 << 16)
    if not content:
        raise ConnectionError("the client has gone")
    return content


def asked(url: str, wire: Wire | None = None, key: str | None = None, **settings: Any) -> Sample:
    """One request, and what became of it."""
    target = Target(url, "tiny", wire or Generate(), key)
    one: Load = load(num_prompts=1, concurrency=1, **settings)
    (sample,) = run_load(target, one, lambda n: [Prompt(3, (300, 301, 302), None, 3)] * n, 1).samples
    return sample


def test_a_good_stream() -> None:
    with answering(EVENTS, written("a", 1), written("ab", 2), written("abc", 3), DONE) as (url, _):
        sample = asked(url)
    assert sample.error is None
    assert (sample.output_tokens, sample.input_tokens, sample.cached_tokens, len(sample.gaps)) == (3, 3, 0, 2)


STREAMS: list[tuple[str, list[bytes]]] = [
    ("line ends of other alphabets", [written("a\u2028b\x85\x0b", 1), written("c", 3)]),
    ("a character cut in two", [written("日本", 1)[:18], written("日本", 1)[18:], written("x", 3)]),
    ("many events in one piece", [written("a", 1) + written("b", 2) + written("c", 3)]),
    ("comments and empty lines", [b": ping\n\n\n", written("a", 1), b"event: x\nid: 7\n\n", written("b", 3)]),
    ("carriage returns", [written("a", 1).replace(b"\n", b"\r\n"), written("b", 3).replace(b"\n", b"\r\n")]),
    ("no space after data:", [written("a", 3).replace(b"data: ", b"data:")]),
    ("text that looks like the end", [written("[DONE]", 1), written("data: [DONE]", 3)]),
    ("a megabyte in one event", [written("x" * (1 << 20), 3)]),
    ("content after empty content", [written("", 0), written("", 1), written("a", 2), written("ab", 3)]),
]


@pytest.mark.parametrize("parts", [parts for _, parts in STREAMS], ids=[name for name, _ in STREAMS])
def test_a_stream_is_read_however_it_is_cut(parts: list[bytes]) -> None:
    with answering(EVENTS, *parts, DONE) as (url, _):
        sample = asked(url)
    assert sample.error is None
    assert sample.output_tokens == 3
    assert sample.first is not None


def test_a_stream_may_end_without_its_mark_and_its_last_line_feed() -> None:
    with answering(EVENTS, written("a", 1), written("b", 3).rstrip()) as (url, _):
        assert (asked(url).error, asked(url).output_tokens) == (None, 3)


def test_empty_content_is_no_first_token() -> None:
    """Ids come while a character is incomplete: the first token is there when its text is."""
    early = event(text="", output_ids=[5], meta_info={"completion_tokens": 1})
    with answering(EVENTS, early, DONE) as (url, _):
        assert asked(url).error == "the answer has no content"
    with answering(EVENTS, event(output_ids=[5], meta_info={"completion_tokens": 3}), DONE) as (url, _):
        assert asked(url).error is None


def test_a_chunk_of_several_tokens_is_as_many_equal_gaps() -> None:
    with answering(EVENTS, written("a", 1), written("abcd", 4), DONE) as (url, _):
        sample = asked(url)
    assert len(sample.gaps) == 3
    assert len({round(gap, 9) for gap in sample.gaps}) == 1


BROKEN: list[tuple[str, list[bytes], str]] = [
    ("an HTTP error", [b"HTTP/1.1 503 X\r\nConnection: close\r\n\r\nbusy\r\n now"], "HTTP 503: busy now"),
    ("a redirect", [b"HTTP/1.1 307 X\r\nLocation: /x\r\nConnection: close\r\n\r\n"], "HTTP 307"),
    ("nothing", [b""], "RemoteProtocolError"),
    ("no HTTP", [b"SSH-2.0-OpenSSH\r\n"], "RemoteProtocolError"),
    ("another content type", [OK + b"Content-Type: text/html\r\n\r\n<html>hello</html>"], "no content"),
    ("an empty stream", [EVENTS], "no content"),
    ("only the end", [EVENTS, DONE], "no content"),
    ("no JSON", [EVENTS, b"data: {text\n\n"], "cannot be read"),
    ("a list", [EVENTS, b"data: [1]\n\n"], "cannot be read"),
    ("a number for a record", [EVENTS, event(text="a", meta_info=3)], "cannot be read"),
    (
        "words for a count",
        [EVENTS, written("a", 1), event(text="b", meta_info={"completion_tokens": "x"})],
        "cannot be",
    ),
    ("no text in any alphabet", [EVENTS, b"data: \xff\xfe\n\n"], "cannot be read"),
    ("endless brackets", [EVENTS, b"data: " + b"[" * 100_000 + b"\n\n"], "cannot be read"),
    ("an end in the middle", [EVENTS, written("a", 1), b'data: {"tex'], "cannot be read"),
    (
        "fewer bytes than promised",
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", written("a", 1)],
        "RemoteProtocolError",
    ),
    ("an error in the stream", [EVENTS, written("a", 1), event(error={"message": "out of memory"})], "out of memory"),
    ("an error without words", [EVENTS, event(error="")], "error without words"),
    (
        "an aborted request",
        [EVENTS, written("a", 1), written("b", 2, finish_reason={"type": "abort", "message": "given up"})],
        "given up",
    ),
]


@pytest.mark.parametrize(("parts", "reason"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_a_server_does_wrong_is_a_failed_request(parts: list[bytes], reason: str) -> None:
    with answering(*parts) as (url, _):
        sample = asked(url)
    assert sample.error is not None
    assert reason in sample.error
    assert len(sample.error) < 600


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"<html>", "cannot be read"), (b'{"text": ""}', "no content"), (b'{"error": {"message": "no"}}', "no")],
)
def test_a_whole_answer_is_judged_alike(content: bytes, reason: str) -> None:
    with answering(JSON, content) as (url, _):
        sample = asked(url, stream=False)
    assert sample.error is not None
    assert reason in sample.error


def test_nobody_listening_is_a_failed_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert "ConnectError" in (asked(url).error or "")


def test_a_silent_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sample = asked(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)
    assert "Timeout" in (sample.error or "")


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with answering(EVENTS, written("a", 3), DONE) as (url, _):
        assert asked(url).error is None


@pytest.mark.parametrize("wire", [Generate(), Completions()])
def test_the_key_is_a_header_and_the_request_asks_for_exact_lengths(wire: Wire) -> None:
    with answering(JSON, b"{}") as (url, heard):
        asked(url, wire, key="s3cret", stream=False)
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert b"authorization: bearer s3cret" in head.lower()
    assert b"s3cret" not in body
    record = json.loads(body)
    exact = record.get("sampling_params") or json.loads(record["generation_config"])
    assert exact["max_new_tokens"] == 3
    assert exact.get("ignore_eos") or exact["min_new_tokens"] == 3
    assert record["stream"] is False


def test_the_embedded_engine_says_its_counts_at_the_end() -> None:
    said = [event(choices=[{"text": text}]) for text in ("a", "b")]
    usage = {"completion_tokens": 3, "prompt_tokens": 7}
    with answering(EVENTS, *said, event(choices=[{"text": ""}], usage=usage)) as (url, _):
        sample = asked(url, Completions())
    assert (sample.error, sample.output_tokens, sample.input_tokens, len(sample.gaps)) == (None, 3, 7, 1)


def test_an_open_loop_holds_back_at_its_concurrency(start: Start) -> None:
    server = start(decode_ms=5)
    asked_load = load(num_prompts=12, concurrency=2, request_rate=1000.0)
    target = Target(server.url, "tiny", Generate())
    samples = run_load(target, asked_load, prompts_of(8), 1).samples
    times = sorted([(one.sent, 1) for one in samples] + [(one.end, -1) for one in samples])
    flying = most = 0
    for _, step in times:
        flying += step
        most = max(most, flying)
    assert most <= 2
    assert [one.error for one in samples] == [None] * 12


def prompts_of(tokens: int) -> Callable[[int], list[Prompt]]:
    return lambda count: [Prompt(tokens, (300,) * 8, None, 8)] * count


def test_prompts_are_made_ahead_and_no_more_than_needed(start: Start) -> None:
    made: list[int] = []

    def prompts(count: int) -> list[Prompt]:
        made.append(count)
        return [Prompt(2, (300,) * 8, None, 8)] * count

    server = start(decode_ms=1)
    run = run_load(Target(server.url, "tiny", Generate()), load(num_prompts=None, min_duration=0.5), prompts, 1)
    assert made[0] == 40
    assert len(run.samples) <= sum(made) <= len(run.samples) + 4 + 8


def test_prompts_that_cannot_be_made_end_the_run(start: Start) -> None:
    calls = iter([[Prompt(2, (300,) * 8, None, 8)] * 4])

    def prompts(count: int) -> list[Prompt]:
        try:
            return next(calls)
        except StopIteration:
            raise ValueError("no more") from None

    server = start(decode_ms=1)
    with pytest.raises(ValueError, match="no more"):
        run_load(Target(server.url, "tiny", Generate()), load(num_prompts=None, min_duration=30.0), prompts, 1)
