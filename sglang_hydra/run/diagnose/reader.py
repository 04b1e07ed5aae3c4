"""Reads a log once, line by line, in bounded memory, and keeps the evidence for a verdict."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter

from sglang_hydra.run.diagnose.advice import may_advise
from sglang_hydra.run.diagnose.classes import LOG_LINES, FailureClass, Signature, Stage, Weight, failure_classes
from sglang_hydra.run.diagnose.life import LONGEST_EVIDENCE, MILESTONES, STARTED, WORK, Evidence, Life, Raised
from sglang_hydra.run.diagnose.lines import TIME, Cleaner, Line, as_written
from sglang_hydra.run.diagnose.log_facts import Devices, LogNumbers, Others, stated_version
from sglang_hydra.run.diagnose.server_args import writes_server_args

SHOWN_LAST = 12
"""The number of last lines shown when nothing decides."""

# Lines that only report work or repeat a client's request: most of a large log, and never a failure.
_ROUTINE = re.compile(r"(?:Receive|Finish|Abort)\w*: obj=")
_OK = '" 200'
_REFUSED = '" 4'
_HARMLESS = re.compile("|".join(LOG_LINES["harmless"]))
# Text around another error's message; the line is judged as that error.
_WRAPPER = re.compile(
    r"^(?:\w+: )?(?:[Cc]apture .{1,40}graph failed: |Piecewise CUDA [Gg]raph failed with error: |"
    r"(?:Failed to|(?:Error|Exception) (?:in|while|during)) [^:]{1,80}: )(?!(?:\w+\.)*\w+(?:Error|Exception)\b)"
)
_MILESTONE = re.compile("|".join(map(re.escape, MILESTONES)))
_ROUTER, _ROUTES = re.compile(LOG_LINES["router"]), re.compile(LOG_LINES["router_ready"])
_ENDING = re.compile("|".join(map(re.escape, LOG_LINES["endings"])))
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_TRACEBACK = "Traceback (most recent call last)"
# A process of SGLang that logs this sends SIGQUIT to the first one next: the SIGKILL that follows is SGLang's own.
_ITS_OWN_END = " hit an exception:"
_DATE = re.compile(TIME)
# [rank0]:[E222 08:29:45.726123456 ProcessGroupNCCL.cpp:616] of torch, in the time of Python's lines; glog's may be UTC.
_CLOCK = re.compile(r"^\[[EWFI]\d{3,4} (\d\d:\d\d:\d\d(?:\.\d{1,9})?)")
_WITHOUT_WORDS = ("AssertionError", "NotImplementedError", "ValueError", "RuntimeError")
_MOST_LIVES = 32
_KEPT = 1000
Entry = tuple[tuple[bool, int, int, int], FailureClass, Signature, str]


class LogReader:
    """Reads the lines of a log. ``lives`` holds the starts of a server, oldest first."""

    def __init__(self) -> None:
        self.lives: list[Life] = [Life()]
        self.version: str | None = None
        self.devices = Devices()
        self.numbers = LogNumbers()
        self.others = Others()
        self.last: deque[tuple[int, str]] = deque(maxlen=SHOWN_LAST)
        self.count = 0
        self._cleaner = Cleaner()
        self._traces = Traces()
        self._above = ""
        self._times: dict[str, str] = {}

    @property
    def life(self) -> Life:
        return self.lives[-1]

    def read(self, lines: Iterable[str]) -> LogReader:
        """Reads all ``lines``."""
        for number, raw in enumerate(as_written(lines), 1):
            self.feed(number, raw)
        for stream, code in self._traces.left_open():  # the log was cut within a traceback
            self._judge(Line(self.count, code, stream))
        return self

    def feed(self, number: int, raw: str) -> None:
        """Reads one line with its number."""
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
        if 'File "' in text and self._traces.frame(line, self._above):
            return
        self._above = text if not line.headed and looks_like_exception(text) else ""
        if line.time and (line.stream in self._times or len(self._times) < _MOST_LIVES):
            self._times[line.stream] = line.time
        self.life.quit = self.life.quit or _ITS_OWN_END in text
        if STARTED in text:
            self._start(line)
            return
        if _TRACEBACK in text:
            self._judge(line)
            self._traces.begin(line, fatal=_ITS_OWN_END in text)
            return
        if text.startswith(_CHAINED):
            self._traces.chain(line.stream)
        elif _MILESTONE.search(text):
            self.life.advance(line)
            self.numbers.read(text)
        if may_advise(text):
            self.life.advised.append(line._replace(text=text[:LONGEST_EVIDENCE]))
        if self.version is None and "glang" in text:
            self.version = stated_version(text)
        self.devices.read(text)
        self.life.routes = self.life.routes or (_ROUTES.search(text) is not None and _ROUTER.search(text) is not None)
        self._judge(line)
        if _ENDING.search(text) or text.strip() in ("Killed", "Aborted"):
            self.life.end(line)

    def _start(self, line: Line) -> None:
        """Begins another life of the server, unless another node writes its arguments for the same start."""
        life = self.life
        if not writes_server_args(line.text):
            return
        elsewhere = bool(line.stream and life.stream and line.stream != life.stream)
        begun = bool(life.arguments)  # a log may begin within a life
        again = life.ended or (begun and life.furthest >= Stage.LOAD)
        if again and not elsewhere and (begun or not line.stream):
            self.numbers = LogNumbers()
            self.lives.append(Life())
            if len(self.lives) > _MOST_LIVES:
                del self.lives[1]
        life = self.life
        if not life.arguments:
            life.arguments, life.stream = line.text, line.stream
        life.furthest = max(life.furthest, Stage.START)

    def _judge(self, line: Line) -> None:
        text = line.text
        trace, ends = self._traces.of(line.stream, text, headed=line.headed)
        if trace.open:
            return  # frames and their source
        text = text.strip() if ends else text
        if ends and trace.code and text in _WITHOUT_WORDS:
            text = f"{text}: {trace.code}"
        exception = ends or looks_like_exception(text)
        shown, wrapper = text, _WRAPPER.match(text)
        if wrapper is not None:
            text = f"{wrapper[0]}RuntimeError: {text[wrapper.end() :]}"
        fatal = exception and trace.ends_process
        self.life.broken = self.life.broken or (exception and trace.in_scheduler)
        if _HARMLESS.search(text) and not fatal:
            return
        rank = trace.rank or line.rank
        if exception and wrapper is None:
            self._note(line._replace(rank=rank), text, trace)
        self.life.troubled = self.life.troubled or exception
        held = (needles for stem, needles in _by_stem() if stem in text)
        entries = [entry for needles in held for needle, found in needles if needle in text for entry in found]
        if not entries:
            return
        stage = Stage.GRAPHS if "graph failed" in text else trace.stage or self.life.stage_of(rank)
        frames = trace.shown
        for _, failure, signature, needle in sorted(entries, key=itemgetter(0)):
            warned = line.warning and not signature.in_warning
            if (warned or signature.exception) and not exception:
                continue
            if signature.stage in (None, stage) and signature.fits_trace(frames) and signature.fits(text, needle):
                line = line._replace(rank=rank, text=shown)
                work, time = self.life.work, self._time(line)
                place, inner = trace.place, tuple(trace.frames)
                self.life.add(Evidence(failure, signature, line, stage, exception, work, fatal, place, time, inner))
                return

    def _time(self, line: Line) -> str:
        """Returns the time of a line: from its header or text, else from the previous line of its writer."""
        written, last = _DATE.search(line.text[:_KEPT]), self._times.get(line.stream, "")
        clock = _CLOCK.match(line.text)
        if not line.time and clock is not None:
            return f"{last[:10]} {clock[1]}" if last else ""
        if not line.time and written is not None:
            self._times[line.stream] = last = written[0]
        return (line.time or last).replace("T", " ").replace(",", ".")

    def _note(self, line: Line, text: str, trace: Trace) -> None:
        """Keeps an exception with its place, to compare it with SGLang's source."""
        begins = None if _EXCEPTION.match(text) else _EXCEPTION_AT.search(text)
        text = text[begins.start() :] if begins is not None else text
        short = line._replace(text=line.text[:_KEPT])
        self.life.note(Raised(short, text[:_KEPT], trace.raised_at, trace.at, trace.ends_process))


