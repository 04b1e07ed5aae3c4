"""``diff``: in which resolved values two plans differ, and which rule, preset or word made each difference."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.secrets import HIDDEN, SECRET_FIELDS, is_secret_name
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import SINGLE, has_several_servers
from sglang_hydra.planning.make import make_plan
from sglang_hydra.planning.plan import Plan, digest
from sglang_hydra.planning.release_values import same_value
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import Line, Span, columns, folded, room, shown, text
from sglang_hydra.text.words import number, plural

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.planning.input_files import ReadOthers
    from sglang_hydra.planning.topology.plan import Topology

SCHEMA = "sglang_hydra.diff/1"
_NOT_IN = "(not in "
_GPU_FACTS = ("name", "vendor", "device", "memory_mib", "compute_capability", "count")


@dataclass(frozen=True)
class Side:
    """One of the two: what was typed for it, and its plan; of several servers ``topology`` has them all, and ``plan``
    is what they share."""

    name: str
    plan: Plan
    topology: Topology | None = None

    @property
    def made(self) -> Plan | Topology:
        return self.topology or self.plan

    @property
    def id(self) -> str:
        return self.topology.topology_id if self.topology else self.plan.server_id


@dataclass(frozen=True)
class Difference:
    """One value that differs. ``kind`` is fact, value, environment or memory; ``why`` says of each side who decided:
    a rule with its reason, a layer with its place, or the default."""

    kind: str
    key: str
    left: Any
    right: Any
    why: tuple[str, str] = ("", "")

    def to_json(self) -> dict[str, Any]:
        values = {"left": plain(self.left), "right": plain(self.right)}
        return {
            "kind": self.kind,
            "key": self.key,
            **values,
            "why": dict(zip(("left", "right"), self.why, strict=True)),
        }


def planned_side(composer: Composer, side: str, place: str, others: ReadOthers | None = None) -> Side:
    """The plan of overrides in one word, or of a file; ``others`` reads what is not ours. Raises ConfigError that says
    which side is meant."""
    from sglang_hydra.planning.input_files import is_document, named_documents

    try:
        if is_document(side):
            found = named_documents(side, others)
            if len(found) > 1:
                message = f"{side} starts {len(found)} servers, and a side of diff is one of them"
                raise ConfigError(Finding("error", "DIF001", message, hint=" or ".join(name for name, _ in found)))
            ((_, document),) = found
            recorded = document.recorded
            seed = recorded.seed if recorded else _SEED
            plan = make_plan(composer, document.requests, recorded=recorded, seed=seed)
            return Side(side, plan, _several(composer, document.requests, plan))
        words = shlex.split(side)
        requests = [Request(word, f"{place} side, word {number}") for number, word in enumerate(words, 1)]
        plan = make_plan(composer, requests, seed=_SEED)
        return Side(" ".join(map(_without_secret, words)), plan, _several(composer, requests, plan))
    except ValueError as failure:
        message = f"the {place} side cannot be taken apart into words: {failure}"
        raise ConfigError(Finding("error", "DIF001", message, hint="close every quote")) from None


def _several(composer: Composer, requests: Sequence[Request], plan: Plan) -> Topology | None:
    if not has_several_servers(plan.nodes):
        return None
    from sglang_hydra.planning.topology.plan import plan_topology

    return plan_topology(composer, requests, common=plan)


def _without_secret(word: str) -> str:
    key, _, value = word.partition("=")
    hidden = value and is_secret_name(key.lstrip("+").rpartition(".")[2])
    return f"{key}={HIDDEN}" if hidden else word


# Both sides draw the same seed, so that it is no difference.
_SEED = 42


def compared(left: Plan | Topology, right: Plan | Topology) -> Iterator[Difference]:
    """Every difference, server by server: the first of each role, which both have, and the router."""
    theirs, ours = plans_of(left), plans_of(right)
    was, now = (SINGLE if isinstance(made, Plan) else made.name for made in (left, right))
    if was != now:
        yield Difference("fact", "topology", was, now)
    if count_of(left) != count_of(right):
        yield Difference("fact", "servers", count_of(left), count_of(right))
    yield from _routed(left, right)
    for role in dict.fromkeys([*theirs, *ours]):
        # One server that becomes several, or the other way round, is compared with each role.
        one, other = theirs.get(role, theirs.get("")), ours.get(role, ours.get(""))
        if one and other and (role or (len(theirs), len(ours)) == (1, 1)):
            for item in differences(one, other):
                yield replace(item, key=f"{role}: {item.key}") if role else item


def plans_of(made: Plan | Topology | None) -> dict[str, Plan]:
    """The plans by the name of the server, the first one of each role; one server has no name."""
    if made is None:
        return {}
    return {"": made} if isinstance(made, Plan) else {server.role: server.plan for server in reversed(made.servers)}


def count_of(made: Plan | Topology | None) -> int:
    """How many servers it starts."""
    return int(made is not None) if made is None or isinstance(made, Plan) else len(made.servers)


def _routed(left: Plan | Topology, right: Plan | Topology) -> Iterator[Difference]:
    """What moved in the router in front of the servers."""
    if isinstance(left, Plan) or isinstance(right, Plan):
        return
    theirs, ours = ({"release": made.router.release, **made.router.settings} for made in (left, right))
    for name in dict.fromkeys([*theirs, *ours]):
        if digest({"": theirs.get(name)}) != digest({"": ours.get(name)}):
            yield Difference("fact", f"router: {name}", theirs.get(name), ours.get(name))


def differences(left: Plan, right: Plan) -> Iterator[Difference]:
    """Every difference: facts, then values in the order of the arguments, then the environment, then the memory. A
    seed that both drew is none."""
    for name in _GPU_FACTS:
        ours, theirs = getattr(left.gpu, name), getattr(right.gpu, name)
        if ours != theirs:
            yield Difference("fact", f"gpu.{name}", ours, theirs)
    if left.engine.version != right.engine.version or left.engine.name != right.engine.name:
        ours, theirs = (f"{plan.engine.name} {plan.engine.version}" for plan in (left, right))
        yield Difference("fact", "engine", ours, theirs)
    for name in dict.fromkeys([*left.values, *right.values]):
        ours, theirs = (value_of(plan, name) for plan in (left, right))
        drawn = name == "random_seed" and left.seed_drawn and right.seed_drawn
        if not same_value(ours, theirs) and name not in SECRET_FIELDS and not drawn:
            yield Difference("value", name, ours, theirs, (why(left, name), why(right, name)))
    extras = [plan.unresolved_extra for plan in (left, right)]
    for name in dict.fromkeys([*extras[0], *extras[1]]):
        ours, theirs = extras[0].get(name), extras[1].get(name)
        if ours != theirs:
            yield Difference("value", f"extra.{name}", ours, theirs, _who_set(left, right, f"extra.{name}"))
    for name in sorted({*left.shown_environment, *right.shown_environment}):
        ours, theirs = left.shown_environment.get(name), right.shown_environment.get(name)
        if ours != theirs:
            yield Difference("environment", name, ours, theirs, _who_set(left, right, f"engine.env.{name}"))
    yield from _memory(left, right)


def value_of(plan: Plan, name: str) -> Any:
    """A value as a comparison shows it: in words where the plan's release has no such argument, or decides it."""
    if name in plan.unknown:
        return "(unknown)"
    return plan.values.get(name, f"{_NOT_IN}{plan.engine.version})")


