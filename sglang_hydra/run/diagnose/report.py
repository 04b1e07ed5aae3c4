"""Renders a diagnosis for people and for programs. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sglang_hydra.arguments.secrets import hidden_in
from sglang_hydra.run.diagnose.cause import Cause
from sglang_hydra.run.diagnose.classes import LOG_LINES, UNKNOWN
from sglang_hydra.run.diagnose.diagnosis import Diagnosis
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.text.json_types import JsonDict, plain
from sglang_hydra.text.screen import VERBATIM, Line, columns, shown, text

SCHEMA = "sglang_hydra.diagnosis/2"
_LONGEST_LINE = 400
_COPIED = ("kind", "confidence", "retryable", "state", "line", "line_number", "rank", "stage", "lines", "ready",
           "healthy", "version", "gpu", "gpu_memory_mib")  # fmt: skip
_MOST_ASKED = 8
# The arguments that distinguish servers at a glance.
_MAIN_ARGUMENTS = ("tp_size", "dp_size", "pp_size", "ep_size", "nnodes", "quantization", "mem_fraction_static")
_STATES = {"router": "healthy router", "loading": "still loading", "foreign": "not SGLang's", "empty": UNKNOWN}
_STYLES = {"healthy": "bold green", "router": "bold green", "loading": "bold cyan"}
_DOING = LOG_LINES["doing"]


def record(results: Sequence[tuple[str, Diagnosis]]) -> JsonDict:
    """Returns the JSON of ``diagnose --json``; its schema is schemas/diagnosis.schema.json."""
    return {"schema": SCHEMA, "results": [_entry(name, found) for name, found in results]}


def _entry(name: str, found: Diagnosis) -> dict[str, object]:
    return {
        "name": name,
        "id": found.finding.id,
        **{key: getattr(found, key) for key in _COPIED},
        "server_args": hidden_in(plain(found.server_args)) if found.server_args is not None else None,
        "finding": found.finding.to_json(),
        **{key: list(getattr(found, key)) for key in ("remedies", "notes", "also")},
        "cause": _place(found.cause) if found.cause is not None else None,
        "last_lines": [{"number": number, "text": content} for number, content in found.last_lines],
    }


def _place(cause: Cause) -> dict[str, object]:
    first = cause.found[0]
    return {
        "release": first.release,
        "place": cause.place,
        "line": first.site.line,
        "agrees": list(cause.agrees),
        "reads": list(cause.reads),
        "arguments": plain(dict(cause.arguments)),
        "variables": list(cause.variables),
        "platform": list(cause.platform),
        "changes": [plain(dict(change)) for change in cause.changes],
    }


def screen(results: Sequence[tuple[str, Diagnosis]]) -> list[Line]:
    """Renders each log: its class, the deciding line, facts about the server, and what to type."""
    lines: list[Line] = []
    for name, found in results:
        lines += [*_head(name, found), *finding_lines([found.finding])]
    return lines


def _head(name: str, found: Diagnosis) -> Iterator[Line]:
    if found.known:
        sure = f"  {found.confidence:.0%} sure"
        yield [text(f"{name}: "), text(found.kind, "bold red"), text(sure, "dim")]
    else:
        yield [text(f"{name}: "), text(_STATES.get(found.state, found.state), _STYLES.get(found.state, "bold yellow"))]
    if found.line is not None:
        rank = f" ({found.rank})" if found.rank else ""
        yield [text(f"  line {found.line_number}{rank}  ", "dim"), text(found.line[:_LONGEST_LINE], VERBATIM)]
    elif found.state in (UNKNOWN, "loading", "foreign"):
        width = len(str(found.lines))
        for number, content in found.last_lines:
            yield [text(f"  {number:>{width}}  ", "dim"), text(content[:_LONGEST_LINE], VERBATIM)]
    yield from columns([[text(label, "dim"), text(content)] for label, content in _facts(found)])
    yield []


def _facts(found: Diagnosis) -> Iterator[tuple[str, str]]:
    if found.version or found.server_args:
        yield "SGLang", " ".join([found.version or "of an unknown release", *_serving(found.server_args or {})])
    if found.gpu or found.gpu_memory_mib:
        memory = f"{found.gpu_memory_mib / 1024:.1f} GiB" if found.gpu_memory_mib else None
        yield "GPU", ", ".join(filter(None, (found.gpu, memory)))
    if str(found.numbers) and found.failure is not None and found.failure.memory:
        yield "memory", str(found.numbers)
    if found.stage in _DOING and found.failure is not None and found.failure.memory:
        yield "when", _DOING[found.stage]
    if found.cause is not None:
        yield from _cause(found.cause)
    if found.known:
        yield "again?", "the same command may succeed next time" if found.retryable else "no, it would fail again"
    if found.also:
        yield "also", ", ".join(found.also)
    for note in found.notes:
        yield "note", note


def _cause(cause: Cause) -> Iterator[tuple[str, str]]:
    first = cause.found[0]
    agree = f"{' and '.join(cause.agrees)} agree{'s' if len(cause.agrees) == 1 else ''}"
    yield "raised by", f"{cause.place} of {first.release}, line {first.site.line} ({agree})"
    asked = [f"{name}={shown(cause.arguments[name])}" if name in cause.arguments else name for name in cause.reads]
    asked += [*cause.variables, *(f"{name} (the machine)" for name in cause.platform)]
    yield "it asks", ", ".join(asked[:_MOST_ASKED]) if asked else "no argument, no variable and nothing of the machine"


def _serving(args: Mapping[str, object]) -> Iterator[str]:
    if args.get("model_path"):
        yield f"serving {shown(args['model_path'])}"
    arguments = [f"{name}={shown(args[name])}" for name in _MAIN_ARGUMENTS if args.get(name) not in (None, 1)]
    if arguments:
        yield f"with {' '.join(arguments)}"
