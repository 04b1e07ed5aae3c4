"""Finds the nearest preset, and the overrides that make the same server, checked by planning."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sglang_hydra.arguments.accepted import default_of
from sglang_hydra.arguments.secrets import SECRET_FIELDS
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.choosing.catalog import Model, models
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.making.target import find_target
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.json_types import JsonDict, JsonObject

SEED = 42
_PLACE = "the source"


@dataclass(frozen=True)
class Reduced:
    """The ``overrides`` on top of the ``model`` preset (None: the model by its path), with their plan for a single GPU
    class. ``equal``: they plan to the source's server. ``known``: the model's facts are known."""

    model: str | None
    overrides: JsonObject
    plan: Plan | None
    equal: bool
    known: bool = True


def preset_for(path: str, composer: Composer) -> Model | None:
    """Returns the preset of this checkpoint, or one that differs only in capitals, or None."""
    presets = [preset for preset in models(composer) if "${" not in preset.path]
    exact = next((preset for preset in presets if preset.path == path), None)
    if exact is not None or os.path.exists(path) or path.count("/") != 1 or path[:1] in "./~":
        return exact
    return next((preset for preset in presets if preset.path.lower() == path.lower()), None)


def reduce_to_preset(
    arguments: JsonObject,
    settings: JsonObject,
    gpus: Sequence[str],
    composer: Composer,
    env: Mapping[str, str],
    *,
    is_planned: bool,
) -> Reduced:
    """Keeps all ``arguments`` of a source, and takes the preset where it is the same server. ``settings`` are keys of
    the nodes and options of groups that hold for every plan. It ``is_planned`` on the one GPU class that is known; else
    what is composed is compared, from which every class makes the same.

    Raises ConfigError if the arguments do not compose."""
    given = {name: value for name, value in arguments.items() if name not in SECRET_FIELDS}
    model = named = settings.get("model")
    preset = preset_for(given["model_path"], composer) if isinstance(given.get("model_path"), str) else None
    if model is None and preset is not None and preset.path == given["model_path"]:
        model = preset.name
    planner = _Planner(composer, settings, env)
    if "model_path" not in given and named is None:
        return Reduced(None, given, None, True)
    overrides: JsonDict = dict(given)
    undone: JsonDict = {}
    if model is not None:
        undone = _undone(_of_preset(planner.composer, tuple(gpus), model), given)
        overrides = {**{name: value for name, value in given.items() if name != "model_path"}, **undone}
    same = all(
        _passed(planner.intent(gpu, named, given)) == _passed(planner.intent(gpu, model, overrides))
        for gpu in (gpus if undone else gpus[:1])
    )
    if not same and named is None:
        model, overrides, same = None, dict(given), True
    if not is_planned:
        return Reduced(model, overrides, None, same, planner.knows(gpus[0], model, overrides))
    plan = planner.plan(gpus[0], model, overrides)
    return Reduced(model, overrides, plan, same, plan.model.known)


def _undone(intents: Iterable[Mapping[str, object]], given: Mapping[str, object]) -> dict[str, object]:
    """Returns the arguments that only presets set, at their defaults."""
    return {
        name: default_of(name)
        for intent in intents
        for name, value in intent.items()
        if name not in given and name != "model_path" and value != default_of(name)
    }


@lru_cache(maxsize=32)
def _of_preset(composer: Composer, gpus: tuple[str, ...], model: str) -> tuple[Mapping[str, object], ...]:
    """Returns what a model's preset alone sets on each of the GPU classes."""
    planner = _Planner(composer, {}, {})
    return tuple(planner.intent(gpu, model, {}) for gpu in gpus)


def _passed(intent: Mapping[str, object]) -> dict[str, object]:
    """Returns the effective part of an intent: without switches that are off and without None."""
    return {name: value for name, value in intent.items() if value is not None and value != default_of(name)}


_VARIABLES = "engine.env."


class _Planner:
    def __init__(self, composer: Composer, settings: Mapping[str, object], env: Mapping[str, str]) -> None:
        self.composer = composer
        self.env = env
        self.settings = {name: value for name, value in settings.items() if name not in ("gpu", "model")}

    def plan(self, gpu: str, model: str | None, arguments: Mapping[str, object]) -> Plan:
        return make_plan(self.composer, self._requests(gpu, model, arguments), seed=SEED, env=self.env)

    def intent(self, gpu: str, model: str | None, arguments: Mapping[str, object]) -> JsonObject:
        """Returns the composed intent, without planning. No variable of the server changes it."""
        requests = [item for item in self._requests(gpu, model, arguments) if not item.name.startswith(_VARIABLES)]
        return self.composer.compose(requests).intent

    def knows(self, gpu: str, model: str | None, arguments: Mapping[str, object]) -> bool:
        requests = self._requests(gpu, model, arguments)
        target = find_target(self.composer, requests, self.composer.compose(requests), SEED, self.env, None)
        return target.facts.model.known

    def _requests(self, gpu: str, model: str | None, arguments: Mapping[str, object]) -> list[Request]:
        words = {"gpu": gpu, "model": model or "unset", "engine": "sglang", **self.settings}
        requests = [Request.typed(key, value, _PLACE, "experiment") for key, value in words.items()]
        return requests + [Request.typed(name, value, _PLACE, "experiment") for name, value in arguments.items()]