def why(plan: Plan, name: str) -> str:
    """Who decided a value: the last rule that wrote it, else the strongest layer that named it, else None."""
    entries = plan.resolution.ledger.of(name)
    if entries:
        return f"{entries[-1].rule}: {entries[-1].reason}"
    chain = plan.origins.get(name, ())
    return f"{chain[-1].layer}, {chain[-1].place}" if chain else "default"


def _who_set(left: Plan, right: Plan, key: str) -> tuple[str, str]:
    """The layer and the place that set a key of ours on each side; nothing where none did."""
    found = [plan.settings.get(key) for plan in (left, right)]
    one, other = (f"{origin.layer}, {origin.place}" if origin else "" for origin in found)
    return one, other


def _memory(left: Plan, right: Plan) -> Iterator[Difference]:
    """What the memory fit says of each side, where it says something. GiB and tokens of one GPU."""
    ours, theirs = _memory_of(left), _memory_of(right)
    for key in ours:
        if ours[key] != theirs[key]:
            yield Difference("memory", key, ours[key], theirs[key])


def _memory_of(plan: Plan) -> dict[str, Any]:
    record = plan.fit.to_json() if plan.fit else {}
    weights = (record.get("weights") or {}).get("total_gib")
    return {"fits": record.get("fits"), "weights_gib": weights, "kv_tokens": record.get("kv_tokens")}


