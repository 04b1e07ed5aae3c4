"""What a class of failure is: the lines that give it away, what it means, what to type. One small declaration each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

UNKNOWN = "unknown"
"""The kind of a log in which nothing decides."""


class Weight(IntEnum):
    """How much a line says about the cause. Of several the smallest decides, then the earliest."""

    CAUSE = 1
    """The failure itself, in words that mean nothing else."""
    GENERAL = 2
    """The failure in words that a more specific line explains better."""
    EFFECT = 3
    """What another process, rank or library makes of it."""
    END = 4
    """That something ended, by a signal or a code."""


class Stage(IntEnum):
    """What a server is doing, in the order of its start. ``UNKNOWN`` where the log does not say."""

    UNKNOWN = 0
    START = 1
    CONNECT = 2
    LOAD = 3
    KV = 4
    GRAPHS = 5
    SERVE = 6


@dataclass(frozen=True, slots=True)
class Signature:
    """A line that gives a failure away.

    ``needle`` is text that the line holds, letter by letter; ``pattern`` (a regular expression, searched) what must
    hold besides. ``stage`` is what the server must have been doing, ``frame`` a file or function that must be in the
    traceback (``^at `` begins the innermost one outside of Python's own library). ``in_warning`` believes it also in
    a line that calls itself a warning; ``exception`` only in the line that ends a traceback. ``request`` marks what
    fails one request and leaves the server alive: any work after it acquits it. ``advice`` replaces the class's.
    """

    needle: str
    pattern: re.Pattern[str] | None = None
    weight: Weight = Weight.CAUSE
    stage: Stage | None = None
    frame: re.Pattern[str] | None = None
    in_warning: bool = False
    request: bool = False
    exception: bool = False
    advice: str | None = None


def sign(
    needle: str,
    pattern: str | None = None,
    weight: Weight = Weight.CAUSE,
    *,
    stage: Stage | None = None,
    frame: str | None = None,
    in_warning: bool = False,
    request: bool = False,
    exception: bool = False,
    advice: str | None = None,
) -> Signature:
    """A ``Signature`` with its expressions compiled. ``exception``: only in the line that ends a traceback."""
    return Signature(
        needle,
        re.compile(pattern) if pattern else None,
        weight,
        stage,
        re.compile(frame) if frame else None,
        in_warning,
        request,
        exception,
        advice,
    )


@dataclass(frozen=True)
class FailureClass:
    """One class of failure.

    ``kind`` and ``id`` are stable. ``what`` says in a few words what happened, ``meaning`` why it does, ``advice``
    what to type (several things are separated by "; or "). ``retryable``: the same command may succeed next time.
    ``fields`` are the arguments concerned, the one to change first. ``changes`` are overrides worth planning, the
    smallest first; ``memory`` says that the fit knows better ones. ``signals`` are those whose number, as the exit
    state of a process, means this class where no line says more. ``details`` reads numbers or names out of the line.
    """

    id: str
    kind: str
    what: str
    meaning: str
    advice: str
    signatures: tuple[Signature, ...]
    retryable: bool = False
    fields: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    memory: bool = False
    signals: tuple[int, ...] = ()
    details: Callable[[str], str | None] | None = field(default=None, compare=False)

    @cached_property
    def needles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(signature.needle for signature in self.signatures))


def exited(code: int) -> str:
    """A pattern for how Docker, Kubernetes, Slurm and shells report an exit code."""
    return rf"(?:[Ee]xit(?:ed)?[ -]?(?:with )?(?:[Cc]ode)?|exitCode|code|status)[\"']?[ :=(]{{1,8}}{code}\b"
