"""Builds requests for completions and reads their answers: SGLang's own endpoint, and the one of the embedded engine.

The load's processes import this file, so it needs nothing but the standard library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from sglang_hydra.measure.bench.prompts import Prompt

LONGEST_ERROR = 300
"""Characters of a server's error that are kept."""


@dataclass(frozen=True)
class Target:
    """A running server: where it listens, the name it serves the model under, and how it is spoken to."""

    url: str
    model: str
    wire: Wire
    api_key: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


class Answered(NamedTuple):
    """The content of a part of an answer: whether it brought content, and the server's counts so far (None: it has
    none).

    ``retractions`` is how often the server threw the request out of its batch (0.5.23 says it). ``content`` is the text
    of the part, or its token ids where the server sends them.
    """

    has_content: bool
    output_tokens: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    retractions: int | None = None
    error: str | None = None
    content: str | list[Any] = ""


class Wire(Protocol):
    """One way of asking for a completion. ``takes_ids`` says whether a prompt may be token ids."""

    path: str
    takes_ids: bool

    def body(self, prompt: Prompt, model: str, stream: bool) -> dict[str, Any]:
        """The request."""

    def part(self, data: dict[str, Any]) -> Answered:
        """Reads one event of the stream, or the whole answer."""


class Generate:
    """SGLang's own endpoint: it counts tokens in every part and says how many came from its prefix cache."""

    path = "/generate"
    takes_ids = True

    def body(self, prompt: Prompt, model: str, stream: bool) -> dict[str, Any]:
        asked: dict[str, Any] = {"input_ids": list(prompt.ids)} if prompt.text is None else {"text": prompt.text}
        sampling = {"temperature": 0.0, "max_new_tokens": prompt.output_len, "ignore_eos": True}
        # Every token leaves text, so that what arrives can be held against what the server counts.
        return {**asked, "sampling_params": {**sampling, "skip_special_tokens": False}, "stream": stream}

    def part(self, data: dict[str, Any]) -> Answered:
        if "error" in data:
            return Answered(False, error=_error_text(data["error"]))
        meta = data.get("meta_info") or {}
        # Without a tokenizer it answers with ids alone. Elsewhere ids come while their text is not complete.
        has_content = bool(data["text"] if "text" in data else data.get("output_ids"))
        counts = (meta.get("completion_tokens"), meta.get("prompt_tokens"), meta.get("cached_tokens"))
        aborted = _aborted(meta.get("finish_reason"))
        content = data.get("output_ids") or data.get("text") or ""
        return Answered(has_content, *counts, meta.get("num_retractions"), aborted, content)


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
        text = "".join(choice.get("text") or "" for choice in data.get("choices") or ())
        return Answered(bool(text), usage.get("completion_tokens"), usage.get("prompt_tokens"), content=text)


def _aborted(reason: Any) -> str | None:
    """Why the server gave a request up, None for one that it finished."""
    if not isinstance(reason, dict) or reason.get("type") != "abort":
        return None
    return _error_text(reason.get("message") or reason)


def _error_text(error: Any) -> str:
    text = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(text).split())[:LONGEST_ERROR] or "the server reports an error without words"
