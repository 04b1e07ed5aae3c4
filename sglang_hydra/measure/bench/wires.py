"""Builds completion requests and reads the answers: of SGLang's own endpoint, and of the embedded engine's.

The load's processes import this file, so it needs only the standard library."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sglang_hydra.measure.bench.measures import Sample
from sglang_hydra.text.json_types import Json, JsonDict

if TYPE_CHECKING:
    from sglang_hydra.measure.bench.prompts import Prompt

LONGEST_ERROR = 300
"""The most characters kept of a server's error."""


@dataclass(frozen=True)
class Target:
    """A running server: its address, the name of its model, and its protocol."""

    url: str
    model: str
    wire: Wire
    api_key: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


class Answered(NamedTuple):
    """A part of an answer: whether it has content, and the server's counts so far (None: no count).

    ``retractions`` counts how often the request left the batch (0.5.23 reports it). ``content`` is the part's text, or
    its token ids if the server sends these."""

    has_content: bool
    output_tokens: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    retractions: int | None = None
    error: str | None = None
    content: str | list[Json] = ""


class Wire(Protocol):
    """A protocol for completions. ``takes_ids``: a prompt may be token ids."""

    path: str
    takes_ids: bool

    def body(self, prompt: Prompt, model: str, stream: bool) -> dict[str, object]:
        """Returns the body of the request."""

    def part(self, data: dict[str, object]) -> Answered:
        """Parses one event of the stream, or the whole answer."""


class Generate:
    """SGLang's own endpoint. It counts tokens in every part, and reports the tokens from its prefix cache."""

    path = "/generate"
    takes_ids = True

    def body(self, prompt: Prompt, model: str, stream: bool) -> dict[str, object]:
        asked: dict[str, object] = {"input_ids": list(prompt.ids)} if prompt.text is None else {"text": prompt.text}
        sampling = {"temperature": 0.0, "max_new_tokens": prompt.output_len, "ignore_eos": True}
        # Every token must leave text, so that the received text can be compared with the server's count.
        return {**asked, "sampling_params": {**sampling, "skip_special_tokens": False}, "stream": stream}

    def part(self, data: JsonDict) -> Answered:
        if "error" in data:
            return Answered(False, error=_error_text(data["error"]))
        meta = data.get("meta_info") or {}
        # Without a tokenizer it answers only with ids. Otherwise ids may come before their text is complete.
        has_content = bool(data["text"] if "text" in data else data.get("output_ids"))
        counts = (meta.get("completion_tokens"), meta.get("prompt_tokens"), meta.get("cached_tokens"))
        reason, error = meta.get("finish_reason"), None
        if isinstance(reason, dict) and reason.get("type") == "abort":
            error = _error_text(reason.get("message") or reason)
        content = data.get("output_ids") or data.get("text") or ""
        return Answered(has_content, *counts, meta.get("num_retractions"), error, content)


class Completions:
    """The completions endpoint of the embedded engine. ``generation_config`` requests an exact length, so that an
    end-of-text token does not end the answer."""

    path = "/v1/completions"
    takes_ids = False

    def body(self, prompt: Prompt, model: str, stream: bool) -> dict[str, object]:
        exactly = {"do_sample": False, "max_new_tokens": prompt.output_len, "min_new_tokens": prompt.output_len}
        return {"model": model, "prompt": prompt.text, "stream": stream, "generation_config": json.dumps(exactly)}

    def part(self, data: JsonDict) -> Answered:
        if "error" in data:
            return Answered(False, error=_error_text(data["error"]))
        usage = data.get("usage") or {}
        text = "".join(choice.get("text") or "" for choice in data.get("choices") or ())
        return Answered(bool(text), usage.get("completion_tokens"), usage.get("prompt_tokens"), content=text)


def _error_text(error: object) -> str:
    text = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(text).split())[:LONGEST_ERROR] or "the server reports an error without words"


_DATA = b"data:"
_UNREADABLE = (ValueError, AttributeError, TypeError, KeyError, RecursionError)
_NO_DELAY_S = 1e-6
_COUNTS = ("output_tokens", "input_tokens", "cached_tokens", "retractions")
_COMPARED = 16  # parts of ids that are compared with the one before


class Arrival(NamedTuple):
    """The arrival of a piece: ``at`` on ``time.monotonic``; all but its last byte may have arrived at ``earliest``.

    ``is_exact``: the kernel recorded the last byte's arrival; otherwise that may also have been ``earliest``."""

    at: float
    earliest: float
    is_exact: bool


