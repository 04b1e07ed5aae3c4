"""The node below ``engine_kwargs.sglang``: which keys were set there, by whom, and what is wrong with them.

Arguments of SGLang leave the node for verl. Keys of our own (``gpu``, ``engine``, ``fit``, ``model``, ``ignore``) tell
the plan what it cannot know from verl's tree, and never leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES
from sglang_hydra.convert.frameworks.adapters import OWN_KEYS, unknown_keyword
from sglang_hydra.convert.verl.passed import Tree
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.origins import Origin

NODE = "rollout.engine_kwargs.sglang"


@dataclass(frozen=True)
class Setting:
    """One key of the node: its value, and the layer and place that set it."""

    value: Any
    layer: str
    place: str

    def request(self, key: str) -> Request:
        return Request.typed(key, self.value, self.place, self.layer)


def settings_in(tree: Tree) -> dict[str, Setting]:
    """Returns every key that was set in the node. Inside a Hydra app its own configs and command line say by whom.

    Raises ConfigError for a node that holds every argument of SGLang where nobody can tell which of them were set.
    """
    from omegaconf import OmegaConf

    mount = f"{tree.at}.{NODE}"
    node = OmegaConf.select(tree.config, mount, throw_on_missing=False)
    if node is None:
        return {}
    origins = origins_in_app(tuple(mount.split(".")))
    kind = OmegaConf.get_type(node)
    if isinstance(kind, type) and "tp_size" in getattr(kind, "__dataclass_fields__", ()):
        return dict(_of_whole(tree, mount, origins))
    values = tree.get(NODE)
    if not isinstance(values, dict):
        raise ConfigError(Finding("error", "VRL002", f"{mount}={values!r} is not a mapping of arguments", (mount,)))
    return {str(name): _setting(str(name), value, mount, origins) for name, value in values.items()}


def _setting(name: str, value: Any, mount: str, origins: Mapping[str, Origin]) -> Setting:
    origin = origins.get(name)
    if origin is None:
        return Setting(value, "primary", f"{mount}.{name}")
    return Setting(value, origin.layer, origin.place)


def _of_whole(tree: Tree, mount: str, origins: Mapping[str, Origin]) -> Iterator[tuple[str, Setting]]:
    """Yields the keys that were set in a mount of everything (``sglang_hydra@...``), which has a value for every key.

    Raises ConfigError outside of a Hydra app.
    """
    if not origins:
        message = f"{mount} holds every argument of SGLang, and outside of a Hydra app nobody knows which were set"
        hint = f"sglang_hydra_sparse@{mount} in the defaults list holds nothing but what is set"
        raise ConfigError(Finding("error", "VRL002", message, (mount,), hint))
    for name, origin in origins.items():
        if name in FIELDS or name in OWN_KEYS:
            yield name, Setting(tree.get(f"{NODE}.{name}"), origin.layer, origin.place)


def origins_in_app(mount: tuple[str, ...]) -> dict[str, Origin]:
    """Returns the last word on each key right below ``mount``: the file and line or the override, in a running Hydra
    app.

    What an option of a group brings (``gpu@NODE.gpu: h200``) counts as one word on the group's key. Empty outside of
    an app.
    """
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return {}
    from sglang_hydra.run.before_hydra import numbered
    from sglang_hydra.run.hydra_app import composer_of_app, typed_words

    running = HydraConfig.get()
    return composer_of_app(running).origins_below(mount, numbered(typed_words(running)))


def requests_of(
    settings: Mapping[str, Setting], tree: Tree, knows: Collection[str], version: str
) -> tuple[list[Request], list[Finding]]:
    """Returns the arguments in the node as requests for a plan, and the keys that are none. ``knows`` are the arguments
    of the SGLang that it is for."""
    requests: list[Request] = []
    findings: list[Finding] = []
    for name, word in settings.items():
        if name in FIELDS or name in knows:
            requests.append(word.request(name))
        elif name not in OWN_KEYS:
            findings.append(_unknown(name, word, tree, version))
    return requests, findings


def own_requests(settings: Mapping[str, Setting], preset: Callable[[str], Mapping[str, Any]]) -> list[Request]:
    """Returns what the node says for the plan alone. ``preset`` gives the facts of a GPU class by its name.

    Raises ConfigError for a choice that a rollout does not have.
    """
    requests: list[Request] = [Request("engine=sglang", "verl", "verl")]
    findings: list[Finding] = []
    for name in OWN_KEYS:
        if name not in settings:
            continue
        word = settings[name]
        if isinstance(word.value, Mapping):
            requests += _inside(name, word, preset)
        elif name in ("gpu", "ignore"):
            requests.append(word.request(name) if name == "ignore" else _choice(name, word))
        elif name != "engine" or word.value not in ("sglang", "auto"):
            message = f"{word.place}: {name}={word.value} is no choice here: verl says which model, SGLang runs it"
            hint = "model.facts_from=config.json for a path that is not here; engine.version=0.5.2"
            findings.append(Finding("error", "VRL003", message, (name,), hint))
    if findings:
        raise ConfigError(*findings)
    return requests


def _inside(name: str, word: Setting, preset: Callable[[str], Mapping[str, Any]]) -> Iterator[Request]:
    """Yields the keys of one of our nodes. ``gpu.name`` chooses the class, as ``gpu@NODE.gpu: h200`` leaves it, and
    what is as in the class needs no word; the flags of a preset (``args``) do not reach verl, so they are none of the
    plan's."""
    known: Mapping[str, Any] = {}
    if name == "gpu" and word.value.get("name"):
        chosen = Setting(word.value["name"], word.layer, word.place)
        yield _choice("gpu", chosen)
        known = preset(chosen.value)
    for key, value in word.value.items():
        if key == "name" or (key in known and known[key] == value):
            continue
        if value not in (None, {}, []) and key not in ("args", "model_path"):
            yield Request.typed(f"{name}.{key}", value, word.place, word.layer)


def _choice(group: str, word: Setting) -> Request:
    return Request(f"{group}={word.value}", word.place, word.layer)


def _unknown(name: str, word: Setting, tree: Tree, version: str) -> Finding:
    mount = tree.place(NODE)
    if name in NODES:
        message = f"{word.place}: {name} says nothing about a rollout; here are {', '.join(OWN_KEYS)}"
        return Finding("error", "VRL003", message, (name,))
    return unknown_keyword(word.place, name, word.value, version, f"{mount}.")


def overwritten(settings: Mapping[str, Setting], passed: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields a warning for each key of the node that verl overwrites."""
    for name, own in passed.items():
        if own.final and name in settings and settings[name].value != own.value:
            word = settings[name]
            message = f"{word.place}: {name}={word.value} is overwritten: verl sets {own.value} for {own.place}"
            yield Finding("warning", "VRL007", message, (name,))
