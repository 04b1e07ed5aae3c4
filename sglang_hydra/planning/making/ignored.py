"""``ignore=[ID, ...]``: which findings it silences, and which it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglang_hydra.text.budget import FINDINGS
from sglang_hydra.text.findings import Finding


def split_ignored(
    findings: Sequence[Finding], ignore: Sequence[str]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """The findings that stay, and those of ours that ``ignore`` names; a refusal of SGLang's own cannot be silenced.
    An id of ``ignore`` without effect, or that no finding has, is a finding (CLI011)."""
    ignored = tuple(finding for finding in findings if finding.id in ignore and finding.ours)
    kept = [finding for finding in findings if finding not in ignored]
    refused = {finding.id for finding in kept if finding.level == "error"}
    kept += [
        Finding("warning", "CLI011", f"ignore={id} has no effect: SGLang itself refuses this", ("ignore",))
        for id in ignore
        if id in refused
    ]
    return (*kept, *_unknown_ids(ignore)), ignored


def _unknown_ids(ignore: Sequence[str]) -> Iterator[Finding]:
    if not ignore:
        return
    from sglang_hydra.planning.finding_meanings import plan_ids
    from sglang_hydra.text.words import nearest

    for id in sorted(set(ignore) - (known := plan_ids()))[:FINDINGS]:
        if id.startswith("DIA"):  # of a server's log: no plan has it, and files that name it are valid
            continue
        near = nearest(id, known)
        hint = f"did you mean {near}?" if near else None
        yield Finding("warning", "CLI011", f"ignore={id}: no finding has this id", ("ignore",), hint)
