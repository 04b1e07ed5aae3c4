"""Puts a load on a server: streaming requests over httpx, as many in flight as asked, or as they arrive.

One thread, one event loop. The loop's own share of a core is measured, since a client that is short of it measures
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from sglang_hydra.bench.measures import Sample
from sglang_hydra.bench.prompts import Prompt
from sglang_hydra.bench.server import is_secure
from sglang_hydra.bench.settings import Load

_SAID = 300
_DATA = b"data:"
_FEW = 4


@dataclass(frozen=True)
class Target:
    """A running server: where it listens, the name it serves the model under, and how it is spoken to."""

    url: str
    model: str
    wire: Wire
    api_key: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass(frozen=True)
class Answered:
    """What a part of an answer tells: whether it brought text, and the server's counts so far (None: it has none).

    ``retractions`` is how often the server threw the request out of its batch (0.5.23 says it).
    """

    text: bool
    output_tokens: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    retractions: int | None = None
    error: str | None = None


class Wire(Protocol):
    """One way of asking for a completion. ``takes_ids`` says whether a prompt may be token ids."""

    path: str
    takes_ids: bool

    def body(self, prompt: Prompt, model: str, stream: bool) -> dict[str, Any]:
        """The request."""

    def part(self, data: dict[str, Any]) -> Answered:
        """What one event of the stream, or the whole answer, tells."""


class Generate:
    """SGLang's own endpoint: it counts tokens in every part and says how many came from its prefix cache."""

    path = "/generate"
    takes_ids = True

    def body(self, prompt: Prompt, model: str, stream: bool) -> dict[str, Any]:
        said: dict[str, Any] = {"input_ids": list(prompt.ids)} if prompt.text is None else {"text": prompt.text}
        sampling = {"temperature": 0.0, "max_new_tokens": prompt.output_len, "ignore_eos": True}
        return {**said, "sampling_params": sampling, "stream": stream}

    def part(self, data: dict[str, Any]) -> Answered:
        if "error" in data:
            return Answered(False, error=_error_text(data["error"]))
        meta = data.get("meta_info") or {}
        # Without a tokenizer it answers with ids alone. Elsewhere ids come while their text is not complete.
        text = bool(data["text"] if "text" in data else data.get("output_ids"))
        counts = (meta.get("completion_tokens"), meta.get("prompt_tokens"), meta.get("cached_tokens"))
        return Answered(text, *counts, meta.get("num_retractions"), _aborted(meta.get("finish_reason")))


class Completions:
    """The completions endpoint of the embedded engine. It writes exactly the asked length by ``generation_config``,
    its way of saying that an end-of-text token does not end it."""

    path = "/v1/completions"
    takes_ids = False

    def body(self, prompt: Prompt, model: str, stream: bool) -> dict[str, Any]:
        exactly = {"do_sample": False, "max_new_tokens": prompt.output_len, "min_new_tokens": prompt.output_len}
        return {"model": model, "prompt": prompt.text, "stream": stream, "generation_config": json.dumps(exactly)}

    def part(self, data: dict[str, Any]) -> Answered:
        if "error" in data:
            return Answered(False, error=_error_text(data["error"]))
        usage = data.get("usage") or {}
        text = any(choice.get("text") for choice in data.get("choices") or ())
        return Answered(text, usage.get("completion_tokens"), usage.get("prompt_tokens"))


@dataclass(frozen=True)
class Run:
    """What a load brought: the requests, and the share of one core that the client used.

    ``duration_s`` is set where the requests do not share a clock: each then counts from its own sending. ``window`` is
    when the load began and ended, on ``time.monotonic``, where that is only a part of the call.
    """

    samples: Sequence[Sample]
    client_cpu: float
    duration_s: float | None = None
    window: tuple[float, float] | None = None


def run_load(
    target: Target,
    load: Load,
    prompts: Callable[[int], Sequence[Prompt]],
    seed: int,
    on_progress: Callable[[int], None] | None = None,
    fewest: int | None = None,
) -> Run:
    """Sends the load and waits for every answer. ``prompts(n)`` gives the next n requests.

    At least ``fewest`` requests are sent (None: ``load.smallest_count``), and without ``num_prompts`` more until
    ``min_duration`` is over. A request that fails is a sample with its error; nothing is raised for it.
    """
    supply = _Supply(load, prompts, load.smallest_count if fewest is None else fewest)
    began, used = time.perf_counter(), time.thread_time()
    samples = asyncio.run(_run(target, load, supply, seed, on_progress or (lambda done: None)))
    wall = time.perf_counter() - began
    return Run(samples, (time.thread_time() - used) / wall)


async def _run(
    target: Target,
    load: Load,
    supply: _Supply,
    seed: int,
    on_progress: Callable[[int], None],
) -> list[Sample]:
    samples: list[Sample] = []
    # trust_env: a proxy of the environment would stand between us and the server.
    async with httpx.AsyncClient(
        timeout=httpx.Timeout(load.timeout),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        headers=target.headers(),
        trust_env=False,
        verify=is_secure(target.url),
    ) as client:
        done = 0

        async def ask(prompt: Prompt, due: float | None = None) -> None:
            nonlocal done
            samples.append(sample := Sample(prompt.output_len, time.perf_counter(), due))
            await _ask(client, target, load.stream, prompt, sample)
            done += 1
            on_progress(done)

        supply.begin()
        if load.request_rate is None:
            await _closed_loop(supply, load.concurrency or 1, ask)
        else:
            await _open_loop(supply, load.request_rate, load.concurrency, seed, ask)
    return samples