def diff_screen(left: Side, right: Side, found: list[Difference]) -> Iterator[Line]:
    """The two sides, and a row for each difference; verdicts last."""
    yield [text("left   "), text(left.name, "bold")]
    yield [text("right  "), text(right.name, "bold")]
    yield []
    titles = {"fact": "Facts", "value": "Resolved values", "environment": "Environment", "memory": "Memory, per GPU"}
    for kind, title in titles.items():
        rows: list[list[Span]] = []
        for item in (item for item in found if item.kind == kind):
            if _is_absent(item.left) or _is_absent(item.right):
                continue
            reasons = " | ".join(dict.fromkeys(reason for reason in item.why if reason))
            show = _capability if item.key == "gpu.compute_capability" else shown_value
            ours, theirs = _what_differs(item.left, item.right)
            values = [text(show(ours), "red"), text("->"), text(show(theirs), "green")]
            rows.append([text(item.key), *values, text(reasons, "dim")])
        if rows:
            yield [text(title, "bold")]
            yield from columns(rows)
            yield []
    yield from _only_in_one(left, right, found)
    what = "server" if left.topology is None and right.topology is None else "topology"
    same = f"the same {what}" if left.id == right.id else f"another {what}"
    count = sum(item.kind == "value" for item in found)
    differ = "differs" if count == 1 else "differ"
    yield [text(f"{plural(count, 'value')} {differ}: {same} ({left.id}, {right.id})")]
    for side, name in ((left, "left"), (right, "right")):
        for finding in (item for item in side.made.findings if item.level == "error"):
            yield [text(f"{name}: ", "bold"), text(f"{finding.id} {finding.message}", "red")]


def _is_absent(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_NOT_IN)


def _only_in_one(left: Side, right: Side, found: Sequence[Difference]) -> Iterator[Line]:
    """Arguments that one release alone has, with their values there, in one paragraph a release."""
    of_left = [f"{item.key}={shown(item.left, width=24)}" for item in found if _is_absent(item.right)]
    of_right = [f"{item.key}={shown(item.right, width=24)}" for item in found if _is_absent(item.left)]
    for side, words in ((left, of_left), (right, of_right)):
        if words:
            yield [text(f"Only in {side.plan.engine.version}", "bold")]
            yield from folded([text("  "), text(", ".join(words), "dim")], room())
            yield []


def to_json(left: Side, right: Side, found: list[Difference]) -> dict[str, Any]:
    sides = {
        name: {
            "name": side.name,
            "server_id": side.id,
            "ok": side.made.ok,
            "launchable": side.made.launchable,
            "findings": [finding.to_json() for finding in side.made.findings],
        }
        for name, side in (("left", left), ("right", right))
    }
    return {"schema": SCHEMA, **sides, "differences": [item.to_json() for item in found]}


def _capability(value: Any) -> str:
    """As presets write it: 9.0."""
    return ".".join(map(str, value)) if value else shown_value(value)


def _what_differs(left: Any, right: Any) -> tuple[Any, Any]:
    """Two mappings without the keys in which they are equal; any other values as they are."""
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return left, right
    both = [key for key in left if key in right and left[key] != right[key]]
    apart = {key: _what_differs(left[key], right[key]) for key in both}
    ours = {
        key: apart[key][0] if key in apart else item for key, item in left.items() if key in apart or key not in right
    }
    theirs = {
        key: apart[key][1] if key in apart else item for key, item in right.items() if key in apart or key not in left
    }
    return ours, theirs


def shown_value(value: Any) -> str:
    """A value as a table of differences shows it: memory sizes and counts without a pointless fraction."""
    return number(value) if isinstance(value, float) and (value.is_integer() or value > 2) else shown(value)
