"""A small check with fixed answers, after the load: a server that is fast and wrong never wins.

The questions are sums and words that every instruction-tuned model knows; ``bench.quality=FILE`` brings others, one
JSON object a line: ``{"prompt": "...", "answer": "..."}``. ``bench.quality=true`` asks ours and wants four of five
right: broken quantization, a wrong chat template or a broken kernel answers far fewer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.measure.bench.server import Server

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
    """Prompts and what the answer must contain. Raises ConfigError for a file that holds none."""
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
"""The share of right answers that passes. A choice of ours: small chat models answer all of these."""

_TIMEOUT_S = 60.0
_MAX_TOKENS = 256


def check_quality(server: Server, source: object) -> dict[str, object]:
    """Asks every question once, greedily, one after the other. Never raises for a server that fails: it answers
    wrongly then."""
    asked = questions(source)
    wrong: list[dict[str, str]] = []
    for prompt, answer in asked:
        reply = _ask(server, prompt)
        if _words(answer) not in _words(reply):
            wrong.append({"prompt": prompt, "expected": answer, "reply": reply[:200]})
    right = len(asked) - len(wrong)
    passed = right >= NEEDED * len(asked)
    why = (
        ""
        if passed
        else f"at least {NEEDED:.0%} are needed; to {wrong[0]['prompt']!r} it replied {wrong[0]['reply']!r}"
    )
    return {"asked": len(asked), "right": right, "passed": passed, "why": why, "wrong": wrong}


def _ask(server: Server, prompt: str) -> str:
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
    """Returns the answer without a model's thoughts before it, as words between blanks: 7 is not found in 17."""
    answer = reply.rpartition("</think>")[2].casefold()
    return f" {' '.join(''.join(letter if letter.isalnum() else ' ' for letter in answer).split())} "
