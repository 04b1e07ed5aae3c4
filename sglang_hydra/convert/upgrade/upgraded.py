"""Upgrades one server to another release: its steps, its new plan, its new command."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret
from sglang_hydra.arguments.tables.order import at_least, same_release
from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.arguments.tables.table import every_variable, known_versions
from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import GROUP, recipes
from sglang_hydra.compose.settings.topology import SINGLE
from sglang_hydra.convert.importing.experiment import override
from sglang_hydra.convert.upgrade.inputs import Subject
from sglang_hydra.convert.upgrade.releases import Changes, Start, assumed_start, changes_between, started_from
from sglang_hydra.convert.upgrade.steps import Steps, Variable, steps_between, variables_between
from sglang_hydra.planning.comparing.difference import Difference, differences, value_of
from sglang_hydra.planning.engines.planned import release_meant
from sglang_hydra.planning.making.gpu_class import choose_gpu_class
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.recorded import recorded_releases
from sglang_hydra.releases.release import can_answer
from sglang_hydra.releases.resolving import same_value
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import program


class Moves(NamedTuple):
    """Two exact resolutions: the identities of both servers, and the moved values, variables and memory figures.
    ``steps`` are the releases asked in between."""

    before_id: str
    after_id: str
    moves: tuple[Difference, ...]
    steps: tuple[str, ...] = ()


def compare(old: str, after: Plan, plan_in: Callable[[str], Plan], *, with_steps: bool = False) -> Moves | str:
    """Compares the resolution of ``old`` with ``after``, the plan for the new release. Returns the reason as a clause
    if one of them was not asked."""
    if after.engine.version == old:
        return "both are one release"
    try:
        before = plan_in(old)
    except ConfigError as failure:
        return failure.findings[0].message
    for plan in (before, after):
        if not plan.is_exact:
            return f"{plan.engine.version}: {plan.resolution.not_asked or 'it was not asked'}"
        if not plan.resolution.ok:
            return f"{plan.engine.version} refuses it"
    between = list(_between(old, after.engine.version)) if with_steps else []
    steps = [plan for plan in map(plan_in, between) if plan.is_exact and plan.resolution.ok]
    moves = tuple(_moves(before, after, steps))
    return Moves(before.server_id, after.server_id, moves, tuple(plan.engine.version for plan in steps))


def _moves(before: Plan, after: Plan, steps: Sequence[Plan]) -> Iterator[Difference]:
    for item in differences(before, after):
        if item.kind == "fact" or item.is_of_one_release:
            continue
        since = None
        if item.kind == "value" and steps:
            moved = (plan for plan in (*steps, after) if not same_value(value_of(plan, item.key), item.before))
            since = next(moved, after).engine.version
        yield replace(item, since=since)


def _between(old: str, new: str) -> Iterator[str]:
    """Yields the releases between two that can answer: recorded ones, and those with a local wheel."""
    first, last = (old, new) if at_least(new, old) else (new, old)
    for version in known_versions() if first == old else reversed(known_versions()):
        inside = at_least(version, first) and at_least(last, version)
        is_end = same_release(version, old) or same_release(version, new)
        if inside and not is_end and (version in recorded_releases() or can_answer(version)):
            yield version


_PLACE = "upgrade"
_NODES = ("engine", "engine.env")
_INSIDE = re.compile(r"(\w+)\s*:\s*('[^']*'|\"[^\"]*\"|[^,}\s]+)")
_REFERENCE = re.compile(r"\$\{oc\.env:(\w+)\}")
_CHOSEN = "upgrade is for SGLang"
_OF_PRESETS = ("schema", "gpu", "model", "gpu_model", "primary", "recipe")
_VERSION = "engine.version"


@dataclass(frozen=True)
class Upgrade:
    """One server upgraded to the release ``version``. ``requests`` make ``plan`` for that release; ``flags`` are their
    config folders and name. ``set_by`` maps arguments to who set them. ``comparison`` holds both releases' values, or
    why they are unknown."""

    subject: Subject
    start: Start
    version: str
    steps: Steps
    variables: tuple[Variable, ...]
    changes: Changes
    plan: Plan
    requests: tuple[Request, ...]
    flags: tuple[str, ...] = ()
    set_by: Mapping[str, str] = field(default_factory=dict)
    comparison: Moves | str = "it was not asked for"

    @property
    def ok(self) -> bool:
        """Returns whether nothing breaks: everything was read, nothing was left out, and the release accepts it."""
        read = all(finding.level != "error" for finding in self.subject.findings)
        return self.plan.ok and read and not self.steps.broken

    @property
    def secrets(self) -> tuple[str, ...]:
        """Returns the secret arguments that were given; no shown command has them."""
        given = [*self.plan.secrets, *(request.name for request in self.subject.requests)]
        return tuple(dict.fromkeys(name for name in given if name in SECRET_FIELDS))

    @property
    def words(self) -> list[str]:
        """Returns our command as words, without the program and without secrets."""
        if self.subject.words is not None:
            return [*_changed_words(self.subject.words, self), *self.flags]
        return [*(_shown_word(request) for request in self.requests if request.place != _CHOSEN), *self.flags]

    @property
    def our_command(self) -> str:
        return " ".join([program(), *map(shlex.quote, self.words)])


def _by_the_new_release(finding: Finding, version: str) -> Finding:
    """Turns the finding on a flag with a variable's value into an error if ``version`` lacks the flag."""
    name = finding.fields[0] if finding.about == "value_open" and finding.fields else ""
    if name not in EVERY or (now := name_in(name, version)) == name:
        return finding
    message = f"SGLang {version} has no option --{name.replace('_', '-')}, to which a variable gives a value"
    hint = f"--{now.replace('_', '-')} with the same value" if now else "leave it out"
    return Finding("error", "ARG010", message, finding.fields, hint)


