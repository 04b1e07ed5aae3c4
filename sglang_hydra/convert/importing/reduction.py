"""The nearest preset, and the fewest overrides that make the same server of it, each step verified by planning."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sglang_hydra.arguments.accepted import default_of
from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import FIELDS, fresh_defaults
from sglang_hydra.arguments.layout import layout_of
from sglang_hydra.arguments.secrets import SECRET_FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.table import nearest_known, release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.choosing.catalog import Model, models
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.making.target import find_target
from sglang_hydra.planning.plan import Plan
from sglang_hydra.rules.resolution import Resolution, resolve
from sglang_hydra.text.errors import ConfigError

SEED = 42
_PLACE = "the source"
_ROUNDS = 2
_ALWAYS_KEPT = ("model_path", "random_seed")  # without the seed another one is drawn each time


@dataclass(frozen=True)
class Wanted:
    """The arguments of a source. ``settings`` are keys of the nodes (``engine.version``, ``gpu.count``) and options of
    groups that hold for every plan; ``resolved`` says that ``arguments`` are what SGLang made of something else, of
    which the fewest that lead there are looked for. What was typed stays, all of it."""

    arguments: Mapping[str, Any]
    settings: Mapping[str, Any]
    resolved: bool = False


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
    known: bool = True
    needless: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Context:
    """One GPU class: the plan of everything that the source says, what the preset alone sets, what is wanted."""

    full: Plan
    preset: Mapping[str, Any]
    target: Mapping[str, Any]
    verdict: tuple[str, ...]

    def resolution_of(self, intent: Mapping[str, Any]) -> Resolution:
        environment = {**self.full.inherited, **self.full.environment}
        wanted = {**self.preset, **intent}
        return resolve(wanted, gpu=self.full.gpu, model=self.full.model, seed=SEED, env=environment)


def preset_for(path: str, composer: Composer) -> Model | None:
    """The model preset of this checkpoint, else the one that spells its name on the hub with other capital letters."""
    presets = [preset for preset in models(composer) if "${" not in preset.path]
    exact = next((preset for preset in presets if preset.path == path), None)
    if exact is not None or os.path.exists(path) or path.count("/") != 1 or path[:1] in "./~":
        return exact
    return next((preset for preset in presets if preset.path.lower() == path.lower()), None)


def reduce_to_preset(wanted: Wanted, gpus: Sequence[str], composer: Composer, env: Mapping[str, str]) -> Reduced:
    """Finds the preset, and for a log removes every argument that the plan resolves to anyway, on each of the GPU
    classes.

    Raises ConfigError where the arguments cannot be composed at all.
    """
    given = {name: value for name, value in wanted.arguments.items() if name not in SECRET_FIELDS}
    model = wanted.settings.get("model")
    preset = preset_for(given["model_path"], composer) if isinstance(given.get("model_path"), str) else None
    if model is None and preset is not None and preset.path == given["model_path"]:
        model = preset.name
    planner = _Planner(composer, wanted.settings, env)
    if not wanted.resolved:
        return _with_everything(planner, wanted, given, model, gpus)
    full = {gpu: planner.plan(gpu, None if "model" not in wanted.settings else model, given) for gpu in gpus}
    if "model_path" not in given and model is None:
        return Reduced(None, given, full, full, True)
    if model is None:
        overrides = _fewest(given, [_context(wanted, full[gpu], {}) for gpu in gpus])
        return _planned_again(planner, None, overrides, given, full)
    kept = {name: value for name, value in given.items() if name != "model_path"}
    alone = {gpu: planner.intent(gpu, model, {}) for gpu in gpus}
    undone = _undone(alone.values(), given)
    contexts = [_context(wanted, full[gpu], alone[gpu]) for gpu in gpus]
    return _planned_again(planner, model, _fewest({**kept, **undone}, contexts), given, full)


def _undone(intents: Iterable[Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """What presets alone set and the source does not, at its default."""
    return {
        name: default_of(name)
        for intent in intents
        for name, value in intent.items()
        if name not in given and name != "model_path" and value != default_of(name)
    }


def _with_everything(
    planner: _Planner,
    wanted: Wanted,
    given: Mapping[str, Any],
    model: str | None,
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
        overrides = {**{name: value for name, value in given.items() if name != "model_path"}, **undone}
    same = all(
        _passed(planner.intent(gpu, named, given)) == _passed(planner.intent(gpu, model, overrides))
        for gpu in (gpus if undone else gpus[:1])
    )
    if not same and named is None:
        model, overrides, same = None, dict(given), True
    if len(gpus) > 1:
        return Reduced(model, overrides, {}, {}, same, planner.knows(gpus[0], model, overrides))
    plans = {gpu: planner.plan(gpu, model, overrides) for gpu in gpus}
    known = all(plan.model.known for plan in plans.values())
    needless = frozenset(name for gpu in plans for name in _needless(planner, gpu, model, overrides, plans[gpu]))
    return Reduced(model, overrides, plans, plans, same, known, needless)


def _needless(
    planner: _Planner, gpu: str, model: str | None, overrides: Mapping[str, Any], full: Plan
) -> frozenset[str]:
    """The arguments at their release's defaults, where the release makes the same server without all of them."""
    arguments = release(nearest_known(full.engine.version) or SPECIFIED_VERSION).arguments
    wanted = {
        **overrides,
        **{name: value for name, value in planner.settings.items() if name in EVERY and name not in FIELDS},
    }
    found = frozenset(
        name
        for name, value in wanted.items()
        if (argument := arguments.get(name)) is not None and name not in _ALWAYS_KEPT and argument.default == value
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


def _passed(intent: Mapping[str, Any]) -> dict[str, Any]:
    """What of an intent is passed on: no switch that is off, and nothing that is null."""
    return {name: value for name, value in intent.items() if value is not None and value != default_of(name)}


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


def _context(wanted: Wanted, full: Plan, preset: Mapping[str, Any]) -> _Context:
    target: dict[str, Any] = {**fresh_defaults(), **wanted.arguments}
    for name in ("random_seed", *SECRET_FIELDS):
        target.pop(name, None)
    return _Context(full, preset, target, _verdict(full.resolution))


def _fewest(given: Mapping[str, Any], contexts: Sequence[_Context]) -> dict[str, Any]:
    """Removes from ``given`` what makes no difference on any of the GPU classes."""
    intent = dict(given)
    best = [_distance(intent, context) for context in contexts]
    for _ in range(_ROUNDS):
        before = dict(intent)
        for name in list(intent):
            for tried in _simpler_intents(intent, name):
                away = [_distance(tried, context) for context in contexts]
                fewer = all(now <= then for now, then in zip(away, best, strict=True))
                if fewer and all(_keeps_logged_value(name, intent, tried, item) for item in contexts):
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


def _simpler_intents(intent: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Yields ``intent`` without ``name``; also with the value before DP attention divides it."""
    if name in _ALWAYS_KEPT or name not in intent:
        return
    yield {key: value for key, value in intent.items() if key != name}
    groups = layout_of(intent, SPECIFIED_VERSION).attention_groups
    if name == "chunked_prefill_size" and groups > 1 and isinstance(intent[name], int):
        yield {**intent, name: intent[name] * groups}


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


def _planned_again(
    planner: _Planner,
    model: str | None,
    overrides: Mapping[str, Any],
    given: Mapping[str, Any],
    full: Mapping[str, Plan],
) -> Reduced:
    """Plans the reduced arguments on every class and compares the servers."""
    try:
        small = {gpu: planner.plan(gpu, model, overrides) for gpu in full}
    except ConfigError:
        return Reduced(None, given, full, full, False)
    same = all(_same(full[gpu], small[gpu]) for gpu in full)
    return Reduced(model, overrides, full, small, same)


def _same(full: Plan, small: Plan) -> bool:
    theirs, ours = full.resolution.values, small.resolution.values
    # Of an estimate, what was typed is known and what was not is unknown: the estimates are compared.
    return theirs == ours and (full.server_id == small.server_id or not full.is_exact)
