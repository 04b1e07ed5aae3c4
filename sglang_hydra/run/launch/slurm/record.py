"""The job's own account of itself, in its run folder: how far the server is, where it answers, how it ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

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
    ``exit_code`` and ``findings`` are set at the end."""

    job: str
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
    """Keeps an account in a file that is always whole."""

    def __init__(self, folder: Path, account: Account) -> None:
        self._path = folder / FILE_NAME
        self.account = account
        self.write()

    def update(self, **changes: Any) -> None:
        self.account = replace(self.account, **changes)
        self.write()

    def write(self) -> None:
        content = {"schema": SCHEMA, **asdict(self.account)}
        content["nodes"], content["notes"] = list(self.account.nodes), list(self.account.notes)
        content["findings"] = [finding.to_json() for finding in self.account.findings]
        write_whole(self._path, json.dumps(content, indent=2) + "\n")


def read_account(folder: Path) -> Account | None:
    """Reads what the job last wrote; None before it wrote anything (or where a slow file system does not show it
    yet)."""
    try:
        content = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    content.pop("schema")
    findings = [Finding.from_json(item) for item in content.pop("findings")]
    return Account(**content, findings=findings)
