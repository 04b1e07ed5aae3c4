"""Plans the server that verl will start from its composed tree, and returns the keys for verl.

verl gets SGLang's arguments in the node ``engine_kwargs.sglang``. Our own keys (``gpu``, ``engine``, ``fit``,
``model``, ``ignore``) give the plan facts that verl's tree lacks; verl never gets them."""

from __future__ import annotations

import copy
import functools
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf, flag_override

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.secrets import hide_typed_keys, masked
from sglang_hydra.arguments.tables.table import nearest_known, release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES
from sglang_hydra.convert.frameworks.adapters import OWN_KEYS, unknown_keyword
from sglang_hydra.convert.verl.passed import Passed, Tree, passed, refused, unlike, unplannable, unread
from sglang_hydra.facts.declared import gpu_facts
from sglang_hydra.planning.engines.planned import plan_engine
from sglang_hydra.planning.making.gpu_class import choose_gpu_class
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.run.before_hydra import numbered
from sglang_hydra.run.hydra_app import composer_of_app, shown_refusal, typed_words
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.plan import summary
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.origins import Origin
from sglang_hydra.text.screen import columns, shown, text, write

C = TypeVar("C")

# verl sets this in its server's process (the source of passed.py).
_ENVIRONMENT = {"SGLANG_BLOCK_NONZERO_RANK_CHILDREN": "0"}


@dataclass(frozen=True)
class Rollout:
    """The server that verl will start.

    ``engine_kwargs`` are the set keys of the node with their values, unchanged. ``passed`` is what verl adds;
    ``server_args`` are the arguments for ``ServerArgs(**...)``. ``said`` has the settings of the node, each with the
    place that set it."""

    plan: Plan
    engine_kwargs: JsonObject = field(repr=False)
    passed: Mapping[str, Passed]
    at: str
    said: Mapping[str, Setting] = field(repr=False)

    @property
    def server_args(self) -> JsonDict:
        """Returns the keyword arguments of SGLang's ``ServerArgs`` on node 0: verl's final ones win."""
        first = {name: own.value for name, own in self.passed.items() if not own.final}
        last = {name: own.value for name, own in self.passed.items() if own.final}
        return {**first, **self.engine_kwargs, **last}

    def leave(self, config: C) -> C:
        """Returns a copy of verl's tree whose node contains only ``engine_kwargs``."""
        left: Any = copy.deepcopy(config)
        if OmegaConf.is_config(left):
            with flag_override(left, ["struct", "readonly"], [False, False]):
                OmegaConf.update(left, f"{self.at}.{NODE}", dict(self.engine_kwargs), merge=False, force_add=True)
            return cast(C, left)
        *path, last = f"{self.at}.{NODE}".split(".")
        node = left
        for name in path:
            node = node.setdefault(name, {})
        node[last] = dict(self.engine_kwargs)
        return cast(C, left)

    def as_text(self) -> str:
        """Returns every argument for ``ServerArgs`` with who set it, and the findings of the plan."""
        rows = [[text("  " + name, "bold"), text(value), text(who, "dim")] for name, value, who in self._rows()]
        lines = [*columns(rows, indent=""), [], *finding_lines(self.plan.findings, self.plan), summary(self.plan)]
        return "\n".join("".join(part for part, _ in line).rstrip() for line in lines)

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        for name, value in self.server_args.items():
            own = self.passed.get(name)
            mine = name in self.engine_kwargs and not (own and own.final)
            said = self.said.get(name) or self.said.get("extra")
            who = said.place if mine and said else own.place if own else ""
            yield name, shown(masked(name, value)), f"{who} (over verl's {shown(own.value)})" if mine and own else who


