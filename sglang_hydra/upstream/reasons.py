"""Why a release has a value: each change that its code made, with its place and the conditions that held.

Places and operands are data of an answer and are kept with it. SGLang's own words are not: ``quote`` takes them from
the unpacked wheel, at the moment they are shown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang_hydra.upstream.child.source import Source


_LONGEST = 240


@dataclass(frozen=True)
class Condition:
    """A condition at a line of a file of the wheel: whether it was true, and what it read, by its text."""

    file: str
    line: int
    holds: bool
    operands: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Step:
    """A statement that set, computed or refused a value. ``inputs`` are what it read, ``conditions`` those under which
    it was run, the innermost first, ``via`` the statements that its value came from. Values of secrets are ``***``."""

    file: str
    line: int
    function: str
    inputs: Mapping[str, Any]
    conditions: tuple[Condition, ...] = ()
    via: tuple[Step, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def all_conditions(self) -> Iterator[Condition]:
        """Its own conditions, and those of what its value came from."""
        yield from self.conditions
        for step in self.via:
            yield from step.all_conditions()


@dataclass(frozen=True)
class Change:
    """A field of the arguments that got another value; of mappings only what differs. ``step`` is None where nobody
    saw it happen."""

    field: str
    before: Any
    after: Any
    step: Step | None


@dataclass(frozen=True)
class Quote:
    """SGLang's own text at a step: the conditions in the order of the step's, its statement, and the comment or the
    docstring that is nearest."""

    conditions: tuple[str, ...]
    statement: str
    comment: str


def change_of(row: Mapping[str, Any]) -> Change:
    """A change as the child writes it."""
    return Change(row["field"], row["before"], row["after"], step_of(row) if "file" in row else None)


def step_of(row: Mapping[str, Any]) -> Step:
    """A step as the child writes it."""
    return Step(
        row["file"],
        row["line"],
        row["function"],
        row["inputs"],
        tuple(Condition(**condition) for condition in row["conditions"]),
        tuple(step_of(step) for step in row["via"]),
    )


def quote(version: str, step: Step) -> Quote | None:
    """What the release's wheel has at a step; None where the wheel is not here."""
    from sglang_hydra.upstream import wheels
    from sglang_hydra.upstream.records import record_of

    record = record_of(version)
    folder = wheels.place_of(record.wheel) if record else None
    if folder is None:
        return None
    try:
        source = _source(folder, step.file)
        conditions = tuple(_condition(_source(folder, each.file), each.line) for each in step.conditions)
    except (OSError, ValueError, SyntaxError):
        return None
    function = source.function_at(step.line)
    statement = _statement(source, step.line)
    lines = [statement.lineno] if statement else []
    lines += [each.line for each in step.conditions if each.file == step.file]
    comment = next(filter(None, (source.comment(line) for line in lines)), "")
    documented = ast.get_docstring(function) if function and not comment else None
    text = comment or " ".join((documented or "").partition("\n\n")[0].split())
    return Quote(conditions, _text(statement), _cut(text))


def _source(folder: Path, file: str) -> Source:
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(file)
    from sglang_hydra.upstream.child.source import source_of

    return source_of(str(path))


def _condition(source: Source, line: int) -> str:
    return _text(source.tests.get(line))


def _statement(source: Source, line: int) -> ast.stmt | None:
    around = [
        each
        for each in source.parents
        if isinstance(each, ast.stmt) and each.lineno <= line <= (each.end_lineno or each.lineno)
    ]
    return min(around, key=lambda each: (each.end_lineno or 0) - each.lineno, default=None)


def _text(node: ast.AST | None) -> str:
    return "" if node is None else _cut(" ".join(ast.unparse(node).split()))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
