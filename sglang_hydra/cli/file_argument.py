"""Reads an experiment's YAML among the typed words: as a layer below every override beside it.

``plan mine.yaml tp_size=4`` plans what ``check mine.yaml tp_size=4`` judges. Without a typed file nothing is read."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.corrections import FORMATS_MEANT, path_meant
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.recorded.input_files import (
    Document,
    content_of,
    is_ours,
    is_record,
    named_documents,
    read_document,
)
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.locations import SUFFIXES, conf_dir, file_of
from sglang_hydra.text.screen import write
from sglang_hydra.text.words import nearest, program, short

_TAKE = frozenset(("serve", "plan", "fit", "explain", "export", "bench", "doctor"))
_TAKE_OTHERS = frozenset(("plan", "fit", "explain", "export"))
"""Verbs that also take foreign files: manifests, scripts and recipes that start servers."""
_TAKE_BY_ITSELF = frozenset(("check", "diff", "upgrade", "ui"))
"""Verbs that read their files themselves, and several; all but ui also read saved plans."""
_NAME_FIRST = frozenset(("explain", "export"))
"""Verbs whose first word is an argument or a format, even if a folder has that name."""
_EXPERIMENT = "experiment"


def read_file_argument(invocation: Invocation) -> None:
    """Reads a typed file as a layer below all overrides, and adds the folder of presets beside it to the search path
    unless one is named.

    Raises ConfigError for anything but an experiment: a folder, a saved plan, a foreign launch file, a second file."""
    alone = invocation.verb in _TAKE_BY_ITSELF and not (invocation.verb == "check" and invocation.has("multirun"))
    if not alone and invocation.verb not in (*_TAKE, "check"):
        return
    files = [request for request in files_of(invocation) if "\0" not in request.text]
    if not files:
        return
    if not invocation.config_dirs:
        invocation.config_dirs += _beside(files)
    if alone:
        return
    if len(files) > 1:
        raise _several(invocation.verb, files)
    (file,) = files
    typed = [request for request in invocation.requests if request is not file]
    if invocation.verb == "explain" and not typed:
        message, hint = f"explain what of {short(file.text)}?", f"explain mem_fraction_static {short(file.text)}"
        raise ConfigError.of("CLI015", message, hint=hint)
    invocation.file = file.text
    from_file = _read(file.text, invocation, typed).requests
    head: list[Request] = []
    if invocation.verb in _NAME_FIRST and typed and "=" not in typed[0].text:
        head = [typed.pop(0)]
    elif invocation.verb == "explain":
        head = [typed[0]._replace(text=typed[0].text.partition("=")[0])]
    invocation.requests = [*head, *from_file, *typed]


def no_such_file(word: str) -> Finding:
    """Returns the error for a missing file, with what was probably meant."""
    message = f"{short(word)!r} is no key=value, and there is no such file"
    if word.endswith(".json"):
        return Finding("error", "CLI004", message, hint=f"lock={short(word)} plans a saved plan again")
    bare = word.strip("@<>\"' ").removeprefix("file://")
    if bare != word and os.path.isfile(bare):
        return Finding("error", "CLI004", f"{short(word)!r} is no file", typed=(word,), fix=shlex.quote(bare))
    if path := path_meant(word):
        message = f"{short(word)!r} is a path of Windows"
        return Finding("error", "CLI004", message, typed=(word,), fix=Remedy.fixed(path, short(path)))
    group, stem = os.path.basename(os.path.dirname(word)), os.path.splitext(os.path.basename(word))[0]
    if group in ("gpu", "model") and (conf_dir() / group / f"{stem}.yaml").is_file():
        return Finding("error", "CLI004", f"{message}", typed=(word,), fix=f"{group}={stem}")
    near = nearest(os.path.basename(word), list(_names_in(os.path.dirname(word))))
    meant = f"did you mean {short(os.path.join(os.path.dirname(word), near))}?" if near else None
    writes = None if set("*?[") & set(word) else f"{program()} import serve.sh -o {short(word)} writes one"
    return Finding("error", "CLI004", message, hint=(meant, writes, "gpu=... model=... without a file"))


def files_of(invocation: Invocation) -> Iterator[Request]:
    """Yields the words that name a file or folder. The word after one of SGLang's flags is its value."""
    named = invocation.verb not in _NAME_FIRST
    before = ""
    for request in invocation.requests:
        word, flag = request.text, before.startswith("--") and "=" not in before
        before = word
        if not word or "=" in word or word.startswith("-") or flag or request.key is not None:
            continue
        if file_of(word).endswith(SUFFIXES):
            yield request
        elif not named:
            named = True
        elif os.path.exists(file_of(word)):
            yield request


