"""Locates a finding in its file: the line and columns of its word.

Reads YAML and JSON by their nodes, other files as a shell does, and also commands inside a text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

import yaml

from sglang_hydra.arguments.every import canonical_name
from sglang_hydra.arguments.parser import parser_of
from sglang_hydra.convert.importing.embedded_commands import fenced
from sglang_hydra.convert.importing.launches import has_launch_command
from sglang_hydra.convert.importing.syntax import commands_of
from sglang_hydra.convert.upgrade.in_place import server_spans
from sglang_hydra.planning.comparing.difference import plans_of
from sglang_hydra.planning.plan import Plan
from sglang_hydra.show.verdicts import Checked
from sglang_hydra.text.budget import OverBudget, cpu_limit, yaml_nodes
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import file_of, shown_path

_STRUCTURED = (".yaml", ".yml", ".json")
_MARKDOWN = (".md", ".mdx")
_OPENING = re.compile(r"(?:\w+\+?=(?=\())?[\[(\"'$]*|[|>][+-]?\d?[+-]?[ \t]*(?:#[^\n]*)?\n")
_CLOSING = "\"'])},"
_QUOTED = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*|(?<!\w)'([\w.-]+)'")
_DEEPEST = 4


class Place(NamedTuple):
    """A word in a file; lines and columns count from 1, ``end`` is the column after the word."""

    file: str
    line: int = 1
    column: int = 1
    end: int = 1


class Word(NamedTuple):
    """A word of a text without its quotes, and the first line of its command."""

    text: str
    line: int
    column: int
    command: int = 0

    @property
    def flag(self) -> str:
        """Returns the word without a value after an equals sign."""
        return self.text.partition("=")[0]


def placed(
    verdicts: Sequence[tuple[str, Checked]], base: Callable[[str], str] = lambda file: ""
) -> list[list[tuple[Finding, Place | None]]]:
    """Returns the errors and warnings of each verdict with their places; None for a verdict on overrides alone.

    ``base`` returns the path of a file before the change: of the words that a finding is about, a changed one is its
    place. A file that takes too long to search is the place of all its findings."""
    files = [file_of(name) for name, _ in verdicts]
    found: list[list[tuple[Finding, Place | None]]] = [[] for _ in files]
    for file in dict.fromkeys(files):
        numbers = [number for number, other in enumerate(files) if other == file]
        judged = [verdicts[number][1] for number in numbers]
        try:
            with cpu_limit("script"):
                each = _placed_in(file, judged, base(file)) if os.path.isfile(file) else _everywhere(None, judged)
        except OverBudget:
            each = _everywhere(Place(shown_path(file)), judged)
        for number, listed in zip(numbers, each, strict=True):
            found[number] = listed
    return found


def _shown(verdict: Checked) -> list[Finding]:
    return [finding for finding in verdict.findings if finding.level != "info"]


def _everywhere(place: Place | None, judged: Sequence[Checked]) -> list[list[tuple[Finding, Place | None]]]:
    return [[(finding, place) for finding in _shown(verdict)] for verdict in judged]


def _placed_in(file: str, judged: Sequence[Checked], base: str) -> list[list[tuple[Finding, Place | None]]]:
    """Returns the findings on the servers of one file; in a manifest each in its container."""
    if not any(map(_shown, judged)):
        return [[] for _ in judged]
    text = _read(file)
    words = list(words_of(text, file))
    moved = _changed_lines(_read(base), text) if base else frozenset()
    spans = [(text.count("\n", 0, first) + 1, text.count("\n", 0, last) + 1) for first, last in server_spans(text)]
    if len(spans) != len(judged):
        spans = [(1, text.count("\n") + 1)] * len(judged)
    found: list[list[tuple[Finding, Place | None]]] = []
    for verdict, (first, last) in zip(judged, spans, strict=True):
        inside = [word for word in words if first <= word.line <= last]
        gpu = str(verdict.made.gpu.name or "").partition("_")[0] if isinstance(verdict.made, Plan) else ""
        gpus = [word for word in words if gpu and word.line in moved and gpu in word.text.lower()]
        places = [(finding, _place(finding, file, verdict, inside, moved)) for finding in _shown(verdict)]
        for number, (finding, place) in enumerate(places):
            if gpus and finding.id.startswith(_OF_GPU) and place.line not in moved:
                places[number] = finding, _at(place.file, gpus[0])
        found.append([*places])
    return found


_OF_GPU = ("FIT", "GPU")
"""The id families on the memory and the number of GPUs: another class is a cause that no argument names."""


def _changed_lines(before: str, after: str) -> frozenset[int]:
    """Returns the lines of a text that are new or changed; none without an earlier text."""
    blocks = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
    lines = (range(first + 1, last + 1) for tag, _, _, first, last in blocks if before and tag != "equal")
    return frozenset(chain.from_iterable(lines))


def words_of(text: str, file: str) -> Iterator[Word]:
    """Yields every word of a text, in order; for YAML and JSON the keys and the values."""
    if file.endswith(_STRUCTURED):
        try:
            yield from sorted(_of_nodes(text), key=lambda word: (word.line, word.column))
            return
        except (yaml.YAMLError, ValueError, RecursionError):
            pass  # a template: read as lines
    blocks = list(fenced(text)) if file.endswith(_MARKDOWN) else []
    yield from chain.from_iterable(map(_of_shell, blocks or [text]))


def _of_nodes(text: str) -> Iterator[Word]:
    starts = list(accumulate(map(len, text.splitlines(keepends=True)), initial=0))
    seen: set[int] = set()
    waiting = [node for node in yaml_nodes(text, "manifest") if node is not None]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            first, last = node.start_mark, node.end_mark
            written = text[starts[first.line] + first.column : starts[last.line] + last.column]
            yield from _of_piece(written, first.line + 1, first.column + 1, 0, 0)
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        else:
            waiting += chain.from_iterable(node.value)


def _of_shell(text: str, line: int = 1, column: int = 1, depth: int = 0) -> Iterator[Word]:
    for command in commands_of(text):
        for word, (row, at) in zip(command.words, command.places, strict=True):
            place = line + row - 1, at + (column - 1 if row == 1 else 0)
            yield from _of_piece(word, *place, line + command.line - 1, depth)
        for heredoc in command.heredocs if depth < _DEEPEST else ():
            yield from _of_shell(heredoc.body, line + heredoc.line - 1, 1, depth + 1)


def _of_piece(written: str, line: int, column: int, command: int, depth: int) -> Iterator[Word]:
    """Yields a word without its brackets and quotes, or the words of a text written as one word."""
    opened = _OPENING.match(written)
    start = opened.end() if opened else 0
    inner = written[start:].rstrip(_CLOSING) if start else written.rstrip(",")
    line += written.count("\n", 0, start)
    column = 1 if "\n" in written[:start] else column + start
    if depth < _DEEPEST and re.search(r"\s", inner) and (start or depth == 0):
        yield from _of_shell(inner, line, column, depth + 1)
    else:
        yield Word(inner, line, column, command or line)


def _read(file: str) -> str:
    try:
        return read_text(Path(file), CONFIG_BYTES, errors="replace")
    except (OSError, ValueError):
        return ""


def _place(
    finding: Finding, file: str, verdict: Checked, words: Sequence[Word], moved: Container[int] = frozenset()
) -> Place:
    """Returns the place of the first word that a finding is about, on ``moved`` lines before others, else the start of
    its server. What its message names comes first."""
    name = shown_path(file)
    stated = re.match(rf"{re.escape(name)}:(\d+)(?::(\d+))?", finding.message)
    if stated and stated[2]:
        return Place(name, int(stated[1]), int(stated[2]), int(stated[2]) + 1)
    said = finding.message.replace("-", "_")
    at = {field: said.find(field) % (len(said) + 1) for field in finding.fields}
    finding = replace(finding, fields=tuple(sorted(finding.fields, key=at.__getitem__)))
    ends = [*(word.line if word.text[:2] != "--" else 0 for word in words[1:]), 0]
    touched = [word for word, end in zip(words, ends, strict=True) if word.line in moved or end in moved]
    for means in () if stated else _meanings(finding):
        if found := [word for word in touched if means(word)]:
            return _at(name, found[-1])
    lines = {int(stated[1])} if stated else _lines_of(finding, verdict, name)
    near = [word for word in words if lines & {word.line, word.command}]
    before = [word for word in words if word.line <= max(lines)] if lines else words
    for means in _meanings(finding):
        for group in (near, before, words):
            if found := [word for word in group if means(word)]:
                return _at(name, found[-1])
    group = near or words
    start = next((word for word in group if has_launch_command(word.text)), group[0] if group else None)
    return Place(name) if start is None else _at(name, start)


def _at(name: str, word: Word) -> Place:
    return Place(name, word.line, word.column, word.column + len(word.flag))


def _lines_of(finding: Finding, verdict: Checked, name: str) -> set[int]:
    """Returns the line of the finding's first argument that the file sets; else of any argument of the plan."""
    for plan in plans_of(verdict.made).values():
        for field in (*finding.fields, *plan.origins):
            for origin in reversed(plan.origins.get(field, ())):
                if stated := re.match(rf"{re.escape(name)}:(\d+)", origin.place):
                    return {int(stated[1])}
    return set()


def _meanings(finding: Finding) -> Iterator[Callable[[Word], bool]]:
    """Yields tests for the word that a finding is about: a word that sets one of its arguments, in order, then a flag
    or word that its message quotes."""
    yield from (partial(_sets, field) for field in finding.fields)
    for found in _QUOTED.finditer(finding.message):
        yield partial(_reads, found[1] or found[0])


def _reads(text: str, word: Word) -> bool:
    return word.flag in (text, text.lstrip("-"), text.lstrip("-").replace("-", "_"))


def _sets(field: str, word: Word) -> bool:
    """Returns whether a word is the flag or key of an argument, or the last part of a dotted key."""
    if word.text.startswith("--"):
        return field in map(_name_of, (word.flag, *parser_of(None).word(word.flag).options))
    return field == _name_of(word.flag) or word.flag == field.rpartition(".")[2]


def _name_of(word: str) -> str | None:
    key = word.lstrip("-").replace("-", "_")
    return canonical_name(key) or key
