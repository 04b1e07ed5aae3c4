"""The nearest preset, and the fewest overrides that make the same server of it, each step verified by planning."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sglang_hydra.arguments.fields import FIELDS, fresh_defaults
from sglang_hydra.arguments.secrets import SECRET_FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.planning.catalog import models
from sglang_hydra.planning.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.target import find_target
from sglang_hydra.releases.table import nearest_known, release
from sglang_hydra.rules.resolution import Resolution, resolve
from sglang_hydra.text.errors import ConfigError

SEED = 42
_PLACE = "the source"
_ROUNDS = 2
_ALWAYS_KEPT = ("model_path", "random_seed")  # without the seed another one is drawn each time
_PATHS = ("model_path", "tokenizer_path", "served_model_name")


@dataclass(frozen=True)
class Wanted:
    """The arguments of a source. ``settings`` are keys of the nodes (``engine.version``, ``gpu.count``) and options of
    groups that hold for every plan; ``resolved`` says that ``arguments`` are what SGLang made of something else.
    ``exact``: the source names its release, and our rules are that release's, so that they may tell what is not
    needed. Else everything that was typed stays."""

    arguments: Mapping[str, Any]
    settings: Mapping[str, Any]
    resolved: bool = False
    exact: bool = False


@dataclass(frozen=True)
class Reduced:
    """The ``overrides`` on top of the ``model`` preset (None: the model by its path), with the plan of all arguments
    and the plan of these for each GPU class that was looked at: none where the GPU is not known and everything was
    kept. ``equal``: they are the same server. ``known``: the model's facts are here. ``needless`` are
    arguments without which the source's own release, asked exactly, makes the same server; they are kept."""

    model: str | None
    overrides: Mapping[str, Any]
    full: Mapping[str, Plan]
    small: Mapping[str, Plan]
    equal: bool
    respelled: bool = False
    known: bool = True
    needless: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Context:
    """One GPU class: the plan of everything that the source says, what the preset alone sets, what is wanted."""

    full: Plan
    preset: Mapping[str, Any]
    target: Mapping[str, Any]
    verdict: tuple[str, ...]
    model: ModelFacts

    def resolution_of(self, intent: Mapping[str, Any]) -> Resolution:
        environment = {**self.full.inherited, **self.full.environment}
        wanted = {**self.preset, **intent}
        return resolve(wanted, gpu=self.full.gpu, model=self.model, seed=SEED, env=environment)


def preset_for(path: str, composer: Composer) -> tuple[str | None, bool]:
    """Returns the model preset of exactly this checkpoint, and whether its hub name is spelled differently."""
    presets = [preset for preset in models(composer) if "${" not in preset.path]
    exact = next((preset.name for preset in presets if preset.path == path), None)
    if exact is not None or os.path.exists(path) or path.count("/") != 1 or path[:1] in "./~":
        return exact, False
    return next((preset.name for preset in presets if preset.path.lower() == path.lower()), None), True


def reduce_to_preset(wanted: Wanted, gpus: Sequence[str], composer: Composer, env: Mapping[str, str]) -> Reduced:
    """Finds the preset, and removes every argument that the plan resolves to anyway, on each of the GPU classes, where
    that is known.

    Raises ConfigError where the arguments cannot be composed at all.
    """
    given = {name: value for name, value in wanted.arguments.items() if name not in SECRET_FIELDS}
    model = wanted.settings.get("model")
    respelled = False
    if model is None and isinstance(given.get("model_path"), str):
        model, respelled = preset_for(given["model_path"], composer)
    respelled = respelled and model is not None
    planner = _Planner(composer, wanted.settings, env)
    if not wanted.exact and not wanted.resolved:
        return _with_everything(planner, wanted, given, model, respelled, gpus)
    full = {gpu: planner.plan(gpu, None if "model" not in wanted.settings else model, given) for gpu in gpus}
    if "model_path" not in given and model is None:
        return Reduced(None, given, full, full, True)
    if model is None:
        contexts = [item for gpu in gpus for item in _contexts(wanted, given, full[gpu], composer)]
        overrides = _fewest(given, contexts, wanted.resolved)
        return _verified(planner, None, overrides, given, full, wanted)
    kept = _beside(given, respelled)
    alone = {gpu: planner.intent(gpu, model, {}) for gpu in gpus}
    undone = _undone(alone.values(), given)
    contexts = [_context(wanted, {**kept, **undone}, full[gpu], alone[gpu], respelled) for gpu in gpus]
    overrides = _fewest({**kept, **undone}, contexts, wanted.resolved)
    made = _verified(planner, model, overrides, given, full, wanted, respelled)
    return made if made.equal else Reduced(None, given, full, full, True)


def _beside(given: Mapping[str, Any], respelled: bool) -> dict[str, Any]:
    """What stands beside a preset's model: everything but its path, and what clients call it."""
    kept = {name: value for name, value in given.items() if name != "model_path"}
    return {"served_model_name": given["model_path"], **kept} if respelled else kept


