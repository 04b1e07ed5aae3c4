"""``diff``: in which resolved values two plans differ, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.planning.difference import compared, diff_screen, planned_side, to_json
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.launch.drift import SCHEMA, Drift, drift_of, is_saved_info, is_url
from sglang_hydra.show.comparison import difference_rows
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.exit_codes import INVALID, MACHINE
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, columns, print_json, text, write
from sglang_hydra.text.words import plural, program

_RELEASE = "engine.version="


def run(invocation: Invocation) -> int:
    """Shows how two sides differ. 0 also when they do, but for ``--exit-code``; 2 when one cannot be planned."""
    live = [item for item in invocation.requests[1:] if is_url(item.text) or is_saved_info(item.text)]
    if live:
        return _drift(invocation, live)
    if len(invocation.requests) != 2:
        message = f"diff compares two sides, and {len(invocation.requests)} were given"
        hint = f"quote each side: {program()} diff 'gpu=h100 tp_size=8' 'gpu=h200'; a plan.json or a YAML works too"
        raise ConfigError(Finding("error", "DIF001", message, hint=hint))
    composer = composer_of(invocation)
    one, other = _with_rest(*invocation.requests), _with_rest(*invocation.requests[::-1])
    others = native_reader(composer, variables=invocation.variables)
    left, right = (
        planned_side(composer, side.text, place, others) for side, place in ((one, "left"), (other, "right"))
    )
    found = list(compared(left.made, right.made))
    if invocation.json:
        print_json(to_json(left, right, found))
    else:
        write(diff_screen(left, right, found))
    return INVALID if found and invocation.exit_code else 0


def _with_rest(side: Request, beside: Request) -> Request:
    """A side that names only a release is the other side under that release."""

    def is_release(text: str) -> bool:
        return text.startswith(_RELEASE) and len(text.split()) == 1

    is_file = "=" not in beside.text.partition(" ")[0]
    if is_file or not is_release(side.text) or is_release(beside.text):
        return side
    return replace(side, text=f"{beside.text} {side.text}")


def _drift(invocation: Invocation, live: Sequence[Request]) -> int:
    """Shows in which fields servers that run differ from the plan. With ``--exit-code`` 2 for a difference, 3 where a
    server could not be asked."""
    planned, *rest = invocation.requests
    if len(rest) != len(live) or is_url(planned.text):
        message = "diff compares a plan with servers: the plan is one word, in quotes, and then come addresses or files"
        hint = f"{program()} diff 'gpu=h200 model=qwen3_8b' http://127.0.0.1:30000"
        raise ConfigError(Finding("error", "DIF001", message, hint=hint))
    composer = composer_of(invocation)
    side = planned_side(composer, planned.text, "left", native_reader(composer, variables=invocation.variables))
    if side.topology is not None:
        message = f"topology={side.topology.name} has several servers, and each address is one"
        raise ConfigError(
            Finding("error", "DIF002", message, hint="the plan of one of them, as FILE#NAME or an export")
        )
    found = list(drift_of(side.plan, [item.text for item in live]))
    same = all(item.is_as_planned(side.plan) for item in found)
    if invocation.json:
        servers = [item.to_json(side.plan) for item in found]
        print_json({"schema": SCHEMA, "server_id": side.id, "as_planned": same, "servers": servers})
    else:
        write(drift_lines(side.plan, found))
    if not invocation.exit_code or same:
        return 0
    return MACHINE if any(item.problem for item in found) else INVALID


def drift_lines(plan: Plan, found: Sequence[Drift]) -> Iterator[Line]:
    """A line for each server, and one for each field that differs."""
    yield [text("plan   "), text(f"{plan.server_id}, SGLang {plan.engine.version}", "bold")]
    for item in found:
        if item.compared is None:
            yield [text(f"{item.name}: "), text(f"cannot be compared: {item.problem}", "red")]
            continue
        good = item.is_as_planned(plan)
        held = "as planned" if good else f"{plural(len(item.fields), 'field')} not as planned"
        of = f"; {item.compared.of} compared, SGLang {item.compared.version}"
        yield [text(f"{item.name}: "), text(held, "green" if good else "bold yellow"), text(of)]
        yield from columns(difference_rows(item.fields))
