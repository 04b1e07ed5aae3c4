"""Diagnoses a failed server from its exit code and its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sglang_hydra.arguments.secrets import without_secrets
from sglang_hydra.run.diagnose.advice import SAID, Advice, advice_near, fitted, in_release, with_costs
from sglang_hydra.run.diagnose.cause import Cause, nearest_release
from sglang_hydra.run.diagnose.classes import LOG_LINES, UNKNOWN, FailureClass, Stage, Weight, classes_by_kind
from sglang_hydra.run.diagnose.life import STARTED, Life
from sglang_hydra.run.diagnose.lines import Line
from sglang_hydra.run.diagnose.log_facts import LogNumbers, version_of
from sglang_hydra.run.diagnose.parts import advice_on_parts
from sglang_hydra.run.diagnose.reader import LogReader
from sglang_hydra.run.diagnose.server_args import CUT, complete, parse_server_args
from sglang_hydra.run.diagnose.verdict import FAULT, STOPPED, Classification, decide, judged_by_code
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.screen import shown

_LONGEST_LINE = 600
_NEAR = 12
# A kernel that does not compile, or does not know the GPU, fails outside of CUDA graphs as well.
_OF_A_STAGE = ("cuda_fault", "graph_capture", "release_fault", UNKNOWN)


@dataclass(frozen=True)
class Diagnosis:
    """The class of a failure, with its evidence.

    ``kind`` is the stable name of the class, or ``unknown``. ``confidence`` is 0 for unknown, else 0.5 to 1. ``state``
    is ``failed``; ``healthy``, ``router`` (a healthy one) or ``loading`` without a failure; ``foreign`` for another
    engine's log; ``empty``; or ``unknown``. ``line`` is the deciding line without secrets, ``line_number`` its number
    from 1; both are None when only the exit code decides. ``stage`` is the activity of the server (load, kv, graphs,
    serve, ...). ``version`` is the release of SGLang and ``server_args`` the arguments in the log, under their names
    there; None when the log has none. ``gpu`` and ``gpu_memory_mib`` are the device in the log. ``ready``: the server
    had begun to serve. ``finding`` says what happened and what to type. ``also`` names the other classes with evidence,
    ``last_lines`` is the end of the log, ``lines`` the number of lines. ``advised`` is the log's own advice near the
    deciding line. ``cause`` is the place in SGLang's code, or None. ``remedies`` are changes that were planned without
    errors; ``notes`` give the assumptions of these plans, or why there is none. ``numbers`` are the memory sizes in the
    log."""

    kind: str
    confidence: float
    line: str | None
    line_number: int | None
    version: str | None
    server_args: JsonObject | None
    finding: Finding
    stage: str | None = None
    rank: str | None = None
    ready: bool = False
    state: str = UNKNOWN
    retryable: bool = False
    gpu: str | None = None
    gpu_memory_mib: float | None = None
    also: tuple[str, ...] = ()
    lines: int = 0
    last_lines: tuple[tuple[int, str], ...] = field(default=(), repr=False)
    remedies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: LogNumbers = field(default_factory=LogNumbers, repr=False)
    cause: Cause | None = None
    advised: tuple[Advice, ...] = ()

    @property
    def known(self) -> bool:
        """Returns whether the failure has a known class."""
        return self.kind != UNKNOWN

    @property
    def healthy(self) -> bool:
        """Returns whether the server or router became ready and its log shows no failure."""
        return self.state in ("healthy", "router")

    @property
    def failure(self) -> FailureClass | None:
        """Returns the failure class, or None when it is unknown."""
        return classes_by_kind().get(self.kind)


def diagnose(lines: Iterable[str], exit_code: int | None = None, typed: JsonObject | None = None) -> Diagnosis:
    """Classifies a failed server by its log and, if known, its exit code (137 or -9: SIGKILL) and its arguments.

    Reads ``lines`` once, in bounded memory. Accepts any content and always returns a Diagnosis, with the class
    ``unknown`` when nothing explains the failure."""
    reader = LogReader().read(lines)
    args = next((parse_server_args(life.arguments) for life in reversed(reader.lives) if life.arguments), None)
    version = reader.version
    if version is None and args is not None:
        version = version_of([name for name in args if name != CUT], whole=CUT not in args)
    given = complete(args, typed or {}, version)
    verdict = Classification(None, 0.0)
    if reader.others.name is None:
        verdict = judged_by_code(decide(reader.lives, exit_code), reader.lives, version, given)
    failure, found = verdict.failure, verdict.found
    advised = tuple(_advised(verdict, reader, version, given, typed or {}))
    state = "failed" if failure else _state(reader, exit_code)
    finding = (
        _finding(verdict, failure, reader, version, given, advised) if failure else _no_failure(state, reader, advised)
    )
    kind, retryable = (failure.kind, failure.retryable) if failure else (UNKNOWN, False)
    if found is not None and found.signature.retryable is not None:
        retryable = found.signature.retryable
    return Diagnosis(
        kind=kind,
        confidence=verdict.confidence,
        line=_shown(found.line) if found else None,
        line_number=found.line.number if found else None,
        version=version,
        server_args={key: value for key, value in args.items() if key != CUT} if args is not None else None,
        finding=finding,
        cause=verdict.cause,
        advised=advised,
        stage=found.stage.name.lower() if found and found.stage else None,
        rank=(found.line.rank or None) if found else None,
        ready=reader.life.ready,
        state=state,
        retryable=retryable,
        gpu=reader.devices.name,
        gpu_memory_mib=reader.devices.capacity_mib,
        also=tuple(dict.fromkeys(other.failure.kind for other in verdict.also if other.failure.kind != kind)),
        numbers=reader.numbers,
        lines=reader.count,
        last_lines=tuple((number, without_secrets(text.rstrip("\r\n"))) for number, text in reader.last),
    )


def _advised(
    verdict: Classification, reader: LogReader, version: str | None, args: JsonObject | None, typed: JsonObject
) -> Iterator[Advice]:
    """Yields the log's own advice near the deciding line; then, unless it or the condition that failed gives a change,
    what takes the failed part out of use."""
    found, cause, raised = verdict.found, verdict.cause, reader.life.raised
    kind = verdict.failure.kind if verdict.failure else UNKNOWN
    line, frames = (found.line, found.frames) if found else (raised[-1].line if raised else None, ())
    if line is None or (found is None and (kind != UNKNOWN or reader.others.name is not None)):
        return
    heard = [line for life in reader.lives for line in life.advised]
    advised = advice_near(line.number, heard, nearest_release(version), args)
    yield from advised
    if any(one.changes for one in advised) or (cause is not None and cause.changes):
        return
    near = [text for number, text in reader.last if abs(number - line.number) <= _NEAR and STARTED not in text]
    if kind not in ("crash", "watchdog_timeout"):  # lines with SGLang's header report its work
        near = [text for text in near if "[20" not in text]
        near += [reader.life.milestone] if kind in _OF_A_STAGE else []
    texts = [line.text, *reversed(frames), *(near if not frames else ()), line.rank]
    yield from advice_on_parts(kind, texts, nearest_release(version), args, typed)


def _shown(line: Line) -> str:
    return without_secrets(line.text.strip())[:_LONGEST_LINE]


def _state(reader: LogReader, exit_code: int | None) -> str:
    """Returns the state of a log without a known failure: healthy, router, loading, foreign, empty or unknown."""
    life = reader.life
    if reader.count == 0:
        return "empty"
    if reader.others.name is not None:
        return "foreign"
    ended = life.ended and not _was_stopped(life)
    if ended or life.quit or life.troubled or life.broken or exit_code not in (None, 0):
        return UNKNOWN
    if life.ready or life.routes:
        return "healthy" if life.ready else "router"
    begun = bool(life.arguments) or life.furthest > Stage.UNKNOWN
    return "loading" if begun and exit_code is None else UNKNOWN


def _was_stopped(life: Life) -> bool:
    return any(kind == STOPPED for kind, _ in life.evidence)


def _finding(
    verdict: Classification,
    failure: FailureClass,
    reader: LogReader,
    version: str | None,
    args: JsonObject | None,
    advised: Sequence[Advice],
) -> Finding:
    """Returns the finding on a failure. Its advice is adapted to this server: checked against its log, with costs, in
    the names of its release."""
    found, cause = verdict.found, verdict.cause
    detail: str | None = f"ended by signal {verdict.signal}, and the log says no more"
    advice, what, fields = failure.advice, failure.what, failure.fields
    if found is not None:
        detail = found.place if found.weight == Weight.FAULT else failure.detail(_shown(found.line))
        advice, what = found.signature.advice or advice, found.signature.what or what
        reader.numbers.read(found.line.text)
    if cause is not None:
        accepted = (f"{name}={shown(value)}" for change in cause.changes for name, value in change.items())
        advice, fields = (*accepted, *advice), cause.reads or fields
        if failure.kind == FAULT and not cause.found[0].names:
            what = f"{what}; its condition reads no argument"
    changed = {name for one in advised for name in one.changes}
    advice = tuple(part for part in advice if part.partition("=")[0] not in changed)
    hint = in_release(with_costs(fitted(advice, args, reader.numbers), failure.kind), version)
    named = {part.partition("=")[0] for part in advice}  # with values, which say more than "raise" or "lower"
    said = [one.text for one in advised if one.changes or not one.names or not named.issuperset(one.names)]
    own = found is not None and bool(found.signature.advice) and failure.kind != "cuda_fault"  # it is of this very line
    hint = [*said, *hint] if not own else [*(one for one in said if one.startswith(SAID)), *hint, *said]
    return Finding("error", failure.id, f"{what}: {detail}" if detail else what, fields, list(dict.fromkeys(hint)))


def _no_failure(state: str, reader: LogReader, advised: Sequence[Advice]) -> Finding:
    """Returns the finding for a log without a deciding failure, with what its last exception, if any, lets one try."""
    level, id, message, *hint = LOG_LINES["states"][state]
    life, count = reader.life, reader.count
    message = message.format(
        later="was asked to stop later" if _was_stopped(life) else "no later line says that it ended",
        doing=LOG_LINES["doing"].get(life.furthest.name.lower(), "yet"),
        engine=reader.others.name,
        read=f"{count} lines were read, and the last ones are" if count > 1 else "1 line was read, and it is",
    )
    tries = [one.text for one in advised] if state == UNKNOWN else []
    return Finding(level, id, message, (), [*tries, *hint])
