"""Reads the parts of a sweep: what all points share, what varies, and the settings.

Axes come from typed words and from ``sweep.params``; ``sweep.zip`` pairs them, and those of servers come first."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret
from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.grammar import has_interpolation
from sglang_hydra.compose.overrides import Request, read_requests
from sglang_hydra.compose.separate_words import joined
from sglang_hydra.compose.settings.sweep import FORECAST
from sglang_hydra.facts.declared import model_facts
from sglang_hydra.measure.sweep.axes import Axis, axis_of, axis_of_params, check_points, combinations, zipped
from sglang_hydra.measure.sweep.outside import with_server
from sglang_hydra.measure.sweep.setters import SetBy, naming_setters, set_by
from sglang_hydra.planning.engines.planned import plan_engine
from sglang_hydra.planning.making.gpu_class import choose_gpu_class
from sglang_hydra.planning.making.target import chosen, is_open, needed_by, newest_serving
from sglang_hydra.releases.records import newest_release
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, JsonObject
from sglang_hydra.text.words import program, short

_HYDRA = re.compile(r"^(\+{0,2}|~)hydra([./=@]|$)")
_NAME = re.compile(r"\w[\w.+-]*")
_OF_MODEL = ("model", "model_path", "recipe", "experiment")
"""The keys that change a point's model."""


@dataclass(frozen=True)
class Grid:
    """The parts of a sweep: the common requests, the axes (servers first, so that each is planned once), and the
    ``sweep`` node. ``words`` are all typed words, ``hydra_words`` those for Hydra; ``set_by`` says who set the common
    keys. Without ``measured`` the points are only judged."""

    common: tuple[Request, ...]
    axes: tuple[Axis, ...]
    settings: JsonObject
    words: tuple[str, ...]
    hydra_words: tuple[str, ...] = ()
    remarks: tuple[Finding, ...] = ()
    set_by: SetBy = field(default_factory=dict, repr=False)
    measured: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for axis in self.axes for key in axis.keys)


def read_grid(
    composer: Composer, requests: Sequence[Request], given: JsonObject | None = None, *, measured: bool = True
) -> Grid:
    """Splits a sweep into its parts; ``given`` overrides the ``sweep`` node. ``measured`` servers publish metrics.

    Raises ConfigError for errors that concern all points: a word, a list, the settings, a key in ``sweep.zip`` that
    does not vary."""
    if measured:
        requests = with_server(requests)
    # Values of a file are single values: only typed words vary.
    varied = [
        (request, axis_of(request, composer.options) if request.is_word and not request.words else None)
        for request in joined(requests)
    ]
    common = tuple(request for request, axis in varied if axis is None)
    composition = composer.compose(common)
    settings = {**composition.nodes.plain["sweep"], **(given or {})}
    known = set_by(composer, composition)
    with naming_setters(known):
        _check(settings)
        _refuse_doubled(varied)
        axes = _axes(composer, settings, composition.choices.get("sweep"), varied)
        check_points(axes)
        common, remarks = _with_one_release(composer, common, axes)
        if measured:
            common = with_metrics(composer, common, composition, [key for axis in axes for key in axis.keys])
    return Grid(
        common,
        tuple(axes),
        {**settings, "name": settings["name"] or composition.choices.get("sweep") or "sweep"},
        tuple(request.text for request in requests),
        tuple(request.text for request in requests if _HYDRA.match(request.text)),
        remarks,
        known,
        measured,
    )


def _refuse_doubled(varied: Sequence[tuple[Request, Axis | None]]) -> None:
    """Raises ConfigError for a key that was typed with a list and once more."""
    listed = {key: request for request, axis in varied if axis is not None for key in axis.keys}
    for request, _ in varied:
        key = _key(request.text)
        other = listed.get(key, request)
        if request.is_word and other is not request:
            message = f"{key} was typed twice, and varies"
            raise ConfigError(Finding("error", "CLI007", message, (key,), hint=f"{request.text} or {other.text}"))


def _axes(
    composer: Composer, settings: JsonObject, option: str | None, varied: Sequence[tuple[Request, Axis | None]]
) -> list[Axis]:
    """Returns the axes, those of servers first: of typed words, and of ``sweep.params`` for keys that no word sets."""
    typed = [axis for _, axis in varied if axis is not None]
    fixed = {_key(request.text) for request, axis in varied if axis is None}.union(*(axis.keys for axis in typed))
    place = f"sweep={option}" if option else "sweep.params"
    params = ((key, values) for key, values in _flat(settings["params"]) if key.lstrip("+") not in fixed)
    listed = [axis_of_params(key, values, place, composer.options) for key, values in params]
    return sorted(zipped([*listed, *typed], settings["zip"]), key=lambda axis: axis.is_client)


def _flat(params: JsonObject, path: str = "") -> Iterator[tuple[str, Json]]:
    """Flattens nested keys: ``{bench: {concurrency: [1, 2]}}`` becomes ``bench.concurrency``."""
    for name, values in params.items():
        key = f"{path}.{name}" if path else str(name)
        if isinstance(values, Mapping) and values:
            yield from _flat(values, key)
        else:
            yield key, values


