"""Text for people: styled lines that become colours on a terminal and plain text everywhere else.

Nothing here interprets markup, and control characters are shown instead of sent: a model path or a log line can
hold anything.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

Span = tuple[str, str]
Line = Sequence[Span]

_WIDEST_VALUE = 60


def text(content: str, style: str = "") -> Span:
    return (content, style)


def printable(content: str) -> str:
    """``content`` with every control character spelled out (``\\x1b``), so that it cannot steer a terminal."""
    if content.isprintable():
        return content
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in content)


def shown(value: Any, *, width: int = _WIDEST_VALUE) -> str:
    """A value as one types it here: ``null``, ``true``, bare words; cut in the middle when it is long."""
    if value is None:
        written = "null"
    elif isinstance(value, bool):
        written = str(value).lower()
    elif isinstance(value, str):
        written = value if value and value == value.strip() else json.dumps(value, ensure_ascii=False)
    elif isinstance(value, (set, frozenset)):
        written = "[" + ", ".join(sorted(map(str, value))) + "]"
    else:
        written = repr(value)
    written = printable(written)
    if len(written) > width:
        head = width * 2 // 3
        written = f"{written[:head]}...{written[head + 3 - width :]}"
    return written


def columns(rows: Sequence[Sequence[Span]], *, indent: str = "  ", gap: str = "  ") -> list[Line]:
    """Rows of cells set under each other; the last cell of a row is not padded."""
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


def write(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    """Writes the lines: through rich on a terminal, as plain text when piped or when NO_COLOR is set."""
    out = stream or sys.stdout
    if out.isatty() and not os.environ.get("NO_COLOR"):
        _write_styled(lines, out)
        return
    body = "".join("".join(content for content, _ in line).rstrip() + "\n" for line in lines)
    out.write(body.encode(out.encoding or "utf-8", "backslashreplace").decode(out.encoding or "utf-8"))
    out.flush()


def _write_styled(lines: Iterable[Line], out: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, highlight=False, emoji=False, markup=False)
    for line in lines:
        console.print(Text.assemble(*(span for span in line)), soft_wrap=True)