@cache
def _by_stem() -> tuple[tuple[str, list[tuple[str, list[Entry]]]], ...]:
    """Returns the signatures by needle, grouped by the first stem that the needle contains; needles without one are
    always searched.

    An entry begins with its sort key in a line: the smallest weight first, then the longest needle, then the table's
    order; signatures of weight FAULT come last."""
    by_needle: dict[str, list[Entry]] = {}
    for order, failure in enumerate(failure_classes()):
        for signature in (*failure.signatures, *failure.places):
            for needle in signature.needles:
                key = (signature.weight == Weight.FAULT, signature.weight, -len(needle), order)
                by_needle.setdefault(needle, []).append((key, failure, signature, needle))
    groups: dict[str, list[tuple[str, list[Entry]]]] = {}
    for needle, entries in by_needle.items():
        stem = next((stem for stem in LOG_LINES["stems"] if stem in needle), "")
        groups.setdefault(stem, []).append((needle, entries))
    return tuple(groups.items())


# Parses Python's tracebacks, one per writer: the functions that ran when an exception was raised.

_FRAME = re.compile(r'^\s*File "([^"]{1,500})", line (\d{1,7})(?:, in (\S{1,120}))?')
# exceptions.py prints the dotted name of the class, then the message.
_EXCEPTION = re.compile(r"^(?:(?:struct|socket|zlib|binascii|ctypes)\.error|(?:[A-Za-z_]\w*\.){0,8}_?[A-Z]\w*)(?::|$)")
# Python's own library, and attribute lookups.
_STANDARD = re.compile(r"/lib/python3\.\d+/(?!site-packages|dist-packages)|^<frozen | in __getattr(?:ibute)?__$")
# The outermost function of a process of SGLang: an exception that reaches it ends the process.
_PROCESS = re.compile(r" in (?:_run_module_as_main|run_(?:scheduler|detokenizer|data_parallel_controller)_process)$")
_SCHEDULER = re.compile(r"/sglang/srt/(?!entrypoints/|managers/(?:tokenizer_manager|template_manager)|parser/|utils)")
# A path that somebody shortened at SGLang's own folders.
_CUT = re.compile(
    r"^(?:\.{3}|…)?/?(?:srt/)?(?=(?:disaggregation|distributed|entrypoints|hardware_backend|layers|lora|managers|mem_cache"
    r"|model_executor|model_loader|models|speculative)/)"
)
_PACKAGES = re.compile(r"^.*/(?:(?:site|dist)-packages/|sglang/(?=srt/|multimodal_gen/))")
_OWN_FILE = re.compile(r"^.*/sglang/((?:srt|kernels|jit_kernel|cli)/.*\.py)$")
_EXCEPTION_AT = re.compile(r"(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*(?:Error|Exception): ")
_RAISES, _ERRORS = ("raise ", "assert "), ("Error", "Exception", "Interrupt", ".error:")
_MOST_FRAMES, _MOST_WRITERS, _FOLLOWING, _LONGEST_CODE = 96, 64, 40, 300

