"""At the terminal, while a job lives: its place in the queue, its log, its own account, and its end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sglang_hydra.run.launch.display import Display
from sglang_hydra.run.launch.log import LogTail
from sglang_hydra.run.launch.slurm.inside import PROGRAMS
from sglang_hydra.run.launch.slurm.record import ENDED, READY, Account, read_account
from sglang_hydra.run.launch.slurm.states import MESSAGES, JobState, cancel, state_of
from sglang_hydra.run.launch.slurm.submit import Job

_LOOK_S = 0.3
# Slurm's controller serves a whole cluster: it is asked rarely once a job runs.
_ASK_FIRST_S, _ASK_LATER_S, _ASK_SOON = 1.0, 10.0, 60
# After a graceful end was asked for; after Slurm was asked to cancel (KillWait is 30 s by default, an epilog may run).
_CANCEL_EXTRA_S, _GIVE_UP_S = 20.0, 120.0


class Follower:
    """Stays with one job until its end. ``stop_timeout_s`` is how long its ranks may take to stop, ``logs`` what is
    shown, by the name before the lines of each."""

    def __init__(
        self, job: Job, folder: Path, display: Display, stop_timeout_s: float, logs: Mapping[str, Path]
    ) -> None:
        self.job, self.folder, self.display, self._stop_timeout_s = job, folder, display, stop_timeout_s
        self.state: JobState | None = None
        self.account: Account | None = None
        self._noted: list[str] = []
        self._tails = {name: LogTail(log) for name, log in logs.items()}
        self._asked, self._asked_at = 0, 0.0
        self._stopping_since: float | None = None
        self._cancelled = False
        self._problem = ""

    def until_end(self, signals: list[int], on_ready: Callable[[Account], None]) -> None:
        """Shows what happens until the job is over. Signals in the list (others may add to it) stop the job: gently the
        first time, by cancelling it the second."""
        started, ready = time.monotonic(), False
        while True:
            self._look()
            account = self.account
            if account is not None and account.phase == READY and not ready:
                ready = True
                self.display.close()
                with contextlib.suppress(OSError):
                    on_ready(account)
            if not ready and not signals:
                self.display.waiting(time.monotonic() - started, self._progress())
            if signals:
                self._stop(again=len(signals) > 1)
            if (self.state is not None and self.state.over) or self._given_up():
                break
            time.sleep(_LOOK_S)
        self.display.close()
        self._read_account()
        for name, tail in self._tails.items():
            self._show(tail.rest(), name)

    def _show(self, lines: Iterator[str], name: str) -> None:
        for line in lines:
            # Of ranks that were asked to stop, srun says that they failed.
            if self._stopping_since is None or not line.startswith("srun: "):
                self.display.line("stdout", f"[{name}] {line}" if name else line)

    def _look(self) -> None:
        self._read_account()
        for name, tail in self._tails.items():
            self._show(tail.lines(), name)
        now = time.monotonic()
        has_ended = self.account is not None and self.account.phase == ENDED
        soon = self._asked < _ASK_SOON or self._stopping_since is not None or has_ended
        if now - self._asked_at >= (_ASK_FIRST_S if soon else _ASK_LATER_S):
            self._asked, self._asked_at = self._asked + 1, now
            self.state = state_of(self.job.id) or self.state

    def _read_account(self) -> None:
        found = read_account(self.folder)
        if found is not None and (self.account is None or found.sequence >= self.account.sequence):
            self.account = found
        for note in self.account.notes if self.account is not None else ():
            self._note_once(note)

    def _note_once(self, note: str) -> None:
        if note not in self._noted:
            self._noted.append(note)
            self.display.note(note)

    def _progress(self) -> str:
        if self.account is not None and self.account.milestone:
            return self.account.milestone
        if self.state is None or not self.state.waiting:
            return f"the job {self.job.id} is starting"
        why = f" ({self.state.reason})" if self.state.reason else ""
        if str(self.state.reason).startswith(tuple(MESSAGES["waits_for_ever"])):
            self._note_once(f"this does not pass by itself{why}: Ctrl-C, and ask for less or elsewhere")
        return f"the job {self.job.id} is waiting for its turn{why}"

    def _stop(self, *, again: bool) -> None:
        """Asks the batch process alone first: a plain scancel would have srun kill the ranks in the same moment."""
        now = time.monotonic()
        if self._stopping_since is None:
            self._stopping_since = now
            self.display.close()
            self.display.note(f"stopping the job {self.job.id}; once more cancels it at once")
            if self.state is None or self.state.waiting or cancel(self.job.id, "TERM", batch=True) is not None:
                self._cancel()
        elif not self._cancelled and (again or now - self._stopping_since > self._stop_timeout_s + _CANCEL_EXTRA_S):
            self._cancel()

    def _cancel(self) -> None:
        self._cancelled = True
        problem = cancel(self.job.id)
        if problem is not None and problem != self._problem:
            self._problem = problem
            self.display.note(f"scancel {self.job.id}: {problem}")

    def _given_up(self) -> bool:
        """Returns a job that Slurm cannot end (a node that does not answer) must not hold the terminal for ever."""
        if self._stopping_since is None or not self._cancelled:
            return False
        if time.monotonic() - self._stopping_since < self._stop_timeout_s + _CANCEL_EXTRA_S + _GIVE_UP_S:
            return False
        self.display.note(f"the job {self.job.id} was cancelled and has not ended yet: squeue -j {self.job.id}")
        return True


@contextlib.contextmanager
def cancelled_with_us(job: str, secrets: Path | None = None) -> Iterator[None]:
    """Cancels the job, and deletes its file of secrets, if this process ends in any way, ``kill -9`` included; and
    where the block itself fails."""
    watched, ours = os.pipe()
    words = [sys.executable, "-I", "-S", str(PROGRAMS / "child_cancel.py"), str(watched), job]
    words += [str(secrets)] if secrets is not None else []
    try:
        guard = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[watched], start_new_session=True
        )
    finally:
        os.close(watched)
    try:
        yield
        with contextlib.suppress(BrokenPipeError):
            os.write(ours, b".")
    finally:
        os.close(ours)
        guard.wait()
