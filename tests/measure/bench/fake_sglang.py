"""A server that speaks SGLang's HTTP as far as a benchmark needs it, with a prefix cache, and faults on demand.

python fake_sglang.py --port PORT [any flag of SGLang]     with FAKE_SGLANG='{"decode_ms": 2, ...}' in the environment

Time is the only thing that it computes: ``prefill_us`` microseconds a prompt token that is not cached, ``decode_ms``
milliseconds a token written and ``batch_us`` microseconds more for each other request that runs, ``running`` requests
at a time (more wait). With ``obeys`` it runs as many as --max-running-requests says, and --tp-size divides the times
but 3 ms a token. ``starts`` names a file that gets a line a start.
Faults: ``short`` writes one token less; ``claims``
n says that each token written was n; ``fail_every`` n fails every n-th request; ``reject_above`` n
those beyond n at a time; ``retract`` counts
retractions; ``die_after`` n requests the process ends with code 9; ``deaf`` never empties its cache; ``broken``
answers nonsense to questions; ``key`` is the API key without which it answers 401; ``start_fails`` n lets the first n
starts fail (counted in the starts file), ``start_killed`` n are ended by SIGKILL. ``info`` is what it says of itself
beside what it was passed on its command line, ``lie`` what it says in its place; with ``mute`` it never listens.
``start_ms`` milliseconds it takes to listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = {
    "prefill_us": 5.0,
    "decode_ms": 4.0,
    "batch_us": 0.0,
    "obeys": False,
    "running": 64,
    "starts": None,
    "short": False,
    "claims": 1,
    "fail_every": 0,
    "retract": 0,
    "reject_above": 0,
    "die_after": 0,
    "deaf": False,
    "broken": False,
    "start_fails": 0,
    "start_killed": 0,
    "metrics": True,
    "key": None,
    "info": {},
    "lie": {},
    "mute": False,
    "start_ms": 0.0,
}
BLOCK = 16


class Fake:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = {**OPTIONS, **options}
        self.cache: set[tuple[int, ...]] = set()
        if self.options["obeys"]:
            self.obey(dict(zip(sys.argv, sys.argv[1:], strict=False)))
        self.slots = asyncio.Semaphore(int(self.options["running"]))
        self.running = self.requests = self.active = self.flushes = 0
        self.counted = {"prompt_tokens_total": 0, "generation_tokens_total": 0, "cached_tokens_total": 0}

    def cached(self, ids: list[int]) -> int:
        """How many tokens of a prompt are in the cache, which then holds the whole prompt."""
        found = 0
        for end in range(BLOCK, len(ids) + 1, BLOCK):
            block = tuple(ids[:end])
            if block in self.cache and found == end - BLOCK:
                found = end
            self.cache.add(block)
        return min(found, max(0, len(ids) - 1))

    def obey(self, flags: dict[str, str]) -> None:
        ranks = int(flags.get("--tp-size", 1))
        times = {name: self.options[name] / ranks for name in ("prefill_us", "decode_ms", "batch_us")}
        running = flags.get("--max-running-requests", self.options["running"])
        self.options |= {**times, "decode_ms": 3 + times["decode_ms"], "running": running}

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    async def generate(self, body: dict[str, Any], send: Any) -> None:
        self.requests += 1
        number = self.requests
        if self.options["die_after"] and number > self.options["die_after"]:
            os._exit(9)
        if self.options["fail_every"] and number % self.options["fail_every"] == 0:
            await send.error(500, "made to fail")
            return
        ids = body.get("input_ids") or list(body["text"].encode())
        count = body["sampling_params"]["max_new_tokens"] - (1 if self.options["short"] else 0)
        claims = self.options["claims"]
        count //= claims
        if self.options["reject_above"] and self.active >= self.options["reject_above"]:
            await send.error(503, "too many at a time")
            return
        self.active += 1
        try:
            async with self.slots, self.counting():
                cached = self.cached(ids)
                await asyncio.sleep((len(ids) - cached) * self.options["prefill_us"] / 1e6)
                meta = {"prompt_tokens": len(ids), "cached_tokens": cached, "finish_reason": None}
                for written in range(1, count + 1):
                    if written > 1:
                        beside = self.options["batch_us"] / 1e3 * (self.running - 1)
                        await asyncio.sleep((self.options["decode_ms"] + beside) / 1e3)
                    if body.get("stream"):
                        await send.event(
                            {"text": "x" * written, "meta_info": {**meta, "completion_tokens": written * claims}}
                        )
        finally:
            self.active -= 1
        for name, tokens in (("prompt", len(ids)), ("generation", count), ("cached", cached)):
            self.counted[f"{name}_tokens_total"] += tokens
        if body.get("stream"):
            await send.end()
        else:
            await send.json({"text": "x" * count, "meta_info": {**meta, "completion_tokens": count * claims}})

    def metrics(self) -> str:
        lines = [f'sglang:{name}{{model_name="tiny"}} {count}.0' for name, count in self.counted.items()]
        lines += [f"sglang:num_running_reqs {self.active}.0", "sglang:token_usage 0.25"]
        return "\n".join([*lines, f"sglang:total_retracted_reqs {self.options['retract'] * (self.requests > 1)}.0", ""])

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = body["messages"][-1]["content"]
        said = "banana" if self.options["broken"] else answer_to(asked)
        return {"choices": [{"message": {"role": "assistant", "content": said}}]}

    async def flush(self) -> int:
        self.flushes += 1
        if self.active or self.options["deaf"]:
            return 400
        self.cache.clear()
        return 200


def answer_to(question: str) -> str:
    """Right answers to the fixed questions, thoughts in front, as reasoning models answer."""
    words = question.replace("?", "").split()
    if "plus" in words:
        place = words.index("plus")
        return f"<think>so 1 it is</think> The answer is {int(words[place - 1]) + int(words[place + 1])}."
    known = {"France": "Paris", "Japan": "Tokyo", "planet": "Earth", "hot": "Cold.", "week": "7", "alphabet": "D"}
    return next((answer for word, answer in known.items() if word in words), "42")


class Send:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer, self.begun = writer, False

    async def whole(self, status: int, content: str, kind: str = "text/plain") -> None:
        data = content.encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        await self.writer.drain()

    async def json(self, record: Any, status: int = 200) -> None:
        await self.whole(status, json.dumps(record), "application/json")

    async def error(self, status: int, message: str) -> None:
        await self.json({"error": {"message": message}}, status)

    async def event(self, record: Any) -> None:
        if not self.begun:
            self.writer.write(
                b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            self.begun = True
        self._chunk(f"data: {json.dumps(record)}\n\n".encode())
        await self.writer.drain()

    async def end(self) -> None:
        self._chunk(b"data: [DONE]\n\n")
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def _chunk(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def handle(fake: Fake, info: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            _, path, _ = head.split("\r\n", 1)[0].split(" ")
            names = (line.partition(":") for line in head.split("\r\n")[1:])
            headers = {name.lower(): value.strip() for name, _, value in names}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            send = Send(writer)
            if fake.options["key"] and headers.get("authorization") != f"Bearer {fake.options['key']}":
                await send.error(401, "Unauthorized")
                continue
            path = path.partition("?")[0].rstrip("/")
            await answer(fake, info, path, json.loads(body) if body else {}, send)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer(fake: Fake, info: dict[str, Any], path: str, body: dict[str, Any], send: Send) -> None:
    if path == "/generate":
        await fake.generate(body, send)
    elif path == "/flush_cache":
        await send.whole(await fake.flush(), "")
    elif path == "/v1/chat/completions":
        await send.json(fake.chat(body))
    elif path == "/metrics" and fake.options["metrics"]:
        await send.whole(200, fake.metrics())
    elif path in ("/get_server_info", "/server_info"):
        await send.json(info)
    elif path == "/v1/models":
        await send.json({"data": [{"id": "tiny"}]})
    elif path == "/requests":
        counts = {"requests": fake.requests, "flushes": fake.flushes, "cached_blocks": len(fake.cache)}
        await send.json(counts)
    else:
        await send.whole(200 if path == "/health" else 404, "")


def count_start(options: dict[str, Any]) -> None:
    """Notes this start; ends here if it is one that has to fail."""
    if not options.get("starts"):
        return
    file = Path(options["starts"])
    with file.open("a") as starts:
        starts.write(f"{os.getpid()} {' '.join(sys.argv[1:])}\n")
    if len(file.read_text().splitlines()) <= options.get("start_killed", 0):
        os.kill(os.getpid(), signal.SIGKILL)
    if len(file.read_text().splitlines()) <= options.get("start_fails", 0):
        print("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", flush=True)
        sys.exit(1)


def passed(info: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the command line that ``info`` has, by their names and types."""
    found: dict[str, Any] = {}
    for flag, value in zip(sys.argv, [*sys.argv[1:], "--"], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and name in info:
            found[name] = True if value.startswith("--") else value
            with contextlib.suppress(ValueError):
                found[name] = json.loads(value)
    return found


async def serve(port: int, options: dict[str, Any]) -> None:
    fake = Fake(options)
    await asyncio.sleep(fake.options["start_ms"] / 1e3)
    if fake.options["mute"]:
        await asyncio.Event().wait()
    info: dict[str, Any] = {"port": port, "internal_states": [{}], **fake.options["info"]}
    info |= {**passed(info), "port": port, **fake.options["lie"]}
    server = await asyncio.start_server(lambda r, w: handle(fake, info, r, w), "127.0.0.1", port, limit=1 << 24)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: os._exit(0))
    print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asked = json.loads(os.environ.get("FAKE_SGLANG", "{}"))
    count_start(asked)
    asyncio.run(serve(int(sys.argv[sys.argv.index("--port") + 1]), asked))
