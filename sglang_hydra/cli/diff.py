"""``diff``: shows in which resolved values two plans differ, and why."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglang_hydra.arguments.secrets import masked_word
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of, show
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.planning.comparing.difference import Difference, compared
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.recorded.input_files import ReadOthers, is_document, named_documents
from sglang_hydra.planning.topology.plan import plan_topology
from sglang_hydra.planning.topology.servers import Topology
from sglang_hydra.run.launch.drift import SCHEMA as DRIFT
from sglang_hydra.run.launch.drift import Drift, drift_of, is_saved_info, is_url
from sglang_hydra.show.comparison import difference_lines, difference_rows
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.exit_codes import INVALID, MACHINE
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.screen import Line, columns, print_json, text, write
from sglang_hydra.text.words import plural, program

SCHEMA = "sglang_hydra.diff/1"
_RELEASE = "engine.version="
_SEED = 42
"""The same seed for both sides, so that it is no difference."""


def run(invocation: Invocation) -> int:
    """Shows how two sides differ. Returns 2 if they do and ``--exit-code`` is set, else 0."""
    live = [item for item in invocation.requests[1:] if is_url(item.text) or is_saved_info(item.text)]
    if live:
        return _drift(invocation, live)
    _check_sides([item.text for item in invocation.requests])
    composer = composer_of(invocation)
    one, other = _with_rest(*invocation.requests), _with_rest(*invocation.requests[::-1])
    others = native_reader(composer, variables=invocation.variables)
    left, right = (_planned(composer, side.text, place, others) for side, place in ((one, "left"), (other, "right")))
    found = list(compared(left.made, right.made))
    show(invocation, lambda: _record(left, right, found), lambda: _screen(left, right, found))
    return INVALID if found and invocation.has("exit_code") else 0


def _with_rest(side: Request, beside: Request) -> Request:
    """Returns the side; if it only names a release, the other side with that release."""

    def is_release(text: str) -> bool:
        return text.startswith(_RELEASE) and len(text.split()) == 1

    is_file = "=" not in beside.text.partition(" ")[0]
    if is_file or not is_release(side.text) or is_release(beside.text):
        return side
    return side._replace(text=f"{beside.text} {side.text}")


_A_RELEASE = re.compile(r"v?\d+\.\d+\.\d+\w*")
_BETWEEN = ("vs", "vs.", "and", "with", "to", "against")


def _check_sides(words: Sequence[str]) -> None:
    """Raises ConfigError unless the words are two sides, with a correction if it is clear."""
    if len(words) != 2 or any(len(_each_value(word)) > 1 for word in words):
        message = (
            f"diff compares two sides, and {len(words)} were given"
            if len(words) != 2
            else "each side of diff has one value of each key"
        )
        hint = f"quote each side: {program()} diff 'gpu=h100 tp_size=8' 'gpu=h200'; a plan.json or a YAML works too"
        sides = _sides_meant(words)
        raise ConfigError.of("DIF001", message, hint=None if sides else hint, typed=tuple(words), fix=sides)


def _sides_meant(words: Sequence[str]) -> Remedy | None:
    """Returns both sides if exactly one key has two values (``gpu=h100,h200 tp_size=2``, ``gpu=h100 gpu=h200``), or two
    releases or one file are among the words; else None."""
    words = [f"engine.version={word}" if _A_RELEASE.fullmatch(word) else word for word in words if word not in _BETWEEN]
    files = [word for word in words if is_document(word) and os.path.exists(word)]
    sides = [word for word in words if " " in word or word in files]
    beside = [word for word in words if word not in sides]
    if len(sides) == 2 and beside and all("=" in word for word in beside):
        return Remedy.fixed(" ".join(shlex.quote(f"{side} {shlex.join(beside)}") for side in sides))
    if any(" " in word for word in words):
        return None
    words = [one for word in words for one in _each_value(word)]
    if len(files) == 1 and len(words) > 2:
        rest = shlex.quote(shlex.join([word for word in words if word not in files]))
        return Remedy.fixed(
            " ".join([shlex.quote(files[0]), rest] if words[0] in files else [rest, shlex.quote(files[0])])
        )
    keys = [word.partition("=")[0] for word in words]
    twice = [word for word in words if keys.count(word.partition("=")[0]) == 2]
    if not all("=" in word for word in words) or len(twice) != 2 or keys.count(twice[0].partition("=")[0]) != 2:
        return None
    common = [word for word in words if word not in twice]
    return Remedy.fixed(" ".join(shlex.quote(shlex.join([one, *common])) for one in twice))


def _each_value(word: str) -> list[str]:
    key, equals, value = word.partition("=")
    is_pair = equals and re.fullmatch(r"[\w./-]+,[\w./-]+", value)
    return [f"{key}={one}" for one in value.split(",")] if is_pair else [word]


def _drift(invocation: Invocation, live: Sequence[Request]) -> int:
    """Shows in which fields running servers differ from the plan. With ``--exit-code`` returns 2 for a difference, 3 if
    a server could not be asked."""
    planned, *rest = invocation.requests
    if len(rest) != len(live) or is_url(planned.text):
        message = "diff compares a plan with servers: first the plan, as one quoted word, then addresses or files"
        hint = f"{program()} diff 'gpu=h200 model=qwen3_8b' http://127.0.0.1:30000"
        raise ConfigError.of("DIF001", message, hint=hint)
    composer = composer_of(invocation)
    side = _planned(composer, planned.text, "left", native_reader(composer, variables=invocation.variables))
    plan = side.made
    if not isinstance(plan, Plan):
        message = f"topology={plan.name} has several servers, and each address is one server"
        raise ConfigError.of("DIF002", message, hint="name the plan of one server, as FILE#NAME or an export")
    found = list(drift_of(plan, [item.text for item in live]))
    same = all(item.is_as_planned(plan) for item in found)
    if invocation.has("json"):
        servers = [item.to_json(plan) for item in found]
        print_json({"schema": DRIFT, "server_id": side.id, "as_planned": same, "servers": servers})
    else:
        write(drift_lines(plan, found))
    if not invocation.has("exit_code") or same:
        return 0
    return MACHINE if any(item.problem for item in found) else INVALID


def drift_lines(plan: Plan, found: Sequence[Drift]) -> Iterator[Line]:
    """Yields a line for each server and one for each differing field."""
    yield [text("plan   "), text(f"{plan.server_id}, SGLang {plan.engine.version}", "bold")]
    for item in found:
        if item.compared is None:
            yield [text(f"{item.name}: "), text(f"cannot be compared: {item.problem}", "red")]
            continue
        if item.problem is not None:
            yield [text(f"{item.name}: "), text("not known", "bold yellow"), text(f": {item.problem}")]
            continue
        good = item.is_as_planned(plan)
        held = "as planned" if good else f"{plural(len(item.fields), 'field')} not as planned"
        of = f"; {item.compared.of} compared, SGLang {item.compared.version}"
        yield [text(f"{item.name}: "), text(held, "green" if good else "bold yellow"), text(of)]
        yield from columns(difference_rows(item.fields))


@dataclass(frozen=True)
class Side:
    """One of the two sides: its typed words, and its plan."""

    name: str
    made: Plan | Topology

    @property
    def id(self) -> str:
        return self.made.server_id if isinstance(self.made, Plan) else self.made.topology_id

    @property
    def version(self) -> str:
        plan = self.made if isinstance(self.made, Plan) else self.made.common
        return plan.engine.version


def _planned(composer: Composer, side: str, place: str, others: ReadOthers | None = None) -> Side:
    """Returns the side planned from overrides in one word, or from a file; ``others`` reads foreign files. Raises
    ConfigError that names the side."""
    try:
        words = [side] if is_document(side) else shlex.split(side)
        requests = [Request(word, f"{place} side, word {number}") for number, word in enumerate(words, 1)]
        recorded = None
        if words and is_document(words[0]):
            found = named_documents(words[0], others)
            if len(found) > 1:
                message = f"{words[0]} starts {len(found)} servers, and each side of diff is one server"
                raise ConfigError.of("DIF001", message, hint=" or ".join(name for name, _ in found))
            ((_, document),) = found
            requests = [*document.requests, *requests[1:]]
            recorded = document.recorded if len(words) == 1 else None
        plan = make_plan(composer, requests, recorded=recorded, seed=recorded.seed if recorded else _SEED)
        return Side(" ".join(map(masked_word, words)), _with_all_servers(composer, requests, plan))
    except ValueError as failure:
        message = f"the {place} side cannot be split into words: {failure}"
        raise ConfigError.of("DIF001", message, hint="close every quote") from None


def _with_all_servers(composer: Composer, requests: Sequence[Request], plan: Plan) -> Plan | Topology:
    return plan_topology(composer, requests, common=plan) if has_several_servers(plan.nodes) else plan


def _screen(left: Side, right: Side, found: list[Difference]) -> Iterator[Line]:
    yield [text("left   "), text(left.name, "bold")]
    yield [text("right  "), text(right.name, "bold")]
    yield []
    yield from difference_lines(found, left.version, right.version)
    what = "server" if isinstance(left.made, Plan) and isinstance(right.made, Plan) else "topology"
    same = f"the same {what}" if left.id == right.id else f"another {what}"
    count = sum(item.kind == "value" for item in found)
    differ = "differs" if count == 1 else "differ"
    yield [text(f"{plural(count, 'value')} {differ}: {same} ({left.id}, {right.id})")]
    for side, name in ((left, "left"), (right, "right")):
        for finding in (item for item in side.made.findings if item.level == "error"):
            yield [text(f"{name}: ", "bold"), text(f"{finding.id} {finding.message}", "red")]


def _record(left: Side, right: Side, found: list[Difference]) -> dict[str, object]:
    sides = {
        name: {
            "name": side.name,
            "server_id": side.id,
            "ok": side.made.ok,
            "launchable": side.made.launchable,
            "why": side.made.verdict.why,
            "findings": [finding.to_json() for finding in side.made.findings],
        }
        for name, side in (("left", left), ("right", right))
    }
    return {"schema": SCHEMA, **sides, "differences": [item.to_json() for item in found]}
