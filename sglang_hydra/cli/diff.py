"""``diff``: in which resolved values two plans differ, and why."""

from __future__ import annotations

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.planning.difference import compared, diff_screen, planned_side, to_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import print_json, write
from sglang_hydra.text.words import program


def run(invocation: Invocation) -> int:
    """Shows how two sides differ. 0 also when they do; 2 when one of them cannot be planned."""

    if len(invocation.requests) != 2:
        message = f"diff compares two sides, and {len(invocation.requests)} were given"
        hint = f"quote each side: {program()} diff 'gpu=h100 tp_size=8' 'gpu=h200'; a plan.json or a YAML works too"
        raise ConfigError(Finding("error", "DIF001", message, hint=hint))
    composer = composer_of(invocation)
    one, other = invocation.requests
    left, right = planned_side(composer, one.text, "left"), planned_side(composer, other.text, "right")
    found = list(compared(left.made, right.made))
    if invocation.json:
        print_json(to_json(left, right, found))
    else:
        write(diff_screen(left, right, found))
    return 0
