"""Finds commands in Markdown and Dockerfiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sglang_hydra.convert.importing.expansion import replaced, text_of
from sglang_hydra.convert.importing.launches import Launch, has_launch_command
from sglang_hydra.convert.importing.manifests import started
from sglang_hydra.convert.importing.syntax import commands_of
from sglang_hydra.text.budget import read_json

_FENCED = re.compile(r"^[ \t>]*(```+|~~~+)[^\n`]*\n(.*?)^[ \t>]*\1[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_FROM = re.compile(r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)?(\S+)", re.IGNORECASE | re.MULTILINE)
_STARTS = re.compile(r"^[ \t]*(?:CMD|ENTRYPOINT)[ \t]", re.IGNORECASE | re.MULTILINE)
_INSTRUCTION = re.compile(r"^[ \t]*(FROM|ARG|ENV|CMD|ENTRYPOINT)[ \t]+(.*)$", re.IGNORECASE)
_NO_LINE = re.compile(r"^[ \t]*(?:#.*)?\r?\n", re.MULTILINE)
"""A comment or an empty line; Docker ignores them inside an instruction too."""


def fenced(text: str) -> Iterator[str]:
    """Yields the code blocks of Markdown, with blank lines in front to keep the line numbers."""
    for found in _FENCED.finditer(text):
        yield "\n" * text.count("\n", 0, found.start(2)) + found[2]


def on_one_line(text: str) -> str:
    """Joins flags that are written one per line; returns any other text unchanged."""
    lines = [line.strip() for line in text.splitlines()]
    flags = [line for line in lines if line and not line.startswith("#")]
    if len(flags) > 1 and all(line.startswith("--") for line in flags) and not has_launch_command(text):
        return " ".join(line.removesuffix("\\") for line in flags)
    return text


def is_dockerfile(text: str) -> bool:
    return _FROM.search(text) is not None and _STARTS.search(text) is not None


def launches_of_dockerfile(text: str, place: str) -> list[Launch]:
    """Returns the servers that the last stage starts, by ENTRYPOINT and CMD, with its variables."""
    image, entry, command = "", [""], [""]
    arguments: dict[str, str] = {}
    environment: dict[str, str] = {}
    for line in re.sub(r"\\[ \t]*\r?\n", " ", _NO_LINE.sub("", f"{text}\n")).splitlines():
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        name, rest = found[1].upper(), found[2].strip()
        if name == "FROM":
            image = replaced(rest.split()[-1 if " as " not in rest.lower() else 0], arguments)
            entry, command = [], []
        elif name in ("ARG", "ENV"):
            words = [word for one in commands_of(rest) for word in one.words]
            pairs = [word.partition("=") for word in words]
            if name == "ENV" and words and "=" not in words[0]:
                pairs = [(words[0], "=", " ".join(words[1:]))]
            known = {**arguments, **environment}
            made = {key: text_of(value, known) for key, equals, value in pairs if equals}
            (arguments if name == "ARG" else environment).update(made)
        elif name == "ENTRYPOINT":
            entry, command = _words(rest), []
        else:
            command = _words(rest)
    found_here = started([*entry, *command], environment, place or "Dockerfile", image, bool(entry))
    return [replace(launch, kind="dockerfile", mentions=(*launch.mentions, image)) for launch in found_here]


def _words(written: str) -> list[str]:
    """Parses a JSON list of words; makes any other text a command of the shell."""
    try:
        words = read_json(written, "argument")
    except ValueError:
        words = None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return ["/bin/sh", "-c", written]
