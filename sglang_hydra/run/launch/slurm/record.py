"""Keeps the job's own account in its run folder: the server's progress, its address, its end.

Also passes secrets from the terminal to the job's ranks; neither Slurm nor the file system keeps them.

Slurm records a job's script, its command line and the whole environment of sbatch (StateSaveLocation; `scontrol show
job` and `scontrol write batch_script` show parts), and a process's command line is public, so none of these carries a
secret. The terminal writes the API key and the secret variables (HF_TOKEN, ...) to one file in the run folder that only
its owner can read (mode 0600, never overwritten). The job reads and deletes it first; the terminal deletes it too if
the job never ran. After that they are only in memory: srun's standard input, which Slurm carries to every rank without
storing it, brings them to ``child_rank.py``, which passes the key to the server through an inherited pipe. A batch job
inherits nothing from a login node, so a pipe cannot go all the way."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from sglang_hydra.arguments.secrets import is_secret
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.whole_file import write_whole

SCHEMA = "sglang_hydra.slurm_job/1"
FILE_NAME = "job.json"
STARTING, READY, ENDED = "starting", "ready", "ended"


@dataclass(frozen=True)
class Account:
    """The job's account. ``phase`` is starting, ready or ended. ``elapsed_s`` counts from the start of the ranks.
    ``node`` is Slurm's name of the head, ``address`` its address for other machines; ``host`` and ``port`` are where
    the server listens there. ``notes`` are the launcher's own lines (a milestone, a full disk), the oldest dropped.
    ``exit_code`` and ``findings`` are set at the end. ``sequence`` grows with each write, because a shared file system
    may show an older account after a newer one."""

    job: str
    sequence: int = 0
    phase: str = STARTING
    nodes: Sequence[str] = ()
    node: str | None = None
    address: str | None = None
    dist_init_addr: str | None = None
    host: str | None = None
    port: int | None = None
    elapsed_s: float = 0.0
    milestone: str = ""
    notes: Sequence[str] = ()
    exit_code: int | None = None
    findings: Sequence[Finding] = field(default_factory=tuple)


class Record:
    """Keeps an account in a file that is always complete. Threads and signal handlers may update it at any time; an
    older state never replaces a newer one."""

    def __init__(self, folder: Path, account: Account) -> None:
        self._path = folder / FILE_NAME
        self._lock = threading.RLock()
        before = read_account(folder)  # of a job that Slurm requeued
        self.account = replace(account, sequence=before.sequence if before else 0)
        self.update()

    def update(self, **changes: Any) -> None:
        """Changes these entries and writes the file. Raises OSError if it cannot be written."""
        with self._lock:
            self.account = replace(self.account, sequence=self.account.sequence + 1, **changes)
            written = None
            while written is not self.account:  # a signal handler of this thread has changed it meanwhile
                written = self.account
                content = {**asdict(written), "findings": [finding.to_json() for finding in written.findings]}
                write_whole(self._path, json.dumps({"schema": SCHEMA, **content}, indent=2) + "\n")


def read_account(folder: Path) -> Account | None:
    """Reads the job's latest account; None before the first one (or while a slow file system hides it)."""
    try:
        content = read_json((folder / FILE_NAME).read_text(encoding="utf-8"), "record")
    except (OSError, ValueError):
        return None
    content.pop("schema")
    findings = [Finding.from_json(item) for item in content.pop("findings")]
    return Account(**content, findings=findings)


_NAME = ".secrets"


class Secrets(NamedTuple):
    """The API key, and the secret variables of the server's environment."""

    key: str | None
    env: Mapping[str, str]

    def __repr__(self) -> str:
        return "Secrets(...)"


def secrets_of(key: str | None, planned: Mapping[str, str], environ: Mapping[str, str]) -> Secrets:
    """Collects the server's secrets: those of the plan's environment replace those of this process."""
    both = {**environ, **planned}
    return Secrets(key, {name: value for name, value in both.items() if is_secret(name, value)})


def leave_secrets(folder: Path, secrets: Secrets) -> Path | None:
    """Writes the secrets for the job; returns None without any. Raises MachineError if another job's file exists."""
    if secrets.key is None and not secrets.env:
        return None
    path = folder / _NAME
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        message = f"{path} exists: a job submitted from this run folder has not taken its secrets yet"
        hint = f"hydra.run.dir=ANOTHER/FOLDER, or rm {path} if that job has ended"
        raise MachineError(Finding("error", "SLM009", message, ("hydra.run.dir",), hint)) from None
    with os.fdopen(number, "w", encoding="utf-8") as file:
        # The umask may have removed permissions that the owner needs.
        os.fchmod(file.fileno(), 0o600)
        json.dump({"key": secrets.key, "env": dict(secrets.env)}, file)
    return path


def take_secrets(path: Path | None) -> Secrets:
    """Reads and deletes the secrets. Raises MachineError if they are gone."""
    if path is None:
        return Secrets(None, {})
    try:
        left = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"the secrets that were left for this job are gone: {path}"
        hint = "start it again; a job takes them once, and the submitting command deletes them at its end"
        raise MachineError(Finding("error", "SLM010", message, ("api_key",), hint)) from None
    finally:
        drop_secrets(path)
    return Secrets(left["key"], left["env"])


def drop_secrets(path: Path | None) -> None:
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