def _beside(files: Sequence[Request]) -> list[str]:
    """Returns the folder of presets around experiments: DIR for DIR/experiment/mine.yaml, DIR/experiment and DIR. Empty
    if they are in several, because it is unclear whose presets apply."""
    found: dict[str, str] = {}
    for request in files:
        path = Path(request.text)
        folder = path if path.is_dir() else path.parent
        if folder.absolute().name == _EXPERIMENT:
            home = folder.parent if folder.name == _EXPERIMENT else folder.absolute().parent
        elif path.is_dir() and (path / _EXPERIMENT).is_dir():
            home = path
        else:
            continue
        if home.is_dir():
            found.setdefault(os.path.realpath(home), str(home))
    return list(found.values()) if len(found) == 1 else []


def _read(word: str, invocation: Invocation, typed: Sequence[Request]) -> Document:
    """Returns the experiment in a file, or the only server in a foreign file. Raises ConfigError, with what to type
    instead, if there is none."""
    verb, path = invocation.verb, Path(file_of(word))
    if path.is_dir():
        raise ConfigError(_folder(path, word, verb))
    if not os.path.lexists(path):
        has_format = any("=" not in one.text for one in typed)
        formats = {**FORMATS_MEANT, **{one: one for one in FORMATS_MEANT.values()}}
        meant = "" if has_format else formats.get(path.stem.lower())
        if verb == "export" and meant is not None:
            message = f"export takes a format, and {short(word)} is a file to write"
            raise ConfigError.of("EXP012", message, typed=(word,), fix=f"{meant} -o {shlex.quote(word)}".strip())
        raise ConfigError(no_such_file(word))
    if is_ours(path, content := content_of(path)):
        if word.endswith(".json") and is_record(content):
            raise ConfigError(_json(path, word, verb))
        return read_document(path)
    if verb not in _TAKE_OTHERS:
        message = f"{short(word)} is no experiment, and {verb} takes nothing else"
        hint = f"{program()} import {short(word)} -o mine.yaml makes one of what it starts, then {verb} mine.yaml"
        raise ConfigError.of("CLI017", message, hint=hint)
    from sglang_hydra.convert.importing.native import native_reader
    from sglang_hydra.show.findings import finding_lines

    others = native_reader(composer_of(invocation), typed, invocation.variables)
    found = named_documents(word, others)
    if len(found) > 1:
        message = f"{short(word)} starts {len(found)} servers, and {verb} takes one: {', '.join(dict(found))}"
        raise ConfigError.of("CLI004", message, hint=f"{verb} {short(found[0][0])}")
    ((_, document),) = found
    if any(finding.level == "error" for finding in document.findings):
        raise ConfigError(*document.findings)
    write(finding_lines(document.findings), sys.stderr)
    return document


def _folder(path: Path, word: str, verb: str) -> Finding:
    first = next(iter(sorted(_names_in(word))), None)
    one = None if first is None else f"{program()} {verb} ... {short(os.path.join(word, first))}"
    hints = one, f"{program()} check {short(word)} judges every file in it"
    return Finding("error", "CLI004", f"{short(word)!r} is a folder, and {verb} takes one file", hint=hints)


def _json(path: Path, word: str, verb: str) -> Finding:
    try:
        read_document(path)
    except ConfigError as failure:
        hint = f"{program()} import {short(word)} -o mine.yaml, where it holds arguments of SGLang"
        return failure.findings[0].said(hint)
    message = f"{short(word)!r} is a saved plan, and {verb} takes an experiment in YAML"
    hints = f"lock={short(word)} plans it again", f"{program()} check {short(word)} judges it"
    return Finding("error", "CLI004", message, hint=hints)


def _several(verb: str, files: Sequence[Request]) -> ConfigError:
    names = " ".join(short(request.text) for request in files)
    message = f"{verb} takes one file, and {len(files)} were given: {names}"
    diff = f"{program()} diff {names} compares them" if len(files) == 2 else None
    return ConfigError.of("CLI004", message, hint=(f"{program()} check {names} judges each of them", diff))


def _names_in(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return
    yield from (name for name in names if name.endswith(SUFFIXES[:2]))
