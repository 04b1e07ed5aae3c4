"""Tracks one life of a server in a log: its progress, its failures, its end."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sglang_hydra.run.diagnose.classes import LOG_LINES, FailureClass, Signature, Stage, Weight
from sglang_hydra.run.diagnose.lines import Line

MILESTONES = {words: Stage[stage.upper()] for stage, all in LOG_LINES["milestones"].items() for words in all}
STARTED = "server_args="
# Work for clients: a server that works has survived earlier errors.
WORK = ("Decode batch", "Prefill batch")
_ANSWERED = re.compile(r'"(?:POST|PUT) [^"]{1,200}" 200')
# A refused request: the server answered its client with an error, and lives.
_REFUSED = re.compile(r'"(?:POST|PUT) [^"]{1,200}" 4\d\d\b')
# Units of work after which a failure is acquitted: of the server (False), of one request (True).
_PATIENCE = {False: 25, True: 1}
LONGEST_EVIDENCE = 2000
_MOST_RAISED, _MOST_ADVISED = 32, 256


@dataclass(slots=True)
class Evidence:
    """A line that fits a class, with its weight and the stage of the server. ``fatal``: the exception ended a process;
    answers of another process do not acquit it. ``place`` is where it was raised, ``FILE:FUNCTION`` below the package,
    ``time`` its time, as ``2026-06-11 08:15:11``, and ``frames`` its traceback; they are empty when no line gives
    them."""

    failure: FailureClass
    signature: Signature
    line: Line
    stage: Stage
    exception: bool
    work: int
    fatal: bool = False
    place: str = ""
    time: str = ""
    frames: tuple[str, ...] = ()

    @property
    def weight(self) -> Weight:
        return self.signature.weight


class Raised(NamedTuple):
    """An exception in a log. ``place`` is the file below sglang/ and the function of its innermost frame, None for
    foreign code; ``at`` is the line of that frame, 0 without a traceback. ``fatal``: it ended a process."""

    line: Line
    text: str
    place: tuple[str, str] | None
    at: int
    fatal: bool


@dataclass(slots=True)
class Life:
    """The state of one start of a server. Its size depends on the number of classes, not on the length of the log.

    ``troubled``: an exception of any kind came after the last work. ``broken``: a scheduler, or code that it calls,
    raised one: later work does not prove health. ``routes``: a router of SGLang takes requests. ``quit``: SGLang ends
    its own processes, by SIGKILL. ``raised`` are the first exceptions, and the first of those that end a process."""

    stream: str = ""
    evidence: dict[tuple[str, Weight], Evidence] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    furthest: Stage = Stage.UNKNOWN
    milestone: str = ""
    ready: bool = False
    troubled: bool = False
    broken: bool = False
    work: int = 0
    ended: bool = False
    routes: bool = False
    quit: bool = False
    arguments: str = ""
    """The line in which the server logs its arguments; empty before it."""
    advised: deque[Line] = field(default_factory=lambda: deque(maxlen=_MOST_ADVISED))
    raised: list[Raised] = field(default_factory=list)

    def stage_of(self, rank: str) -> Stage:
        """Returns the stage of ``rank``, or the furthest stage of any rank if ``rank`` logged none. Returns SERVE for
        every rank once the server is ready, because only the first process reports it."""
        if self.ready:
            return Stage.SERVE
        of_any = not rank and len(self.stages) > 1  # a line without a header
        return self.furthest if of_any else self.stages.get(rank, self.furthest)

    def advance(self, line: Line) -> None:
        """Records a milestone, and acquits earlier failures of the same rank. A progress bar without SGLang's header
        acquits nothing, because it is printed again when it breaks off."""
        stage = next(stage for words, stage in MILESTONES.items() if words in line.text)
        if len(self.stages) < 4096 or line.rank in self.stages:
            self.stages[line.rank] = stage
        self.furthest, self.milestone = max(self.furthest, stage), line.text[:LONGEST_EVIDENCE]
        ready = any(words in line.text for words in LOG_LINES["ready"])
        self.ready = self.ready or ready
        self.troubled, self.broken = self.troubled and not ready, self.broken and not ready
        if ready or line.headed:
            self._acquit(lambda found: ready or (found.line.rank, found.line.stream) == (line.rank, line.stream))

    def worked(self, text: str) -> None:
        """Records work for clients: it shows that the server is ready, and acquits failures that it survived."""
        scheduled = any(words in text for words in WORK)
        if not scheduled and not _ANSWERED.search(text):
            return
        self.work += 1
        self.troubled = False
        if not self.ready:
            self.ready, self.furthest = True, Stage.SERVE
        patience = {request: self.work - units for request, units in _PATIENCE.items()}
        self._acquit(lambda found: found.work <= patience[found.signature.request] and (scheduled or not found.fatal))

    def refused(self, text: str) -> None:
        """Records a refused request, and acquits failures of single requests: the server survived them."""
        if self.ready and _REFUSED.search(text):
            self.troubled = False
            self._acquit(lambda found: found.signature.request and not found.fatal)

    def end(self, line: Line) -> None:
        """Records the end of a process."""
        self.ended = True
        self.quit = self.quit or any(words in line.text for words in LOG_LINES["quit"])

    def add(self, found: Evidence) -> None:
        """Keeps the first evidence of each class and weight; by time where both have one."""
        key = (found.failure.kind, found.weight)
        had = self.evidence.get(key)
        if had is None or (found.time and found.time < had.time):
            found.line = found.line._replace(text=found.line.text[:LONGEST_EVIDENCE])
            self.evidence[key] = found

    def note(self, raised: Raised) -> None:
        """Keeps an exception while the list has capacity; fatal ones have more."""
        if len(self.raised) < _MOST_RAISED or (raised.fatal and len(self.raised) < 2 * _MOST_RAISED):
            self.raised.append(raised)

    def _acquit(self, outlived: Callable[[Evidence], bool]) -> None:
        if not self.ended:
            self.evidence = {key: found for key, found in self.evidence.items() if not outlived(found)}
