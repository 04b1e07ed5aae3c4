"""``check``: judges overrides, files, saved plans, folders of them."""

from __future__ import annotations

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.text.screen import print_json, write


def run(invocation: Invocation) -> int:
    """Judges each thing named: overrides together, files and folders one by one, with ``-m`` every combination of
    values. 2 if any is not ok."""
    if invocation.format is not None or invocation.base is not None:
        from sglang_hydra.cli import review as action

        return action.check(invocation)
    if invocation.multirun:
        from sglang_hydra.cli import points

        return points.run(invocation)
    if invocation.against is not None:
        from sglang_hydra.cli import against as authority

        return authority.check(invocation)
    from sglang_hydra.show.verdicts import verdict_lines, verdict_record, verdicts_on

    verdicts = verdicts_on(composer_of(invocation), invocation.requests)
    good = all(verdict.launchable if invocation.strict else verdict.ok for _, verdict in verdicts)
    if invocation.json:
        results = [verdict_record(*item) for item in verdicts]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "results": results})
    else:
        write(line for item in verdicts for line in verdict_lines(*item))
    return 0 if good else 2
