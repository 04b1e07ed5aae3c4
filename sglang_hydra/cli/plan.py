"""``plan``: shows what would be started, and why."""

from __future__ import annotations

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import code_of, composer_of
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.show.plan import plan_screen
from sglang_hydra.text.screen import Line, print_json, write


def run(invocation: Invocation) -> int:
    """Shows the plan, or with ``-m`` the verdict on each point. Returns 2 if the plan has an error."""
    if invocation.has("multirun"):
        from sglang_hydra.cli import points

        return points.run(invocation)
    composer = composer_of(invocation)
    made = make_plan(composer, invocation.requests)
    if has_several_servers(made.nodes):
        from sglang_hydra.cli import topology as topologies

        return topologies.show(composer, invocation, made)
    if invocation.has("json"):
        print_json(made.to_json())
    else:
        corrected: list[Line] = []
        if made.launchable is False:
            from sglang_hydra.cli.corrected import corrected_lines

            corrected = corrected_lines(invocation, made.findings, composer)
        write(plan_screen(made, everything=invocation.has("all"), corrected=corrected))
        if invocation.has("load"):
            from sglang_hydra.measure.report.reading import points_of
            from sglang_hydra.show.forecast import short_lines

            write([[], *short_lines(made, points_of(made))])
    return code_of(invocation, made)
