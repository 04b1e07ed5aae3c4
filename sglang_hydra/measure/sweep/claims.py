"""Divides work between runners that share only a folder: without locks and without synchronized clocks.

A claim is a file ``<what>/<number>`` that only one runner can create; the highest number is in force. A runner shows
that it lives by incrementing a count in its own file. Another runner takes a claim over, by creating the next number,
when it sees no change of that count for the lease on its own clock, or knows that the process is dead (same machine,
same boot); of several that try, one succeeds. Before a runner publishes a result it checks that its number is still in
force."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.measure.periodic import Repeating
from sglang_hydra.measure.sweep.files import create, read_json, write_below
from sglang_hydra.run.launch.processes import Life, ProcessName, name_of
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.words import is_digits

LEASE_S = 60.0
"""A runner silent for this many seconds loses its work. It exceeds the delay of a heartbeat on a busy or swapping
machine, or through the attribute cache of a network file system."""

BEAT_S = 5.0


class Claim(NamedTuple):
    """A claim of this runner, in force until somebody takes it over."""

    what: str
    number: int


class Holder(NamedTuple):
    """The runner with the claim in force. ``alive`` is None on another machine: its heartbeat shows it in time."""

    runner: str
    alive: bool | None


class Claims:
    """The claims in ``folder`` for one runner. Use it as a context manager: a thread sends its heartbeat."""

    def __init__(self, folder: Path, lease_s: float = LEASE_S, beat_s: float = BEAT_S) -> None:
        self._folder = folder
        self._lease_s = lease_s
        self.runner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._beating = Repeating(self._beat, beat_s, "sweep-heartbeat")
        self._process = name_of(os.getpid())
        self._seen: dict[str, tuple[object, float]] = {}
        self._count = 0

    def __enter__(self) -> Claims:
        self._show_life()
        self._beating.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._beating.end()
        self._runner_file(self.runner).unlink(missing_ok=True)

    def take(self, what: str) -> Claim | None:
        """Returns a claim on ``what``; None while a live runner, perhaps this one, holds it."""
        number = self._in_force(what)
        if number and not self._is_abandoned(what, number):
            return None
        self._seen.pop(f"{what}/{number}", None)
        if create(self._file(what, number + 1), json.dumps(self._me())):
            return Claim(what, number + 1)
        return None

    def holds(self, claim: Claim) -> bool:
        """Returns whether our claim is still in force."""
        return self._in_force(claim.what) == claim.number

    def holder(self, what: str) -> Holder | None:
        """Returns the current holder of ``what``; None if nobody took it, or its last owner released it."""
        number = self._in_force(what)
        file = self._file(what, number)
        owner = _read(file) if number and not file.with_suffix(".released").exists() else None
        if owner is None or "runner" not in owner:
            return None
        life = _life(owner)
        return Holder(str(owner["runner"]), None if life is Life.ELSEWHERE else life is Life.ALIVE)

    def is_free(self, what: str) -> bool:
        """Returns whether no live runner holds ``what``, as far as this runner knows: for a runner on another machine
        this takes the lease."""
        number = self._in_force(what)
        return not number or self._is_abandoned(what, number)

    def release(self, claim: Claim) -> None:
        """Releases a claim, so that another runner may take it at once."""
        if self.holds(claim):
            create(self._file(claim.what, claim.number).with_suffix(".released"))

    def _in_force(self, what: str) -> int:
        """Returns the highest number of a claim, 0 for none."""
        try:
            names = os.listdir(self._folder / what)
        except FileNotFoundError:
            return 0
        return max((int(name) for name in names if is_digits(name)), default=0)

    def _is_abandoned(self, what: str, number: int) -> bool:
        file = self._file(what, number)
        if file.with_suffix(".released").exists():
            return True
        owner = _read(file)
        if owner is None or "runner" not in owner:
            # Not yet written, or its runner died before: the lease decides.
            return self._stands_still(f"{what}/{number}", None)
        runner = str(owner["runner"])
        shown = _read(self._runner_file(runner)) or {}
        return _life(owner) is Life.GONE or self._stands_still(runner, shown.get("count"))

    def _stands_still(self, key: str, sign: object) -> bool:
        """Returns whether this runner has seen the same ``sign`` for the whole lease."""
        now = time.monotonic()
        before, since = self._seen.get(key, (self, now))
        self._seen[key] = (sign, since if before == sign else now)
        return before == sign and now - since >= self._lease_s

    def _beat(self) -> None:
        with contextlib.suppress(OSError):  # a full or vanished disk: the lease runs, and the next beat tries again
            self._show_life()

    def _show_life(self) -> None:
        self._count += 1
        write_below(self._runner_file(self.runner), json.dumps({**self._me(), "count": self._count}))

    def _me(self) -> dict[str, object]:
        return {"runner": self.runner, "process": asdict(self._process) if self._process else None}

    def _file(self, what: str, number: int) -> Path:
        return self._folder / what / str(number)

    def _runner_file(self, runner: str) -> Path:
        return self._folder / "runners" / f"{runner}.json"


def _life(owner: JsonObject) -> Life:
    """Returns the state of the owner; only processes of this machine are visible."""
    try:
        return ProcessName(**owner["process"]).life()
    except (KeyError, TypeError):
        return Life.ELSEWHERE


def _read(file: Path) -> JsonDict | None:
    try:
        return read_json(file)
    except (OSError, ValueError):
        return None
