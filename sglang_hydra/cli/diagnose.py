"""The verb ``diagnose FILE|FOLDER|NAME|'LINES'|- [overrides]``: finds out from log and plan why a server failed."""

from __future__ import annotations

import gzip
import io
import os
import re
import shlex
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of, show, typed_words
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.facts.hub import offline
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.fetching import nothing_fetched
from sglang_hydra.run.diagnose.diagnosis import Diagnosis, diagnose
from sglang_hydra.run.diagnose.lines import read_lines
from sglang_hydra.run.diagnose.remedy import with_plan, with_remedies
from sglang_hydra.run.diagnose.report import record, screen
from sglang_hydra.run.launch.log import opened_log
from sglang_hydra.run.launch.server_info import written_plan
from sglang_hydra.run.launch.servers import named, records
from sglang_hydra.text.budget import READERS, OverBudget, cpu_limit, read_yaml
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.exit_codes import STILL_LOADING, UNKNOWN_FAILURE
from sglang_hydra.text.file_text import open_typed, reason_of
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.words import program, short

_STDIN = "-"
_EXIT_CODE = "exit_code"
_PACKED = ".gz"
_LAUNCH_FILES = (".sh", ".bash", ".py", ".yaml", ".yml")


def run(invocation: Invocation) -> int:
    """Diagnoses each log. Returns 0 if every one has a failure class or is healthy, 5 if one is unknown or from another
    engine, 6 if the rest are still loading."""
    typed_words(invocation)
    files, exit_code, overrides = _sorted(invocation.requests)
    if len(files) > 2 and not any(os.path.lexists(_folder_of(word)) for word in files):
        text = shlex.quote(" ".join(files))
        raise ConfigError.of("DIA901", "lines of a log are one word, in quotes", typed=tuple(files), fix=text)
    composer = composer_of(invocation)
    typed = typed_arguments(overrides)
    results: list[tuple[str, Diagnosis]] = []
    for word in files:
        name = _folder_of(word)
        with opened(name) as file:
            found = _diagnosed(file, name, exit_code, typed)
        with nothing_fetched():  # a log, or the plan beside it, may name any release
            found = _planned_again(found, Path(name), composer, overrides)
        if found.state == "unknown" and Path(name).suffix in _LAUNCH_FILES:
            note = f"if this is a script or manifest: {program()} check {shlex.quote(word)} judges what it starts"
            found = replace(found, notes=(note, *found.notes))
        results.append(("stdin" if name == _STDIN else word, found))
    show(invocation, lambda: record(results), lambda: screen(results))
    states = {found.state for _, found in results}
    return UNKNOWN_FAILURE if states & {"unknown", "foreign", "empty"} else STILL_LOADING if "loading" in states else 0


def _folder_of(word: str) -> str:
    """Returns the run folder of a detached server by its name; an existing path and ``-`` are returned unchanged."""
    if word == _STDIN or os.path.exists(word):
        return word
    meant = named(word, records())
    return meant[0].run_folder if len(meant) == 1 else word


def _planned_again(found: Diagnosis, folder: Path, composer: Composer, overrides: Sequence[Request]) -> Diagnosis:
    """Adds changes that help: of the plan in a run folder, else of the server that the log and the overrides name."""
    started = None if overrides else _plan_of(folder)
    if isinstance(started, tuple):
        return with_plan(found, started[0], composer, started[1])
    found = with_remedies(found, composer, overrides)
    return replace(found, notes=(*found.notes, started)) if started else found


def _plan_of(folder: Path) -> tuple[Plan, list[Request]] | str | None:
    """Returns the plan in a server's run folder, made again; a reason if that fails, None without a plan.json."""
    if not (folder / "plan.json").is_file():
        return None
    try:
        return written_plan(folder, env=offline())
    except SglangHydraError as failure:
        return f"its plan.json was not used: {failure}"


def typed_arguments(overrides: Sequence[Request]) -> dict[str, object]:
    """Returns the arguments of SGLang that overrides set."""
    pairs = (request.text.partition("=") for request in overrides)
    return {name: read_yaml(value, "argument") for name, equals, value in pairs if equals and name in EVERY}


