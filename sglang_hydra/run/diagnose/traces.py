"""Python's tracebacks, one a writer: which functions were running when an exception came."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from sglang_hydra.run.diagnose.failure_class import Stage
from sglang_hydra.run.diagnose.log_lines import LOG_LINES

_FRAME = re.compile(r'^\s*File "([^"]{1,500})", line \d+(?:, in (\S{1,120}))?')
# exceptions.py prints the dotted name of the class, then the message.
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failed|Timeout\w*|\w*OOM\w*)?(?::|$)"
)
_STANDARD = re.compile(r"/lib/python3\.\d+/(?!site-packages|dist-packages)|^<frozen ")
_MOST_FRAMES, _MOST_WRITERS, _FOLLOWING, _LONGEST_CODE = 96, 64, 40, 300

_STAGES = tuple((Stage[name.upper()], re.compile("|".join(found))) for name, found in LOG_LINES["frames"].items())


@dataclass(slots=True)
class Trace:
    """The frames of one writer's latest traceback, outermost first, as ``path in function``."""

    frames: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_FRAMES))
    rank: str = ""
    open: bool = False
    following: int = 0
    source: bool = False
    """Whether the next line is a frame's source without its indentation, which some log drivers take away."""
    code: str = ""
    """The source line of the innermost frame, where the log shows it: what an assertion without words asserts."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The frames, and once more the innermost outside of Python's own library, as ``at path in function``."""
        own = next((frame for frame in reversed(self.frames) if not _STANDARD.search(frame)), None)
        return (*self.frames, f"at {own}") if own else tuple(self.frames)

    @property
    def stage(self) -> Stage | None:
        """The stage that the frames show; None where they show nothing of it."""
        for stage, pattern in _STAGES:
            if any(pattern.search(frame) for frame in self.frames):
                return stage
        return None


class Traces:
    """Follows the tracebacks of several writers at once. Bounded in writers and in frames."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, Trace] = OrderedDict()

    def begin(self, stream: str, rank: str, *, chained: bool) -> None:
        """A traceback begins; ``chained`` keeps the frames of the one that it follows from."""
        trace = self._traces.pop(stream, None) or Trace()
        if not chained:
            trace = Trace(rank=rank)
        trace.rank = rank or trace.rank
        trace.open, trace.following = True, 0
        self._traces[stream] = trace
        if len(self._traces) > _MOST_WRITERS:
            self._traces.popitem(last=False)

    def frame(self, stream: str, text: str) -> bool:
        """Takes note of a frame; False where the line is none."""
        found = _FRAME.match(text)
        if found is None:
            return False
        trace = self._traces.get(stream)
        if trace is None or not trace.open:  # the log begins within a traceback, or it has none of Python's first lines
            self.begin(stream, "", chained=False)
            trace = self._traces[stream]
        trace.frames.append(f"{found[1]} in {found[2]}")
        trace.code = ""
        trace.source = text.startswith("File")
        return True

    def of(self, stream: str, text: str, *, headed: bool) -> tuple[Trace | None, bool]:
        """The traceback that a line belongs to, if any, and whether the line is what it ends in.

        Lines of the message that follow are of it too, until the writer begins another line of its log.
        """
        trace = self._traces.get(stream)
        if trace is None:
            return None, False
        if headed:
            trace.open = False
            return None, False
        if trace.open and trace.source and not looks_like_exception(text):
            trace.source = False
            trace.code = text.strip()[:_LONGEST_CODE]
            return trace, False
        if trace.open and text[:1].strip() and text[0] not in "^~":
            trace.open = False
            return trace, _EXCEPTION.match(text) is not None
        if trace.open and text[:1].isspace() and text.strip(" ^~"):
            trace.code = text.strip()[:_LONGEST_CODE]
        trace.following += 1
        if trace.following > _FOLLOWING:
            return None, False
        return trace, False

    def within(self, stream: str) -> bool:
        """Whether the frames of a traceback are just being listed."""
        trace = self._traces.get(stream)
        return trace is not None and trace.open


def looks_like_exception(text: str) -> bool:
    """Whether a line on its own reads like the end of a traceback."""
    return _EXCEPTION.match(text) is not None and ("Error" in text or "Exception" in text or "Interrupt" in text)
