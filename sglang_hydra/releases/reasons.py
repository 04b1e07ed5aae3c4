"""Quotes SGLang's own words from the unpacked wheel, at the moment they are shown: of a step, of an argument's help."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_hydra.releases import wheels
from sglang_hydra.releases.records import record_of
from sglang_hydra.rules.answer import Step

if TYPE_CHECKING:
    from sglang_hydra.releases.child.source import Source


_LONGEST = 240


@dataclass(frozen=True)
class Quote:
    """SGLang's own text at a step: the conditions in the step's order, its statement, and the nearest comment or
    docstring."""

    conditions: tuple[str, ...]
    statement: str
    comment: str


def quote(version: str, step: Step) -> Quote | None:
    """Returns the text of the release's wheel at a step; None if the wheel is not here."""
    from sglang_hydra.releases.child.source import source_of

    record, files = record_of(version), {step.file, *(each.file for each in step.conditions)}
    texts = {file: wheels.source_text(record.wheel, file) for file in files} if record else {}
    try:
        sources = {file: source_of(text) for file, text in texts.items() if text is not None}
    except (ValueError, SyntaxError):
        return None
    if record is None or len(sources) < len(texts):
        return None
    source = sources[step.file]
    conditions = tuple(_text(sources[each.file].tests.get(each.line)) for each in step.conditions)
    function = source.function_at(step.line)
    statement = _statement(source, step.line)
    lines = [statement.lineno] if statement else []
    lines += [each.line for each in step.conditions if each.file == step.file]
    comment = next(filter(None, (source.comment(line) for line in lines)), "")
    documented = ast.get_docstring(function) if function and not comment else None
    text = comment or " ".join((documented or "").partition("\n\n")[0].split())
    return Quote(conditions, _text(statement), _cut(text))


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


_PLACES = re.compile(r"sglang/srt/(?:server_args|arg_groups/fields/\w+)\.py")
_HELP_TEXT_LONGEST = 600


def help_of(name: str, version: str) -> str | None:
    """Returns the help of an argument in one line; None if the wheel is not here or has none."""
    record = record_of(version)
    if record is None:
        return None
    places = filter(_PLACES.fullmatch, wheels.source_names(record.wheel))
    for place in sorted(places, reverse=True):  # server_args.py first
        found = next(_helps(name, wheels.source_text(record.wheel, place) or ""), None)
        if found:
            line = " ".join(found.split())
            return line if len(line) <= _HELP_TEXT_LONGEST else f"{line[:_HELP_TEXT_LONGEST]}…"
    return None


def _helps(name: str, source: str) -> Iterator[str]:
    """Yields a file's texts on an argument: of its annotated field, or of its flag."""
    flag = "--" + name.replace("_", "-")
    if name not in source and flag not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            yield from _texts(node.annotation)
        elif isinstance(node, ast.Call) and any(
            isinstance(arg, ast.Constant) and arg.value == flag for arg in node.args
        ):
            yield from _texts(node)


def _texts(node: ast.AST) -> Iterator[str]:
    """Yields each text that is help: given as ``help=``, or beside the type in an annotation."""
    for each in ast.walk(node):
        given = [word.value for word in each.keywords if word.arg == "help"] if isinstance(each, ast.Call) else []
        if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Tuple):
            given += each.slice.elts[1:]
        yield from (text.value for text in given if isinstance(text, ast.Constant) and isinstance(text.value, str))
