"""Prompts for a server that takes text only: made by its own tokenizer, in a process of its environment."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.measure.bench.json_child import JsonChild
from sglang_hydra.measure.bench.prompts import Prompt
from sglang_hydra.text.findings import Finding

_CHILD = Path(__file__).with_name("child_prompts.py")


class TextMaker:
    """Turns prompts of ids into texts of as many tokens. The process starts at the first call and is kept.

    Raises MachineError where the engine's environment cannot read the model's tokenizer.
    """

    def __init__(self, python: str | None, model_path: str) -> None:
        self._command = [python or sys.executable, str(_CHILD), model_path]
        self._child: JsonChild | None = None

    def texts(self, prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
        if self._child is None:
            self._child = JsonChild(self._command, self._unusable)
        made = self._child.ask({"seed": seed, "lengths": [len(prompt.ids) for prompt in prompts]})
        return [
            Prompt(prompt.output_len, (), text, tokens) for prompt, (text, tokens) in zip(prompts, made, strict=True)
        ]

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _unusable(self, exit_code: int, reason: str) -> Finding:
        message = f"the tokenizer of {self._command[-1]} cannot be used in {self._command[0]}: {reason}"
        hint = "tokenizer_path=FOLDER, where the tokenizer's files are"
        return Finding("error", "BEN011", message, ("tokenizer_path",), hint)
