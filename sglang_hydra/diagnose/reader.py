"""Reads a log once, line by line, in bounded memory, and keeps what a verdict needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sglang_hydra.diagnose.classes import CLASSES
from sglang_hydra.diagnose.declare import FailureClass, Signature, Stage, Weight
from sglang_hydra.diagnose.devices import Devices
from sglang_hydra.diagnose.lines import Cleaner, Line, numbered
from sglang_hydra.diagnose.life import ENDINGS, MILESTONES, READY, STARTED, WORK, Evidence, Life
from sglang_hydra.diagnose.releases import stated_version
from sglang_hydra.diagnose.server_args import parse_server_args
from sglang_hydra.diagnose.traces import Traces, looks_like_exception

SHOWN_LAST = 12
"""Lines at the end that are shown where nothing decides."""

# A line without any of these letters is passed over at once: a test holds every needle against them.
STEMS = (
    "rror",
    "RROR",
    "xcept",
    "ail",
    "ill",
    "KILL",
    "emory",
    "EMORY",
    "ime",
    "IME",
    "not ",
    "annot",
    "o ",
    "nvalid",
    "upport",
    "atal",
    "XXX",
)
_INDEX: tuple[tuple[str, tuple[tuple[int, FailureClass, Signature], ...]], ...]
# What a line can say that makes no sense to hold against the server: it was tried again, or done without.
_HARMLESS = (
    "Ignore import error",
    "may not be an issue",
    "will retry",
    "Retrying",
    "retrying",
    "retry() failed",
    "alling back",
    "all back to",
    "allback to",
    "Address family not supported",
    "To silence this warning",
    "This is expected",
    "This is normal",
    "can be ignored",
    "safely ignore",
)
_CHAINED = ("During handling of the above exception", "was the direct cause of the following exception")
_TRACEBACK = "Traceback (most recent call last)"
_MOST_LIVES = 32


class LogReader:
    """Feeds on lines; ``lives`` are the starts of a server in them, oldest first."""

    def __init__(self) -> None:
        self.lives: list[Life] = [Life()]
        self.skipped_lives = 0
        self.version: str | None = None
        self.devices = Devices()
        self.last: deque[tuple[int, str]] = deque(maxlen=SHOWN_LAST)
        self.count = 0
        self._cleaner = Cleaner()
        self._traces = Traces()
        self._chained: set[str] = set()

    @property
    def life(self) -> Life:
        return self.lives[-1]

    def read(self, lines: Iterable[str]) -> LogReader:
        """Reads all ``lines``."""
        for number, raw in numbered(lines):
            self.feed(number, raw)
        return self

    def feed(self, number: int, raw: str) -> None:
        """Reads one line."""
        self.count = number
        if not raw or raw.isspace():
            return
        self.last.append((number, raw[:1000]))
        for line in self._cleaner.clean(number, raw):
            self._take(line)

    def _take(self, line: Line) -> None:
        text = line.text
        if any(words in text for words in WORK) or ' 200' in text:
            self.life.worked(text)
        if 'File "' in text and self._traces.frame(line.stream, text):
            return
        if _TRACEBACK in text:
            self._begin_trace(line)
        elif any(words in text for words in _CHAINED):
            self._chained.add(line.stream)
        elif STARTED in text:
            self._start(line)
        elif any(words in text for words, _ in MILESTONES):
            self.life.advance(line)
        if self.version is None and "glang" in text:
            self.version = stated_version(text)
        self.devices.read(text)
        self._judge(line)
        if any(words in text for words in ENDINGS) or text.strip() in ("Killed", "Aborted"):
            self.life.end(line)

    def _begin_trace(self, line: Line) -> None:
        chained = line.stream in self._chained and not line.headed
        self._chained.discard(line.stream)
        self._traces.begin(line.stream, line.rank, chained=chained)

    def _start(self, line: Line) -> None:
        """Another start of the server, unless it is another node's that starts together with this one."""
        life, args = self.life, parse_server_args(line.text)
        if args is None:
            return
        elsewhere = bool(line.stream and life.stream and line.stream != life.stream)
        again = life.ended_at is not None or life.furthest >= Stage.LOAD
        if life.server_args is not None and again and not elsewhere:
            self.lives.append(Life(started_at=line.number))
            if len(self.lives) > _MOST_LIVES:
                del self.lives[1]
                self.skipped_lives += 1
        life = self.life
        if life.server_args is None:
            life.server_args, life.stream = args, line.stream
        life.furthest = max(life.furthest, Stage.START)

    def _judge(self, line: Line) -> None:
        text = line.text
        trace, ends = self._traces.of(line.stream, text, headed=line.headed)
        if self._traces.within(line.stream) and not line.headed:
            return  # frames and their source
        if any(words in text for words in _HARMLESS):
            return
        exception = ends or looks_like_exception(text)
        rank = trace.rank if trace is not None else line.rank
        stage = self._stage(text, trace.stage if trace is not None else None, rank)
        frames = trace.frames if trace is not None else ()
        found: tuple[Weight, int, FailureClass, Signature] | None = None
        for needle, entries in _INDEX:
            if needle not in text:
                continue
            for order, failure, signature in entries:
                if found is not None and (signature.weight, order) >= found[:2]:
                    continue
                if line.warning and not signature.in_warning and not exception:
                    continue
                if signature.exception and not exception:
                    continue
                if signature.stage is not None and signature.stage != stage:
                    continue
                if signature.frame is not None and not any(signature.frame.search(frame) for frame in frames):
                    continue
                if signature.pattern is not None and signature.pattern.search(text) is None:
                    continue
                found = (signature.weight, order, failure, signature)
        if found is not None:
            weight, _, failure, signature = found
            line = line._replace(rank=rank)
            self.life.add(Evidence(failure, signature, weight, line, stage, exception, self.life.work))

    def _stage(self, text: str, traced: Stage | None, rank: str) -> Stage:
        if "graph failed" in text:
            return Stage.GRAPHS
        return traced if traced is not None else self.life.stage_of(rank)


def _index() -> tuple[tuple[str, tuple[tuple[int, FailureClass, Signature], ...]], ...]:
    """The signatures by needle, each with its place in the table."""
    by_needle: dict[str, list[tuple[int, FailureClass, Signature]]] = {}
    for order, failure in enumerate(CLASSES):
        for signature in failure.signatures:
            by_needle.setdefault(signature.needle, []).append((order, failure, signature))
    return tuple((needle, tuple(entries)) for needle, entries in by_needle.items())


_INDEX = _index()
