"""Holds the table of frameworks, and writes a framework's node for a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sglang_hydra.arguments.accepted import begun, refuse_gone
from sglang_hydra.arguments.every import first_with
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.arguments.tables.table import known_versions, nearest_known, release
from sglang_hydra.compose.unknown_words import near_key
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside
from sglang_hydra.text.words import nearest

OWN_KEYS = ("gpu", "model", "engine", "fit", "colocate", "extra", "ignore")
"""Keys of ours that a framework's node may contain: they add facts that the tree lacks."""

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
        return {name: spec_of(how)["keys"].split() for name, how in self.names.items()}


ADAPTERS: Mapping[str, Adapter] = {name: Adapter(name, **facts) for name, facts in json_beside(__file__).items()}


def trainer_in(script: str) -> Adapter | None:
    """Returns the framework whose options or overrides a script contains; of several, the most mentioned one."""
    found = [one for one in ADAPTERS.values() if (mark := one.flags or one.mark) and mark in script]
    return max(found, key=lambda one: script.count(one.name), default=None)


def spec_of(how: object) -> JsonObject:
    return how if isinstance(how, Mapping) else {"keys": how}


def keys_for(adapter: Adapter, arguments: JsonObject) -> tuple[JsonDict, JsonDict]:
    """Returns the framework's keys that make it pass ``arguments`` to SGLang, and the arguments that it would change.
    In a framework with options instead of a tree, arguments without their own option keep their names."""
    sizes = {"tp_size": 1, "pp_size": 1, REPLICAS: 1, **arguments}
    keys = {key: how.format_map(sizes) if isinstance(how, str) else how for key, how in adapter.writes.items()}
    keys |= adapter.chosen
    lost: JsonDict = {}
    for name, value in arguments.items():
        spec = spec_of(adapter.names.get(name, ""))
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
