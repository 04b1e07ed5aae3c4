"""Holds the table of frameworks, finds the servers in a composed tree, and writes a framework's node for a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sglang_hydra.arguments.accepted import begun, refuse_gone
from sglang_hydra.arguments.every import EVERY, first_with
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.arguments.tables.table import known_versions, nearest_known, release
from sglang_hydra.compose.unknown_words import near_key
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, json_beside, value_at
from sglang_hydra.text.words import nearest

OWN_KEYS = ("gpu", "model", "engine", "fit", "colocate", "extra", "ignore")
"""Keys of ours that a framework's node may contain: they add facts that the tree lacks."""
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_LEAST_KNOWN = 0.5

REPLICAS = "dp_size"
"""The argument by which frameworks count their servers of a model."""


@dataclass(frozen=True)
class Adapter:
    """How one framework passes arguments to SGLang.

    ``node`` is the key that holds them, if ``chosen`` holds too; ``target`` is a class that any node may name instead,
    ``flags`` the prefix of options in a shell script, ``mark`` a text in scripts of overrides. The keys ``own`` are no
    arguments of SGLang; only the keys ``passes`` reach it (all, if empty). ``names`` maps arguments to the framework's
    other keys for them. ``defaults`` are overridden by all of these, and ``sets`` override them; ``wins`` says whether
    ``names`` override the node. ``writes`` are further keys that its tree needs. ``release`` is its pinned release of
    SGLang, ``source`` the source of these facts. A tree is passed on as flags (``by_flags``) or as keyword arguments.
    """

    name: str
    title: str
    source: str
    wins: str
    release: str | None = None
    node: str = ""
    target: str = ""
    flags: str = ""
    mark: str = ""
    gpus: str = ""
    by_flags: bool = False
    chosen: Mapping[str, str] = field(default_factory=dict)
    own: Sequence[str] = ()
    passes: Sequence[str] = ()
    names: JsonObject = field(default_factory=dict)
    defaults: JsonObject = field(default_factory=dict)
    sets: JsonObject = field(default_factory=dict)
    writes: JsonObject = field(default_factory=dict)

    @property
    def keys(self) -> dict[str, str]:
        """Maps arguments to the framework's own keys; the first key if there are several."""
        return {name: keys[0] for name, keys in self.all_keys.items()}

    @property
    def all_keys(self) -> dict[str, list[str]]:
        return {name: _spec(how)["keys"].split() for name, how in self.names.items()}


ADAPTERS: Mapping[str, Adapter] = {name: Adapter(name, **facts) for name, facts in json_beside(__file__).items()}


@dataclass(frozen=True)
class TreeServer:
    """One server of a tree: its arguments, their node, and remarks on keys that SGLang never gets. ``mentions`` are
    texts that name the GPU."""

    adapter: Adapter
    at: str
    values: JsonObject
    mentions: tuple[str, ...]
    gpu_count: int | None
    remarks: tuple[str, ...]


def servers_in(tree: Mapping[str, object]) -> Iterator[TreeServer]:
    """Yields the servers that frameworks start from a tree. Follows references to other keys; keeps unresolvable ones
    as text."""
    for adapter in ADAPTERS.values():
        for at in _nodes(adapter, tree):
            yield _server(adapter, tree, at)


def trainer_in(script: str) -> Adapter | None:
    """Returns the framework whose options or overrides a script contains; of several, the most mentioned one."""
    found = [one for one in ADAPTERS.values() if (mark := one.flags or one.mark) and mark in script]
    return max(found, key=lambda one: script.count(one.name), default=None)


def _nodes(adapter: Adapter, tree: Mapping[str, object]) -> Iterator[str]:
    if adapter.target:
        yield from (at for at, target in _targets(tree) if re.fullmatch(adapter.target, target))
        return
    node = value_at(tree, adapter.node) if adapter.node else None
    if adapter.chosen:
        is_one = all(value_at(tree, key) == value for key, value in adapter.chosen.items())
    else:
        known = [key in EVERY for key in node] if isinstance(node, Mapping) else []
        is_one = bool(known) and sum(known) >= len(known) * _LEAST_KNOWN
    if adapter.node and is_one and (node is None or isinstance(node, Mapping)):
        yield adapter.node


def _targets(tree: object, above: str = "") -> Iterator[tuple[str, str]]:
    """Yields each node of a tree that names a class, with the class."""
    for key, value in tree.items() if isinstance(tree, Mapping) else ():
        if key == "_target_":
            yield above, str(value)
        yield from _targets(value, f"{above}.{key}".lstrip("."))


