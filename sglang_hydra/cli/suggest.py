"""``suggest``: finds plans for a model, GPUs and a load, none of them refused, ranked by a goal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of, show
from sglang_hydra.compose.corrections import GOALS_MEANT, OF_SUGGEST
from sglang_hydra.compose.override_errors import ADDED_GROUPS
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES
from sglang_hydra.compose.unknown_words import near_key
from sglang_hydra.measure.report.reading import points_of, read_sweeps
from sglang_hydra.planning.choosing.suggest import (
    COST,
    EQUAL,
    FEWEST,
    GOALS,
    Slo,
    Suggestion,
    command_of,
    longest_taken,
    suggestions,
)
from sglang_hydra.show.forecast import milliseconds, rate
from sglang_hydra.show.plan import command_line
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, columns, folded, print_json, room, table, text, with_command, write
from sglang_hydra.text.words import is_digits, nearest, program, short, size_of

if TYPE_CHECKING:
    from sglang_hydra.measure.report.replicas import Needed

SCHEMA = "sglang_hydra.suggest/1"
REPLICAS = "sglang_hydra.replicas/1"
_CONTEXT, _CONCURRENCY, _GOAL = "context", "concurrency", "goal"
_RESULTS, _RATE = "results", "rate"
_TTFT, _TPOT = "slo.ttft", "slo.tpot"
_OWN = (_CONTEXT, _CONCURRENCY, _GOAL, _RESULTS, _RATE, _TTFT, _TPOT)
_KNOWN = (*NODES, *ADDED_GROUPS, "replicas", "lock", "hydra", "ignore")
_LONGEST_ANSWER = 1024
NOTE = "An interval holds 80 % of measurements: explain forecast shows the parts, docs/forecast.md where it is weak."

_WIDE = 100
"""Columns of a terminal that is wide enough for every figure."""


def run(invocation: Invocation) -> int:
    """Runs ``suggest model=M gpu=A,B context=32k concurrency=64 goal=gpus``. Returns 2 if no plan can take the load."""
    own, typed = _taken(invocation.requests)
    if _RESULTS in own or _RATE in own:
        check_words(invocation)
        return _replicas(invocation, own, typed)
    goal, slo, context, users, classes, kept = _asked(own, typed)
    composer = composer_of(invocation)
    requests = [*_load(context, users, kept), *kept]
    found = suggestions(composer, requests, classes, goal, slo, points_of)
    words = [request.text for request in kept]
    if invocation.has("json"):
        records = [_record(words, item, found[0], goal) for item in found]
        head = {"goal": goal, "ranked_by": GOALS[goal], "context": context, "concurrency": users}
        print_json({"schema": SCHEMA, **head, "note": NOTE, "suggestions": records})
    else:
        longest = None if found else longest_taken(composer, requests, classes)
        write(_lines(words, found, goal, context, users, longest))
    return 0 if found else 2


def check_words(invocation: Invocation) -> None:
    """Raises ConfigError for what ``run`` would refuse before it plans a layout."""
    own, typed = _taken(invocation.requests)
    if _RESULTS not in own and _RATE not in own:
        *_, classes, kept = _asked(own, typed)
        for name in classes or [""]:
            of_class = [Request(f"gpu={name}", "gpu=")] if name else []
            composer_of(invocation).compose([*kept, *of_class])
    elif unknown := [*filter(None, map(_unknown, typed))]:
        raise ConfigError(*unknown)


class _Asked(NamedTuple):
    """The goal, the limits, the load, the GPU classes if several are named, and the overrides of all plans."""

    goal: str
    slo: Slo
    context: int | None
    users: int | None
    classes: Sequence[str]
    kept: Sequence[Request]


def _asked(own: dict[str, str], typed: Sequence[Request]) -> _Asked:
    """Reads the words. Raises ConfigError for wrong ones."""
    if flags := [*_flags(typed)]:
        raise ConfigError(*flags)
    if unknown := [*filter(None, map(_unknown, typed))]:
        raise ConfigError(*unknown)
    goal = own.get(_GOAL, FEWEST)
    if goal not in GOALS:
        meant = GOALS_MEANT.get(goal) or nearest(goal, GOALS)
        hint = f"goals: {', '.join(GOALS)}"
        if meant == COST and not any("forecast.price" in request.text for request in typed):
            price = f"goal={COST} forecast.price.h200=PRICE: it needs the price of an hour of each GPU class"
            raise ConfigError.of("SUG001", f"goal={goal} is no goal", "goal", hint=(price, hint))
        instead = f"goal={meant}" if meant else None
        raise ConfigError.of("SUG001", f"goal={goal} is no goal", "goal", hint=hint, fix=instead)
    slo = Slo(_limit(_TTFT, own), _limit(_TPOT, own))
    context, users = (_size(name, own[name]) if name in own else None for name in (_CONTEXT, _CONCURRENCY))
    gpus = [request.text.partition("=")[2].strip("[]") for request in typed if request.text.startswith("gpu=")]
    classes = ",".join(gpus).split(",") if len(gpus) > 1 or "," in "".join(gpus) else []
    kept = [request for request in typed if not classes or not request.text.startswith("gpu=")]
    return _Asked(goal, slo, context, users, classes, kept)


def _unknown(request: Request) -> Finding | None:
    """Returns the error for a word that suggest does not have; None for its own and for overrides."""
    name, _, value = request.text.partition("=")
    message, near = f"suggest has no word {name}", near_key(name) or ""
    meant = OF_SUGGEST.get(name) or (near if near in ("bench.input_len", "bench.output_len") and near != name else "")
    if meant and "=" in request.text:
        return Finding("error", "SUG001", message, (name,), typed=(request.text,), fix=f"{meant}={value}")
    if near == "bench.request_rate" and name != _RATE:
        hint = f"{_RESULTS}=multirun/SWEEP {_RATE}={value} counts the replicas for a rate"
        return Finding("error", "SUG001", message, (name,), hint)
    if "=" in request.text and "." not in name and not near and name not in _KNOWN:
        every = ", ".join((_CONTEXT, _CONCURRENCY, _GOAL, _TTFT, _TPOT, _RESULTS, _RATE))
        return Finding("error", "SUG001", message, (name,), f"words: {every}")
    return None


def _flags(typed: Sequence[Request]) -> Iterator[Finding]:
    """Yields the error for each word of this verb that was typed as a flag: ``--goal latency``."""
    texts = [request.text for request in typed]
    for word, behind in zip(texts, (*texts[1:], ""), strict=True):
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-").replace("-", "_")
        name = name if name in _OWN else OF_SUGGEST.get(name, "")
        if flag[:2] == "--" and name and (equals or behind):
            words = (word,) if equals else (word, behind)
            message = f"{flag}: words of suggest are typed as key=value, without dashes"
            fix = f"{name}={value if equals else behind}"
            yield Finding("error", "SUG001", message, (name,), typed=words, fix=fix)


def _taken(requests: Sequence[Request]) -> tuple[dict[str, str], list[Request]]:
    """Returns the words of this verb by name, and the overrides."""
    own = {name: value for name, _, value in (request.text.partition("=") for request in requests) if name in _OWN}
    return own, [request for request in requests if request.text.partition("=")[0] not in _OWN]


def _replicas(invocation: Invocation, own: dict[str, str], typed: Sequence[Request]) -> int:
    """Runs ``suggest results=multirun/SWEEP rate=200``: the replicas for an arrival rate. Returns 2 if unknown."""
    from pathlib import Path

    from sglang_hydra.measure.report.replicas import needed

    rate = _rate(own.get(_RATE, ""))
    folders = [Path(name).expanduser() for name in own.get(_RESULTS, "").split(",") if name]
    if rate is None or not folders or typed or set(own) - {_RESULTS, _RATE}:
        message = "to count replicas, suggest takes a sweep's results and a rate in requests/s, and nothing else"
        if own.get(_RATE) and rate is None:
            message = f"rate={short(own[_RATE])}: a number of requests/s above 0 and below 1e9 is needed"
        elif typed:
            message += f": {short(typed[0].text)}"
        raise ConfigError.of("SUG002", message, hint=f"{program()} suggest results=multirun/SWEEP rate=200")
    found = needed(read_sweeps(folders), rate)
    show(
        invocation,
        lambda: {"schema": REPLICAS, "rate": rate, "servers": [item.to_json() for item in found]},
        lambda: _replica_lines(rate, found),
    )
    return 0 if found else 2


def _limit(name: str, own: dict[str, str]) -> float | None:
    """Returns the milliseconds in ``slo.ttft=500``, 500ms or 0.5s; None if it is not typed. Raises ConfigError for a
    wrong time."""
    if name not in own:
        return None
    typed = own[name].lower()
    in_seconds = typed.endswith("s") and not typed.endswith("ms")
    limit = _rate(typed.removesuffix("s").removesuffix("m"))
    if limit is None:
        message = f"{name}={short(own[name])} is no time in ms above 0"
        raise ConfigError.of("SUG001", message, name, hint=f"such as {name}=500")
    return 1000 * limit if in_seconds else limit


def _rate(typed: str) -> float | None:
    try:
        rate = float(typed)
    except ValueError:
        return None
    return rate if 0 < rate < 1e9 else None


def _replica_lines(rate: float, found: Sequence[Needed]) -> list[Line]:
    if not found:
        return folded([text("No valid point was measured that met its SLO.", "bold red")])
    titles = ("replicas", "GPUs", "requests/s of one", "95 %", "within", "point")
    rows = [[text(title, "bold") for title in titles]]
    for item in found:
        noise = "one repeat" if item.noise is None else f"{item.noise.low:.4g} to {item.noise.high:.4g}"
        count = f"{item.replicas}" if item.fewest == item.replicas else f"{item.fewest} to {item.replicas}"
        cells = (count, f"{item.all_gpus or '?'}", f"{item.sustained:.4g}", noise, item.slo or "no SLO", item.words)
        rows.append([text(cell) for cell in cells])
    note = f"For {rate:g} requests/s. The larger number suffices at the lower end of the noise."
    if any(item.noise is None for item in found):
        note += " bench.repeats=3 measures the noise."
    if not all(item.is_open for item in found):
        note += (
            " Points without bench.request_rate send a request when an answer ends; independent clients wait longer."
        )
    return [*columns(rows), [], *folded([text(note, "dim")])]


def _size(name: str, typed: str) -> int:
    """Returns 32,000 for ``32k`` and 32,768 for ``32Ki``, as in SGLang. Raises ConfigError for a wrong number."""
    size = int(typed) if is_digits(typed) else size_of(typed)
    if size:
        return size
    unit = "k" if name == _CONTEXT else ""
    number = "".join(re.findall(r"^[1-9]\d*", typed)) or ("32" if unit else "8")
    if re.fullmatch(r"[1-9]\d*[mM]([bB]|ib|IB)?", typed):
        unit = "M"
    others = [f"{name}={number}Ki", f"{name}={number}"] if unit else [f"{name}={number}k"]
    fix = None if re.search(r"\d\w*(?:\.\.|[:-])\d", typed) else f"{name}={number}{unit}"
    others[-1] += ": k is 1,000, Ki 1,024, M and Mi their squares"
    raise ConfigError.of("SUG001", f"{name}={typed} is no number above 0", name, hint=others, fix=fix)


def _load(context: int | None, users: int | None, typed: Sequence[Request]) -> list[Request]:
    """Returns overrides for the load: ``users`` requests of ``context`` tokens, a part of which is the answer."""
    words = []
    if context is not None:
        answer = min(_LONGEST_ANSWER, max(1, context // 4))
        words += [f"fit.context={context}", f"bench.input_len={max(1, context - answer)}", f"bench.output_len={answer}"]
    words += [f"fit.users={users or 1}", f"bench.concurrency={users or 1}"]
    given = {request.text.partition("=")[0] for request in typed}
    return [Request(word, "suggest") for word in words if word.partition("=")[0] not in given]


def _record(typed: Sequence[str], item: Suggestion, best: Suggestion, goal: str) -> dict[str, object]:
    return {
        "gpu": item.plan.gpu.name,
        "gpus": item.gpus,
        "nodes": item.plan.values["nnodes"],
        "words": list(item.words),
        "keeps_model": item.keeps_model,
        "command": command_of(typed, item),
        "launch": command_line(item.plan),
        "server_id": item.plan.server_id,
        "launchable": item.plan.launchable,
        "why": item.plan.verdict.why,
        "basis": item.plan.basis,
        "kv_tokens": item.plan.fit.kv_tokens if item.plan.fit else None,
        "requests": item.requests,
        "limit": item.limit._asdict() if item.limit else None,
        "forecast": item.expected.to_json(),
        "full_tokens_per_gpu": item.full.tokens_per_gpu._asdict() if item.full else None,
        "cost": item.cost._asdict() if item.cost else None,
        "meets_slo": item.slo,
        "equals_best": item is not best and _equal(item, best, goal),
    }


def _equal(item: Suggestion, best: Suggestion, goal: str) -> bool:
    """Returns whether two plans differ by less than the forecast's error in what the goal ranks by."""
    own, other = (float(one.gpus) if goal == FEWEST else one.measure(goal) for one in (item, best))
    return own is not None and other is not None and abs(own / other - 1) < EQUAL


