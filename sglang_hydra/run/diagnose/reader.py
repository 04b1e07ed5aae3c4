"""Reads a log once, line by line, in bounded memory, and keeps what a verdict needs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache

from sglang_hydra.run.diagnose.classes import failure_classes
from sglang_hydra.run.diagnose.failure_class import FailureClass, Signature, Stage
from sglang_hydra.run.diagnose.life import MILESTONES, STARTED, WORK, Evidence, Life
from sglang_hydra.run.diagnose.lines import Cleaner, Line, numbered
from sglang_hydra.run.diagnose.log_lines import LOG_LINES
from sglang_hydra.run.diagnose.log_origin import Devices, Others, stated_version
from sglang_hydra.run.diagnose.server_args import parse_server_args
from sglang_hydra.run.diagnose.traces import Traces, looks_like_exception

SHOWN_LAST = 12
"""Lines at the end that are shown where nothing decides."""

# Needles are looked for only where their group's letters are found: most lines hold few of these. Any list is correct;
# this one is fast.
_STEMS = (
    "rror", "ile", "emo", "xcept", "imeou", "failu", "illed", "STATU", "CCL", "GLIBC", "lib", "xit", "SIG", "path",
    "ot ", "ali", "ort", "ect", "ble", "res", "ter", "ize", "ead", "No ", "ent", "ver", "ata", "tor", "lea", "on ",
    " co", " re", "for", "to ", "and", "ght",
)  # fmt: skip
# Lines that only tell of work, or repeat what a client sent: the greater part of a large log, and never a failure.
_ROUTINE = re.compile(r"(?:Receive|Finish|Abort)\w*: obj=")
_OK = '" 200'
_REFUSED = '" 4'
# What a line can say that makes no sense to hold against the server: it was tried again, or done without.
_HARMLESS = re.compile(
    r"Ignore import error|may not be an issue|will retry|[Rr]etrying|retry\(\) failed|[Ff]alling back|[Ff]all back to|"
    r"[Ff]allback to|Address family not supported|To silence this warning|This is (?:expected|normal)|"
    r"can be (?:safely )?ignored|safely ignore|Ignoring this choice|Skipping tactic|"
    r"No valid triton configs|NCCL INFO|Aborted by AbortReq"
)
_MILESTONE = re.compile("|".join(re.escape(words) for words, _ in MILESTONES))
_ENDING = re.compile("|".join(map(re.escape, LOG_LINES["endings"])))
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_TRACEBACK = "Traceback (most recent call last)"
# A process of SGLang that says so asks the first one for SIGQUIT next: the SIGKILL that follows is SGLang's own.
_ITS_OWN_END = " hit an exception: "
_WITHOUT_WORDS = ("AssertionError", "NotImplementedError", "ValueError", "RuntimeError")
_MOST_LIVES = 32
_KEPT = 1000
Entry = tuple[int, FailureClass, Signature]


class LogReader:
    """Feeds on lines; ``lives`` are the starts of a server in them, oldest first."""

    def __init__(self) -> None:
        self.lives: list[Life] = [Life()]
        self.version: str | None = None
        self.devices = Devices()
        self.others = Others()
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
        self.last.append((number, raw[:_KEPT]))
        if (_OK in raw or WORK[0] in raw or WORK[1] in raw) and len(raw) < _KEPT and "\r" not in raw.rstrip():
            self.life.worked(raw)
            return
        if _REFUSED in raw and (self.life.evidence or self.life.troubled) and len(raw) < _KEPT:
            self.life.refused(raw)
        if "obj=" in raw and _ROUTINE.search(raw):
            return
        for line in self._cleaner.clean(number, raw):
            self.others.read(raw, line.text)
            self._take(line)

    def _take(self, line: Line) -> None:
        text = line.text
        if 'File "' in text and self._traces.frame(line.stream, text):
            return
        if _TRACEBACK in text:
            self.life.quit = self.life.quit or _ITS_OWN_END in text
            self._judge(line)
            self._begin_trace(line)
            return
        if STARTED in text:
            self._start(line)
            return
        if text.startswith(_CHAINED):
            self._chained.add(line.stream)
        elif _MILESTONE.search(text):
            self.life.advance(line)
        if self.version is None and "glang" in text:
            self.version = stated_version(text)
        self.devices.read(text)
        self._judge(line)
        if _ENDING.search(text) or text.strip() in ("Killed", "Aborted"):
            self.life.end(line)

    def _begin_trace(self, line: Line) -> None:
        chained = line.stream in self._chained and not line.headed
        self._chained.clear() if len(self._chained) > _MOST_LIVES else self._chained.discard(line.stream)
        self._traces.begin(line.stream, line.rank, chained=chained)

    def _start(self, line: Line) -> None:
        """Another start of the server, unless it is another node's that starts together with this one."""
        life, args = self.life, parse_server_args(line.text)
        if args is None:
            return
        elsewhere = bool(line.stream and life.stream and line.stream != life.stream)
        begun = life.server_args is not None  # a log may begin within a life
        again = life.ended_at is not None or (begun and life.furthest >= Stage.LOAD)
        if again and not elsewhere and (begun or not line.stream):
            self.lives.append(Life(started_at=line.number))
            if len(self.lives) > _MOST_LIVES:
                del self.lives[1]
        life = self.life
        if life.server_args is None:
            life.server_args, life.stream = args, line.stream
        life.furthest = max(life.furthest, Stage.START)

    def _judge(self, line: Line) -> None:
        text = line.text
        trace, ends = self._traces.of(line.stream, text, headed=line.headed)
        if self._traces.within(line.stream) and not line.headed:
            return  # frames and their source
        if ends and trace is not None and trace.code and text.strip() in _WITHOUT_WORDS:
            text = f"{text.strip()}: {trace.code}"
        exception = ends or looks_like_exception(text)
        needles = list(_needles_in(text))
        if _HARMLESS.search(text):
            return
        self.life.troubled = self.life.troubled or exception
        if not needles:
            return
        rank = trace.rank if trace is not None else line.rank
        stage = self._stage(text, trace.stage if trace is not None else None, rank)
        frames = trace.shown if trace is not None else ()
        best: Entry | None = None
        signatures = _by_needle()
        for needle in needles:
            for entry in signatures[needle]:
                signature = entry[2]
                if best is not None and _rank(entry) >= _rank(best):
                    continue
                if line.warning and not signature.in_warning and not exception:
                    continue
                if signature.exception and not exception:
                    continue
                if signature.stage is not None and signature.stage != stage:
                    continue
                if signature.fits_trace(frames) and signature.fits(text):
                    best = entry
        if best is not None:
            _, failure, signature = best
            line = line._replace(rank=rank, text=text)
            self.life.add(Evidence(failure, signature, line, stage, exception, self.life.work))

    def _stage(self, text: str, traced: Stage | None, rank: str) -> Stage:
        if "graph failed" in text:
            return Stage.GRAPHS
        return traced if traced is not None else self.life.stage_of(rank)


def _rank(entry: Entry) -> tuple[int, int, int]:
    """Of several signatures in one line the weightiest counts, then the longest needle, then the table's order."""
    order, _, signature = entry
    return signature.weight, -len(signature.needle), order


def _needles_in(text: str) -> Iterator[str]:
    for stem, needles in _by_stem():
        if stem in text:
            for needle in needles:
                if needle in text:
                    yield needle


@cache
def _by_needle() -> dict[str, tuple[Entry, ...]]:
    """The signatures by needle, each with its place in the table."""
    found: dict[str, list[Entry]] = {}
    for order, failure in enumerate(failure_classes()):
        for signature in failure.signatures:
            found.setdefault(signature.needle, []).append((order, failure, signature))
    return {needle: tuple(entries) for needle, entries in found.items()}


@cache
def _by_stem() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The needles by the first stem that each holds; those with none are always looked for."""
    groups: dict[str, list[str]] = {}
    for needle in _by_needle():
        groups.setdefault(next((stem for stem in _STEMS if stem in needle), ""), []).append(needle)
    return tuple((stem, tuple(needles)) for stem, needles in groups.items())