def _server(adapter: Adapter, tree: JsonObject, at: str) -> TreeServer:
    node = {str(key): _meant(tree, value) for key, value in ((value_at(tree, at) if at else tree) or {}).items()}
    typed = {key: value for key, value in node.items() if key not in (*adapter.own, *OWN_KEYS)}
    named = {name: value for name, how in adapter.names.items() if (value := _named(tree, how)) is not None}
    reach = {key: value for key, value in typed.items() if not adapter.passes or key in adapter.passes}
    first, last = (named, reach) if adapter.wins == "node" else (reach, named)
    beats = {**(last if last is named else {}), **adapter.sets}
    newest, drops = known_versions()[-1], f"{adapter.title} passes {len(adapter.passes)} keys on and drops it"
    gone = f", and SGLang {newest} has no such argument"
    dropped = {key: "" if key in release(newest).arguments else gone for key in typed if key not in reach}
    remarks = [f"{at}.{key} does not reach SGLang: {drops}{more}" for key, more in dropped.items()]
    for key in typed.keys() & beats.keys():
        if typed[key] != beats[key]:
            remarks.append(f"{at}.{key}={typed[key]} is overwritten: {adapter.title} passes {beats[key]}")
    gpus = value_at(tree, adapter.gpus) if adapter.gpus else None
    gpu = node.get("gpu")
    return TreeServer(
        adapter,
        at,
        {**adapter.defaults, **first, **last, **adapter.sets},
        (gpu,) if isinstance(gpu, str) else (),
        gpus if isinstance(gpus, int) else None,
        tuple(sorted(remarks)),
    )


def _spec(how: object) -> JsonObject:
    return how if isinstance(how, Mapping) else {"keys": how}


def _named(tree: JsonObject, how: Json) -> Json:
    """Returns the argument's value from the first of the framework's own keys that is set, or None."""
    spec = _spec(how)
    value = next(
        (found for key in spec["keys"].split() if (found := _meant(tree, value_at(tree, key))) is not None), None
    )
    if value is None:
        return None
    if "match" in spec:
        found = re.search(spec["match"], str(value))
        return int(found[1]) if found else None
    if isinstance(times := value_at(tree, spec.get("times", "")), int) and isinstance(value, int):
        value *= times
    return spec.get("values", {}).get(str(value).lower(), value)


def _meant(tree: Mapping[str, object], value: object) -> Json:
    """Resolves a reference (``${actor.path}``); returns other values unchanged."""
    for _ in range(8):
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        there = value_at(tree, found[1]) if found else None
        if there is None:
            return value
        value = there
    return value


def keys_for(adapter: Adapter, arguments: JsonObject) -> tuple[JsonDict, JsonDict]:
    """Returns the framework's keys that make it pass ``arguments`` to SGLang, and the arguments that it would change.
    In a framework with options instead of a tree, arguments without their own option keep their names."""
    sizes = {"tp_size": 1, "pp_size": 1, REPLICAS: 1, **arguments}
    keys = {key: how.format_map(sizes) if isinstance(how, str) else how for key, how in adapter.writes.items()}
    keys |= adapter.chosen
    lost: JsonDict = {}
    for name, value in arguments.items():
        spec = _spec(adapter.names.get(name, ""))
        if name in adapter.sets:
            lost |= {} if adapter.sets[name] == value else {name: value}
        elif name in adapter.keys:
            back = {after: {"true": True, "false": False}.get(at, at) for at, after in spec.get("values", {}).items()}
            own = value // sizes[REPLICAS] if "times" in spec else back.get(value, value) if back else value
            keys |= {} if "match" in spec else {adapter.keys[name]: own}
        elif adapter.passes and name not in adapter.passes:
            lost[name] = value
        else:
            keys[name if adapter.flags else f"{adapter.node}.{name}"] = value
    return keys, lost


def unknown_keyword(place: str, name: str, value: object, version: str, mount: str = "") -> Finding:
    """Returns the error for a key that ``ServerArgs(**...)`` of a release refuses. ``place`` says who set it; ``mount``
    is the node for our keys, if there is one."""
    since = first_with(name)
    if since is not None and mount and at_least(since, version):
        message = f"{place}: {name!r} is an argument of SGLang {since}, and {version} does not have it"
        return Finding("error", "CLI001", message, (name,), f"{mount}engine.version={since}")
    if since is not None:
        made = begun(version)
        refuse_gone(made, name, value)
        return replace(made.findings[-1], message=f"{place}: {made.findings[-1].message}")
    meant = near_key(name) or nearest(name, OWN_KEYS if mount else ())
    hint = Remedy.meant(meant.lstrip("!")) if meant else None
    message = f"{place}: {name!r} is no argument of SGLang {version}: ServerArgs would refuse it"
    return Finding("error", "CLI001", message, (name,), hint)


def refused_keywords(at: str, values: Mapping[str, object], version: str) -> dict[str, Finding]:
    """Returns the errors for keys that ``ServerArgs(**values)`` of a release refuses, by key."""
    has = release(nearest_known(version) or known_versions()[0]).arguments
    gone = {name: value for name, value in values.items() if name not in has}
    return {name: unknown_keyword(at, name, value, version) for name, value in gone.items()}
