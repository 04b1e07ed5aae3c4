"""Finds missing files and folders of arguments, and programs that files name and that were not asked."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from sglang_hydra.arguments.fields.server_args import LoRARef
from sglang_hydra.compose.corrections import path_meant
from sglang_hydra.facts.environments import find_python, is_read_from_disk
from sglang_hydra.facts.installed import installed
from sglang_hydra.facts.tiny import tiny_path
from sglang_hydra.facts.trust import SEC001, TYPED, exact_path, is_granted, is_trusted, may_start, trusting_folder
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import shown_path
from sglang_hydra.text.origins import Named
from sglang_hydra.text.words import nearest, short

_OF_THE_HUB = ("model_path", "tokenizer_path", "speculative_draft_model_path", "speculative_token_map", "lora_paths")
"""Arguments that also accept a repository's name: ``org/name`` is one, ``./name`` and ``/name`` are paths."""
_FILES = (
    *("chat_template", "completion_template", "quantization_param_path", "init_expert_location"),
    *("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"),
)
"""Arguments that may also accept a name known to SGLang (a template, ``trivial``)."""
_SUFFIXES = (".json", ".jinja", ".pt", ".pem", ".key", ".crt")
_DEEP = re.compile(r"[\w.-]+(/[\w.-]+){2,}")
"""Deeper than any repository of the hub."""
_NO_NAME = re.compile(r"[\s\\$:*?\"'<>|]")
"""Characters that no repository of the hub has in its name: a blank, an unexpanded variable, a Windows path."""


def missing_paths(
    intent: Mapping[str, object], of_presets: Collection[str] = (), served_here: bool = False
) -> Iterator[Finding]:
    """Yields a finding for each missing path: an error for a relative one, and for every one where the server is
    ``served_here``; a warning for other absolute ones and those ``of_presets``, which may exist where the server
    runs."""
    for name, value in intent.items():
        for path in _paths(name, value):
            if os.path.lexists(os.path.expanduser(path)):
                if name in _FILES and os.path.isdir(os.path.expanduser(path)):
                    yield Finding("error", "PTH001", f"{name}={short(path)} is a folder, and it names a file", (name,))
                continue
            relative = not os.path.isabs(os.path.expanduser(path))
            message = f"{name}={short(path)} is not there"
            if served_here or (relative and name not in of_presets):
                where = ", seen from the working folder" if relative else ""
                offers = [f"{name}={near}" for near in _nearest(path)] if path == value else []
                hint = None if offers or name != "model_path" else "a repository of the hub is model=org/name"
                hint = "the shell reads no variable in single quotes: type it in double ones" if "$" in path else hint
                yield Finding("error", "PTH001", f"{message}{where}", (name,), hint, offers=offers)
            else:
                message = f"{message} on this machine; it has to be where the server runs"
                yield Finding("warning", "PTH002", message, (name,), "ignore=PTH002 where it is")


def _paths(name: str, value: object) -> Iterable[str]:
    """Returns the values of an argument that certainly are paths."""
    if name == "lora_paths":
        return [path for path in _adapters(value) if _is_path(path)]
    if not isinstance(value, str) or "\0" in value or "://" in value or "${" in value:
        return ()
    if name == "model_path" and (_DEEP.fullmatch(value) or _is_path(value) or _NO_NAME.search(value)):
        return [value] if value != str(tiny_path()) else ()
    if name in _OF_THE_HUB:
        return [value] if _is_path(value) else ()
    return [value] if name in _FILES and (_is_path(value) or value.endswith(_SUFFIXES)) else ()


def _adapters(value: object) -> Iterator[str]:
    """Yields the paths of the adapters in ``lora_paths``: a list of ``name=path``, paths and records, or a mapping."""
    if isinstance(value, Mapping):
        yield from map(str, value.values())
    for item in value if isinstance(value, (list, tuple)) else ():
        if isinstance(item, Mapping):
            yield str(item.get("lora_path", ""))
        elif isinstance(item, LoRARef):
            yield item.lora_path
        else:
            yield str(item).rpartition("=")[2]


def _is_path(text: str) -> bool:
    return text.startswith(("./", "../", "/", "~/")) or text in (".", "..")


def _nearest(path: str) -> Iterator[str]:
    """Yields a path of a similar name in the same folder, or a Windows path in this machine's form."""
    if (here := path_meant(path)) is not None:
        yield here
        return
    folder, _, name = path.rpartition("/")
    try:
        near = nearest(name, os.listdir(os.path.expanduser(folder) or "."))
    except OSError:
        return
    if near is not None:
        yield f"{folder}/{near}"


def findings_on(programs: Mapping[str, Named]) -> list[Finding]:
    """Returns findings on programs that files name and that were not asked."""
    return [found for key, named in programs.items() if (found := _unasked(key, named)) is not None]


def notes_on(programs: Mapping[str, Named]) -> list[str]:
    """Returns one line for each program that a file names: its origin, and the decision of the settings."""
    notes = []
    for key, named in programs.items():
        if named.is_of_app or is_trusted(named.origin):
            continue
        path = exact_path(named.program)
        folder = None if is_granted(path) or is_read_from_disk(path) else trusting_folder(path)
        decided = f"; it was asked, as {folder.place} trusts {folder.value}" if folder else ""
        notes.append(
            f"program: {key}={named.program}, named by {named.origin.place}, is what serve and bench start{decided}"
        )
    return notes


def _unasked(key: str, named: Named) -> Finding | None:
    path = find_python(named.program)
    if path is None or may_start(path) or is_read_from_disk(path):
        return None
    found = installed(path).versions
    known = "its packages were read from its folders, which may be incomplete" if found else "its packages are unknown"
    place, value = named.origin.place, named.origin.value
    if named.origin.layer in TYPED:
        place += f", by the reference {value},"
    message = f"{key}={named.program} was not asked, because {place} names it and you did not type it: {known}"
    home = os.path.dirname(path)
    folder = shown_path(os.path.dirname(home) if os.path.basename(home) == "bin" else home)
    hints = f"{key}={named.program} on the command line", f"--trust {folder}", "trusted_folders in your settings"
    return Finding("info" if found else "warning", SEC001, message, (key,), hints)
