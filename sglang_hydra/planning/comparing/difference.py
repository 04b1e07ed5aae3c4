"""Compares two tables of values, and two plans by their tables: old value, new value, and the reasons of both."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sglang_hydra.arguments.secrets import SECRET_FIELDS
from sglang_hydra.compose.settings.topology import SINGLE
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.resolving import same_value
from sglang_hydra.text.json_types import Json, JsonDict, plain

if TYPE_CHECKING:
    from sglang_hydra.planning.topology.servers import Topology

_NOT_IN = "(not in "
_GPU_FACTS = ("name", "vendor", "device", "memory_mib", "compute_capability", "count")


@dataclass(frozen=True)
class Difference:
    """One value that differs. ``kind`` is fact, value, environment or memory; ``why`` gives the reasons of ``before``
    and ``after``: a rule with its reason, a layer with its place, or the default. ``since`` is the first release with
    the new value, where releases in between were asked."""

    kind: str
    key: str
    before: Json
    after: Json
    why: tuple[str, str] = ("", "")
    since: str | None = None

    @property
    def is_of_one_release(self) -> bool:
        """Returns whether the release of one side lacks the argument."""
        return is_absent(self.before) or is_absent(self.after)

    def to_json(self) -> JsonDict:
        left, right = self.why
        values = {"left": plain(self.before), "right": plain(self.after)}
        return {"kind": self.kind, "key": self.key, **values, "why": {"left": left, "right": right}}


def is_absent(value: object) -> bool:
    """Returns whether a value marks an argument that the release lacks."""
    return isinstance(value, str) and value.startswith(_NOT_IN)


def between(
    kind: str,
    before: Mapping[str, object],
    after: Mapping[str, object],
    why: Callable[[str], tuple[str, str]] = lambda key: ("", ""),
    same: Callable[[object, object], bool] = operator.eq,
) -> Iterator[Difference]:
    """Yields every key whose values differ, those of ``before`` first; a missing key counts as None."""
    for key in dict.fromkeys([*before, *after]):
        was, now = before.get(key), after.get(key)
        if not same(was, now):
            yield Difference(kind, key, was, now, why(key))


def compared(left: Plan | Topology, right: Plan | Topology) -> Iterator[Difference]:
    """Yields every difference, server by server: the first of each common role, and the router."""
    theirs, ours = plans_of(left), plans_of(right)
    yield from between("fact", _facts_of_all(left), _facts_of_all(right))
    if not isinstance(left, Plan) and not isinstance(right, Plan):
        routers = ({"release": made.router.release, **made.router.settings} for made in (left, right))
        was, now = ({f"router: {name}": plain(value) for name, value in router.items()} for router in routers)
        yield from between("fact", was, now)
    for role in dict.fromkeys([*theirs, *ours]):
        # A single server is compared with each role of several servers.
        one, other = theirs.get(role, theirs.get("")), ours.get(role, ours.get(""))
        if one and other and (role or (len(theirs), len(ours)) == (1, 1)):
            for item in differences(one, other):
                yield replace(item, key=f"{role}: {item.key}") if role else item


def plans_of(made: Plan | Topology | None) -> dict[str, Plan]:
    """Returns the plans by role, the first server of each role; a single server has no name."""
    if made is None:
        return {}
    return {"": made} if isinstance(made, Plan) else {server.role: server.plan for server in reversed(made.servers)}


def _facts_of_all(made: Plan | Topology) -> dict[str, object]:
    if isinstance(made, Plan):
        return {"topology": SINGLE, "servers": 1}
    return {"topology": made.name, "servers": len(made.servers)}


def differences(left: Plan, right: Plan) -> Iterator[Difference]:
    """Yields every difference: facts, then values in the order of the arguments, then the environment, then the memory
    (GiB and tokens of one GPU). Two drawn seeds are no difference."""
    yield from between("fact", _facts_of(left), _facts_of(right))
    drawn = {"random_seed"} if left.seed_drawn and right.seed_drawn else set()
    names = [name for name in dict.fromkeys([*left.values, *right.values]) if name not in {*SECRET_FIELDS, *drawn}]
    was, now = ({name: value_of(plan, name) for name in names} for plan in (left, right))
    yield from between("value", was, now, lambda name: (why(left, name), why(right, name)), same_value)
    was, now = left.shown_environment, right.shown_environment
    variables = between("environment", was, now, lambda name: _who_set(left, right, f"engine.env.{name}"))
    yield from sorted(variables, key=lambda item: item.key)
    yield from between("memory", _memory_of(left), _memory_of(right))


def _facts_of(plan: Plan) -> JsonDict:
    gpu = {f"gpu.{name}": getattr(plan.gpu, name) for name in _GPU_FACTS}
    return {**gpu, "engine": f"{plan.engine.name} {plan.engine.version}"}


def value_of(plan: Plan, name: str) -> Json:
    """Returns a value for a comparison, in words if the release lacks or decides it."""
    if name in plan.unknown:
        return "(unknown)"
    return plan.values.get(name, f"{_NOT_IN}{plan.engine.version})")


def why(plan: Plan, name: str) -> str:
    """Returns the origin of a value: the last rule that wrote it, else the strongest layer, else "default"."""
    entries = plan.resolution.ledger.of(name)
    if entries:
        return f"{entries[-1].rule}: {entries[-1].reason}"
    chain = plan.origins.get(name, ())
    return f"{chain[-1].layer}, {chain[-1].place}" if chain else "default"


def _who_set(left: Plan, right: Plan, key: str) -> tuple[str, str]:
    """Returns the layer and the place that set one of our keys on each side; empty where none did."""
    found = [plan.settings.get(key) for plan in (left, right)]
    one, other = (f"{origin.layer}, {origin.place}" if origin else "" for origin in found)
    return one, other


def _memory_of(plan: Plan) -> JsonDict:
    record = plan.fit.to_json() if plan.fit else {}
    weights = (record.get("weights") or {}).get("total_gib")
    return {"fits": record.get("fits"), "weights_gib": weights, "kv_tokens": record.get("kv_tokens")}