class _Supply:
    """The requests of a run: as many as there must be, then more until the time is over.

    The first ones are made before the run. What is needed beyond them is made ahead, a few at a time and in a thread
    of its own: making prompts takes milliseconds, in which the event loop would see no answer come.
    """

    def __init__(self, load: Load, prompts: Callable[[int], Sequence[Prompt]], fewest: int) -> None:
        self._ready = deque(prompts(fewest))
        self._prompts = prompts
        self._ahead = load.concurrency or _FEW
        self._lasts_s = 0.0 if load.num_prompts is not None else load.min_duration
        self._until = 0.0
        self._owed = fewest
        self._making: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """The run begins now."""
        self._until = time.perf_counter() + self._lasts_s

    async def next(self) -> Prompt | None:
        """The next request; None when no more are to be sent. Raises what making them raises."""
        if self._owed <= 0 and time.perf_counter() >= self._until:
            return None
        if self._lasts_s and len(self._ready) <= self._ahead:
            self._refill()
        while not self._ready:
            if time.perf_counter() >= self._until:
                return None
            await self._refill()
        self._owed -= 1
        return self._ready.popleft()

    def _refill(self) -> asyncio.Task[None]:
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
        return self._making

    async def _make(self) -> None:
        while len(self._ready) <= self._ahead and time.perf_counter() < self._until:
            self._ready.extend(await asyncio.to_thread(self._prompts, _FEW))


async def _closed_loop(supply: _Supply, slots: int, ask: Callable[[Prompt], Awaitable[None]]) -> None:
    """Each slot asks one request after the other."""

    async def slot() -> None:
        while (prompt := await supply.next()) is not None:
            await ask(prompt)

    await asyncio.gather(*(slot() for _ in range(slots)))


async def _open_loop(
    supply: _Supply,
    rate: float,
    slots: int | None,
    seed: int,
    ask: Callable[[Prompt, float], Awaitable[None]],
) -> None:
    """Requests go out when they are due, whatever became of those before; ``slots`` bounds those in flight."""
    draw, due = random.Random(seed), time.perf_counter()
    free = asyncio.Semaphore(slots) if slots else None
    tasks: list[asyncio.Task[None]] = []

    async def held(prompt: Prompt, due: float) -> None:
        async with free or contextlib.nullcontext():
            await ask(prompt, due)

    while (prompt := await supply.next()) is not None:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(held(prompt, due)))
        due += draw.expovariate(rate)
    await asyncio.gather(*tasks)


async def _ask(client: httpx.AsyncClient, target: Target, stream: bool, prompt: Prompt, sample: Sample) -> None:
    """Sends one request and writes into ``sample`` what comes back."""
    content = json.dumps(target.wire.body(prompt, target.model, stream)).encode()
    headers = {"Content-Type": "application/json"}
    sample.sent = time.perf_counter()
    try:
        async with client.stream("POST", target.url + target.wire.path, content=content, headers=headers) as response:
            if response.status_code != 200:
                said = (await response.aread())[:_SAID].decode("utf-8", "replace")
                sample.error = f"HTTP {response.status_code}: {' '.join(said.split())}"
            elif stream:
                await _read_stream(response, target.wire, sample)
            else:
                _take(sample, target.wire.part(json.loads(await response.aread())), 0.0)
    except (httpx.HTTPError, httpx.StreamError, OSError) as failure:
        sample.error = f"{type(failure).__name__}: {failure}".rstrip(": ")
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as failure:
        sample.error = f"the server's answer cannot be read: {failure}"
    sample.end = time.perf_counter()
    if sample.error is None and sample.first is None:
        sample.error = "the answer has no content"


async def _read_stream(response: httpx.Response, wire: Wire, sample: Sample) -> None:
    last = 0.0
    async for event in _events(response.aiter_bytes()):
        last = _take(sample, wire.part(json.loads(event)), last)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What the server-sent events of a stream hold, without the end mark. Only a line feed ends a line: text may hold
    every other character that is a line's end elsewhere, and a character may be cut in two."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if event := _event(line):
                yield event
    if event := _event(rest):
        yield event


def _event(line: bytes) -> bytes | None:
    said = line[len(_DATA) :].strip() if line.startswith(_DATA) else b""
    return None if said == b"[DONE]" else said


def _take(sample: Sample, part: Answered, last: float) -> float:
    """Adds one part of an answer, and returns when the last part with content came, ``last`` being that until now.

    A part of n tokens counts as n equal gaps; where nobody counts, as one.
    """
    before, now = sample.output_tokens or 0, time.perf_counter()
    sample.error = part.error or sample.error
    for name in ("output_tokens", "input_tokens", "cached_tokens", "retractions"):
        count = getattr(part, name)
        if count is not None:
            setattr(sample, name, count)
    if not part.text:
        return last
    if sample.first is None:
        sample.first = now
        return now
    fresh = 1 if part.output_tokens is None else part.output_tokens - before
    if fresh <= 0:
        return last
    sample.gaps += [(now - last) / fresh] * fresh
    return now


def _aborted(reason: Any) -> str | None:
    """Why the server gave a request up, None for one that it finished."""
    if not isinstance(reason, dict) or reason.get("type") != "abort":
        return None
    return _error_text(reason.get("message") or reason)


def _error_text(error: Any) -> str:
    said = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(said).split())[:_SAID] or "the server reports an error without words"
