"""Shows the first lines of a plan: the verdict, its GPUs, its capacity, the command."""

from __future__ import annotations

from sglang_hydra.fit.result import Fit, requests_of
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.verdict import Verdict, what_is_missing
from sglang_hydra.text.screen import Line, Span, folded, text
from sglang_hydra.text.words import number, plural

_STYLES = {"yes": "bold green", "no": "bold red", "unknown": "bold yellow"}
_TITLE_WIDTH = 10


def launch_lines(verdict: Verdict, by: str) -> list[Line]:
    """Formats ``Launch no: ...``: the answer and the reason; for a yes, ``by`` names the engine that would launch."""
    answer, why = verdict
    words = f", by {by}{f', {why}' if why else ''}" if answer == "yes" else f": {why}"
    lines = titled("Launch", f"{answer}{words}")
    at = next(number for number, line in enumerate(lines) if line[-1][0].startswith(answer))  # a long word goes below
    *before, (said, _) = lines[at]
    lines[at] = [*before, (answer, _STYLES[answer]), (said[len(answer) :], "")]
    return lines


def verdict_span(verdict: Verdict) -> Span:
    """Returns the verdict in words (``can be launched``), in its colour."""
    return text(verdict.sentence, _STYLES[verdict.answer])


def not_known(verdict: Verdict) -> Line:
    """Returns why the verdict is unknown; empty for a known one."""
    return [text(f": {verdict.why}")] if verdict.launchable is None else []


def titled(title: str, content: str) -> list[Line]:
    """Formats ``GPUs     1 of 8 x h200``: further lines are indented to the content."""
    return folded([(title.ljust(_TITLE_WIDTH), ""), text(content)])


def no_command(is_corrected: bool) -> str:
    """Returns the text in place of the command of what cannot be launched."""
    return "none; the last line can be launched" if is_corrected else "none"


def first_lines(plan: Plan) -> list[Line]:
    """Returns the verdict, the GPUs and the capacity of one server; the command is the caller's."""
    return [
        *launch_lines(plan.verdict, server_name(plan)),
        *titled("GPUs", gpus_line(plan)),
        *titled("Capacity", room_line(plan)),
    ]


def server_name(plan: Plan) -> str:
    """Returns ``SGLang 0.5.2``, or the embedded engine's name."""
    return f"SGLang {plan.engine.version}" if plan.engine.name != "transformers" else "transformers serve"


def gpus_line(plan: Plan) -> str:
    """Returns the number of GPUs for the server, of how many, with the memory of each."""
    gpu = plan.gpu
    if gpu.device is None:
        return "none here; gpu=h100 plans for another machine"
    if gpu.device == "cpu" or plan.values["device"] == "cpu":
        return "none, it runs on the CPU"
    used, nodes = plan.layout.gpus, plan.values["nnodes"]
    memory = f", {number(gpu.memory_mib)} MiB each" if gpu.memory_mib else ""
    has = f" of {gpu.count} x {gpu.name}" if gpu.count else f" x {gpu.name}"
    if nodes > 1:
        return f"{used} on {nodes} nodes, {-(-used // nodes)}{has} on each{memory}"
    return f"{used}{has}{memory}"


def room_line(plan: Plan) -> str:
    """Returns the server's capacity in tokens and requests, or why it is unknown or none. It is marked as an estimate
    where the release was not asked: it may use another memory fraction."""
    if plan.fit is None:
        wrong = next((finding.message for finding in plan.errors), None)
        missing = what_is_missing(plan) or wrong or "it is computed for SGLang on GPUs with memory of their own"
        return f"unknown: {missing}"
    if plan.fit.fits is False:
        return "none: it does not fit"
    held = ("" if plan.is_exact else "by estimate ") + _held(plan.fit, plan.nodes.fit.context)
    users = plan.nodes.fit.users
    return f"{held}, {users:,} needed (fit.users)" if users else held


def _held(fit: Fit, context: int | None) -> str:
    """Formats ``959,955 KV tokens, 7 requests of 131,072 tokens at a time``: of ``context`` tokens or the longest."""
    tokens = fit.kv_tokens
    if tokens is None or fit.kv is None:
        return f"unknown: {', '.join(fit.unknown)}" if fit.unknown else "unknown"
    where = f" in each of {plural(fit.replicas, 'replica')}" if fit.replicas > 1 else ""
    length = context or fit.kv.context
    requests = fit.concurrent_requests(length)
    held = f", {requests_of(requests, length)} at a time" if requests is not None else ""
    return f"{tokens:,} KV tokens{where}{held}"
