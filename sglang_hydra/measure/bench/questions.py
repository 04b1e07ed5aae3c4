"""The fixed questions of ``bench.quality``: ours, or those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding

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