def upgraded(
    composer: Composer,
    subject: Subject,
    version: str,
    *,
    written_for: str | None = None,
    flags: Sequence[str] = (),
    with_values: bool = True,
    with_steps: bool = False,
) -> Upgrade:
    """Upgrades ``subject`` to ``version``, a release of the table; ``written_for`` is the release of ``--from``.

    ``with_values`` asks both releases for their values, ``with_steps`` also those in between. Raises ConfigError for a
    configuration that does not compose or is no SGLang server."""
    env = os.environ
    subject = replace(subject, findings=[_by_the_new_release(item, version) for item in subject.findings])
    asked_for = composable(subject.requests)
    composition = composer.compose(asked_for)
    if subject.recorded is None:
        composition, _ = choose_gpu_class(composer, asked_for, composition, env)
    _refuse_others(composition)
    start = _start(subject, composition, written_for)
    steps = steps_between(composition.intent, start.version, version, subject.old)
    inherited = {name: value for name, value in env.items() if name in every_variable()}
    variables = variables_between(_environment(composition), inherited, start.version, version)
    requests = tuple(_new_requests(subject.requests, composition, steps, variables, version))
    plan = _planned(composer, subject, composition, requests)

    def plan_in(release: str) -> Plan:
        changes = steps_between(composition.intent, start.version, release)
        others = variables_between(_environment(composition), {}, start.version, release)
        typed = Request.typed(_VERSION, release, _PLACE)
        quiet = Request.typed(_VERSION, release, _PLACE, "experiment")  # of which nothing is fetched
        requests = _new_requests(subject.requests, composition, changes, others, release)
        made = [quiet if request == typed else request for request in requests]
        return _planned(composer, subject, composition, made, seed=plan.resolution.values["random_seed"])

    comparison = compare(start.version, plan, plan_in, with_steps=with_steps) if with_values else "not asked for"
    changed = [*(item.key for item in steps.broken), *(item.key for item in steps.respelled)]
    chains = {key: composition.origins[key] for key in changed if composition.origins.get(key)}
    return Upgrade(
        subject=subject,
        start=start,
        version=version,
        steps=steps,
        variables=tuple(variables),
        changes=changes_between(start.version, version),
        plan=plan,
        requests=requests,
        flags=tuple(flags),
        set_by={key: f"{chain[-1].layer}, {chain[-1].place}" for key, chain in chains.items()},
        comparison=comparison,
    )


def _planned(
    composer: Composer, subject: Subject, composition: Composition, requests: Sequence[Request], seed: int | None = None
) -> Plan:
    new_requests = composable(requests)
    if composition.nodes.engine.name == "auto":
        new_requests = composer.with_choice(new_requests, "engine", "sglang", _CHOSEN)
    recorded = subject.recorded
    return make_plan(composer, new_requests, recorded=recorded, seed=recorded.seed if recorded else seed)


def _refuse_others(composition: Composition) -> None:
    engine, topology = composition.nodes.engine.name, composition.nodes.topology.name
    if engine not in ("auto", "sglang"):
        message = f"upgrade is about releases of SGLang, and the engine is {engine}"
        raise ConfigError(Finding("error", "UPG004", message, ("engine",), "engine=sglang"))
    if topology != SINGLE:
        message = f"topology={topology} has several servers, and upgrade looks at one"
        hint = f"upgrade the arguments of each of them, then {program()} check topology={topology} engine.version=..."
        raise ConfigError(Finding("error", "UPG004", message, ("topology",), hint))


