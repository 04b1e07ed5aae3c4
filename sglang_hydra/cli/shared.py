"""Contains what several verbs use: the composer of a command line, words that are names, printing, the exit code of a
judged plan (0 or 2 of plan, check, export and fit)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import what_is_missing
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.exit_codes import INVALID
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.flags import FLAGS
from sglang_hydra.text.screen import Line, print_json, write
from sglang_hydra.text.words import nearest, program, short

if TYPE_CHECKING:
    from sglang_hydra.planning.topology.servers import Topology

_OPTIONS = {
    "release": ("--json", "--trust"),
    "status": ("--json",),
    "stop": ("--json",),
    "init": ("--help",),
    "logs": ("-f", "--follow"),
    "diagnose": ("--json", "--config-dir", "--config-name"),
}
"""The options of the verbs that take names or files."""

_STARTING = ("serve", "bench", "resume", "doctor")
"""The verbs that start servers on this machine, or examine whether they could start."""


def composer_of(invocation: Invocation) -> Composer:
    """Returns a composer with the folders of the command line."""
    composer = Composer(invocation.config_dirs, invocation.value("config_name") or PRIMARY_NAME)
    composer.for_start = invocation.verb in _STARTING
    composer.searched = [request for request in invocation.requests if "hydra.searchpath=" in request.text]
    return composer


def config_flags(invocation: Invocation) -> list[str]:
    """Returns the flags for the folders and the primary config of a command line."""
    flags = [word for folder in invocation.config_dirs for word in ("--config-dir", folder)]
    if invocation.value("config_name") not in (None, PRIMARY_NAME):
        flags += ["--config-name", str(invocation.value("config_name"))]
    return flags


def typed_flags(invocation: Invocation) -> list[str]:
    """Returns every flag of a command line but ``-m``, with its value."""
    flags = config_flags(invocation)
    lists = (
        ("--trust", invocation.trusted_folders),
        ("--allow-env", invocation.allowed_env),
        ("--env", invocation.env),
    )
    flags += [word for flag, values in lists for value in values for word in (flag, value)]
    for flag in FLAGS:
        value = invocation.given.get(flag.sets)
        if value and flag.sets not in ("config_name", "config_path", "multirun"):
            flags += [flag.names[0]] if value is True else [flag.names[0], str(value)]
    return flags


def typed_words(invocation: Invocation) -> list[str]:
    """Returns the typed names. Raises ConfigError for an option that the verb does not have."""
    verb, options = invocation.verb, _OPTIONS[invocation.verb]
    words = [request.text for request in invocation.requests]
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word.startswith("-") and word != "-":
            flag, _, value = word.partition("=")
            if flag not in options and os.path.exists(file := value or after):
                typed = (word,) if value else (word, after)
                message = f"{short(flag)}: a file is typed without a flag"
                raise ConfigError.of("CLI026", message, typed=typed, fix=shlex.quote(file))
            near = nearest(word.partition("=")[0], options)
            hint = f"{program()} {verb} {near}" if near else f"{program()} {verb} --help"
            message = f"{verb} has no option {short(word)}; it has {', '.join(options)}"
            raise ConfigError.of("CLI026", message, hint=hint)
    return words


def show(
    invocation: Invocation, record: Callable[[], Mapping[str, object]], lines: Callable[[], Iterable[Line]]
) -> None:
    """Prints the ``record`` with ``--json``, else the ``lines``; makes only one of them."""
    if invocation.has("json"):
        print_json(record())
    else:
        write(lines())


def code_of(invocation: Invocation, made: Plan | Topology | None, findings: Sequence[Finding] | None = None) -> int:
    return 0 if is_good(invocation, made, findings) else INVALID


def is_good(invocation: Invocation, made: Plan | Topology | None, findings: Sequence[Finding] | None = None) -> bool:
    """Returns whether ``made`` has no error in ``findings`` (by default its own), and nothing of ``--fail-on``; with
    ``--upstream-only``, whether SGLang would accept it. False for None."""
    levels = (invocation.value("fail_on") or "").split(",")
    if made is None:
        return False
    plans = [made] if isinstance(made, Plan) else [server.plan for server in made.servers]
    found = {finding.level for finding in (made.findings if findings is None else findings)}
    if "warning" in levels and "warning" in found:
        return False
    if "unknown" in levels and any(map(what_is_missing, plans)):
        return False
    return made.ok if invocation.has("upstream_only") else "error" not in found
