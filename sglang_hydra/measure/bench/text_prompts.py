"""Prompts for a server that takes text only: made by its own tokenizer, in a process of its environment."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from sglang_hydra.measure.bench.prompts import Prompt
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

_CHILD = Path(__file__).with_name("child_prompts.py")
_LONGEST_REASON = 500


class TextMaker:
    """Turns prompts of ids into texts of as many tokens. The process starts at the first call and is kept.

    Raises MachineError where the engine's environment cannot read the model's tokenizer.
    """

    def __init__(self, python: str | None, model_path: str) -> None:
        self._command = [python or sys.executable, str(_CHILD), model_path]
        self._running: tuple[subprocess.Popen[str], IO[str]] | None = None

    def texts(self, prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
        made = self._answer({"seed": seed, "lengths": [len(prompt.ids) for prompt in prompts]})
        return [
            Prompt(prompt.output_len, (), text, tokens) for prompt, (text, tokens) in zip(prompts, made, strict=True)
        ]

    def close(self) -> None:
        """Ends the process."""
        if self._running is not None:
            process, errors = self._running
            self._running = None
            process.kill()
            process.communicate()
            errors.close()

    def _answer(self, request: dict[str, Any]) -> Any:
        """The process's answer to a request, each a line of JSON; other lines are what packages print when they are
        imported."""
        process, errors = self._running = self._running or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the answer, or its absence, says it
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, list):
                    return record
        process.wait()
        errors.seek(0)
        last = next((line.strip() for line in reversed(errors.read().splitlines()) if line.strip()), "it wrote nothing")
        self.close()
        message = f"the tokenizer of {self._command[-1]} cannot be used in {self._command[0]}: {last[:_LONGEST_REASON]}"
        hint = "tokenizer_path=FOLDER, where the tokenizer's files are"
        raise MachineError(Finding("error", "BEN011", message, ("tokenizer_path",), hint))

    def _started(self) -> tuple[subprocess.Popen[str], IO[str]]:
        # A file: what nobody reads would fill a pipe and hold the process up.
        errors: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by close()
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=errors, text=True), errors