class Answer:
    """One answer: ``take`` gets its content piece by piece and ``end`` its end; the result goes to ``sample``.

    Each piece comes with its ``Arrival``."""

    __slots__ = ("_arrived", "_early", "_last", "_pieces", "_stream", "_wire", "sample", "status")

    def __init__(self, wire: Wire, stream: bool, sample: Sample) -> None:
        sample.gaps = array("d")
        self.sample = sample
        self.status = 200
        self._wire = wire
        self._stream = stream
        self._pieces: list[bytes] = []
        self._last = self._early = 0.0
        self._arrived = Arrived()

    def take(self, content: bytes, arrival: Arrival) -> bool:
        """Parses a piece. Returns False after an unreadable one, because the rest is then useless."""
        if self.status != 200 or not self._stream:
            if self.status == 200 or sum(map(len, self._pieces)) < 4 * LONGEST_ERROR:
                self._pieces.append(content)
            return True
        # Only a line feed ends a line; text may contain other line separators.
        lines, feed, rest = content.rpartition(b"\n")
        if not feed:
            self._pieces.append(rest)
            return True
        if self._pieces:
            lines = b"".join((*self._pieces, lines))
        self._pieces = [rest] if rest else []
        return self._events([line for line in lines.split(b"\n") if line.startswith(_DATA)], arrival)

    def end(self, arrival: Arrival, error: str | None = None) -> Sample:
        """Returns the finished sample; ``error`` says why the answer ended early."""
        sample = self.sample
        content, self._pieces = b"".join(self._pieces), []
        if error is None and self.status != 200:
            text = " ".join(content[:LONGEST_ERROR].decode("utf-8", "replace").split())
            error = f"HTTP {self.status}: {text}"
        if error is not None:
            sample.error = sample.error or error
        elif sample.error is None and not self._stream:
            self._events([_DATA + content], arrival)
        elif sample.error is None and content.startswith(_DATA):
            self._events([content], arrival)
        if sample.error is None and sample.first is None:
            sample.error = "the answer has no content"
        sample.end = arrival.at
        sample.arrived_tokens = self._arrived.most_tokens(sample.output_tokens)
        return sample

    def _events(self, lines: Sequence[bytes], arrival: Arrival) -> bool:
        texts = [text for line in lines if (text := line[len(_DATA) :].strip()) != b"[DONE]"]
        for left, text in enumerate(texts, 1 - len(texts)):
            try:
                part = self._wire.part(json.loads(text))
                self._add(part, arrival.at, arrival.earliest if left or not arrival.is_exact else arrival.at)
            except _UNREADABLE as failure:
                self.sample.error = f"the server's answer cannot be read: {failure}"
                return False
        return True

    def _add(self, part: Answered, at: float, earliest: float) -> None:
        """Counts a part of n tokens as n equal gaps; a part without a count as one."""
        sample = self.sample
        before = sample.output_tokens or 0
        sample.error = part.error or sample.error
        for name in _COUNTS:
            if (count := getattr(part, name)) is not None:
                setattr(sample, name, count)
        self._arrived.add(part.content)
        if not part.has_content:
            return
        if sample.first is None:
            sample.first, sample.read_delay = at, at - earliest
        else:
            fresh = 1 if part.output_tokens is None else part.output_tokens - before
            if fresh <= 0:
                return
            gap = (at - self._last) / fresh
            delay = gap - max(0.0, earliest - self._early) / fresh
            if abs(delay) > _NO_DELAY_S:
                sample.gap_delays.append((len(sample.gaps), fresh, delay))
            sample.gaps.extend((gap,) * fresh)
        self._last, self._early = at, earliest


class Arrived:
    """Counts the received content, whether each part repeats the content so far or adds to it."""

    __slots__ = ("_grows", "_ids", "_last", "_last_size", "_parts", "_sum", "_whole")

    def __init__(self) -> None:
        self._last: str | list[object] = ""
        self._sum = self._parts = self._last_size = 0
        self._whole, self._grows = True, False
        self._ids = False

    def add(self, content: str | list[object]) -> None:
        if not content:
            return
        if isinstance(content, str):
            self._whole = self._whole and isinstance(self._last, str) and content.startswith(self._last)
            size = len(content) if content.isascii() else len(content.encode("utf-8", "surrogatepass"))
        else:
            size, self._ids = len(content), True
            if self._whole and self._parts < _COMPARED:
                self._whole = isinstance(self._last, str) or content[: len(self._last)] == self._last
        self._grows = self._grows or 0 < len(self._last) < len(content)
        self._sum += size
        self._parts += 1
        self._last, self._last_size = content, size

    def most_tokens(self, claimed: int | None) -> int | None:
        """Returns the most tokens that can have arrived: exact for token ids, else the bytes of the text, because every
        token leaves at least one. None without content."""
        if not self._parts:
            return None
        if self._ids and self._parts <= 2 and claimed in (self._last_size, self._sum):
            return claimed  # two parts may be either
        return self._last_size if self._whole and (self._grows or self._parts == 1) else self._sum
