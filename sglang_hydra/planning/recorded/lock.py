"""Follows ``lock=plan.json``: makes a plan again from its own record, and refuses one that would differ."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_hydra.arguments.secrets import API_KEY_VARIABLE, HIDDEN, SECRET_FIELDS, is_secret
from sglang_hydra.compose.grammar import typed_word
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES
from sglang_hydra.facts.declared import gpu_facts, model_facts
from sglang_hydra.facts.environments import find_python
from sglang_hydra.facts.stated_config import laid_over
from sglang_hydra.planning.comparing.difference import Difference, between
from sglang_hydra.planning.plan import GPU_FACTS, NOT_IDENTITY, Recorded
from sglang_hydra.planning.recorded.saved import NotAPlan, OtherSchema, SavedPlan, read_plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject, plain
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import number, program

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composer, Composition
    from sglang_hydra.planning.making.gpu_class import Hardware
    from sglang_hydra.planning.plan import Plan

LAYER = "lock"
_ONE_SERVER = (None, "single")
_PRESETS = ("gpu", "model", "gpu_model")
_NOTHING = {"gpu": "none", "model": "unset"}
_NOT_KNOWN = "unknown"
_OF_THE_MACHINE = "engine.python"
"""A setting with a path on the machine that made the plan."""


def replay(
    composer: Composer,
    requests: Sequence[Request],
    path: str,
    env: Mapping[str, str],
    saved: Recorded | None = None,
    seed: int | None = None,
) -> Plan:
    """Plans the file ``path`` again with ``requests`` on top, which may only change where the server runs.

    Raises ConfigError with one finding for each difference: arguments, GPU and model facts, the model's revision, the
    engine and its version, the container image, the environment. Facts that cannot be compared on this machine come
    from the file, with a finding. ``saved`` is the record of a plan file among the requests: a lock on top of a record
    is refused. ``seed`` is for a plan whose seed the launch draws."""
    if saved is not None:
        message = f"a saved plan and lock={path} are two records of a server"
        raise ConfigError.of("LCK011", message, "lock", hint=f"{program()} diff PLAN {path} shows how they differ")
    from sglang_hydra.planning.making.replan import Replanner, planned

    locked = _read(path)
    again = _Again(composer, locked, requests)
    composition = again.compose(env)
    topology = composition.nodes.topology.name
    if topology not in _ONE_SERVER:
        message = f"lock={path} holds one server, and topology={topology} has several"
        raise ConfigError.of("LCK011", message, "lock", "topology", hint="a lock for each server")
    seed = seed if locked.recorded.seed is None else locked.recorded.seed
    plan = planned(Replanner(composer, again.words, seed, env, again.facts(composition, env)), composition)
    found = list(differences(locked, plan, _typed(requests)))
    if found:
        raise ConfigError(*found, _way_out(path, locked, requests))
    return replace(plan, findings=(*plan.findings, *again.notes, *_missing_key(locked, composition)))


class _Again:
    """A recorded plan while it is made again. ``words`` are its overrides and those on top; ``notes`` list facts that
    could not be compared here."""

    def __init__(self, composer: Composer, locked: SavedPlan, requests: Sequence[Request]) -> None:
        self.composer = composer
        self.locked = locked
        self.notes: list[Finding] = []
        self._gpu_is_known = True
        self._chosen_class: tuple[Composition, Hardware] | None = None
        choices = self._choices()
        if locked.record.get("probed"):
            choices["gpu"] = "auto"
        self.words = [*self._spelled(*self._chosen(choices), *self._set()), *requests]

    def compose(self, env: Mapping[str, str]) -> Composition:
        """Composes the words. A GPU that was probed is probed again, if there is one."""
        from sglang_hydra.planning.making.gpu_class import choose_gpu_class

        composition = self.composer.compose(self.words)
        self._chosen_class = choose_gpu_class(self.composer, self.words, composition, env)
        recorded = self.locked.recorded.gpu
        if not self._chosen_class[1].without_accelerator or recorded.device is None:
            return composition
        self._not_compared(f"the lock is for {recorded.name}, and there is no GPU here: its facts are used", "gpu")
        choice = self._choices().get("gpu", "none")
        (asked,), chosen_then = self._spelled(self._word("gpu=auto")), self._spelled(*self._chosen({"gpu": choice}))
        self.words = [*chosen_then, *(word for word in self.words if word != asked)]
        self._gpu_is_known = False
        return self.composer.compose(self.words)

    def facts(self, composition: Composition, env: Mapping[str, str]) -> Recorded:
        """Returns GPU and model by this machine and these presets, else from the record."""
        recorded = self.locked.recorded
        gpu = recorded.gpu
        if self._gpu_is_known and self._chosen_class is not None:
            composition, hardware = self._chosen_class
            gpu = gpu_facts(composition.nodes.plain["gpu"], hardware.facts)
        model, _ = model_facts(
            composition.nodes.plain["model"], composition, env, self.composer.model_presets(self.words)
        )
        if not model.known and recorded.model.known:
            self._not_compared(f"the model's facts cannot be read here ({model.source}): the lock's are used", "model")
            model = recorded.model
        if model.draft is None:
            model = replace(model, draft=recorded.model.draft)
        return Recorded(gpu, model, recorded.seed, env, locked=True)

    def _choices(self) -> dict[str, str]:
        record = self.locked.record
        chosen = {group: str(choice) for group, choice in record["choices"].items() if choice and group in NODES}
        return {**chosen, "engine": record["engine"]["name"]}

    def _chosen(self, choices: Mapping[str, str]) -> Iterator[Request]:
        """Yields the options of the groups. An option that is unknown here leaves its recorded facts."""
        for group, choice in choices.items():
            if choice in self.composer.options(group):
                yield self._word(f"{group}={choice}")
                continue
            self._not_compared(f"{group}={choice} of the lock is no option here: its recorded facts are used", group)
            self._gpu_is_known = self._gpu_is_known and group != "gpu"
            if group in _NOTHING:
                yield self._word(f"{group}={_NOTHING[group]}")

    def _set(self) -> Iterator[Request]:
        """Yields the settings inside the groups, then the arguments."""
        record = self.locked.record
        settings = {key: item["value"] for key, item in record.get("settings", {}).items() if key != "lock"}
        if "engine.version" not in settings and record["engine"]["version"] != _NOT_KNOWN:
            yield self._value("engine.version", record["engine"]["version"])
        for key, value in settings.items():
            if value == HIDDEN:
                self._not_compared(f"{key} is a secret and not in the lock", key, f"'{key}=${{oc.env:NAME}}' if needed")
            elif key != _OF_THE_MACHINE or (isinstance(value, str) and find_python(value) is not None):
                yield self._value(key, value)
        for name, value in self.locked.intent.items():
            # The record holds a reference in place of a key: it is read from the environment again.
            refers = name in SECRET_FIELDS and API_KEY_VARIABLE in os.environ
            yield Request.typed(name, value, self.locked.name, LAYER, interpolate=refers)

    def _spelled(self, *requests: Request) -> list[Request]:
        return [word for request in requests if (word := self.composer.spelled(request)) is not None]

    def _word(self, text: str) -> Request:
        return Request(text, self.locked.name, LAYER)

    def _value(self, key: str, value: object) -> Request:
        return Request.typed(key, value, self.locked.name, LAYER)

    def _not_compared(self, message: str, key: str, hint: str | None = None) -> None:
        finding = Finding("info", "LCK004", message, (key,), hint)
        if finding not in self.notes:
            self.notes.append(finding)


def _read(path: str) -> SavedPlan:
    """Reads the locked plan. Raises ConfigError (LCK001, LCK002) for a file without a plan of this version."""
    hint = f"{program()} plan --json ... > plan.json makes a lock"
    try:
        return read_plan(Path(path).expanduser())
    except NotAPlan as failure:
        id = "LCK002" if isinstance(failure, OtherSchema) else "LCK001"
        raise ConfigError.of(id, f"lock={failure.place} cannot be read: {failure}", "lock", hint=hint) from failure


def _missing_key(locked: SavedPlan, composition: Composition) -> Iterator[Finding]:
    """Yields the finding on a locked server that had a key; a lock holds none."""
    for name in SECRET_FIELDS:
        chain = composition.origins.get(name, ())
        had = locked.record["intent"].get(name) is not None
        if had and API_KEY_VARIABLE not in os.environ and chain and chain[-1].layer == LAYER:
            hint = f"'{name}=${{oc.env:MY_KEY}}', or export {API_KEY_VARIABLE}=..."
            yield Finding("error", "LCK013", f"the locked server has an {name}, and a lock holds no key", (name,), hint)


def _typed(requests: Sequence[Request]) -> dict[str, str]:
    """Returns the keys given on top of the lock, with their places."""
    given = {request.name: request.place for request in requests}
    return {key: place for key, place in given.items() if key != "lock" and not key.startswith("hydra")}


def _way_out(path: str, locked: SavedPlan, requests: Sequence[Request]) -> Finding:
    """Returns the finding with the ways out: without the override, or with a new lock."""
    message = f"the server would not be the one that lock={path} records"
    given = _typed(requests)
    kept = (word for word in as_overrides(locked) if word.partition("=")[0] not in given)
    words = " ".join(shlex.quote(word) for word in [*kept, *_on_top(requests)])
    hint = "leave out the words that differ", f"a new lock: {program()} plan --json {words} > new.json"
    return Finding("info", "LCK012", message, ("lock",), hint)


def as_overrides(locked: SavedPlan) -> Iterator[str]:
    """Yields the words that a user would type for the recorded plan, presets by their names."""
    record = locked.record
    for group in ("gpu", "model"):
        choice = record["choices"].get(group)
        if choice and not (group == "gpu" and record.get("probed")) and choice != _NOTHING[group]:
            yield f"{group}={choice}"
    for key, setting in record.get("settings", {}).items():
        if setting["value"] != HIDDEN and key not in ("lock", _OF_THE_MACHINE):
            yield typed_word(key, setting["value"])
    for name, value in locked.intent.items():
        chain = record["origins"].get(name) or [{}]
        if name not in SECRET_FIELDS and chain[-1].get("layer") not in _PRESETS:
            yield typed_word(name, value)


def _on_top(requests: Sequence[Request]) -> Iterator[str]:
    for request in requests:
        key = request.name
        if is_secret(key.rpartition(".")[2], request.value or request.text.partition("=")[2]):
            yield f"{key}=${{oc.env:MY_KEY}}"
        elif key != "lock" and not key.startswith("hydra"):
            yield request.text


_WHERE_IT_RUNS = ("engine", "launch", "gpu")
"""Groups whose choice does not matter, only its result."""
_WHOLE = "transformers_version"
_ABSENT_NAME = "(no such argument)"


def differences(locked: SavedPlan, plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    """Yields one error for each part of a server's identity that differs from the record, causes before effects.

    ``typed`` maps the keys given on top of the lock to their places."""
    record = locked.record
    # Options chosen on top: the recorded arguments would silently override theirs.
    groups = [group for group in typed if group in plan.choices and group not in _WHERE_IT_RUNS]
    then, now = ({group: choices.get(group) for group in groups} for choices in (record["choices"], plan.choices))
    for item in between("fact", then, now):
        yield _other("LCK007" if item.key == "model" else "LCK005", item, typed[item.key])
    yield from _engine(record, plan, typed)
    image = {"launch.image": record.get("settings", {}).get("launch.image", {}).get("value")}
    for item in between("fact", image, {"launch.image": plan.nodes.launch.image}):
        yield _other("LCK009", item, _place(typed, item.key))
    here = "this machine" if plan.probed else f"gpu={plan.choices.get('gpu')}"
    then, now = ({f"gpu.{key}": gpu[key] for key in GPU_FACTS[1:]} for gpu in (record["gpu"], plain(plan.gpu)))
    for item in between("fact", then, now):
        yield _other("LCK006", item, _place(typed, item.key, "gpu") or here)
    yield from _model(record["model"], plan, typed)
    then, now = (
        {**inherited, **{name: value for name, value in variables.items() if name.startswith("SGLANG_")}}
        for inherited, variables in (
            (record["inherited"], record["environment"]),
            (plan.inherited, plan.shown_environment),
        )
    )
    for item in sorted(between("environment", then, now), key=lambda item: item.key):
        hint = f"export {item.key}={item.before}" if item.key in then else f"unset {item.key}"
        yield _other("LCK010", item, "the environment", hint)
    yield from _values(locked, plan)


def _engine(record: JsonObject, plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    from sglang_hydra.facts.installed import installed

    recorded = record["engine"]
    setting = record.get("settings", {}).get("engine.version", {})
    # In a lock of a lock, the version comes from the first lock, not from a user.
    named = setting.get("layer", "lock") != "lock" or "engine.version" in typed
    here = None if named else installed(plan.engine.python).versions.get(plan.engine.name)
    version = here or plan.engine.version
    then = {"engine": recorded["name"], "engine.version": recorded["version"]}
    for item in between("fact", then, {"engine": plan.engine.name, "engine.version": version}):
        has_it = f"engine.python=<an interpreter that has SGLang {item.before}>"
        hint = f"{item.key}={item.before}" if item.key in typed else has_it
        yield _other("LCK008", item, _place(typed, item.key, "engine.python") or "installed here", hint)


def _model(recorded: JsonObject, plan: Plan, typed: Mapping[str, str]) -> Iterator[Finding]:
    by = _place(typed, "model_path", "model", "revision") or plan.model.source
    revision = {"model.revision": recorded["revision"]}
    for item in between("fact", revision, {"model.revision": plan.model.revision}):
        yield _other("LCK007", item, by, f"revision={item.before}" if item.before else None)
    then, now = recorded["config"] or {}, plain(plan.model.config or {})
    if _WHOLE in now and _WHOLE not in then:
        then = laid_over(now, then)  # the omissions of an excerpt mean nothing
    then, now = ({f"model.config.{key}": value for key, value in config.items()} for config in (then, now))
    yield from (_other("LCK007", item, by) for item in between("fact", then, now))


def _values(locked: SavedPlan, plan: Plan) -> Iterator[Finding]:
    then, now = locked.values, plan.values
    if "rules" in (locked.basis, plan.basis):
        if locked.basis != "rules" and locked.record["engine"]["version"] == plan.engine.version:
            message = f"whether the values are still those of SGLang {plan.engine.version} cannot be known: "
            hint = f"{program()} release fetch {plan.engine.version}"
            yield Finding("error", "LCK014", message + "it was not asked", ("engine.version",), hint)
        then, now = locked.intent, plan.intent
    names = [name for name in dict.fromkeys([*then, *now]) if name not in NOT_IDENTITY]
    then, now = ({name: plain(values.get(name, _ABSENT_NAME)) for name in names} for values in (then, now))

    def is_same(was: object, is_now: object) -> bool:
        return bool(was == is_now) and isinstance(was, bool) is isinstance(is_now, bool)

    for item in between("value", then, now, same=is_same):
        if not (item.key == "random_seed" and item.before is None and plan.seed_drawn):
            yield _other("LCK005", item, _who_now(item.key, plan), said_then=_who_then(item.key, locked))


def _who_now(name: str, plan: Plan) -> str:
    written, chain = plan.resolution.ledger.of(name), plan.origins.get(name, ())
    if written:
        return f"{written[-1].rule}: {written[-1].reason}"
    return chain[-1].place or chain[-1].layer if chain else "SGLang's default"


def _who_then(name: str, locked: SavedPlan) -> str:
    written = [entry for entry in locked.record["ledger"] if entry["field"] == name]
    if written:
        return f"{written[-1].get('rule')}: {written[-1].get('reason')}"
    chain = locked.record["origins"].get(name)
    last = chain[-1] if isinstance(chain, list) and chain and isinstance(chain[-1], dict) else {}
    return str(last.get("place") or "SGLang's default")


def _other(id: str, item: Difference, by: str | None, hint: str | None = None, said_then: str | None = None) -> Finding:
    before = f" ({said_then})" if said_then else ""
    after = f" ({by})" if by else ""
    message = f"{item.key}: {_shown(item.before)} in the lock{before}, now {_shown(item.after)}{after}"
    return Finding("error", id, message, (item.key,), hint)


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else shown(value)


def _place(typed: Mapping[str, str], *keys: str) -> str | None:
    return next((typed[key] for key in keys if key in typed), None)
