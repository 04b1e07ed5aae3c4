"""Findings and notes on the programs that files name: which were not asked, and who decided."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sglang_hydra.facts.environments import find_python, is_read_from_disk
from sglang_hydra.facts.installed import installed
from sglang_hydra.facts.trust import SEC001, TYPED, exact_path, is_granted, is_trusted, may_start, trusting_folder
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import shown_path
from sglang_hydra.text.origins import Named


def findings_on(programs: Mapping[str, Named]) -> list[Finding]:
    """Findings on programs that files name and that were not asked."""
    return [found for key, named in programs.items() if (found := _unasked(key, named)) is not None]


def notes_on(programs: Mapping[str, Named]) -> list[str]:
    """Returns one line for each program that a file names: who names it, and what the settings decided."""
    notes = []
    for key, named in programs.items():
        if named.is_of_app or is_trusted(named.origin):
            continue
        path = exact_path(named.program)
        folder = None if is_granted(path) or is_read_from_disk(path) else trusting_folder(path)
        decided = f"; it was asked, as {folder.place} trusts {folder.value}" if folder else ""
        notes.append(
            f"program: {key}={named.program}, named by {named.origin.place}, is what serve and bench start{decided}"
        )
    return notes


def _unasked(key: str, named: Named) -> Finding | None:
    path = find_python(named.program)
    if path is None or may_start(path) or is_read_from_disk(path):
        return None
    found = installed(path).versions
    known = "what it has was read from its folders, which may lack some" if found else "what it has is unknown"
    place, value = named.origin.place, named.origin.value
    if named.origin.layer in TYPED:
        place += f", by the reference {value},"
    message = f"{key}={named.program} was not asked, as {place} names it and nobody typed it: {known}"
    home = os.path.dirname(path)
    folder = shown_path(os.path.dirname(home) if os.path.basename(home) == "bin" else home)
    hints = f"{key}={named.program} on the command line", f"--trust {folder}", "trusted_folders in your settings"
    return Finding("info" if found else "warning", SEC001, message, (key,), hints)
