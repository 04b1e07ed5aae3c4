"""The job's own account of itself, in its run folder: how far the server is, where it answers, how it ended."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sglang_hydra.text.budget import read_json
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.whole_file import write_whole

SCHEMA = "sglang_hydra.slurm_job/1"
FILE_NAME = "job.json"
STARTING, READY, ENDED = "starting", "ready", "ended"


@dataclass(frozen=True)
class Account:
    """``phase`` is starting, ready or ended. ``elapsed_s`` counts from the start of the ranks. ``node`` is Slurm's name
    for the head, ``address`` the one that other machines reach it by; ``host`` and ``port`` are where the server
    listens there. ``notes`` are the launcher's own lines (a milestone, a full disk), the oldest dropped.
    ``exit_code`` and ``findings`` are set at the end. ``sequence`` grows with each write: a shared file system may show
    an older account after a newer one."""

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
    """Keeps an account in a file that is always whole. Threads and signal handlers may update it at any time: what one
    of them wrote is never replaced by what was there before."""

    def __init__(self, folder: Path, account: Account) -> None:
        self._path = folder / FILE_NAME
        self._lock = threading.RLock()
        before = read_account(folder)  # of a job that Slurm has put back into its queue
        self.account = replace(account, sequence=before.sequence if before else 0)
        self.update()

    def update(self, **changes: Any) -> None:
        """Changes these entries and writes the file. Raises OSError where it cannot be written."""
        with self._lock:
            self.account = replace(self.account, sequence=self.account.sequence + 1, **changes)
            written = None
            while written is not self.account:  # a signal handler of this thread has changed it meanwhile
                written = self.account
                write_whole(self._path, json.dumps(_content(written), indent=2) + "\n")


def _content(account: Account) -> dict[str, Any]:
    content = {"schema": SCHEMA, **asdict(account), "nodes": list(account.nodes), "notes": list(account.notes)}
    return {**content, "findings": [finding.to_json() for finding in account.findings]}


def read_account(folder: Path) -> Account | None:
    """Reads what the job last wrote; None before it wrote anything (or where a slow file system does not show it
    yet)."""
    try:
        content = read_json((folder / FILE_NAME).read_text(encoding="utf-8"), "record")
    except (OSError, ValueError):
        return None
    content.pop("schema")
    findings = [Finding.from_json(item) for item in content.pop("findings")]
    return Account(**content, findings=findings)