def _undone(intents: Iterable[Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """What presets alone set and the source does not, at its default."""
    return {
        name: FIELDS[name].default
        for intent in intents
        for name, value in intent.items()
        if name not in given and name != "model_path" and value != FIELDS[name].default
    }


def _with_everything(
    planner: _Planner,
    wanted: Wanted,
    given: Mapping[str, Any],
    model: str | None,
    respelled: bool,
    gpus: Sequence[str],
) -> Reduced:
    """Keeps everything that was typed, and the preset where it is the same server. It is planned where one GPU class is
    known; else what is composed is compared, from which every class makes the same."""
    named = model if "model" in wanted.settings else None
    if "model_path" not in given and named is None:
        return Reduced(None, given, {}, {}, True)
    overrides: dict[str, Any] = dict(given)
    undone: dict[str, Any] = {}
    if model is not None:
        undone = _undone(_of_preset(planner.composer, tuple(gpus), model), given)
        overrides = {**_beside(given, respelled), **undone}
    same = all(
        _passed(planner.intent(gpu, named, given), respelled)
        == _passed(planner.intent(gpu, model, overrides), respelled)
        for gpu in (gpus if undone else gpus[:1])
    )
    if not same and named is None:
        model, overrides, respelled, same = None, dict(given), False, True
    if len(gpus) > 1:
        return Reduced(model, overrides, {}, {}, same, respelled, planner.knows(gpus[0], model, overrides))
    plans = {gpu: planner.plan(gpu, model, overrides) for gpu in gpus}
    known = all(plan.model.known for plan in plans.values())
    needless = frozenset(name for gpu in plans for name in _needless(planner, gpu, model, overrides, plans[gpu]))
    return Reduced(model, overrides, plans, plans, same, respelled, known, needless)


def _needless(
    planner: _Planner, gpu: str, model: str | None, overrides: Mapping[str, Any], full: Plan
) -> frozenset[str]:
    """The arguments at their release's defaults, where the release makes the same server without all of them."""
    arguments = release(nearest_known(full.engine.version) or SPECIFIED_VERSION).arguments
    wanted = {**overrides, **{name: value for name, value in planner.settings.items() if name.startswith("extra.")}}
    found = frozenset(
        name
        for name, value in wanted.items()
        if (argument := arguments.get(name.removeprefix("extra."))) is not None
        and name not in _ALWAYS_KEPT
        and argument.default == value
    )
    if not found or not full.is_exact:
        return frozenset()
    settings = {name: value for name, value in planner.settings.items() if name not in found}
    fewer = {name: value for name, value in overrides.items() if name not in found}
    tried = _Planner(planner.composer, settings, planner.env).plan(gpu, model, fewer)
    return found if tried.is_exact and tried.server_id == full.server_id else frozenset()


@lru_cache(maxsize=256)
def _of_preset(composer: Composer, gpus: tuple[str, ...], model: str) -> tuple[Mapping[str, Any], ...]:
    """What a model's preset sets by itself on each of the GPU classes."""
    planner = _Planner(composer, {}, {})
    return tuple(planner.intent(gpu, model, {}) for gpu in gpus)


def _passed(intent: Mapping[str, Any], respelled: bool) -> dict[str, Any]:
    """What of an intent is passed on: no switch that is off, and nothing that is null."""
    left_out = _PATHS if respelled else ()
    return {
        name: value
        for name, value in intent.items()
        if value is not None and value != FIELDS[name].default and name not in left_out
    }


def nearest_preset(path: str, composer: Composer) -> str | None:
    """``model=NAME (its checkpoint)`` of the preset whose name begins with a path's last part, or the other way."""
    name = path.rstrip("/").rpartition("/")[2].lower()
    for preset in models(composer):
        known = preset.path.rpartition("/")[2].lower()
        if name and "${" not in preset.path and (known.startswith(name) or name.startswith(known)):
            return f"model={preset.name} ({preset.path})"
    return None


class _Planner:
    """Plans with the settings that hold for every plan of the source."""

    def __init__(self, composer: Composer, settings: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.composer = composer
        self.env = env
        self.settings = {name: value for name, value in settings.items() if name not in ("gpu", "model")}

    def plan(self, gpu: str, model: str | None, arguments: Mapping[str, Any]) -> Plan:
        return make_plan(self.composer, self._requests(gpu, model, arguments), seed=SEED, env=self.env)

    def intent(self, gpu: str, model: str | None, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is composed of it, without planning."""
        return self.composer.compose(self._requests(gpu, model, arguments)).intent

    def knows(self, gpu: str, model: str | None, arguments: Mapping[str, Any]) -> bool:
        """Whether anything is known of the model."""
        requests = self._requests(gpu, model, arguments)
        target = find_target(self.composer, requests, self.composer.compose(requests), SEED, self.env, None)
        return target.facts.model.known

    def _requests(self, gpu: str, model: str | None, arguments: Mapping[str, Any]) -> list[Request]:
        words = {"gpu": gpu, "model": model or "unset", "engine": "sglang", **self.settings}
        requests = [Request.typed(key, value, _PLACE, "experiment") for key, value in words.items()]
        return requests + [Request.typed(name, value, _PLACE, "experiment") for name, value in arguments.items()]


def _context(
    wanted: Wanted, given: Mapping[str, Any], full: Plan, preset: Mapping[str, Any], respelled: bool = False
) -> _Context:
    target: dict[str, Any] = dict(full.values)
    if not full.by_own_rules:  # what is tried is resolved by our rules; the whole plans are compared at the end
        target = dict(_Context(full, {}, {}, (), full.model).resolution_of(full.intent).values)
    if wanted.resolved:
        target = {**fresh_defaults(), **wanted.arguments}
        for name in ("random_seed", *SECRET_FIELDS):
            target.pop(name, None)
    if respelled:
        for name in _PATHS:
            target[name] = None
        target["served_model_name"] = given.get("served_model_name")
        del target["model_path"], target["tokenizer_path"]
    return _Context(full, preset, target, _verdict(full.resolution), full.model)


def _contexts(wanted: Wanted, given: Mapping[str, Any], full: Plan, composer: Composer) -> Iterator[_Context]:
    """Yields the contexts of a model without a preset: its own, and where nothing is known of it those of every
    preset's model."""
    own = _context(wanted, given, full, {})
    yield own
    if full.model.known:
        return
    for preset in models(composer):
        like = replace(own, model=preset.facts)
        made = like.resolution_of(given)
        target = own.target if wanted.resolved else dict(made.values)
        yield replace(like, target=target, verdict=_verdict(made))


def _fewest(given: Mapping[str, Any], contexts: Sequence[_Context], resolved: bool) -> dict[str, Any]:
    """Removes from ``given`` what makes no difference on any of the GPU classes."""
    intent = dict(given)
    best = [_distance(intent, context) for context in contexts]
    for _ in range(_ROUNDS):
        before = dict(intent)
        for name in list(intent):
            for tried in _simpler_intents(intent, name, resolved):
                away = [_distance(tried, context) for context in contexts]
                fewer = all(now <= then for now, then in zip(away, best, strict=True))
                if fewer and (not resolved or all(_keeps_logged_value(name, intent, tried, item) for item in contexts)):
                    intent, best = tried, away
                    break
        if intent == before:
            break
    return intent


def _keeps_logged_value(name: str, intent: Mapping[str, Any], tried: Mapping[str, Any], context: _Context) -> bool:
    """Whether ``tried`` gives ``name`` the value in the log, or ``intent`` does not either: no value is traded for
    another."""
    wanted = context.target.get(name)
    return bool(
        context.resolution_of(tried).values[name] == wanted or context.resolution_of(intent).values[name] != wanted
    )


def _simpler_intents(intent: Mapping[str, Any], name: str, resolved: bool) -> Iterator[dict[str, Any]]:
    """Yields ``intent`` without ``name``; for a log also with the value before DP attention divides it."""
    if name in _ALWAYS_KEPT or name not in intent:
        return
    yield {key: value for key, value in intent.items() if key != name}
    ranks = intent.get("dp_size")
    divided = name == "chunked_prefill_size" and bool(intent.get("enable_dp_attention"))
    if resolved and divided and isinstance(ranks, int) and ranks > 1 and isinstance(intent[name], int):
        yield {**intent, name: intent[name] * ranks}


def _distance(intent: Mapping[str, Any], context: _Context) -> int:
    """Counts the arguments that resolve to other values than the target's; a different verdict counts more than all
    of them."""
    made = context.resolution_of(intent)
    if _verdict(made) != context.verdict and not (made.ok and context.verdict):
        return len(FIELDS) + 1
    return sum(
        made.values[name] != value or isinstance(made.values[name], bool) != isinstance(value, bool)
        for name, value in context.target.items()
        if name in made.values
    )


def _verdict(resolution: Resolution) -> tuple[str, ...]:
    return tuple(sorted(finding.id for finding in resolution.findings if finding.level == "error"))


def _verified(
    planner: _Planner,
    model: str | None,
    overrides: Mapping[str, Any],
    given: Mapping[str, Any],
    full: Mapping[str, Plan],
    wanted: Wanted,
    respelled: bool = False,
) -> Reduced:
    """Plans the reduced arguments on every class and compares the servers; where one differs, everything is kept."""
    try:
        small = {gpu: planner.plan(gpu, model, overrides) for gpu in full}
    except ConfigError:
        return Reduced(None, given, full, full, False)
    same = all(_same(full[gpu], small[gpu], respelled) for gpu in full)
    if same or wanted.resolved:
        return Reduced(model, overrides, full, small, same, respelled)
    return Reduced(None, given, full, full, False)


def _same(full: Plan, small: Plan, respelled: bool) -> bool:
    theirs, ours = full.resolution.view, small.resolution.view
    if respelled:
        return all(theirs[name] == ours[name] for name in FIELDS if name not in _PATHS)
    # Of an estimate, what was typed is known and what was not is unknown: the estimates are compared.
    return theirs == ours and (full.server_id == small.server_id or not full.is_exact)
