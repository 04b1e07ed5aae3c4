"""``check``: judges overrides, files, saved plans and folders of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sglang_hydra.cli.corrected import corrected_file, corrected_lines
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of, is_good
from sglang_hydra.compose.overrides import Request
from sglang_hydra.text.screen import print_json, write


def run(invocation: Invocation) -> int:
    """Judges each subject: all overrides together, each file and folder, with ``-m`` every combination of values.
    Returns 2 if any has an error."""
    if any(invocation.has(flag) for flag in ("format", "base", "skip_others")):
        from sglang_hydra.cli import review as action

        return action.check(invocation)
    if invocation.has("multirun"):
        from sglang_hydra.cli import points

        return points.run(invocation)
    from sglang_hydra.convert.importing.native import native_reader
    from sglang_hydra.show.verdicts import verdict_lines, verdict_record, verdicts_on

    composer, variables = composer_of(invocation), invocation.variables
    composer.only_judges = True  # a verdict shows no reasons of values
    others = native_reader(composer, invocation.requests, variables)

    def can_be_launched(name: str, words: Sequence[Request]) -> bool:
        again = verdicts_on(composer, [Request(name, name), *words], others=others)
        return all(verdict.launchable is not False for _, verdict in again)

    verdicts = verdicts_on(composer, invocation.requests, others=others)
    good = all(is_good(invocation, verdict.made, verdict.findings) for _, verdict in verdicts)
    if invocation.has("json"):
        results = [verdict_record(*item) for item in verdicts]
        print_json({"schema": "sglang_hydra.check/1", "ok": good, "results": results})
    else:
        for name, verdict in verdicts:
            write(verdict_lines(name, verdict))
            if verdict.launchable is False:
                judge = partial(can_be_launched, name)
                corrected = corrected_file(invocation, name, verdict.findings, judge, composer)
                corrected = corrected or corrected_lines(invocation, verdict.findings, composer)
                write([*corrected, []] if corrected and len(verdicts) > 1 else corrected)
    return 0 if good else 2