_STAGES = tuple((Stage[name.upper()], re.compile(found)) for name, found in LOG_LINES["frames"].items())


@dataclass(slots=True)
class Trace:
    """The latest traceback of one writer. ``frames`` are ``path in function``, outermost first. ``fatal``: its first
    line says that the exception ends the process. ``source``: the next line is a frame's source without indentation,
    which some log drivers remove. ``above`` is an exception above its frames, as people write it down. ``at`` is the
    line number of the innermost frame, ``code`` its source line, which explains an assertion without a message."""

    frames: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_FRAMES))
    rank: str = ""
    fatal: bool = False
    open: bool = False
    chained: bool = False
    following: int = 0
    source: bool = False
    above: str = ""
    at: int = 0
    code: str = ""

    @property
    def shown(self) -> tuple[str, ...]:
        """Returns the frames, then the innermost frame outside Python's own library as ``at path in function``, as
        ``hit at ...`` when the exception ends the process, and as ``below sglang at ...`` when SGLang called it."""
        own = self._own
        below = any("/sglang/srt/" in frame for frame in self.frames)
        again = (("at", True), ("hit at", self.ends_process), ("below sglang at", below))
        return (*self.frames, *(f"{words} {own}" for words, is_so in again if is_so and own))

    @property
    def ends_process(self) -> bool:
        """Returns whether the exception ends its process, uncaught."""
        return self.fatal or any(_PROCESS.search(frame) for frame in self.frames)

    @property
    def in_scheduler(self) -> bool:
        """Returns whether a scheduler, or code that it calls, raised the exception, and not the request front end."""
        return self.ends_process or any(_SCHEDULER.search(frame) for frame in self.frames)

    @property
    def _own(self) -> str | None:
        return next((frame for frame in reversed(self.frames) if not _STANDARD.search(frame)), None)

    @property
    def place(self) -> str:
        """Returns ``srt/managers/scheduler.py:run_batch``: the innermost frame of SGLang, else of any package."""
        frame = next((frame for frame in reversed(self.frames) if "/sglang/" in frame), None) or self._own
        if frame is None:
            return ""
        path, _, function = frame.rpartition(" in ")
        return f"{_PACKAGES.sub('', path)}:{function}"

    @property
    def raised_at(self) -> tuple[str, str] | None:
        """Returns ``srt/managers/scheduler.py`` and the function when the innermost frame is SGLang's, else None."""
        path, _, function = self.frames[-1].rpartition(" in ") if self.frames else ("", "", "")
        own = _OWN_FILE.search(path)
        return (own[1], function) if own else None

    @property
    def stage(self) -> Stage | None:
        """Returns the stage that the frames show, or None."""
        shown = (stage for stage, pattern in _STAGES if any(pattern.search(frame) for frame in self.frames))
        return next(shown, None)