def plan_rollout(
    config: Any,
    *,
    at: str = "actor_rollout_ref",
    config_dirs: Sequence[str | Path] = (),
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Rollout:
    """Plans the SGLang server that verl starts from its composed ``config`` (a DictConfig or plain containers).

    ``at`` is the node with ``rollout`` and ``model``. Its ``rollout.engine_kwargs.sglang`` contains SGLang's arguments,
    and for the plan alone ``gpu``, ``engine``, ``fit``, ``model``, ``ignore``. GPU classes are searched in
    ``config_dirs``, and in a Hydra app in its own folders, before ours. ``seed`` and ``env`` are as in ``plan``. Raises
    ConfigError with every finding for keys that SGLang lacks, unsuitable values and trees that are not verl's; later
    refusals by SGLang or verl are in the plan's ``findings`` instead."""
    env = os.environ if env is None else env
    tree = Tree(config if OmegaConf.is_config(config) else OmegaConf.create(config), at)
    if found := unplannable(tree):
        raise ConfigError(*found)
    settings = settings_in(tree)
    composer = Composer([*config_dirs, *_folders_of_app()], trusts_files=True)
    facts = own_requests(settings, lambda name: composer.compose([Request(f"gpu={name}", "verl")]).nodes.plain["gpu"])
    composition, hardware = choose_gpu_class(composer, facts, composer.compose(facts), env)
    version = plan_engine(composition.nodes.engine).version
    vendor = gpu_facts(composition.nodes.plain["gpu"], hardware.facts).vendor
    knows = frozenset(release(near).arguments if (near := nearest_known(version)) else FIELDS)
    typed = typed_requests(settings, tree, composer, knows, version)
    own = passed(tree, version, vendor, knows)
    requests = [*facts, *_of_verl(own, knows, final=False), *typed, *_of_verl(own, knows, final=True)]
    if all(request.key != "gpu.count" for request in facts):
        place = tree.place("rollout.n_gpus_per_node")
        requests.append(Request.typed("gpu.count", tree.gpus_of_node, place, "verl"))
    by_verl = list(refused(tree, version))
    try:
        plan = make_plan(composer, requests, seed=seed, env=env)
    except ConfigError as failure:
        raise ConfigError(*by_verl, *failure.findings) from None
    found = [*by_verl, *unread(tree, settings), *overwritten(settings, own), *unlike(tree, plan)]
    silent = [finding for finding in found if finding.id in plan.nodes.ignore]
    kept = [finding for finding in found if finding not in silent]
    plan = replace(plan, findings=(*plan.findings, *kept), ignored=(*plan.ignored, *silent))
    return Rollout(plan, _leaving(settings), own, at, settings)


def main(task: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decorates verl's task, below ``@hydra.main``.

        @hydra.main(version_base=None, config_path="conf", config_name="trainer")
        @sglang_hydra.convert.verl.main
        def train(config): run_ppo(config)

    The task gets verl's tree with a node ``engine_kwargs.sglang`` that contains only the keys set there. For a server
    that cannot be launched the task is not called: the findings are shown and the exit code is 2."""
    hide_typed_keys(sys.argv, os.environ)

    @functools.wraps(task)
    def planned(config: Any) -> Any:
        with shown_refusal():
            rollout = plan_rollout(config)
        with shown_refusal(rollout.plan):
            if rollout.plan.launchable is False:
                raise ConfigError(*rollout.plan.errors)
        write(finding_lines(rollout.plan.findings, rollout.plan), sys.stderr)  # beside what the task prints
        return task(rollout.leave(config))

    return planned


def _folders_of_app() -> list[str]:
    """Returns the config folders of a running Hydra app, so that its own GPU classes are known."""
    if not HydraConfig.initialized():
        return []
    sources = HydraConfig.get().runtime.config_sources
    return [f"file://{source.path}" for source in sources if source.schema == "file" and source.path]


def _of_verl(own: Mapping[str, Passed], knows: frozenset[str], *, final: bool) -> Iterator[Request]:
    for name, word in own.items():
        if word.final == final and (name in FIELDS or name in knows):
            yield Request.typed(name, word.value, word.place, "verl")
    if not final:
        for name, value in _ENVIRONMENT.items():
            yield Request.typed(f"engine.env.{name}", value, "verl itself", "verl")


def _leaving(settings: Mapping[str, Setting]) -> JsonDict:
    """Returns the arguments that verl gets, those in ``extra`` under their own names."""
    kept = {name: word.value for name, word in settings.items() if name not in OWN_KEYS}
    extra = settings["extra"].value if "extra" in settings else None
    return {**kept, **(extra if isinstance(extra, Mapping) else {})}


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
    """Returns every set key of the node. Inside a Hydra app its configs and command line say who set it.

    Raises ConfigError for a node with every argument of SGLang if nobody can tell which ones were set."""
    mount = f"{tree.at}.{NODE}"
    node = OmegaConf.select(tree.config, mount, throw_on_missing=False)
    if node is None:
        return {}
    origins: Mapping[str, Origin] = {}
    if HydraConfig.initialized():
        # A choice of a group option (gpu@NODE.gpu: h200) counts as one entry for the group's key.
        running, keys = HydraConfig.get(), tuple(mount.split("."))
        origins = composer_of_app(running).origins_below(keys, numbered(typed_words(running)))
    kind = OmegaConf.get_type(node)
    if isinstance(kind, type) and "tp_size" in getattr(kind, "__dataclass_fields__", ()):
        return dict(_of_whole(tree, mount, origins))
    values = tree.get(NODE)
    if not isinstance(values, dict):
        raise ConfigError(Finding("error", "VRL002", f"{mount}={values!r} is not a mapping of arguments", (mount,)))
    placed = ((str(name), value, origins.get(str(name))) for name, value in values.items())
    return {
        name: Setting(value, origin.layer if origin else "primary", origin.place if origin else f"{mount}.{name}")
        for name, value, origin in placed
    }


def _of_whole(tree: Tree, mount: str, origins: Mapping[str, Origin]) -> Iterator[tuple[str, Setting]]:
    """Yields the set keys of a full mount (``sglang_hydra@...``), which has a value for every key.

    Raises ConfigError outside a Hydra app."""
    if not origins:
        message = f"{mount} holds every argument of SGLang, and outside of a Hydra app nobody knows which were set"
        hint = f"sglang_hydra_sparse@{mount} in the defaults list holds nothing but what is set"
        raise ConfigError(Finding("error", "VRL002", message, (mount,), hint))
    for name, origin in origins.items():
        if name in FIELDS or name in OWN_KEYS:
            yield name, Setting(tree.get(f"{NODE}.{name}"), origin.layer, origin.place)


def typed_requests(
    settings: Mapping[str, Setting], tree: Tree, composer: Composer, knows: Collection[str], version: str
) -> list[Request]:
    """Returns the arguments in the node as requests for a plan. ``knows`` are the arguments of the SGLang release.

    Raises ConfigError with a finding for every unknown key and unsuitable value."""
    known = {name: word for name, word in settings.items() if name in FIELDS or name in knows}
    others = {name: word for name, word in settings.items() if name not in known and name not in OWN_KEYS}
    findings = [_unknown(name, word, tree, version) for name, word in others.items()]
    requests = [word.request(name) for name, word in known.items()]
    try:
        composer.check(requests)
    except ConfigError as failure:
        findings += failure.findings
    if findings:
        raise ConfigError(*findings)
    return requests


def own_requests(settings: Mapping[str, Setting], preset: Callable[[str], JsonObject]) -> list[Request]:
    """Returns the node's requests for the plan alone. ``preset`` returns the facts of a GPU class by name.

    Raises ConfigError for a choice that a rollout does not have."""
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


def _inside(name: str, word: Setting, preset: Callable[[str], JsonObject]) -> Iterator[Request]:
    """Yields the keys of one of our nodes. ``gpu.name`` chooses the class, as ``gpu@NODE.gpu: h200`` leaves it; values
    equal to the class's are skipped. A preset's flags (``args``) do not reach verl, so the plan skips them too."""
    known: JsonObject = {}
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
        message = f"{word.place}: {name} is not a key of a rollout; the keys are {', '.join(OWN_KEYS)}"
        return Finding("error", "VRL003", message, (name,))
    return unknown_keyword(word.place, name, word.value, version, f"{mount}.")


def overwritten(settings: Mapping[str, Setting], passed: JsonObject) -> Iterator[Finding]:
    """Yields a warning for each key of the node that verl overwrites."""
    for name, own in passed.items():
        if own.final and name in settings and settings[name].value != own.value:
            word = settings[name]
            message = f"{word.place}: {name}={word.value} is overwritten: verl sets {own.value} for {own.place}"
            yield Finding("warning", "VRL007", message, (name,))
