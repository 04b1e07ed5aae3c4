"""Asks Slurm about a job, with or without accounting, and explains its answers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.text.budget import quick_load
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject

MESSAGES: JsonObject = quick_load(Path(__file__).with_name("messages.yaml").read_text(encoding="utf-8"))
"""Slurm's messages and their meaning."""
_ASK_S = 30.0
# In scontrol's order. Names and comments may contain anything, but job names before this text are plain.
_JOB = re.compile(r" JobState=(?P<state>[A-Z_]+) Reason=(?P<reason>\S*) Dependency=")


class JobState(NamedTuple):
    """The state of a job in Slurm. ``reason`` is Slurm's word for why it waits or ended."""

    state: str
    reason: str | None = None

    @property
    def over(self) -> bool:
        return self.state in MESSAGES["over"]

    @property
    def waiting(self) -> bool:
        return self.state in MESSAGES["waiting"]


def state_of(job: str) -> JobState | None:
    """Asks Slurm about a job; None without an answer.

    Slurm's controller forgets a job some minutes after its end (MinJobAge); accounting, if enabled, does not."""
    answer = ask_slurm("scontrol", "--oneliner", "show", "job", job)
    if answer is not None:
        return read_scontrol(answer)
    answer = ask_slurm("sacct", "--noheader", "--parsable2", "--allocations", "-j", job, "-o", "State,ExitCode")
    return read_sacct(answer) if answer else None


def read_scontrol(line: str) -> JobState | None:
    """Parses a line of ``scontrol --oneliner show job``; None without a job in it."""
    job = _JOB.search(line)
    if job is None:
        return None
    reason = job["reason"]
    return JobState(job["state"], None if reason in ("", "None", "(null)") else reason)


def read_sacct(text: str) -> JobState | None:
    """Parses a line of accounting: ``CANCELLED by 1000|0:15``; None without one."""
    first = next((line for line in text.splitlines() if "|" in line), None)
    return None if first is None else JobState(re.split(r"[ |]", first)[0])


def ended_finding(job: str, state: JobState, folder: str) -> Finding:
    """Explains the end of a job that did not report why it ended."""
    id, why, field, hint = MESSAGES["ends"].get(state.state, MESSAGES["ends"]["FAILED"])
    is_said = (state.reason or "").lower() in ("", state.state.replace("_", "").lower())
    message = f"the job {job} ended as {state.state}{'' if is_said else f' ({state.reason})'}: {why}"
    return Finding("error", id, message, (field,), hint.format(job=job, folder=folder))


def cancel(job: str, signal: str | None = None, *, batch: bool = False) -> str | None:
    """Cancels a job, or sends it (``batch``: its script) one signal. Returns scancel's error message, or None."""
    words = ["scancel", *([f"--signal={signal}"] if signal else []), *(["--batch"] if batch else []), job]
    done = run_slurm(*words)
    if done is None:
        return "it cannot be run, or does not answer"
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()


def ask_slurm(*words: str) -> str | None:
    """Returns the output of a Slurm command; None if it is missing, too slow, or fails."""
    done = run_slurm(*words)
    return done.stdout if done is not None and done.returncode == 0 else None


def run_slurm(*words: str) -> subprocess.CompletedProcess[str] | None:
    """Runs a Slurm command; None if it is missing or too slow."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=_ASK_S, stdin=subprocess.DEVNULL, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
