"""Reads servers whose arguments are keys and values: srtctl recipes, SGLang's own --config, keyword arguments,
trees of training frameworks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from sglang_hydra.arguments.every import EVERY, first_with
from sglang_hydra.arguments.parser import flag_like, parser_of
from sglang_hydra.arguments.tables.table import known_versions, release
from sglang_hydra.convert.frameworks.adapters import ADAPTERS, OWN_KEYS, Adapter, spec_of
from sglang_hydra.convert.importing.launches import Launch, opened
from sglang_hydra.convert.importing.manifests import scalar
from sglang_hydra.text.json_types import Json, JsonObject, value_at

_ROLES = ("prefill", "decode", "aggregated")
_MOST_VARIANTS = 64
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_LEAST_KNOWN = 0.5
"""The smallest share of keys that must be SGLang's arguments for a mapping to count as arguments."""


def is_recipe(document: Mapping[str, object]) -> bool:
    """Returns whether this is a recipe of srtctl, or a base of other recipes."""
    return isinstance(value_at(_base(document), "backend.sglang_config"), Mapping)


def launches_of_recipe(document: Mapping[str, object], place: str) -> list[Launch]:
    """Returns the servers of each role (prefill and decode, or one kind for both), of the base and each variant, each
    server once."""
    base = _base(document)
    found = {_key(launch): launch for launch in _launches_of_base(base, place, "")}
    for name, variant in islice(_variants(document, base), _MOST_VARIANTS):
        for launch in _launches_of_base(variant, place, name):
            found.setdefault(_key(launch), launch)
    return list(found.values())


def _key(launch: Launch) -> str:
    role, gpus = launch.place.rpartition(", ")[2].partition("-")[0], (launch.gpu_count, launch.nodes)
    return repr((role, launch.values, launch.environment, launch.mentions, gpus))


