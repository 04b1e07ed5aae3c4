"""Checks a ``bench`` node before it runs; each finding says what to type.

Also asks questions with fixed answers after the load, so that a fast but wrong server never wins. The questions are
sums and words that every instruction-tuned model knows; ``bench.quality=FILE`` replaces them, with one JSON object per
line: ``{"prompt": "...", "answer": "..."}``. ``bench.quality=true`` asks ours and requires four of five right answers:
broken quantization, a wrong chat template or a broken kernel scores far lower."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.compose.settings.bench import CACHES, CLIENTS, DATASETS, LADDER
from sglang_hydra.measure.bench.load import content_digest
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.words import nearest

if TYPE_CHECKING:
    from sglang_hydra.measure.bench.server import Endpoint


_LEAST = {
    **dict.fromkeys(("input_len", "output_len", "prefix_groups", "repeats", "num_prompts"), 1),
    **dict.fromkeys(("prefix_len", "warmup", "min_duration"), 0),
}


def _file_problems(node: Mapping[str, object]) -> Iterator[Finding]:
    """Yields findings about files of prompts or questions, before a server starts for them."""
    if node["dataset"] == "file" and node["path"]:
        from sglang_hydra.measure.bench.prompts import file_prompts

        yield from _asked(file_prompts, node["path"], node["output_len"])
    if node["quality"]:
        yield from _asked(questions, node["quality"])


_read: dict[Any, tuple[Finding, ...]] = {}


def _asked(reads: Callable[..., object], source: object, *settings: object) -> tuple[Finding, ...]:
    """Returns the findings of a file's reader, cached while the file's content stays the same."""
    key = (reads.__module__, source, content_digest(source) if isinstance(source, str) else None, *settings)
    if key not in _read:
        _read[key] = ()
        try:
            reads(source, *settings)
        except ConfigError as failure:
            _read[key] = tuple(failure.findings[:1])
    return _read[key]


def _doubled(text: str) -> list[int]:
    """Returns the numbers of a range such as 1..64 or 8-64, each twice the one before; empty for other text."""
    ends = re.fullmatch(r"([1-9]\d{0,4})\s*(?:\.{2,3}|-|:)\s*([1-9]\d{0,4})", text)
    first, last = (int(ends[1]), int(ends[2])) if ends else (1, 0)
    return [first << by for by in range(17) if first << by <= last]


def problems(node: JsonObject) -> Iterator[Finding]:
    """Yields a finding for everything in a ``bench`` node that cannot run."""
    for name, allowed in (("dataset", DATASETS), ("client", CLIENTS), ("cache", CACHES)):
        if (value := node[name]) not in allowed:
            near = nearest(str(value), allowed)
            named = "file bench.path=FILE, with the prompts of any data set" if name == "dataset" else allowed[0]
            hint = f"did you mean bench.{name}={near}?" if near else f"bench.{name}={named}"
            yield _error("BEN001", f"bench.{name}={value} is not one of {', '.join(allowed)}", name, hint)
    for name, least in _LEAST.items():
        if (value := node[name]) is not None and not least <= value < math.inf:
            message = f"bench.{name}={value} must be at least {least}"
            yield _error("BEN001", message, name, f"bench.{name}={max(least, 1)}")
    asked = node["concurrency"]
    whole = isinstance(asked, int) and not isinstance(asked, bool) and asked >= 1
    if not (asked is None or asked == LADDER or whole):
        message = f"bench.concurrency={asked} is neither a number of requests nor {LADDER}"
        several = ",".join(map(str, asked if isinstance(asked, list) else _doubled(str(asked))))
        yield _error("BEN001", message, "concurrency", f"{'-m ' * bool(several)}bench.concurrency={several or 8}")
    for name in ("request_rate", "timeout"):
        if (value := node[name]) is not None and not 0 < value < math.inf:
            hint = f"bench.{name}=10"
            if name == "request_rate" and value == math.inf:
                hint = f"bench.{name}=null bench.concurrency={node['num_prompts'] or 'N'} sends all of them at once"
            yield _error("BEN001", f"bench.{name}={value} must be above 0 and finite", name, hint)
    if not 0 < node["range_ratio"] <= 1:
        message = f"bench.range_ratio={node['range_ratio']} must be above 0 and at most 1"
        yield _error("BEN001", message, "range_ratio", "bench.range_ratio=0.8 draws lengths from 80 % to 100 %")
    if node["dataset"] == "file" and not node["path"]:
        yield _error("BEN002", "bench.dataset=file needs the file", "path", "bench.path=prompts.jsonl", "dataset")
    if node["dataset"] != "file" and node["path"]:
        message = f"bench.path={node['path']} is not read with bench.dataset={node['dataset']}"
        yield _error("BEN002", message, "path", "bench.dataset=file", "dataset")
    if node["dataset"] == "shared_prefix" and not 0 < node["prefix_len"] < node["input_len"]:
        message = f"bench.prefix_len={node['prefix_len']} must be between 1 and bench.input_len={node['input_len']}"
        hint = f"bench.prefix_len={max(1, node['input_len'] // 2)}"
        yield _error("BEN002", message, "prefix_len", hint, "input_len")
    yield from _trace(node)
    yield from _slo(node)
    yield from _file_problems(node)


def _trace(node: Mapping[str, object]) -> Iterator[Finding]:
    if node["trace"] is None:
        return
    if node["dataset"] != "random":
        message = f"bench.trace makes its own prompts, and bench.dataset={node['dataset']} others"
        yield _error("BEN002", message, "dataset", "bench.dataset=random", "trace")
    if node["concurrency"] == LADDER:
        message = f"bench.concurrency={LADDER} tries loads, and bench.trace is one"
        hint = "bench.concurrency=null; bench.request_rate=N scales a trace"
        yield _error("BEN002", message, "concurrency", hint, "trace")
    from sglang_hydra.measure.bench.trace import read_trace

    yield from _asked(read_trace, node["trace"], node["num_prompts"])


def _slo(node: JsonObject) -> Iterator[Finding]:
    """Yields findings for invalid limits, and for limits on a latency that this load cannot show: every request would
    meet these."""
    slo = node["slo"]
    for name in ("ttft_ms", "itl_ms", "e2e_ms"):
        if slo[name] is not None and not slo[name] > 0:
            message = f"bench.slo.{name}={slo[name]} must be above 0"
            yield _error("BEN001", message, f"slo.{name}", f"bench.slo.{name}=500")
    if not 0 < slo["share"] <= 1:
        message = f"bench.slo.share={slo['share']} must be above 0 and at most 1"
        yield _error("BEN001", message, "slo.share", "bench.slo.share=0.99")
    unseen = [name for name in ("ttft_ms", "itl_ms") if slo[name] is not None and not node["stream"]]
    if unseen:
        message = f"bench.slo.{unseen[0]} cannot be judged with bench.stream=false: whole answers show no single tokens"
        yield _error("BEN002", message, f"slo.{unseen[0]}", "bench.stream=true, or bench.slo.e2e_ms", "stream")
    elif slo["itl_ms"] is not None and node["output_len"] == 1:
        message = "bench.slo.itl_ms cannot be judged with bench.output_len=1: nothing follows the first token"
        yield _error("BEN002", message, "slo.itl_ms", "bench.slo.ttft_ms", "output_len")


def _error(id: str, message: str, key: str, hint: str, *others: str) -> Finding:
    """Makes a finding: ``key`` is the one to change first, the ``others`` are related."""
    return Finding("error", id, message, tuple(f"bench.{name}" for name in (key, *others)), hint)


_WORDS = (
    ("What is the capital of France? Answer with one word.", "paris"),
    ("What is the capital of Japan? Answer with one word.", "tokyo"),
    ("Which planet do we live on? Answer with one word.", "earth"),
    ("What is the opposite of hot? Answer with one word.", "cold"),
    ("How many days has a week? Answer with a number.", "7"),
    ("Which letter comes after C in the alphabet? Answer with one letter.", "d"),
)
_SUMS = ((7, 5), (12, 30), (41, 8), (100, 23), (64, 64), (9, 90), (250, 250))


def questions(source: Any) -> list[tuple[str, str]]:
    """Returns prompts, each with the text that its answer must contain. Raises ConfigError for an invalid file."""
    if source is True:
        sums = [(f"What is {a} plus {b}? Answer with the number only.", str(a + b)) for a, b in _SUMS]
        return [*_WORDS, *sums]
    path = Path(str(source)).expanduser()
    try:
        rows = [read_json(line, "dataset") for line in read_text(path).split("\n") if line.strip()]
        asked = [(str(row["prompt"]), str(row["answer"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise ConfigError(_bad(f"bench.quality={path} cannot be read: {type(failure).__name__}: {failure}")) from None
    empty = next((answer for _, answer in asked if not any(letter.isalnum() for letter in answer)), None)
    if empty is not None:
        raise ConfigError(_bad(f"bench.quality={path}: {empty!r} has no letter or digit to check an answer by"))
    if not asked:
        raise ConfigError(_bad(f"bench.quality={path} holds no question"))
    return asked


def _bad(message: str) -> Finding:
    hint = 'bench.quality=true asks built-in questions; a file has one {"prompt": "...", "answer": "..."} a line'
    return Finding("error", "BEN004", message, ("bench.quality",), hint)


NEEDED = 0.8
"""The share of right answers that passes. Our choice: small chat models answer all of these."""

_TIMEOUT_S = 60.0
_MAX_TOKENS = 256


def check_quality(server: Endpoint, source: object) -> dict[str, object]:
    """Asks every question once, greedily, one after the other. Never raises: a failed request counts as a wrong
    answer."""
    asked = questions(source)
    replies = [(prompt, answer, _ask(server, prompt)) for prompt, answer in asked]
    wrong = [
        {"prompt": prompt, "expected": answer, "reply": reply[:200]}
        for prompt, answer, reply in replies
        if _words(answer) not in _words(reply)
    ]
    right = len(asked) - len(wrong)
    passed, why = right >= NEEDED * len(asked), ""
    if not passed:
        why = f"at least {NEEDED:.0%} are needed; to {wrong[0]['prompt']!r} it replied {wrong[0]['reply']!r}"
    return {"asked": len(asked), "right": right, "passed": passed, "why": why, "wrong": wrong}


def _ask(server: Endpoint, prompt: str) -> str:
    messages = [{"role": "user", "content": prompt}]
    body = {"model": server.model, "messages": messages, "temperature": 0, "max_tokens": _MAX_TOKENS, "stream": False}
    answer = server.ask("POST", "/v1/chat/completions", body, _TIMEOUT_S)
    if answer is None:
        return "(no answer)"
    try:
        return str(answer.json()["choices"][0]["message"]["content"] or "")
    except (ValueError, LookupError, TypeError) as failure:
        return f"({type(failure).__name__}: {failure})"


def _words(reply: str) -> str:
    """Drops a model's thoughts and puts blanks around words, so that 17 does not contain 7."""
    answer = reply.rpartition("</think>")[2].casefold()
    return f" {' '.join(''.join(letter if letter.isalnum() else ' ' for letter in answer).split())} "
