"""Passes secrets from the terminal to the ranks of a job, without Slurm or the file system keeping them.

Slurm records a job's script, its command line and the whole environment of sbatch (StateSaveLocation; `scontrol show
job` and `scontrol write batch_script` show parts), and a process's command line is public. So neither is used.

The API key and the variables that hold secrets (HF_TOKEN, ...) are written to one file in the run folder that only its
owner can read (mode 0600, never overwritten). The job's first act is to read and delete it; the terminal deletes it as
well if the job ends without having run. From there on they are in memory only: srun's standard input, which Slurm
carries to every rank without storing it, takes them to ``child_rank.py``, which gives the key to the server through an
inherited pipe. An inherited pipe all the way is not possible: nothing is inherited from a login node by a batch job.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

_NAME = ".secrets"


class Secrets(NamedTuple):
    """The API key, and the variables of the server's environment that hold secrets."""

    key: str | None
    env: Mapping[str, str]

    def __repr__(self) -> str:
        return "Secrets(...)"


def secrets_of(key: str | None, planned: Mapping[str, str], environ: Mapping[str, str]) -> Secrets:
    """Collects the secrets that a server would have here: secrets of the plan's environment over those of this
    process."""
    both = {**environ, **planned}
    return Secrets(key, {name: value for name, value in both.items() if is_secret_name(name)})


def leave_secrets(folder: Path, secrets: Secrets) -> Path | None:
    """Writes them for the job to take; None where there are none. Raises MachineError where another job's are there."""
    if secrets.key is None and not secrets.env:
        return None
    path = folder / _NAME
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        message = f"{path} is there: a job that was submitted from this run folder has not taken its secrets yet"
        hint = f"hydra.run.dir=ANOTHER/FOLDER, or rm {path} where that job is gone"
        raise MachineError(Finding("error", "SLM009", message, ("hydra.run.dir",), hint)) from None
    with os.fdopen(number, "w", encoding="utf-8") as file:
        # The umask may have taken away what the owner needs, and nothing may have been added.
        os.fchmod(file.fileno(), 0o600)
        json.dump({"key": secrets.key, "env": dict(secrets.env)}, file)
    return path


def take_secrets(path: Path | None) -> Secrets:
    """Reads and deletes them. Raises MachineError where they were taken already."""
    if path is None:
        return Secrets(None, {})
    try:
        left = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"the secrets that were left for this job are gone: {path}"
        hint = "start it again; a job takes them once, and they go with the command that submitted it"
        raise MachineError(Finding("error", "SLM010", message, ("api_key",), hint)) from None
    finally:
        drop_secrets(path)
    return Secrets(left["key"], left["env"])


def drop_secrets(path: Path | None) -> None:
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