def _variants(document: JsonObject, base: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yields each ``override_NAME`` on the base, and each point of ``zip_override_NAME``, whose lists are paired."""
    for key, change in document.items():
        name = str(key).removeprefix("zip_").removeprefix("override_")
        if not isinstance(change, Mapping) or name == key or not str(key).startswith(("override_", "zip_override_")):
            continue
        if not str(key).startswith("zip_"):
            yield name, _changed(base, change)
            continue
        for at in range(_points(change)):
            yield f"{name}-{at}", _changed(base, change, at)


def _points(change: object) -> int:
    if isinstance(change, Mapping):
        return max((_points(value) for value in change.values()), default=0)
    return len(change) if isinstance(change, list) else 0


def _changed(base: object, change: object, at: int | None = None) -> Json:
    """Applies a change to ``base``: null removes a key, ``at`` selects an item of each list."""
    if isinstance(change, list) and at is not None:
        return change[min(at, len(change) - 1)] if change else None
    if not isinstance(change, Mapping):
        return change
    made = dict(base) if isinstance(base, Mapping) else {}
    for key, value in change.items():
        made[key] = _changed(made.get(key), value, at)
    return {key: value for key, value in made.items() if value is not None}


def _launches_of_base(base: JsonObject, place: str, variant: str) -> Iterator[Launch]:
    backend, model, resources = (object_of(base.get(key)) for key in ("backend", "model", "resources"))
    block, hub_name = object_of(backend.get("sglang_config")), value_at(base, "identity.model.repo")
    for role in _ROLES:
        if not isinstance(block.get(role), Mapping):
            continue
        arguments = dict(block[role])
        named = any(_argument(str(key)) == "model_path" for key in arguments)
        if not named and isinstance(model.get("path"), str):
            arguments = {"model-path": model["path"], **arguments}
        environment = object_of(backend.get(f"{role}_environment"))
        short = "agg" if role == "aggregated" else role
        each = resources.get(f"gpus_per_{short}")
        gpus = resources.get("gpus_per_node")
        gpu = backend.get("gpu_type") or resources.get("gpu_type")
        name = f"{role}-{variant}" if variant else role
        yield Launch(
            "srtctl",
            f"{place}, {name}",
            name=name,
            values=arguments,
            environment={str(name): scalar(value) for name, value in environment.items() if value is not None},
            mentions=tuple(str(text) for text in (gpu, model.get("container")) if text),
            gpu_count=gpus if isinstance(gpus, int) else None,
            nodes=_nodes(resources, short, each, gpus),
            remarks=("the sweep is not read: bench -m ... is one",) if "sweep" in base else (),
            model=hub_name if isinstance(hub_name, str) else None,
        )


def _nodes(resources: Mapping[str, object], role: str, each: object, gpus: object) -> int | None:
    """Returns the machines of one worker: the nodes of its role, divided by its workers."""
    if isinstance(each, int) and isinstance(gpus, int) and gpus > 0:
        return max(1, -(-each // gpus))
    nodes, workers = resources.get(f"{role}_nodes"), resources.get(f"{role}_workers")
    if isinstance(nodes, int) and isinstance(workers, int) and workers > 0 and nodes > 0:
        return max(1, nodes // workers)
    return None


def launches_of_config(document: Mapping[str, object], place: str) -> list[Launch]:
    """Returns the server of a file for SGLang's --config, or of Engine(**kwargs); none if few keys are arguments."""
    keys = [str(key) for key in document]
    known = [key for key in keys if _argument(key) is not None]
    plain = all(not isinstance(value, Mapping) or _argument(str(key)) for key, value in document.items())
    if not known or not plain or len(known) < len(keys) * _LEAST_KNOWN:
        return []
    return [Launch("config", place, values={str(key).lstrip("-"): value for key, value in document.items()})]


def launches_below_keys(document: JsonObject, place: str) -> list[Launch]:
    """Returns the servers whose arguments form a mapping below a key (``server: {tp: 4}``), or a list of these."""
    found = []
    for key, value in document.items():
        for item in value if isinstance(value, list) else [value]:
            names = {_argument(str(name)) for name in item} if isinstance(item, Mapping) else {None}
            if None not in names and "model_path" in names and ("server" in str(key) or "model" not in item):
                found += [replace(one, name=str(key)) for one in launches_of_config(item, f"{place}, {key}")]
    return found


def launches_of_frameworks(document: Mapping[str, object], place: str) -> list[Launch]:
    """Returns the servers that a training framework, or ``hydra.utils.instantiate``, starts from a tree."""
    found = [(adapter, at) for adapter in ADAPTERS.values() for at in _servers_at(adapter, document)]
    return [_of_framework(one, document, at, place, at if len(found) > 1 else "") for one, at in found]


def _servers_at(adapter: Adapter, tree: Mapping[str, object]) -> Iterator[str]:
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


def _of_framework(adapter: Adapter, tree: JsonObject, at: str, place: str, name: str) -> Launch:
    """Reads one server: its arguments, and remarks on keys that SGLang never gets. Follows references to other keys;
    leaves unresolvable ones open."""
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
    values = {**adapter.defaults, **first, **last, **adapter.sets}
    return Launch(
        adapter.title,
        f"{place}, {at}" if at else place,
        name=name,
        values={
            key: opened(value) if isinstance(value, str) and "${" in value else value for key, value in values.items()
        },
        keywords=not adapter.by_flags,
        mentions=(gpu,) if isinstance(gpu, str) else (),
        pinned=adapter.release,
        gpu_count=gpus if isinstance(gpus, int) else None,
        remarks=tuple(sorted(remarks)),
    )


def _named(tree: JsonObject, how: Json) -> Json:
    """Returns the argument's value from the first of the framework's own keys that is set, or None."""
    spec = spec_of(how)
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


def _argument(key: str) -> str | None:
    """Returns the argument that a key names, by any flag or in short as ``tp``; also one of a later release."""
    name = key.lstrip("-").replace("-", "_")
    for spelled in (name, f"{name}_size"):
        option = parser_of(None).options.get(flag_like(spelled))
        if option is not None:
            return option.name
        if first_with(spelled):
            return spelled
    return None


def _base(document: Mapping[str, object]) -> Mapping[str, object]:
    base = document.get("base")
    return base if isinstance(base, Mapping) and "backend" in base else document


def object_of(value: object) -> JsonObject:
    return value if isinstance(value, Mapping) else {}
