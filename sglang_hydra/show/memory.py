"""Shows the memory of one GPU: its parts, the rest, the working fractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sglang_hydra.fit.result import NOTHING_STATED, Wanted, requests_of
from sglang_hydra.text.screen import Line, all_folded, columns, printable, text

if TYPE_CHECKING:
    from sglang_hydra.fit.overheads import Range
    from sglang_hydra.fit.result import Fit, KvCache

_GIB = 2**30
# The number of parts of the weights shown beside the total, the largest first.
_SHOWN_PARTS = 3


def memory_lines(fit: Fit, gpu: str) -> list[Line]:
    """Returns the memory section of the plan screen. Unknown values are shown as unknown."""
    head = f"Memory of one {gpu}" + (f" of {fit.gpus}" if fit.gpus > 1 else "") + ", GiB"
    lines = all_folded([*columns(memory_rows(fit)), *_remarks(fit)])
    return [[text(head, "bold")], *lines, *_beside_trainer(fit), []]


def _beside_trainer(fit: Fit) -> list[Line]:
    """Returns the section on a trainer on the same GPU; [] without one."""
    shared = fit.colocated
    if shared is None:
        return []
    lines = columns([_row(name, _gib(size), note) for name, size, note in shared.rows()])
    if shared.highest is not None:
        lines.append([text(f"  mem_fraction_static up to {shared.highest:g} comes back; {fit.asked:g} is used")])
    return [[], [text("Beside the trainer, GiB", "bold")], *all_folded(lines)]


def verdict(fit: Fit, wanted: Wanted = NOTHING_STATED) -> str:
    """Returns the verdict in a few words: fits, does not fit, too little capacity, or the missing facts."""
    if fit.fits is None:
        return f"unknown: {', '.join(fit.unknown)}"
    if not fit.fits:
        return "does not fit"
    if not fit.tight and fit.shortage(wanted):
        return "too little KV cache"
    return "fits, tightly" if fit.tight else "fits"


def table_row(
    name: str, fit: Fit, context: int | None = None, wanted: Wanted = NOTHING_STATED
) -> list[tuple[str, str]]:
    """Returns a plan's row for a table: verdict, weights, KV tokens, requests, memory left, fractions."""
    interval = fit.interval
    fractions = f"{interval.low} to {interval.high}" if interval and not interval.empty else "none"
    style = {True: "green", False: "bold red", None: "yellow"}[fit.fits]
    tokens = "?" if fit.kv_tokens is None else f"{fit.kv_tokens:,}"
    requests = fit.concurrent_requests(context) if context else None
    return [
        text(name),
        text(words := verdict(fit, wanted), "yellow" if words.startswith("too") else style),
        text(_gib(fit.weights.total)),
        text(tokens),
        text("?" if requests is None else f"{requests:,}"),
        text(_gib(fit.left)),
        text(fractions),
    ]


def table_head() -> list[tuple[str, str]]:
    titles = ("", "verdict", "weights GiB", "KV tokens", "requests", "left GiB", "mem_fraction_static")
    return [text(title, "bold") for title in titles]


def memory_rows(fit: Fit) -> list[list[tuple[str, str]]]:
    """Returns all parts, in the order of the server's allocations; the sizes add up to the GPU's memory."""
    rows = []
    if fit.before_loading is not None:
        rows.append(_row("before loading", _span(fit.before_loading), "CUDA context, communication"))
    if fit.reserved:
        rows.append(_row("reserved", _gib(fit.reserved), "fit.reserved_gib"))
    rows.append(_row("weights", _gib(fit.weights.total), _parts(fit)))
    if fit.lora:
        rows.append(_row("LoRA adapters", _gib(fit.lora), "max_loras_per_batch, max_lora_rank"))
    if fit.draft is not None and fit.draft.high:
        rows.append(_row("draft", _span(fit.draft), "draft model or next-token layers, with their cache"))
    if fit.kv is not None:
        rows.append(_row("KV cache", _gib(fit.kv.size), _cache(fit, fit.kv)))
        if fit.kv.state:
            rows.append(_row("states", _gib(fit.kv.state), "of layers with linear attention, one for each request"))
    if fit.request_table is not None:
        slots = f"{fit.kv.slots:,} requests" if fit.kv is not None and fit.kv.slots else "requests"
        rows.append(_row("request table", _gib(fit.request_table), f"where the tokens of {slots} lie"))
    if fit.workspace is not None and fit.libraries is not None:
        size = fit.workspace + fit.libraries.mid
        rows.append(_row("workspaces", _gib(size), "attention, communication, kernels at first use"))
    if fit.graphs is not None:
        rows.append(_row("CUDA graphs", _span(fit.graphs), _range(fit.graphs)))
    if fit.activations is not None:
        rows.append(_row("activations", _span(fit.activations), _range(fit.activations)))
    error = f"within {fit.error_gib:.1f}" if fit.error_gib is not None else ""
    of = f"of {fit.memory / _GIB:.1f}" if fit.memory else ""
    rows.append(_row("left", _gib(fit.left), ", ".join(filter(None, (of, error)))))
    return rows


def _cache(fit: Fit, kv: KvCache) -> str:
    held = f"{round(kv.bytes_per_token, 2):,} bytes a token"
    if fit.kv_tokens is None:
        return held
    requests = fit.concurrent_requests(kv.context)
    held = f"{fit.kv_tokens:,} tokens, {held}"
    return held if requests is None else f"{held}; {requests_of(requests, kv.context)}"


def _remarks(fit: Fit) -> list[Line]:
    lines: list[Line] = []
    interval = fit.interval
    if interval is not None and not interval.empty:
        used = "?" if fit.asked is None else f"{fit.asked:.3f}".rstrip("0")
        if fit.asked is not None and fit.fraction is not None and fit.fraction != fit.asked:
            used += f" (of which the aiter backend keeps {fit.fraction:.3f})"
        lines.append([text(f"  mem_fraction_static works from {interval.low} to {interval.high}; {used} is used")])
    lines += [[text(f"  {printable(note)}", "dim")] for note in fit.notes]
    if fit.unknown:
        lines.append([text(f"  unknown: {', '.join(fit.unknown)}", "yellow")])
    return lines


def _row(name: str, size: str, note: str) -> list[tuple[str, str]]:
    return [(name, ""), (size.rjust(6), ""), text(note, "dim")]


def _parts(fit: Fit) -> str:
    known: Sequence[tuple[str, float]] = sorted(
        ((name, size) for name, size in fit.weights.parts.items() if size), key=lambda part: -part[1]
    )
    shown = ", ".join(f"{name.replace('_', ' ')} {size / _GIB:.1f}" for name, size in known[:_SHOWN_PARTS])
    stored = fit.weights.format not in (None, "none")
    return f"{fit.weights.format}: {shown}" if stored and shown else shown


def _gib(size: float | None) -> str:
    return "?" if size is None else f"{size / _GIB:.1f}"


def _span(size: Range) -> str:
    return f"{size.mid / _GIB:.1f}"


def _range(size: Range) -> str:
    """Formats ``0.6 to 4.3``; empty where both ends are equal."""
    low, high = f"{size.low / _GIB:.1f}", f"{size.high / _GIB:.1f}"
    return f"{low} to {high}" if low != high else ""
