"""A small check with fixed answers, after the load: a server that is fast and wrong never wins.

The questions are sums and words that every instruction-tuned model knows; ``bench.quality=FILE`` brings others, one
JSON object a line: ``{"prompt": "...", "answer": "..."}``. ``bench.quality=true`` asks ours and wants four of five
right: broken quantization, a wrong chat template or a broken kernel answers far fewer.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from sglang_hydra.measure.bench.questions import questions
from sglang_hydra.measure.bench.server import Server

NEEDED = 0.8
"""The share of right answers that passes. A choice of ours: small chat models answer all of these."""

_TIMEOUT_S = 60.0
_MAX_TOKENS = 256


def check_quality(server: Server, source: object) -> dict[str, object]:
    """Asks every question once, greedily, one after the other. Never raises for a server that fails: it answers
    wrongly then."""
    asked = questions(source)
    wrong: list[dict[str, str]] = []
    with httpx.Client(timeout=_TIMEOUT_S, trust_env=False, headers=server.headers()) as client:
        for prompt, answer in asked:
            reply = _ask(client, server, prompt)
            if _words(answer) not in _words(reply):
                wrong.append({"prompt": prompt, "expected": answer, "reply": reply[:200]})
    right = len(asked) - len(wrong)
    passed = right >= NEEDED * len(asked)
    why = "" if passed else f"at least {NEEDED:.0%} are needed; {_shown(wrong[0])}"
    return {"asked": len(asked), "right": right, "passed": passed, "why": why, "wrong": wrong}


def _shown(failed: Mapping[str, str]) -> str:
    return f"to {failed['prompt']!r} it replied {failed['reply']!r}"


def _ask(client: httpx.Client, server: Server, prompt: str) -> str:
    messages = [{"role": "user", "content": prompt}]
    body = {"model": server.model, "messages": messages, "temperature": 0, "max_tokens": _MAX_TOKENS, "stream": False}
    try:
        answer = client.post(f"{server.url}/v1/chat/completions", json=body)
        return str(answer.json()["choices"][0]["message"]["content"] or "")
    except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError) as failure:
        return f"({type(failure).__name__}: {failure})"


def _words(reply: str) -> str:
    """The answer without a model's thoughts before it, as words between blanks: 7 is not found in 17."""
    answer = reply.rpartition("</think>")[2].casefold()
    return f" {' '.join(''.join(letter if letter.isalnum() else ' ' for letter in answer).split())} "
