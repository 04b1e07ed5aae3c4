"""The failures of 2026 that public threads show: the rows of a table, and each as the lines that a log would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parents[2] / "data" / "diagnosis"
SITE = "/usr/local/lib/python3.12/dist-packages"


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of ``recent.yaml`` or ``recent_held_back.yaml``."""
    content: list[dict[str, Any]] = yaml.safe_load((DATA / f"{name}.yaml").read_text(encoding="utf-8"))
    return content


def lines_of(row: dict[str, Any]) -> list[str]:
    """The lines that decide; in the traceback of a scheduler where the thread says where it was raised."""
    shown = [*row.get("before", ()), row["line"], *row.get("after", ())]
    if "at" not in row:
        return shown
    file, _, function = row["at"].partition(":")
    path = f"{SITE}/{file[3:]}" if file.startswith("../") else f"{SITE}/sglang/srt/{file}"
    return [
        "[2026-06-11 08:15:11 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{SITE}/sglang/srt/managers/scheduler.py", line 3750, in run_scheduler_process',
        f'  File "{path}", line 71, in {function}',
        *shown,
        "",
    ]
