"""Finds what a planned server cannot give to a load, before anything starts.

Measured, each of these would bring nothing but failed or shortened requests, after the server has loaded its model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sglang_hydra.facts.config_view import text_config, view_of
from sglang_hydra.measure.bench.trace import read_trace
from sglang_hydra.planning.plan import Plan
from sglang_hydra.rules.checks.model_config import derived_context_length
from sglang_hydra.text.findings import Finding

_KEPT_BACK = 2
"""SGLang 0.5.2 answers with fewer tokens than asked where prompt and answer leave less than this of the context, or of
the KV cache (managers/tp_worker.py, ``max_req_len``; managers/scheduler.py, where ``max_new_tokens`` is cut)."""


class Room(NamedTuple):
    """The most tokens that one request may have, prompt and answer together; None where nobody knows. ``what`` holds
    them, ``hint`` is how there may be more; ``kept_back`` tokens of it stay unused."""

    tokens: int | None = None
    what: str = ""
    hint: str | None = None
    kept_back: int = 0


def room_of(plan: Plan) -> Room:
    """The tightest of what bounds a request on this server: the context as planned, and the KV cache."""
    ours = plan.engine.name == "sglang"
    kept_back = _KEPT_BACK if ours else 0
    asked, longest = (plan.values["context_length"] if ours else None), _model_context(plan)
    rooms = []
    if asked is not None:
        more = f"context_length=N up to {longest}" if longest and longest > asked else None
        rooms.append(Room(int(asked) - kept_back, f"context_length={asked}", more, kept_back))
    elif longest is not None:
        rooms.append(Room(longest - kept_back, f"the model's context of {longest} tokens", None, kept_back))
    most = plan.values["max_total_tokens"] if ours else None
    if most is not None:
        rooms.append(Room(int(most) - kept_back, f"max_total_tokens={most}", "a larger max_total_tokens", kept_back))
    elif plan.fit is not None and plan.fit.kv is not None and plan.fit.kv_tokens and plan.fit.kv.bytes_per_token:
        fit, kv = plan.fit, plan.fit.kv
        # The estimate may be off: refused is what even the largest KV cache could not hold.
        cache = int(plan.fit.kv_tokens + (fit.error or 0.0) / float(kv.bytes_per_token or 1))
        hint = "a larger mem_fraction_static or tp_size"
        rooms.append(Room(cache - kept_back, f"a KV cache of at most {cache} tokens", hint, kept_back))
    return min(rooms, key=lambda room: room.tokens or 0, default=Room())


def load_problems(plan: Plan, room: Room, bench: Mapping[str, Any]) -> Iterator[Finding]:
    """Every reason for which this server cannot take this load; ``bench`` itself is known to be sound."""
    yield from _too_long(room, bench)
    yield from _no_completions(plan)
    yield from _no_text(plan, bench)


def _too_long(room: Room, bench: Mapping[str, Any]) -> Iterator[Finding]:
    if bench["trace"] is not None:
        longest = read_trace(bench["trace"], bench["num_prompts"]).longest
        if room.tokens is not None and longest > room.tokens:
            message = f"bench.trace={bench['trace']} has a request of {longest} tokens; {room.what} is all there is"
            yield Finding("error", "BEN014", message, ("bench.trace", "context_length"), room.hint)
        return
    # How long the prompts of a file are, only the model's tokenizer can say.
    input_len, output_len = (0 if bench["dataset"] == "file" else bench["input_len"]), bench["output_len"]
    if room.tokens is None or input_len + output_len <= room.tokens:
        return
    kept = f", of which SGLang leaves {room.kept_back} unused" if room.kept_back else ""
    asked = f"bench.input_len={input_len} and bench.output_len={output_len}" if input_len else ""
    asked = asked or f"bench.output_len={output_len}"
    message = f"{asked} make requests of {input_len + output_len} tokens; {room.what} is all there is{kept}"
    hints = [room.hint]
    if input_len > 0 and output_len < room.tokens:
        hints.insert(0, f"bench.input_len={room.tokens - output_len}")
    elif input_len < room.tokens:
        hints.insert(0, f"bench.output_len={room.tokens - input_len}")
    fields = ("bench.input_len", "bench.output_len", "context_length", "max_total_tokens")
    yield Finding("error", "BEN014", message, fields, hints)


def _no_completions(plan: Plan) -> Iterator[Finding]:
    values = plan.values
    if values["is_embedding"]:
        message = "is_embedding=true: the server makes embeddings, and what is measured are answers"
        yield Finding("error", "BEN015", message, ("is_embedding",), "is_embedding=false")
    mode = values["disaggregation_mode"]
    if mode != "null":
        message = f"disaggregation_mode={mode}: such a server answers nobody without one of the other kind"
        yield Finding("error", "BEN015", message, ("disaggregation_mode",), "disaggregation_mode='null'")


def _no_text(plan: Plan, bench: Mapping[str, Any]) -> Iterator[Finding]:
    if not plan.values["skip_tokenizer_init"]:
        return
    texts = {"dataset": bench["dataset"] == "file", "quality": bool(bench["quality"])}
    for name in (name for name, sends in texts.items() if sends):
        message = f"skip_tokenizer_init=true: the server takes token ids, and bench.{name}={bench[name]} sends text"
        hint = "skip_tokenizer_init=false"
        yield Finding("error", "BEN015", message, ("skip_tokenizer_init", f"bench.{name}"), hint)


def _model_context(plan: Plan) -> int | None:
    """The model's own context in tokens; None where its config is not known."""
    overrides = plan.values["json_model_override_args"] if plan.engine.name == "sglang" else "{}"
    view = view_of(plan.model, overrides)
    return None if view is None else derived_context_length(text_config(view))
