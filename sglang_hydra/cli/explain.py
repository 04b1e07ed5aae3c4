"""The verb ``explain``: for an argument under any name, one of our keys or groups, or the id of a finding or rule."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from sglang_hydra.arguments.every import EVERY, canonical_name, first_with
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.arguments.tables.table import known_versions, nearest_known, release
from sglang_hydra.cli import topology as topologies
from sglang_hydra.cli.id_pages import id_record, id_screen, known_ids
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of, show
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.corrections import key_meant, keys_like
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import EngineNode
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.compose.settings.topology import DECODE, PREFILL, REPLICA
from sglang_hydra.compose.unknown_words import flagged
from sglang_hydra.measure.report.reading import points_of
from sglang_hydra.planning.engines.planned import plan_engine
from sglang_hydra.planning.finding_meanings import title_of
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.releases.records import newest_release
from sglang_hydra.show.argument import field_record, field_screen, is_argument
from sglang_hydra.show.forecast import forecast_lines, forecast_record
from sglang_hydra.show.key_help import GROUPS, key_of, keys
from sglang_hydra.show.roofline import roofline_lines, roofline_record
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.flags import FILLERS
from sglang_hydra.text.json_types import JsonObject, json_beside
from sglang_hydra.text.screen import VERBATIM, Line, columns, text, write
from sglang_hydra.text.words import nearest, program, several_near, short

_ASKING = (*FILLERS, "why", "what", "is", "how", "does", "about")
_TOPICS: Sequence[JsonObject] = json_beside(__file__)


def run(invocation: Invocation) -> int:
    """Runs ``explain FIELD|KEY|GROUP|roofline|forecast [overrides]`` or ``explain ID``. Returns 0."""
    if not invocation.requests:
        raise ConfigError.of("CLI015", "explain what?", hint="explain mem_fraction_static gpu=h100, or explain MEM001")
    subject, *rest = _without_fillers(invocation.requests)
    words = [item.text for item in (subject, *rest)]
    if (
        rest
        and not any("=" in one for one in words)
        and (topics := [*filter(None, map(_topic, (" ".join(words), *words)))])
    ):
        write(topics[0])
        return 0
    id = next((one for one in re.findall(r"[A-Z]{3}\d+", subject.text.upper()) if id_screen(one)), "")
    page = id_screen(id)
    if page is not None:
        show(invocation, lambda: id_record(id) or {}, lambda: page)
        return 0
    name, given, value = subject.text.partition("=")
    composer = composer_of(invocation)
    if name in FIELDS:
        return _argument(composer, invocation, name, [subject, *rest] if given else rest)
    if name == "roofline" or (name == "forecast" and rest):
        return _limit_or_forecast(composer, invocation, name, rest)
    if name in GROUPS or key_of(name) is not None:
        return _own(composer, invocation, name, [subject, *rest] if given else rest)
    if topologies.is_addressed(name):
        return topologies.explain(composer, invocation, name, rest)
    meant = _argument_meant(name)
    if meant is None and (topic := _topic(name)):
        write(topic)
        return 0
    if meant is None and " " in (option := _option_or_value(name, composer) or ""):
        group, _, word = option.partition(" ")
        return _own(composer, invocation, group, [subject._replace(text=word), *rest])
    if meant is None:
        raise ConfigError(_nothing(name, composer))
    if not invocation.has("json") and meant != name:
        flag = f"--{name.lstrip('-').replace('_', '-')}"
        write([[text(f"{flag} on SGLang's command line is the argument {meant}", "dim")]])
    typed = [subject._replace(text=f"{meant}={value}"), *rest] if given else rest
    return _argument(composer, invocation, meant, typed)


def _argument(composer: Composer, invocation: Invocation, name: str, overrides: list[Request]) -> int:
    made = make_plan(composer, overrides) if overrides else None
    if made is not None and has_several_servers(made.nodes):
        return topologies.explain(composer, invocation, name, overrides, made)
    version = made.engine.version if made else _release_of(name)
    if not is_argument(name, version):
        raise ConfigError(_not_in(name, version))
    show(invocation, lambda: field_record(name, made, version), lambda: field_screen(name, made, version))
    return 0


def _release_of(name: str) -> str:
    """Returns the release for an argument explained without a plan: the one that would be planned for, or the newest
    that has the argument."""
    planned = plan_engine(EngineNode("sglang")).version
    if name in release(nearest_known(planned) or newest_release()).arguments:
        return planned
    return next(version for version in reversed(known_versions()) if name in release(version).arguments)


def _not_in(name: str, version: str) -> Finding:
    """Returns the error for an argument that the release does not have and others do."""
    since = first_with(name)
    message = f"{name} is an argument of SGLang {since}, and {version} does not have it"
    newer = name_in(name, version)
    hint = f"{program()} explain {newer or name} engine.version={version if newer else since}"
    return Finding("error", "CLI015", message, hint=hint)


def _own(composer: Composer, invocation: Invocation, name: str, overrides: list[Request]) -> int:
    from sglang_hydra.show import keys as key_screens

    made = make_plan(composer, overrides) if overrides else None
    show(invocation, lambda: key_screens.record(name, composer, made), lambda: key_screens.screen(name, composer, made))
    return 0


def _limit_or_forecast(composer: Composer, invocation: Invocation, name: str, overrides: list[Request]) -> int:
    """Prints the hardware's limit of a plan or its forecast, or what is missing for it. Returns 0."""
    made = make_plan(composer, overrides)
    if name == "forecast":
        points = points_of(made)
        show(invocation, lambda: forecast_record(made, points), lambda: forecast_lines(made, points))
        return 0
    show(invocation, lambda: roofline_record(made), lambda: roofline_lines(made))
    return 0


