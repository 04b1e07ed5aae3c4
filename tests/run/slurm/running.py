"""A ``serve.py`` that runs in the background: what it printed, its run folder, and the server that it speaks of."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DEADLINE_S = 120.0


class Running:
    """``python serve.py OVERRIDES`` with ``folder`` as its run folder, from this repository's root."""

    def __init__(self, folder: Path, overrides: Sequence[str], env: Mapping[str, str]) -> None:
        self.folder = folder
        self._out = folder.with_name(f"{folder.name}.out")
        words = [sys.executable, "serve.py", *overrides, f"hydra.run.dir={folder}"]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", **env}
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                words, cwd=ROOT, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )

    @property
    def printed(self) -> str:
        return self._out.read_text(errors="replace")

    def until(self, said: str) -> re.Match[str]:
        """Waits until what was printed matches the pattern. Fails when the program ends without, or takes too long."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            ended = self.process.poll() is not None
            found = re.search(said, self.printed)
            if found:
                return found
            assert not ended, f"it ended with {self.process.returncode}:\n{self.printed[-4000:]}"
            assert time.monotonic() < deadline, f"no {said!r} in {DEADLINE_S:.0f} s:\n{self.printed[-4000:]}"
            time.sleep(0.1)

    def job(self) -> str:
        """The id of its job."""
        return self.until(r"the job (\d+) was submitted")[1]

    def ready(self) -> Running:
        self.until("Ready after")
        return self

    def ended(self, number: signal.Signals | None = None) -> int:
        """Its exit code; with ``number``, that signal is sent first."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def account(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "job.json").read_text())
        return content

    def ask(self, key: str | None = None) -> tuple[int, dict[str, Any]]:
        """A completion by the server on the head."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = self._talk("POST", "/v1/chat/completions", headers)
        assert answer is not None
        return answer

    def get(self, path: str) -> tuple[int, dict[str, Any]] | None:
        """A page of the server on the head; None where it ends without an answer."""
        return self._talk("GET", path, {})

    def _talk(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, Any]] | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.account()["port"], timeout=60)
        try:
            connection.request(method, path, "{}" if method == "POST" else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE_S)
            finally:
                self.process.kill()
                self.process.wait()
