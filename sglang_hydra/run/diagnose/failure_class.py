"""Types of a failure class: the lines that show it, its meaning, what to type. ``classes/`` holds the entries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from sglang_hydra.text.budget import quick_load
from sglang_hydra.text.json_types import JsonObject

LOG_LINES: JsonObject = quick_load(Path(__file__).with_name("log_lines.yaml").read_text(encoding="utf-8"))
"""The texts by which a log shows the state of a server."""

UNKNOWN = "unknown"
"""The kind for a log without a deciding line."""
_ANYTHING = re.compile(r"(?<!\\)\.([*+])")
_BETWEEN = 400


@cache  # only a few of the hundreds of expressions are needed for one log, and ``re`` keeps too few compiled
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern. ``.*`` matches at most ``_BETWEEN`` characters: unbounded, it takes quadratic time."""
    return re.compile(_ANYTHING.sub(lambda found: f".{{{int(found[1] == '+')},{_BETWEEN}}}", pattern))


class Weight(IntEnum):
    """The weight of a line as evidence. The smallest number decides, then the earliest line."""

    CAUSE = 1
    """The failure itself, in unambiguous words."""
    GENERAL = 2
    """The failure in general words; a more specific line explains it better."""
    FAULT = 3
    """An exception in SGLang of which only the place is known. A more specific signature in the line wins."""
    EFFECT = 4
    """A consequence that another process, rank or library reports."""
    END = 5
    """The end of a process by a signal or an exit code."""


class Stage(IntEnum):
    """The stages of a server in startup order. ``UNKNOWN`` when the log does not show the stage."""

    UNKNOWN = 0
    START = 1
    CONNECT = 2
    LOAD = 3
    KV = 4
    GRAPHS = 5
    SERVE = 6


_NEAR = 4096
_LEAST = 2
"""The shortest needle, in characters."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Describes a line that proves a failure.

    The line contains one of the texts ``needles``. ``pattern`` is a regular expression that must match too, ``unless``
    one that must not. ``stage`` is the required stage of the server, ``frame`` a required file or function in the
    traceback (``^at `` begins the innermost frame outside Python's own library, ``^hit at `` the same in a traceback
    that ends its process). ``in_warning`` also accepts lines marked as warnings; ``exception`` accepts only the last
    line of a traceback. ``request`` marks a failure of one request: the server lives, and any later work acquits it.
    ``advice``, ``what`` and ``retryable`` replace those of the class."""

    needles: tuple[str, ...]
    pattern: str | None = None
    unless: str | None = None
    weight: Weight = Weight.CAUSE
    stage: Stage | None = None
    frame: str | None = None
    in_warning: bool = False
    request: bool = False
    exception: bool = False
    advice: tuple[str, ...] = ()
    what: str | None = None
    retryable: bool | None = None

    def __post_init__(self) -> None:
        """Raises TypeError for a needle that is too short to decide anything."""
        for needle in self.needles:
            if len(needle.strip()) < _LEAST:
                raise TypeError(f"needle {needle!r} decides nothing: it has fewer than {_LEAST} letters")

    def fits(self, line: str, needle: str) -> bool:
        """Returns whether ``pattern`` and ``unless`` accept a line around ``needle`` (``_NEAR`` characters)."""
        if len(line) > _NEAR:  # the time that a pattern takes may grow with the square of what it searches
            start = max(0, line.find(needle) - _NEAR // 4)
            line = line[start : start + _NEAR]
        fits = self.pattern is None or _compiled(self.pattern).search(line) is not None
        return fits and (self.unless is None or _compiled(self.unless).search(line) is None)

    def fits_trace(self, frames: Sequence[str]) -> bool:
        """Returns whether the traceback has the required frame, if any. ``^$`` requires a log without frames."""
        return self.frame is None or any(_compiled(self.frame).search(frame) for frame in frames or ("",))


@dataclass(frozen=True, slots=True)
class Detail:
    """A number or a name in the deciding line.

    ``pattern`` is a regular expression. ``text`` is the result, with ``\\1`` for the first group; without ``text`` the
    result is the last group that matched."""

    pattern: str
    text: str | None = None

    def of(self, line: str) -> str | None:
        found = _compiled(self.pattern).search(line)
        if found is None:
            return None
        return found.expand(self.text) if self.text else found[found.lastindex or 0]


@dataclass(frozen=True)
class FailureClass:
    """One class of failure.

    ``kind`` and ``id`` are stable. ``what`` says briefly what happened, ``meaning`` why, ``advice`` what to type, best
    first. ``retryable``: the same command may succeed next time. ``fields`` are the arguments concerned, the first one
    to change first. ``changes`` are overrides to plan, smallest first; ``memory`` means that the fit knows better ones.
    An exit by one of ``signals`` means this class when no line says more. The first of ``details`` that matches is
    shown. ``places`` are libraries and directories of SGLang whose exceptions mean this class."""

    id: str
    kind: str
    what: str
    meaning: str
    advice: tuple[str, ...]
    signatures: tuple[Signature, ...]
    retryable: bool = False
    fields: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    memory: bool = False
    signals: tuple[int, ...] = ()
    details: tuple[Detail, ...] = ()
    places: tuple[Signature, ...] = ()

    def detail(self, line: str) -> str | None:
        """Returns the numbers and names in the deciding line, or None."""
        return next((text for detail in self.details if (text := detail.of(line))), None)