def _diagnosed(file: BinaryIO, name: str, exit_code: int | None, typed: JsonObject) -> Diagnosis:
    """Returns the diagnosis of a log. Raises ConfigError if it takes too long or unpacks to too much."""
    is_file = name != _STDIN and not _is_text(name) and not os.path.isdir(name)
    size = os.path.getsize(name) if is_file else READERS["log"].size
    try:
        with cpu_limit("log", size):
            return diagnose(read_lines(file), exit_code, typed)
    except OverBudget as failure:
        reads = "zcat" if name.endswith(_PACKED) else "tail -c 100M"
        hint = f"{reads} {shlex.quote(short(name, 300))} | {program()} diagnose -"
        raise ConfigError.of("DIA902", f"{short(name, 300)} cannot be read: {failure}", hint=hint) from None


def _is_text(word: str) -> bool:
    """Returns whether a word is no file but lines of a log, in quotes. A path of a missing file stays a path."""
    is_path = re.search(r"^[~./]|\.\w{1,5}$", word) is not None and ": " not in word
    return re.search(r"\s", word) is not None and not is_path and not os.path.lexists(word)


def _sorted(requests: Sequence[Request]) -> tuple[list[str], int | None, list[Request]]:
    """Returns the logs, the exit code and the overrides among the words. Raises ConfigError without a log."""
    files: list[str] = []
    overrides: list[Request] = []
    exit_code = None
    for request in requests:
        key, equals, value = request.text.partition("=")
        if request.key is None and (not equals or os.path.exists(request.text)):
            files.append(request.text)
        elif key == _EXIT_CODE:
            exit_code = _code(value)
        else:
            overrides.append(request)
    if not files:
        hint = f"{program()} diagnose server.log", f"kubectl logs --previous POD | {program()} diagnose -"
        raise ConfigError.of("DIA901", "diagnose which log? A file, or - for standard input", hint=hint)
    return list(dict.fromkeys(files)), exit_code, overrides


def _code(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        message = f"exit_code={short(value)} is no exit code"
        raise ConfigError.of("DIA901", message, hint="exit_code=137, or exit_code=-9") from None


class _OneAfterAnother:
    """Reads the files of a log one after another, as one BinaryIO."""

    def __init__(self, files: Sequence[BinaryIO]) -> None:
        self._files = list(files)

    def read(self, size: int = -1) -> bytes:
        while self._files:
            content = self._files[0].read(size)
            if content:
                return content
            self._files.pop(0)
        return b""


class _Bounded:
    """A packed log with the same size limit as an unpacked one. Raises OverBudget beyond it."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file, self._left = file, READERS["log"].size

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise OverBudget(f"it unpacks to more than {READERS['log'].size >> 20} MiB")
        return content


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """Opens a log: a file, gzipped or not, the whole server.log of a run folder, or standard input.

    Raises ConfigError with the file's name if it cannot be read."""
    if name == _STDIN:
        yield sys.stdin.buffer
        return
    if _is_text(name):
        yield io.BytesIO(name.encode("utf-8", "surrogateescape"))
        return
    path = os.path.join(name, "server.log") if os.path.isdir(name) else name
    try:
        if os.path.isdir(name):
            with opened_log(Path(path)) as files:
                if files:
                    yield _OneAfterAnother(files)  # type: ignore[misc]
                    return
        if path.endswith(_PACKED):
            with open_typed(path) as packed, gzip.open(packed, "rb") as unpacked:
                yield _Bounded(unpacked)  # type: ignore[misc]  # reads as a BinaryIO does
        else:
            with open_typed(path) as file:
                yield file
    except OverBudget:
        raise
    except (OSError, EOFError, zlib.error, ValueError) as failure:
        hint = f"... | {program()} diagnose - reads what is piped, as of kubectl logs --previous POD"
        if "://" in name:
            hint = (
                f"{program()} status names the servers that were started here, and diagnose NAME reads the log of one"
            )
        elif not os.path.lexists(path):
            from sglang_hydra.cli.explain import topic_pages

            hint = f"{program()} explain {short(name)} has the pages about it" if topic_pages(name) else hint
        found = Finding("error", "DIA902", f"{short(path, 300)} cannot be read: {reason_of(failure)}", hint=hint)
        raise ConfigError(found) from failure
