"""``extra.<name>=...``: arguments that only a later release has, typed by the table of releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.fields.check import typed_problem
from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.releases.order import at_least
from sglang_hydra.releases.successors import successor
from sglang_hydra.releases.table import Release, known_versions, release
from sglang_hydra.releases.values import flag_for, nearest_choice, problem, rendered
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import nearest, program


def checked_extras(extra: Mapping[str, Any], known: Release) -> tuple[dict[str, Any], list[Finding]]:
    """The extras that ``known`` takes, and what is wrong with the others."""
    taken: dict[str, Any] = {}
    findings: list[Finding] = []
    for name, value in extra.items():
        wrong = _problem(name, value, known)
        if wrong is None:
            taken[name] = value
        else:
            findings.append(wrong)
    return taken, findings


def first_with(name: str) -> str | None:
    """The first release of the table that has an argument of this name."""
    return next((version for version in known_versions() if name in release(version).arguments), None)


def releases_with_choice(name: str, value: Any) -> list[str]:
    """The releases in which ``value`` is a choice of ``name``, or in which everything is, oldest first."""
    return [
        version
        for version in known_versions()
        if (argument := release(version).arguments.get(name)) is not None and problem(argument, value) is None
    ]


def argument_named(name: str, known: Release) -> str | None:
    """The argument of ``known`` that a name means: its own name, or that of one of its flags (fp8_gemm_backend)."""
    if name in known.arguments:
        return name
    flag = "--" + name.replace("_", "-")
    return next((argument.name for argument in known.arguments.values() if flag in argument.flags), None)


def _problem(name: str, value: Any, known: Release) -> Finding | None:
    key = f"extra.{name}"
    argument = known.arguments.get(name)
    page = f"{program()} explain {name} engine.version={known.version}"
    if is_secret_name(name):
        message = f"{key}: a secret would stand on the server's command line, where everyone on its machine reads it"
        return _refusal(message, key, "--config FILE of SGLang itself keeps it out of there")
    if argument is None:
        since = first_with(name)
        near = nearest(name, known.arguments)
        hint = f"did you mean {near}?" if near else f"{program()} --help WORD finds arguments"
        if since is not None and name not in FIELDS:
            hint = _successor_of(name, value, since, known) or f"engine.version={since} has it"
        return _refusal(f"{name}: SGLang {known.version} has no such argument", key, hint)
    if name in FIELDS and typed_problem(name, value) is None:
        return _refusal(f"{key}: {name} is an argument of SGLang 0.5.2 too", key, f"{name}={shown(value)}")
    if argument.name.startswith("_") or (flag := flag_for(argument, known)) is None:
        return _refusal(f"{key}: the command line of SGLang {known.version} has no flag for it", key, page)
    wrong = problem(argument, value)
    if wrong is not None:
        near = nearest_choice(argument, value)
        return _refusal(f"{name}={shown(value)} {wrong}", key, f"did you mean {name}={near}?" if near else page)
    try:
        rendered(argument, value, flag)
    except ValueError as failure:
        return _refusal(str(failure), key, "leave it at its default")
    return None


def _successor_of(name: str, value: Any, since: str, known: Release) -> str | None:
    """What to type for an argument that releases before ``known`` had."""
    if not at_least(known.version, since):
        return None
    found = successor(name, known.version)
    if found.name is None or isinstance(found.value, tuple):
        return found.advice
    return "leave it out" if value is False else f"{found.name}={shown(found.value_of(value))}"


def _refusal(message: str, key: str, hint: str) -> Finding:
    return Finding("error", "VER008", message, (key,), hint, stage="argparse")
