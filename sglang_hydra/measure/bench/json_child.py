"""A process in the engine's environment that answers each line of JSON with one, kept between questions."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

_LONGEST_REASON = 500


class JsonChild:
    """The running process. ``finding`` makes the message for one that has ended, from its exit code and its last line
    on stderr; it is then raised as MachineError."""

    def __init__(
        self,
        command: Sequence[str],
        finding: Callable[[int, str], Finding],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self._finding = finding
        # A file: what nobody reads would fill a pipe and hold the child up.
        self._errors: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Sends a request and returns its answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer, or its absence, says it
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        """The next object or list that it writes; other lines are what packages print when they are imported."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, (dict, list)):
                    return record
        code = self._process.wait()
        self._errors.seek(0)
        reason = last_line(self._errors.read())
        self.close()
        raise MachineError(self._finding(code, reason))

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def last_line(text: str) -> str:
    """The last line that is not empty, as the reason of a program that has ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else "it wrote nothing"