_NO_TRACE = Trace()


class Traces:
    """Collects the tracebacks of several writers at once. The numbers of writers and frames are bounded."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, Trace] = OrderedDict()

    def begin(self, line: Line, *, fatal: bool = False) -> Trace:
        """Begins a traceback. A chained one keeps the frames of the traceback before it."""
        trace = self._traces.pop(line.stream, None)
        if trace is None or not trace.chained or line.headed:
            trace = Trace(rank=line.rank, fatal=fatal)
        trace.rank = line.rank or trace.rank
        trace.open, trace.chained, trace.following = True, False, 0
        self._traces[line.stream] = trace
        if len(self._traces) > _MOST_WRITERS:
            self._traces.popitem(last=False)
        return trace

    def chain(self, stream: str) -> None:
        """Records that the next traceback of a writer explains its latest one."""
        if stream in self._traces:
            self._traces[stream].chained = True

    def frame(self, line: Line, above: str = "") -> bool:
        """Records a frame. Returns False for another line. ``above`` is an exception right before the first frame."""
        found = _FRAME.match(line.text)
        if found is None:
            return False
        trace = self._traces.get(line.stream)
        if trace is None or not trace.open:  # the log begins within a traceback, or it has none of Python's first lines
            trace = self.begin(Line(line.number, "", line.stream, headed=True))
            trace.above = above
        trace.frames.append(f"{_CUT.sub('/sglang/srt/', found[1])} in {found[3]}")
        trace.at = int(found[2])
        trace.code = ""
        trace.source = line.text.startswith("File")
        return True

    def of(self, stream: str, text: str, *, headed: bool) -> tuple[Trace, bool]:
        """Returns the traceback that a line belongs to, or an empty one, and whether the line is its last one.

        Further lines of the message belong to it too, until its writer begins another line of its log."""
        trace = self._traces.get(stream, _NO_TRACE)
        if headed or trace is _NO_TRACE:
            trace.open = False
            return _NO_TRACE, False
        if trace.open and trace.source and not looks_like_exception(text):
            trace.source = False
            trace.code = text.strip()[:_LONGEST_CODE]
            return trace, False
        ends = text[:1].strip() and text[0] not in "^~"
        if trace.open and (ends or looks_like_exception(text.strip())):  # somebody may have indented all lines alike
            trace.open = False
            return trace, _EXCEPTION.match(text.strip()) is not None
        if trace.open and text[:1].isspace() and text.strip(" ^~"):
            trace.code = text.strip()[:_LONGEST_CODE]
        trace.following += 1
        return trace if trace.open or trace.following <= _FOLLOWING else _NO_TRACE, False

    def left_open(self) -> list[tuple[str, str]]:
        """Returns the writers of unfinished tracebacks, each with the exception above the frames or the last source
        line, if that raises."""
        open_ones = ((stream, trace.above or trace.code) for stream, trace in self._traces.items() if trace.open)
        return [(one, text) for one, text in open_ones if looks_like_exception(text) or text.startswith(_RAISES)]


def looks_like_exception(text: str) -> bool:
    """Returns whether a line alone looks like the end of a traceback."""
    return _EXCEPTION.match(text) is not None and any(word in text for word in _ERRORS)
