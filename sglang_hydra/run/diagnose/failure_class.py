"""The types of a failure class: the lines that show it, what it means, what to type. ``classes/`` has them all."""

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
"""The lines by which a log shows how a server is."""

UNKNOWN = "unknown"
"""The kind of a log in which nothing decides."""
_ANYTHING = re.compile(r"(?<!\\)\.([*+])")
_BETWEEN = 400


@cache  # only a few of the hundreds of expressions are needed for one log, and ``re`` keeps too few compiled
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern in which ``.*`` matches at most ``_BETWEEN`` letters: unbounded ones cost a line's square."""
    return re.compile(_ANYTHING.sub(lambda found: f".{{{int(found[1] == '+')},{_BETWEEN}}}", pattern))


class Weight(IntEnum):
    """The weight of a line as evidence for the cause. Of several the smallest decides, then the earliest."""

    CAUSE = 1
    """The failure itself, in words that mean nothing else."""
    GENERAL = 2
    """The failure in words that a more specific line explains better."""
    FAULT = 3
    """An exception inside SGLang of which only the place is known. Anything more telling in the same line decides."""
    EFFECT = 4
    """What another process, rank or library makes of it."""
    END = 5
    """That something ended, by a signal or a code."""


class Stage(IntEnum):
    """The stages of a server, in the order of its start. ``UNKNOWN`` where the log does not say."""

    UNKNOWN = 0
    START = 1
    CONNECT = 2
    LOAD = 3
    KV = 4
    GRAPHS = 5
    SERVE = 6


_NEAR = 4096
_LEAST = 2
"""Letters of a needle."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A line that gives a failure away.

    The line holds one of the texts ``needles``, letter by letter; ``pattern`` (a regular expression, searched) is what
    must hold besides, ``unless`` what must not. ``stage`` is what the server must have been doing, ``frame`` a file or
    function that must be in the traceback (``^at `` begins the innermost one outside of Python's own library, ``^hit at
    `` the same of a process that ends by it). ``in_warning`` believes it also in a line that calls itself a warning;
    ``exception`` only in the line that ends a traceback. ``request`` marks what fails one request and leaves the server
    alive: any work after it acquits it. ``advice``, ``what`` and ``retryable`` replace the class's.
    """

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
        """Raises TypeError for a needle that nearly every line has."""
        for needle in self.needles:
            if len(needle.strip()) < _LEAST:
                raise TypeError(f"needle {needle!r} decides nothing: it has fewer than {_LEAST} letters")

    def fits(self, line: str, needle: str) -> bool:
        """Returns whether a line that holds ``needle`` has what else it must, at most ``_NEAR`` characters away."""
        if len(line) > _NEAR:  # the time that a pattern takes may grow with the square of what it searches
            start = max(0, line.find(needle) - _NEAR // 4)
            line = line[start : start + _NEAR]
        return (self.pattern is None or _compiled(self.pattern).search(line) is not None) and (
            self.unless is None or _compiled(self.unless).search(line) is None
        )

    def fits_trace(self, frames: Sequence[str]) -> bool:
        """Returns whether the traceback has the frame that is asked for, if any is; ``^$`` asks for none at all."""
        return self.frame is None or any(_compiled(self.frame).search(frame) for frame in frames or ("",))


@dataclass(frozen=True, slots=True)
class Detail:
    """A number or a name in the deciding line.

    ``pattern`` is a regular expression; ``text`` says what was found, with ``\\1`` for its first group. Without it the
    last group that matched is the text.
    """

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

    ``kind`` and ``id`` are stable. ``what`` says in a few words what happened, ``meaning`` why it does, ``advice``
    things to type, the best first. ``retryable``: the same command may succeed next time.
    ``fields`` are the arguments concerned, the one to change first. ``changes`` are overrides worth planning, the
    smallest first; ``memory`` says that the fit knows better ones. ``signals`` are those whose number, as the exit
    state of a process, means this class where no line says more. Of ``details`` the first that is found is shown.
    ``places`` are the libraries, and the rooms of SGLang, in which an exception means this class.
    """

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
        """Returns the numbers and names in the deciding line, None where there are none."""
        return next((text for detail in self.details if (text := detail.of(line))), None)