def _without_fillers(requests: Sequence[Request]) -> Sequence[Request]:
    """Returns the words without those of a question and without numbers; behind an override a number is its value."""
    first = next((at for at, item in enumerate(requests) if "=" in item.text), len(requests))
    numbers = [item for item in requests[:first] if item.text.replace(".", "").isdigit()]
    return [item for item in requests if item.text not in _ASKING and item not in numbers] or requests


def _argument_meant(word: str) -> str | None:
    """Returns the argument for a word of SGLang's command line: an alias, the unique beginning of a flag, or an
    argument of a later release; None for others."""
    field = flagged(word if word.startswith("--") else f"--{word}")
    return field.name if field else canonical_name(word.lstrip("-").replace("-", "_"))


def topic_pages(word: str) -> Sequence[str]:
    """Returns the names of the pages about a topic, with ``!`` before a command; empty for an unknown topic."""
    return next((row["pages"] for row in _TOPICS if word.lower().replace("_", " ") in row["words"]), ())


def _topic(word: str) -> list[Line]:
    """Returns a line for each page about a topic, after what to type first; empty for an unknown topic."""
    names = topic_pages(word)
    rows = [
        [text(f"{program()} explain {name}", VERBATIM), text(_title(name), "dim")] for name in names if name[0] != "!"
    ]
    first = [[text(f"{program()} {name[1:]}", VERBATIM)] for name in names if name[0] == "!"]
    return [[text(word, "bold")], *columns([*first, *rows])] if names else []


def _title(name: str) -> str:
    """Returns the title of a page: for an id, an argument, or one of our keys or groups."""
    if name in FIELDS:
        return FIELDS[name].arg.help.partition(";")[0]
    key = key_of(name)
    return title_of(name) or (key.about if key else GROUPS.get(name) or (id_record(name) or {}).get("name") or "")


def _option_or_value(name: str, composer: Composer) -> str | None:
    """Returns what to explain for an option's name (``h200``) or for a value, which an argument takes."""
    for group in ("gpu", "model", "engine", "launch", "topology"):
        options = composer.options(group)
        same = next((one for one in options if one.replace("_", "") == re.sub(r"[\W_]", "", name).lower()), None)
        if same is not None:
            return f"{group} {group}={same}"
    return next((field.name for field in EVERY.values() if name in map(str, field.arg.choices or ())), None)


def _nothing(name: str, composer: Composer) -> Finding:
    plain = name.lstrip("-").replace("-", "_")
    message = f"{short(name)!r} is neither an argument, one of our keys nor the id of a finding"
    if name in composer.groups():
        return Finding("error", "CLI015", message, hint=f"{program()} --help {name} shows its options")
    near = (key_meant(plain) or "").lstrip("!") or nearest(name, [*EVERY, *keys(), *GROUPS])
    server, _, argument = name.rpartition(".")
    if server.partition(".")[0] in (REPLICA, PREFILL, DECODE):
        meant = nearest(argument, EVERY)
        near = f"{server}.{meant}" if meant else None
    near = _option_or_value(name, composer) or near
    if near is None and re.fullmatch(r"[A-Za-z]{2,4}[0-9]+", name):
        padded = f"{name.rstrip('0123456789')}{int(re.sub('[A-Za-z]', '', name)):03}".upper()  # FIT1
        if padded in known_ids():
            return Finding("error", "CLI015", message, typed=(name,), fix=padded)
        ids = several_near(name, [id.lower() for id in known_ids()], 3)
        hints = [f"near ids: {', '.join(ids).upper()}" if ids else None, f"{program()} --help WORD finds arguments"]
        return Finding("error", "CLI015", message, hint=hints)
    if near is None and name.count(" ") > 2:  # a line of a log
        return Finding("error", "CLI015", message, hint=f"{program()} diagnose {shlex.quote(short(name, 200))}")
    if near is None:
        like = f"near names: {', '.join(listed)}" if (listed := keys_like(plain, 4)) else None
        return Finding("error", "CLI015", message, hint=(like, f"{program()} --help WORD finds arguments"))
    return Finding("error", "CLI015", message, typed=(name,), fix=Remedy.fixed(near, f"{program()} explain {near}"))