def _start(subject: Subject, composition: Composition, written_for: str | None) -> Start:
    """Returns the release of --from, else of the source or recipe, else engine.version, else the assumed one."""
    if written_for is not None:
        return Start(written_for, "--from")
    chosen = composition.choices.get(GROUP)
    recipe = recipes().get(chosen) if chosen else None
    found = started_from(subject.written_for, subject.by)
    if found is None and recipe is not None:
        found = started_from(recipe.version, "the recipe")
    if found is not None:
        return found
    named = started_from(composition.nodes.engine.version, _VERSION)
    if named is not None:
        return named._replace(why=_VERSION)
    meant = release_meant(python=composition.nodes.engine.python)
    return assumed_start(meant, {request.name.removeprefix("extra.") for request in subject.requests} & EVERY.keys())


def _environment(composition: Composition) -> dict[str, str]:
    return {str(name): str(value) for name, value in composition.nodes.engine.env.items()}


def _new_requests(
    requests: Sequence[Request], composition: Composition, steps: Steps, variables: Sequence[Variable], version: str
) -> Iterator[Request]:
    """Yields the requests for the new release, without removed arguments."""
    gone = {item.key for item in steps.broken}
    renamed = [item for item in variables if item.state == "renamed" and item.place == "engine.env"]
    dropped = {_VERSION, *gone, *steps.renamed, *(f"engine.env.{item.name}" for item in renamed)}
    for request in _leaves(requests):
        if request.name.removeprefix("extra.") not in dropped:
            yield request
    for name in (*gone, *steps.renamed):
        # A value of a preset or a recipe cannot be unset, only set to null.
        if any(origin.layer in _OF_PRESETS or origin.file for origin in composition.origins.get(name, ())):
            yield Request.typed(name, None if EVERY[name].optional else EVERY[name].default, _PLACE)
    yield Request.typed(_VERSION, version, _PLACE)
    for item in renamed:
        yield Request.typed(f"engine.env.{item.instead}", _environment(composition)[item.name], _PLACE)
    for name, value in steps.arguments.items():
        if name not in composition.intent:
            yield Request.typed(name, value, _PLACE)


def _leaves(requests: Sequence[Request]) -> Iterator[Request]:
    """Splits a mapping of ours into its keys."""
    for request in requests:
        if request.key in _NODES and isinstance(request.value, Mapping):
            inside = [
                request._replace(key=f"{request.key}.{name}", value=value) for name, value in request.value.items()
            ]
            yield from _leaves(inside)
        else:
            yield request


def composable(requests: Sequence[Request]) -> list[Request]:
    """Removes references to variables that are unset here: a secret changes no plan."""
    texts = (item.value if isinstance(item.value, str) and item.interpolate else "" for item in requests)
    names = [found[1] if (found := _REFERENCE.fullmatch(text)) else None for text in texts]
    return [item for item, name in zip(requests, names, strict=True) if name is None or name in os.environ]


def _shown_word(request: Request) -> str:
    """Returns a request as an override, with a secret as a reference."""
    key = request.name
    if is_secret(key.rpartition(".")[2], request.value or request.text.partition("=")[2]):
        refers = isinstance(request.value, str) and request.value.startswith("${oc.env:")
        reference = str(request.value) if refers else request.text.partition("=")[2]
        return f"{key}={reference if reference.startswith('${oc.env:') else '${oc.env:MY_KEY}'}"
    if request.key is None:
        return _INSIDE.sub(_hidden, request.text)
    if request.interpolate and isinstance(request.value, str):
        return f"{key}={request.value}"
    return override(key, request.value)


def _hidden(item: re.Match[str]) -> str:
    secret = is_secret(item[1], item[2]) and "${" not in item[2]
    return f"{item[1]}: ${{oc.env:{item[1]}}}" if secret else item[0]


def _changed_words(words: Sequence[str], made: Upgrade) -> Iterator[str]:
    added = [request for request in made.requests if request.place == _PLACE]
    gone = (*(item.key for item in made.steps.broken), *made.steps.renamed)
    dropped = {_VERSION, *gone, *(request.name for request in added)}
    dropped |= {f"engine.env.{item.name}" for item in made.variables if item.state == "renamed"}
    for word in words:
        key = word.partition("=")[0]
        if key.removeprefix("extra.") not in dropped:
            yield word
    yield from (_shown_word(request) for request in added)