def _check(settings: JsonObject) -> None:
    """Raises ConfigError for invalid settings."""
    wrong = []
    for name, unit in (("start_seconds", "seconds"), ("point_seconds", "seconds"), ("budget_gpu_hours", "hours")):
        if settings[name] is not None and not 0 <= settings[name] < math.inf:
            wrong.append((name, f"={settings[name]} is no number of {unit}", f"sweep.{name}=60"))
    if settings["name"] is not None and not _NAME.fullmatch(settings["name"]):
        wrong.append(("name", f"={settings['name']!r} cannot name a folder", "sweep.folder=FOLDER takes any path"))
    if settings["prune"] not in (None, FORECAST):
        wrong.append(("prune", f"={settings['prune']} is not {FORECAST}", f"sweep.prune={FORECAST}"))
    keys = ((f"sweep.{name}", why, hint) for name, why, hint in wrong)
    if wrong:
        raise ConfigError(*(Finding("error", "SWP009", key + why, (key,), hint) for key, why, hint in keys))


def _with_one_release(
    composer: Composer, common: tuple[Request, ...], axes: Sequence[Axis]
) -> tuple[tuple[Request, ...], tuple[Finding, ...]]:
    """Adds the newest release that serves the models of all points to ``common``, with a finding. Does nothing if a
    person, a preset or an installed SGLang decides, or the newest of all serves them."""
    of_model = [axis for axis in axes if any(key.partition(".")[0] in _OF_MODEL for key in axis.keys)]
    if not of_model or any(re.match(r"engine([./]|$)", key) for axis in axes for key in axis.keys):
        return common, ()
    needed = []
    for own in combinations(of_model):
        requests = [*common, *own]
        try:
            composition = composer.compose(requests)
            if not is_open(composition, plan_engine(composition.nodes.engine)):
                return common, ()
            node, presets = composition.nodes.plain["model"], composer.model_presets(requests)
            model, _ = model_facts(node, composition, os.environ, presets)
        except ConfigError:  # the point reports it
            continue
        needed.append(needed_by(composition, model, os.environ))
    newest = newest_serving(needed)
    if newest in (None, newest_release()):
        return common, ()
    found = chosen(newest, "serves each of these models")
    return (Request(f"engine.version={newest}", found.message, "engine"), *common), (found,)


FIELD = "enable_metrics"
_WANTED = Request(f"{FIELD}=true", "bench: cache hits and retractions are read from the server's metrics", "bench")


def with_metrics(
    composer: Composer, common: tuple[Request, ...], composition: Composition, varied: Collection[str]
) -> tuple[Request, ...]:
    """Adds ``enable_metrics=true`` to ``common``, unless it is set already or the embedded engine runs, which has no
    metrics.

    ``composition`` is the composition of ``common``, ``varied`` the keys of the sweep."""
    if FIELD in composition.intent or FIELD in varied:
        return common
    node = composition.nodes.engine
    here = False
    if node.name == "auto" and "gpu" not in varied:
        _, hardware = choose_gpu_class(composer, common, composition, os.environ)
        here = hardware.embedded
    return (_WANTED, *common) if plan_engine(node, embedded_first=here).name == "sglang" else common


def as_words(composer: Composer, requests: Sequence[Request]) -> list[Request]:
    """Converts the requests of a file to words with the same meaning. Drops those whose key is also typed, and keeps
    unreadable ones, because composing reports their error.

    Raises ConfigError for a value that only a file can spell, and for a secret that the folder would keep."""
    typed = {_key(request.text) for request in requests if request.is_word}
    kept = (request for request in requests if request.is_word or _key(request.text) not in typed)
    return [request if request.is_word else _as_word(composer, request) for request in kept]


def _as_word(composer: Composer, request: Request) -> Request:
    word = Request(request.text, request.place, request.layer)
    meant = _meaning(composer, request)
    if meant is None:
        return request
    for name in _secrets_in(_key(request.text), request.value):
        message = f"{request.place}: {name} is a secret, which a sweep's folder would keep"
        raise ConfigError(Finding("error", "SWP010", message, hint=f"{name}: ${{oc.env:NAME}} refers to a variable"))
    if _meaning(composer, word) != meant or axis_of(word, composer.options) is not None:
        message = f"{request.place}: {short(request.text)} cannot be kept as a word, which resume needs"
        hint = f"{program()} bench -m --config-dir DIR experiment=NAME ..., with the file as DIR/experiment/NAME.yaml"
        raise ConfigError(Finding("error", "SWP010", message, hint=hint))
    return word


def _meaning(composer: Composer, request: Request) -> list[tuple[str, object, str | None]] | None:
    """Returns the overrides that a request means; None for a refused one."""
    wanted, findings = read_requests([request], group_options=composer.options)
    if findings:
        return None
    return [(item.override.key_or_group, item.override.value(), item.secret) for item in wanted]


def _secrets_in(key: str, value: object) -> Iterator[str]:
    """Yields the keys with a literal secret. An API key is kept as its reference."""
    name = key.rpartition(".")[2]
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _secrets_in(f"{key}.{inner}", item)
    elif value is not None and is_secret(name, value) and name not in SECRET_FIELDS and not has_interpolation(value):
        yield key


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+")
