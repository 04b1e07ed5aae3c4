"""The verb explain: an argument under any of its names, a key or a group of ours, or the id of a finding or a rule."""

from __future__ import annotations

import re
from dataclasses import replace

from sglang_hydra.arguments.extra import first_with
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.cli.id_pages import id_record, id_screen
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.corrections import key_meant
from sglang_hydra.compose.override_errors import flagged, later_name
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import DECODE, PREFILL, REPLICA, has_several_servers
from sglang_hydra.planning.make import make_plan
from sglang_hydra.releases.successors import name_in
from sglang_hydra.releases.table import known_versions, release
from sglang_hydra.show.argument import field_record, field_screen, is_argument
from sglang_hydra.show.key_help import GROUPS, key_of, keys
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import print_json, text, write
from sglang_hydra.text.words import nearest, program, short


def run(invocation: Invocation) -> int:
    """``explain FIELD|KEY|GROUP|roofline [overrides]`` or ``explain ID``; 0 once it is shown."""
    if not invocation.requests:
        raise ConfigError(
            Finding("error", "CLI015", "explain what?", hint="explain mem_fraction_static gpu=h100, or explain MEM001")
        )
    subject, *rest = invocation.requests
    page = id_screen(subject.text.upper())
    if page is not None:
        if invocation.json:
            print_json(id_record(subject.text.upper()) or {})
        else:
            write(page)
        return 0
    name, given, value = subject.text.partition("=")
    composer = composer_of(invocation)
    if name in FIELDS:
        return _argument(composer, invocation, name, [subject, *rest] if given else rest)
    if name in GROUPS or key_of(name) is not None:
        return _own(composer, invocation, name, [subject, *rest] if given else rest)
    if name == "roofline":
        return _roofline(composer, invocation, rest)
    from sglang_hydra.cli import topology as topologies

    if topologies.is_addressed(name):
        return topologies.explain(composer, invocation, name, rest)
    meant = _argument_meant(name)
    if meant is None:
        raise ConfigError(_nothing(name, composer))
    if not invocation.json and meant != name:
        flag = f"--{name.lstrip('-').replace('_', '-')}"
        write([[text(f"{flag} on SGLang's command line is the argument {meant}", "dim")]])
    typed = [replace(subject, text=f"{meant}={value}"), *rest] if given else rest
    return _argument(composer, invocation, meant, typed)


def _argument(composer: Composer, invocation: Invocation, name: str, overrides: list[Request]) -> int:
    made = make_plan(composer, overrides) if overrides else None
    if made is not None and has_several_servers(made.nodes):
        from sglang_hydra.cli import topology as topologies

        return topologies.explain(composer, invocation, name, overrides, made)
    version = made.engine.version if made else _release_of(name)
    if not is_argument(name, version):
        raise ConfigError(_not_in(name, version))
    if invocation.json:
        print_json(field_record(name, made, version))
    else:
        write(field_screen(name, made, version))
    return 0


def _release_of(name: str) -> str:
    """The release whose argument is explained without a plan: 0.5.2, or the newest one that has it."""
    if name in FIELDS:
        return SPECIFIED_VERSION
    return next(version for version in reversed(known_versions()) if name in release(version).arguments)


def _not_in(name: str, version: str) -> Finding:
    """The error for an argument that only other releases have."""
    since = first_with(name)
    message = f"{name} is an argument of SGLang {since}, and {version} does not have it"
    newer = name_in(name, version)
    hint = f"{program()} explain {newer or name} engine.version={version if newer else since}"
    return Finding("error", "CLI015", message, hint=hint)


def _own(composer: Composer, invocation: Invocation, name: str, overrides: list[Request]) -> int:
    from sglang_hydra.show import keys as key_screens

    made = make_plan(composer, overrides) if overrides else None
    if invocation.json:
        print_json(key_screens.record(name, composer, made))
    else:
        write(key_screens.screen(name, composer, made))
    return 0


def _roofline(composer: Composer, invocation: Invocation, overrides: list[Request]) -> int:
    """The hardware's limit of a plan. 0 where it is shown, or what is missing is named."""
    from sglang_hydra.show.roofline import roofline_lines, roofline_record

    made = make_plan(composer, overrides)
    if invocation.json:
        print_json(roofline_record(made))
    else:
        write(roofline_lines(made))
    return 0


def _argument_meant(word: str) -> str | None:
    """Finds the argument that a word is on SGLang's command line: an alias, the beginning of only one flag, or an
    argument of a later release."""
    field = flagged(word if word.startswith("--") else f"--{word}")
    return field.name if field else later_name(word.lstrip("-").replace("-", "_"))


def _option_or_value(name: str, composer: Composer) -> str | None:
    """What explains the option of a group (``gpu=h200``), or the argument that takes this value."""
    for group in ("gpu", "model", "engine", "launch", "topology"):
        options = composer.options(group)
        same = next((one for one in options if one.replace("_", "") == re.sub(r"[\W_]", "", name).lower()), None)
        if same is not None:
            return f"{group} {group}={same}"
    return next((field.name for field in FIELDS.values() if name in map(str, field.arg.choices or ())), None)


def _nothing(name: str, composer: Composer) -> Finding:
    """The error for a word that names nothing here, with the nearest name."""
    plain = name.lstrip("-").replace("-", "_")
    message = f"{short(name)!r} is neither an argument, a key of ours nor the id of a finding"
    if name in composer.groups():
        return Finding("error", "CLI015", message, hint=f"{program()} --help {name} shows its options")
    near = (key_meant(plain) or "").lstrip("!") or nearest(name, [*FIELDS, *keys(), *GROUPS])
    server, _, argument = name.rpartition(".")
    if server.partition(".")[0] in (REPLICA, PREFILL, DECODE):
        meant = nearest(argument, FIELDS)
        near = f"{server}.{meant}" if meant else None
    near = _option_or_value(name, composer) or near
    hint = f"{program()} explain {near}" if near else f"{program()} --help WORD finds arguments"
    return Finding("error", "CLI015", message, hint=hint, typed=(name,), fix=near)
