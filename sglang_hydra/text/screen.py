"""Writes text for people: styled lines with colours on a terminal, plain text everywhere else.

Nothing here interprets markup. Control characters are escaped, because a model path or a log line can hold anything."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from sglang_hydra.text.words import typed, without_secret_forms

Span = tuple[str, str]
Line = Sequence[Span]

VERBATIM = "verbatim"
"""The style of text to copy: it is never broken into lines."""

_WIDEST_VALUE = 60
_WIDTH, _WIDEST, _NARROWEST = 100, 120, 40
_MARGIN_BELOW = 6
# Text that looks like another type: shown in quotes, as users must type it.
_LIKE_ANOTHER = re.compile(r"null|true|false|none|nan|[+-]?inf|[+-]?[\d_.]+(e[+-]?\d+)?", re.IGNORECASE)


def text(content: str, style: str = "") -> Span:
    """Makes a piece of a line; control characters in it are escaped."""
    return (printable(content), style)


def printable(content: str) -> str:
    r"""Escapes every control character in ``content`` (``\x1b``), so that it cannot steer a terminal, and hides what
    has the form of a secret."""
    content = without_secret_forms(content)
    if content.isprintable():
        return content
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in content)


def shown(value: object, *, width: int = _WIDEST_VALUE) -> str:
    """Formats a value as users type it: ``null``, ``true``, bare words. A long value is cut in the middle."""
    written = printable(_written(value))
    if len(written) > width:
        head = width * 2 // 3
        written = f"{written[:head]}...{written[head + 3 - width :]}"
    return written


def texts(contents: Iterable[str], style: str = "") -> list[Span]:
    return [text(content, style) for content in contents]


def shown_changes(pairs: Iterable[tuple[object, object]], *, width: int) -> list[str]:
    """Formats changes, ``null -> 8192``; a new value is cut to ``width``."""
    return [f"{shown(before, width=24)} -> {shown(after, width=width)}" for before, after in pairs]


def _written(value: object) -> str:
    if value is None or isinstance(value, bool):
        return typed(value)
    if isinstance(value, str):
        bare = value and value == value.strip() and not _LIKE_ANOTHER.fullmatch(value)
        return value if bare else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (set, frozenset)):
        return "[" + ", ".join(sorted(map(_written, value))) + "]"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_written(item)}" for key, item in value.items()) + "}"
    return str(value)


def columns(rows: Sequence[Sequence[Span]], *, indent: str = "  ", gap: str = "  ") -> list[Line]:
    """Aligns rows of cells in columns; the last cell of a row is not padded."""
    widths: list[int] = []
    for row in rows:
        for index, (content, _) in enumerate(row[:-1]):
            if index == len(widths):
                widths.append(0)
            widths[index] = max(widths[index], len(content))
    lines: list[Line] = []
    for row in rows:
        line: list[Span] = [text(indent)]
        for index, (content, style) in enumerate(row):
            last = index == len(row) - 1
            line.append((content if last else content.ljust(widths[index]), style))
            if not last:
                line.append(text(gap))
        lines.append(line)
    return lines


def table(rows: Sequence[Sequence[Span]]) -> list[Line]:
    """Aligns rows below a row of titles; on a narrow terminal, each row becomes a list under its first cell."""
    lines = columns(rows)
    if not sys.stdout.isatty() or max(sum(len(content) for content, _ in line) for line in lines) <= room():
        return lines
    titles, *body = rows
    found: list[Line] = []
    for first, *cells in body:
        found += [[text("  "), first], *columns(list(zip(titles[1:], cells, strict=False)), indent="    ")]
    return found


def all_folded(lines: Iterable[Line]) -> list[Line]:
    """Breaks the lines that are longer than the columns for text."""
    width = room()
    return [part for line in lines for part in folded(line, width)]


def folded(line: Line, width: int = 0) -> list[Line]:
    """Breaks a line that is longer than ``width`` columns (0: those for text); its last piece continues below its
    start."""
    width = width or room()
    if sum(len(content) for content, _ in line) <= width or line[-1][1] == VERBATIM:
        return [line]
    import textwrap

    *head, (content, style) = line
    margin = sum(len(piece) for piece, _ in head) + len(content) - len(content.lstrip())
    longest = max(map(len, content.split()), default=0)
    # Too few columns are left beside the other pieces: the last piece goes below them.
    below = margin > width * 2 // 3 or width - margin < longest <= width - _MARGIN_BELOW
    if below and content[:1] in (",", ";", ":", ")"):
        head, content = [*head, (content[0], style)], content[1:]
    margin = _MARGIN_BELOW if below else margin
    parts = textwrap.wrap(content.strip(), width - margin, break_long_words=False, break_on_hyphens=False)
    lines: list[Line] = [[(" " * margin, ""), (part, style)] for part in parts]
    if below:
        return [_without_padding(head), *lines]
    indent = content[: len(content) - len(content.lstrip())]
    return [[*head, (indent + "".join(parts[:1]), style)], *lines[1:]]


def with_command(line: Line, command: str) -> list[Line]:
    """Returns a command after the words that introduce it. On a terminal too narrow for both, the command goes below,
    with backslashes at line ends, so that it can be pasted."""
    whole: Line = [*line, text(command, VERBATIM)]
    if not sys.stdout.isatty() or sum(len(content) for content, _ in whole) <= room():
        return [whole]
    parts = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if len(parts[-1]) + len(word) > room() - len("    ") - len(" \\ "):
            parts.append("  ")
        parts[-1] += f"{word} "
    continued = [f"  {part}\\" for part in parts[:-1]]
    return [*folded(line, room()), *([text(part, VERBATIM)] for part in [*continued, f"  {parts[-1].rstrip()}"])]


def _without_padding(line: Line) -> Line:
    kept = list(line)
    while kept and not kept[-1][0].strip():
        kept.pop()
    return [*kept[:-1], (kept[-1][0].rstrip(), kept[-1][1])] if kept else []


def room() -> int:
    """Returns the columns for text: those of the terminal or of COLUMNS, limited to 40 to 120; 100 without either."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return _WIDTH
    import shutil

    return max(min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDEST), _NARROWEST)


def write(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    """Writes the lines: through rich on a terminal, as plain text when piped or when NO_COLOR is set."""
    out = stream or sys.stdout
    terminal = out.isatty()
    if terminal:
        import shutil

        width = max(shutil.get_terminal_size().columns, _NARROWEST)
        lines = [part for line in lines for part in folded(line, width)]
    if terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        _write_styled(lines, out)
        return
    out.write("".join("".join(_sendable(content, out) for content, _ in line).rstrip() + "\n" for line in lines))
    out.flush()


def _sendable(content: str, out: TextIO) -> str:
    """Escapes the characters of ``content`` that the stream's encoding lacks."""
    encoding = out.encoding or "utf-8"
    return content.encode(encoding, "backslashreplace").decode(encoding)


def _write_styled(lines: Iterable[Line], out: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, highlight=False, emoji=False, markup=False)
    for line in lines:
        pieces = [(_sendable(content, out), "" if style == VERBATIM else style) for content, style in line]
        console.print(Text.assemble(*pieces), soft_wrap=True)


def print_json(record: Mapping[str, object]) -> None:
    """Prints a record as ASCII JSON for programs."""
    import json

    content = json.dumps(record, indent=2, ensure_ascii=True, allow_nan=False)
    sys.stdout.write(f"{without_secret_forms(content)}\n")
    sys.stdout.flush()  # a closed pipe (head) fails here and not while the interpreter shuts down
