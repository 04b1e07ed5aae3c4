"""Reads the configuration to upgrade: overrides, a recipe, a plan, an experiment, or a foreign launch file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.importer import import_source
from sglang_hydra.convert.importing.launches import has_launch_command
from sglang_hydra.convert.importing.native import typed_beside
from sglang_hydra.convert.importing.proof import requests_of
from sglang_hydra.convert.importing.sources import Source, read_source
from sglang_hydra.planning.plan import Recorded
from sglang_hydra.planning.recorded.input_files import is_document, is_ours, read_document
from sglang_hydra.planning.recorded.lock import as_overrides
from sglang_hydra.planning.recorded.saved import read_plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import file_of
from sglang_hydra.text.words import program, short

OVERRIDES, PLAN, EXPERIMENT, IMPORTED = "overrides", "plan", "experiment", "import"
_OVERRIDE = re.compile(r"~|\+{0,2}[A-Za-z_][\w./@:-]*=")
_BY_FLAGS = "no release is named, and by its flags the source"
_SHOWN = ("preset_found", "release_guessed", "unnamed_gpu")


@dataclass(frozen=True)
class Subject:
    """One server to upgrade. ``requests`` make its plan; ``written_for`` is its release in its own words, ``by`` the
    source of that; ``words`` are the words to type for it, if they differ from the typed ones.

    ``recorded`` are the facts of a saved plan. ``file`` is the experiment's file, ``content`` its text. ``old`` maps
    arguments to the words of deprecated flags."""

    name: str
    kind: str
    requests: Sequence[Request]
    written_for: str | None = None
    by: str = ""
    recorded: Recorded | None = None
    words: Sequence[str] | None = None
    file: Path | None = None
    content: str | None = None
    findings: Sequence[Finding] = ()
    old: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    idle: tuple[str, ...] = ()


def subjects_of(
    requests: Sequence[Request],
    argv: Sequence[str] | None,
    written_for: str | None,
    composer: Composer,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[Subject]:
    """Returns all named servers. ``argv`` are the words after a bare ``--``; ``written_for`` is ``--from``, the release
    to read flags with; ``variables`` are those that a script leaves to its caller. Raises ConfigError for words that
    name no server."""
    # If a flag is among them, the overrides' own reader says what to type.
    mistyped = any(request.is_flag for request in requests)
    rest = [item for item in requests if mistyped or (_OVERRIDE.match(item.text) and not has_launch_command(item.text))]
    sources = [request for request in requests if request not in rest]
    locks = [request for request in rest if request.text.startswith("lock=")]
    if argv is not None:
        return list(_imported(None, argv, rest, written_for, composer, variables))
    if locks and not sources:
        rest = [request for request in rest if request not in locks]
        sources = [Request(locks[-1].text.partition("=")[2].strip("'\""), locks[-1].place)]
    if len(sources) > 1:
        message = f"upgrade takes one file or command, and {len(sources)} were given: " + ", ".join(
            short(source.text, 40) for source in sources[:4]
        )
        raise ConfigError(Finding("error", "UPG002", message, hint=_how()))
    if sources:
        return list(_of_source(sources[0].text, rest, written_for, composer, variables))
    if not rest:
        raise ConfigError(Finding("error", "UPG002", "upgrade what?", hint=_how()))
    recipe = next((request.text for request in rest if request.text.startswith("recipe=")), None)
    return [Subject(recipe or OVERRIDES, OVERRIDES, rest)]


def _how() -> str:
    return f"{program()} upgrade --to 0.5.23 gpu=h200 model=...; recipe=ID; launch.sh; plan.json; experiment.yaml"


def _of_source(
    word: str, rest: Sequence[Request], written_for: str | None, composer: Composer, variables: Mapping[str, str]
) -> Iterator[Subject]:
    if os.path.isdir(word):
        raise ConfigError(Finding("error", "UPG002", f"{short(word)} is a folder", hint="name a file in it"))
    file = Path(file_of(word))
    if is_document(word) and (content := _text_of(str(file))) is not None and is_ours(file, content):
        if word.endswith(".json"):
            yield _of_plan(word, rest)
            return
        document = read_document(file)
        yield Subject(word, EXPERIMENT, [*document.requests, *rest], file=file, content=content)
        return
    servers = _imported(str(file), None, rest, written_for, composer, variables)
    chosen = word[len(str(file)) + 1 :]
    yield from (server for server in servers if chosen in ("", server.name))


def _text_of(word: str) -> str | None:
    try:
        return read_text(word)
    except (OSError, ValueError):
        return None  # import says what is wrong with it


def _of_plan(word: str, rest: Sequence[Request]) -> Subject:
    document = read_document(Path(word))
    saved = read_plan(Path(word))
    typed = {request.text.partition("=")[0].partition(".")[0] for request in rest}
    return Subject(
        word,
        PLAN,
        [*document.requests, *rest],
        written_for=str(saved.record["engine"]["version"]),
        by="the plan",
        recorded=None if {"gpu", "model", "model_path"} & typed else document.recorded,
        words=[*as_overrides(saved), *(request.text for request in rest)],
    )


def _imported(
    word: str | None,
    argv: Sequence[str] | None,
    rest: Sequence[Request],
    written_for: str | None,
    composer: Composer,
    variables: Mapping[str, str],
) -> Iterator[Subject]:
    """Yields the servers that a foreign text starts, reduced to the nearest preset."""
    if word is not None:
        source = read_source(word)
    else:
        words = list(argv or ())
        start = ["sglang", "serve"] if words and words[0].startswith("--") else []
        source = Source("", shlex.join([*start, *words]), typed=True)
    source = replace(source, variables=variables)
    if written_for is not None:
        rest = [*rest, Request(f"engine.version={written_for}", "--from")]
    typed = typed_beside(rest, source.text, composer)
    for server in import_source(source, typed, composer):
        name = server.name or (source.name or "the command")
        errors = [one for one in server.findings if one.level != "info" or one.about in _SHOWN]
        errors = [one for one in errors if one.about != "old_flag" or not one.fields]  # they are renamed
        yield Subject(
            name,
            IMPORTED,
            requests_of({**server.choices, **server.overrides, **server.nodes}, server.place),
            written_for=server.version,
            by=_BY_FLAGS if server.fits is not None else "the log" if server.kind == "log" else "the source",
            findings=errors,
            old=server.old,
            idle=server.idle,
        )
