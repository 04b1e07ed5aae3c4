"""What a release says of an argument, quoted from its wheel at the moment it is shown; never kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sglang_hydra.releases import wheels
from sglang_hydra.releases.records import record_of

_PLACES = re.compile(r"sglang/srt/(?:server_args|arg_groups/fields/\w+)\.py")
_LONGEST = 600


def help_of(name: str, version: str) -> str | None:
    """The help of an argument in one line; None where the wheel is not here or has none."""
    record = record_of(version)
    if record is None:
        return None
    places = filter(_PLACES.fullmatch, wheels.source_names(record.wheel))
    for place in sorted(places, reverse=True):  # server_args.py first
        found = next(_helps(name, wheels.source_text(record.wheel, place) or ""), None)
        if found:
            line = " ".join(found.split())
            return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
    return None


def _helps(name: str, source: str) -> Iterator[str]:
    """The texts that a file has for an argument: of its annotated field, or of its flag."""
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
    """A text that stands for the help: given as ``help=``, or beside the type in an annotation."""
    for each in ast.walk(node):
        given = [word.value for word in each.keywords if word.arg == "help"] if isinstance(each, ast.Call) else []
        if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Tuple):
            given += each.slice.elts[1:]
        yield from (text.value for text in given if isinstance(text, ast.Constant) and isinstance(text.value, str))