def _notes(item: Suggestion, best: Suggestion, goal: str) -> list[str]:
    """Returns the notes on one plan beside its figures, the most important first."""
    notes = [item.plan.verdict.sentence] if item.plan.launchable is None else []
    notes += [] if item.keeps_model else ["other weights"]
    notes += ["outside the SLO"] if item.slo is False else []
    notes += (
        ["equal to rank 1 within the error"] if item is not best and goal != FEWEST and _equal(item, best, goal) else []
    )
    lacks = ", ".join(item.expected.unknown)
    return notes + (list(item.expected.found.reasons) if item.expected.found else [f"no forecast: {lacks} is unknown"])


def _lines(
    typed: Sequence[str],
    found: Sequence[Suggestion],
    goal: str,
    context: int | None,
    users: int | None,
    longest: int | None,
) -> list[Line]:
    needed = f"{users or 1:,} of {context:,} tokens" if context else f"{users or 1:,} of the longest that it takes"
    lines: list[Line] = [[text("Concurrent requests needed: ", "bold"), text(needed)]]
    if not found:
        hint = f"{program()} plan {' '.join(typed)} says what is missing"
        if longest is not None:
            hint = f"The model takes {longest:,} tokens at most; its authors state no extension: context={longest}"
        return [*lines, *folded([text("No plan has the capacity. ", "bold red"), text(hint)])]
    priced = any(item.cost for item in found)
    is_narrow = room() < _WIDE  # the interval of TTFT and the load when full are left to explain forecast
    titles = ["", "GPUs", "requests", "TPOT, forecast", "TTFT", "tok/s/GPU"]
    titles += [*(() if is_narrow else ("when full",)), *(("per Mtok",) * priced)]
    rows = [[text(title, "bold") for title in titles]]
    for rank, item in enumerate(found, 1):
        known = item.expected.found
        cells = [f"{rank}", f"{item.gpus} x {item.plan.gpu.name}", f"{item.requests:,}"]
        cells += [milliseconds(known.tpot), milliseconds(known.ttft)] if known else ["?", "?"]
        cells[-1] = cells[-1].partition(" (")[0] if is_narrow else cells[-1]
        cells.append(rate(known.tokens_per_gpu) if known else "?")
        cells += [] if is_narrow else [rate(item.full.tokens_per_gpu) if item.full else "?"]
        cells += [rate(item.cost) if item.cost else "?"] if priced else []
        rows.append([text(cell) for cell in cells])
    lines += [*table(rows), []]
    notes = [_notes(item, found[0], goal) for item in found]
    shared = [note for note in notes[0] if len(found) > 1 and all(note in each for each in notes)]
    for rank, (item, own) in enumerate(zip(found, notes, strict=True), 1):
        rest = "; ".join(note for note in own if note not in shared)
        lines += with_command([text(f"{rank} ({rest}): " if rest else f"{rank}: ")], command_of(typed, item))
    lines += [[], *folded([text(f"All {len(found)}: {'; '.join(shared)}")])] if shared else []
    for why in dict.fromkeys(item.plan.verdict.why for item in found if item.plan.launchable is None):
        lines += [[], *folded([text(f"Not known: {why}", "yellow")])]
    return [*lines, [], *folded([text(f"Ranked by {GOALS[goal]}. {NOTE}", "dim")])]
