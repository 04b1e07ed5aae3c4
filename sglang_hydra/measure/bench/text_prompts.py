"""Prompts for a server that takes text only: made by its own tokenizer, in a process of its environment."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from sglang_hydra.measure.bench.prompts import Prompt
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

_CHILD = Path(__file__).with_name("child_prompts.py")


class TextMaker:
    """Turns prompts of ids into texts of as many tokens. The process starts at the first call and is kept.

    Raises MachineError where the engine's environment cannot read the model's tokenizer.
    """

    def __init__(self, python: str | None, model_path: str) -> None:
        self._command = [python or sys.executable, str(_CHILD), model_path]
        self._child: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def texts(self, prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
        lengths = [len(prompt.ids) for prompt in prompts]
        made = self._ask({"seed": seed, "lengths": lengths})
        return [
            Prompt(prompt.output_len, (), text, tokens) for prompt, (text, tokens) in zip(prompts, made, strict=True)
        ]

    def _ask(self, request: dict[str, Any]) -> Any:
        if self._child is None:
            # A file: what nobody reads would fill a pipe and hold the child up.
            self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by close()
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
            )
        child, errors = self._child, self._errors
        assert errors is not None
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            child.wait()
            errors.seek(0)
            said = errors.read().strip().splitlines()
            self.close()
            message = f"the tokenizer of {self._command[-1]} cannot be used in {self._command[0]}"
            hint = "tokenizer_path=FOLDER, where the tokenizer's files are"
            why = said[-1] if said else "it ended"
            raise MachineError(Finding("error", "BEN011", f"{message}: {why}", ("tokenizer_path",), hint))
        return json.loads(line)

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()
        if self._errors is not None:
            self._errors.close()

    def __enter__(self) -> TextMaker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
