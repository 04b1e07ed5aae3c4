"""One life of a server in a log: how far it came, what went wrong in it, whether it ended."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sglang_hydra.run.diagnose.failure_class import LOG_LINES, FailureClass, Signature, Stage, Weight
from sglang_hydra.run.diagnose.lines import Line
from sglang_hydra.text.json_types import JsonDict

MILESTONES = tuple((words, Stage[stage.upper()]) for words, stage in LOG_LINES["milestones"])
STARTED = "server_args="
# Work done for clients: a server that does it has outlived what came before.
WORK = ("Decode batch", "Prefill batch")
_ANSWERED = re.compile(r'"(?:POST|PUT) [^"]{1,200}" 200')
# A request that was refused: the server answered its client with an error, and lives.
_REFUSED = re.compile(r'"(?:POST|PUT) [^"]{1,200}" 4\d\d\b')
# The work after which a failure is acquitted: of the server, and of a request alone.
_PATIENCE = {False: 25, True: 1}
_LONGEST_EVIDENCE = 2000
_MOST_RAISED, _MOST_ADVISED = 32, 256


@dataclass(slots=True)
class Evidence:
    """A line that fits a class: how much it says, when it came, what the server did then."""

    failure: FailureClass
    signature: Signature
    line: Line
    stage: Stage
    exception: bool
    work: int
    fatal: bool = False
    """Whether a process ended by the exception: that another one still answers does not outlive it."""
    place: str = ""
    """Where the exception was raised: ``FILE:FUNCTION`` below the package, empty where no frame says so."""
    time: str = ""
    """When, as ``2026-06-11 08:15:11``; empty where no line says so."""

    @property
    def weight(self) -> Weight:
        return self.signature.weight


class Raised(NamedTuple):
    """An exception as a log shows it. ``place`` is the file below sglang/ and the function of its innermost frame,
    ``at`` that frame's line; None where the frame is not SGLang's or none is shown. ``fatal``: it ended a process."""

    line: Line
    text: str
    place: tuple[str, str] | None
    at: int
    fatal: bool


@dataclass(slots=True)
class Life:
    """The state of one start of a server: bounded by the number of classes, whatever the log's length."""

    started_at: int = 0
    stream: str = ""
    evidence: dict[tuple[str, Weight], Evidence] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    furthest: Stage = Stage.UNKNOWN
    ready: bool = False
    troubled: bool = False
    """An exception of no known class came since it last worked."""
    broken: bool = False
    """An exception came in a scheduler, or in what it calls: no work after it shows that all is well."""
    work: int = 0
    ended_at: int | None = None
    routes: bool = False
    """Whether a router of SGLang's takes requests."""
    quit: bool = False
    """Whether SGLang ends its processes by itself, with SIGKILL."""
    server_args: JsonDict | None = None
    advised: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_MOST_ADVISED))
    raised: list[Raised] = field(default_factory=list)
    """The first exceptions, and of those that end a process the first ones as well."""

    def stage_of(self, rank: str) -> Stage:
        """Returns the stage of ``rank``; where it logged none, the furthest that any rank came. A server that is ready
        serves, although only its first process says so."""
        if self.ready:
            return Stage.SERVE
        if not rank and len(self.stages) > 1:  # a line without a header, of any rank
            return self.furthest
        return self.stages.get(rank, self.furthest)

    def advance(self, line: Line) -> None:
        """Takes note of a milestone. What the same rank complained of before it did not stop it; a progress bar, which
        is written once more when it breaks off, proves nothing."""
        stage = next(stage for words, stage in MILESTONES if words in line.text)
        if len(self.stages) < 4096 or line.rank in self.stages:
            self.stages[line.rank] = stage
        self.furthest = max(self.furthest, stage)
        ready = any(words in line.text for words in LOG_LINES["ready"])
        self.ready = self.ready or ready
        self.troubled, self.broken = self.troubled and not ready, self.broken and not ready
        if ready or line.headed:
            self._acquit(lambda found: ready or (found.line.rank, found.line.stream) == (line.rank, line.stream))

    def worked(self, text: str) -> None:
        """Takes note of work done for clients. It shows that the server is ready, and acquits what it outlived."""
        scheduled = any(words in text for words in WORK)
        if not scheduled and not _ANSWERED.search(text):
            return
        self.work += 1
        self.troubled = False
        if not self.ready:
            self.ready, self.furthest = True, Stage.SERVE
        if self.evidence:
            self._acquit(
                lambda found: (
                    self.work - found.work >= _PATIENCE[found.signature.request] and (scheduled or not found.fatal)
                )
            )

    def refused(self, text: str) -> None:
        """Takes note of a request that was refused: what failed it alone left the server alive."""
        if self.ready and _REFUSED.search(text):
            self.troubled = False
            self._acquit(lambda found: found.signature.request and not found.fatal)

    def end(self, line: Line) -> None:
        """Takes note that a process ended."""
        if self.ended_at is None:
            self.ended_at = line.number
        self.quit = self.quit or any(words in line.text for words in LOG_LINES["quit"])

    def add(self, found: Evidence) -> None:
        """Keeps the first evidence of a class and weight, by its time where both have one."""
        key = (found.failure.kind, found.weight)
        had = self.evidence.get(key)
        if had is None or (found.time and found.time < had.time):
            shortened = found.line._replace(text=found.line.text[:_LONGEST_EVIDENCE])
            found.line = shortened
            self.evidence[key] = found

    def hear(self, number: int, text: str) -> None:
        """Keeps a line that asks for something, the latest ones."""
        self.advised.append((number, text[:_LONGEST_EVIDENCE]))

    def note(self, raised: Raised) -> None:
        """Keeps an exception, if it is among the first."""
        if len(self.raised) < _MOST_RAISED or (raised.fatal and len(self.raised) < 2 * _MOST_RAISED):
            self.raised.append(raised)

    def _acquit(self, outlived: Callable[[Evidence], bool]) -> None:
        if self.ended_at is None:
            self.evidence = {key: found for key, found in self.evidence.items() if not outlived(found)}
