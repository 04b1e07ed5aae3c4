"""Runs in the engine's environment, as a script: makes texts with a given number of tokens for its tokenizer.

argv: the model folder or hub id. stdin: one JSON request per line, {"seed": int, "lengths": [int, ...]}. stdout: one
JSON line per answer, [[text, tokens], ...], where tokens is the tokenizer's count, special tokens included."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

_TRIES = 8


def main() -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(sys.argv[1])
    special = set(tokenizer.all_special_ids)
    words = [token for token in range(min(256, len(tokenizer) // 2), len(tokenizer)) if token not in special]
    for line in sys.stdin:
        request = json.loads(line)
        draw = random.Random(request["seed"])
        print(json.dumps([text_of(tokenizer, words, draw, length) for length in request["lengths"]]), flush=True)


def text_of(tokenizer: Any, words: list[int], draw: random.Random, length: int) -> tuple[str, int]:
    """Returns a random text of about ``length`` tokens, with its exact count."""
    ids = [draw.choice(words) for _ in range(length)]
    best: tuple[str, int] | None = None
    for _ in range(_TRIES):
        text = tokenizer.decode(ids)
        count = len(tokenizer(text)["input_ids"])
        if best is None or abs(count - length) < abs(best[1] - length):
            best = (text, count)
        if count == length:
            break
        missing = length - count
        ids = ids + [draw.choice(words) for _ in range(missing)] if missing > 0 else ids[: max(1, len(ids) + missing)]
    assert best is not None
    return best


if __name__ == "__main__":
    main()
