"""What several verbs share: the composer of a command line, words that are names, and what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, print_json, write
from sglang_hydra.text.words import nearest, program, short

_OPTIONS = {
    "release": ("--json", "--trust"),
    "status": ("--json",),
    "stop": ("--json",),
    "init": ("--help",),
    "logs": ("-f", "--follow"),
    "diagnose": ("--json", "--config-dir", "--config-name"),
}
"""What the verbs know that take names or files."""

_STARTING = ("serve", "bench", "resume", "doctor")
"""The verbs that start servers on this machine, or look at what it can start."""


def composer_of(invocation: Invocation) -> Composer:
    """Returns the composer over the folders that the command line names."""
    composer = Composer(invocation.config_dirs, invocation.value("config_name") or PRIMARY_NAME)
    composer.for_start = invocation.verb in _STARTING
    composer.searched = [request for request in invocation.requests if "hydra.searchpath=" in request.text]
    return composer


def config_flags(invocation: Invocation) -> list[str]:
    """Returns the flags that name the folders and the primary config of a command line."""
    flags = [word for folder in invocation.config_dirs for word in ("--config-dir", folder)]
    if invocation.value("config_name") not in (None, PRIMARY_NAME):
        flags += ["--config-name", str(invocation.value("config_name"))]
    return flags


def typed_words(invocation: Invocation) -> list[str]:
    """Returns the names that were typed. Raises ConfigError for an option that the verb does not have."""
    verb, options = invocation.verb, _OPTIONS[invocation.verb]
    words = [request.text for request in invocation.requests]
    for word in words:
        if word.startswith("-") and word != "-":
            near = nearest(word.partition("=")[0], options)
            hint = f"{program()} {verb} {near}" if near else f"{program()} {verb} --help"
            message = f"{verb} has no option {short(word)}; it has {', '.join(options)}"
            raise ConfigError(Finding("error", "CLI026", message, hint=hint))
    return words


def show(
    invocation: Invocation, record: Callable[[], Mapping[str, object]], lines: Callable[[], Iterable[Line]]
) -> None:
    """Prints the ``record`` with ``--json``, else the ``lines``; only one of them is made."""
    if invocation.has("json"):
        print_json(record())
    else:
        write(lines())
