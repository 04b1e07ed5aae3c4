"""Gates a canary: finds the points of a sweep that are worse than those of a base, beyond a limit and the noise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sglang_hydra.measure.report.comparing import ITL, TTFT, Group, Interval, difference, grouped, power, throughput_of
from sglang_hydra.measure.report.contents import same_points
from sglang_hydra.measure.report.reading import VALID, Row, SweepResults
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.screen import printable

SCHEMA = "sglang_hydra.gate/1"
_LIMIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_MARKED = re.compile(r"[^\w =.,/+()-]", re.ASCII)
_MOST_ROWS = 200


class Judged(NamedTuple):
    """One number of a point in both sweeps. ``loss`` is its worsening as a share of its earlier value; ``interval`` is
    its confidence interval, 95 % for all numbers of a gate together, None without repeats. ``state``: good, noise
    (beyond the limit, within the noise), fell, unknown (beyond the limit, without repeats). ``power`` is the
    probability that these repeats detect a loss of ``told_loss``, None without repeats."""

    words: str
    measure: str
    before: float
    after: float
    loss: float
    interval: Interval | None
    state: str
    power: float | None


class Lost(NamedTuple):
    """A point of the base that is now invalid or was not measured: ``why``."""

    words: str
    state: str
    why: str


class Gate(NamedTuple):
    """The result of a gate. ``limit`` is a share. ``lost`` are points of the base without a valid counterpart."""

    base: str
    name: str
    limit: float
    judged: tuple[Judged, ...]
    lost: tuple[Lost, ...]

    @property
    def fallen(self) -> list[Judged | Lost]:
        """Returns the reasons to close the gate: points that fell or may have fallen, and invalid ones."""
        worse = [item for item in self.judged if item.state in ("fell", "unknown")]
        return [*worse, *(item for item in self.lost if item.state != "missing")]

    @property
    def power(self) -> str:
        """Says how many of 100 losses these repeats detect, averaged over the numbers; empty without repeats."""
        known = [item.power for item in self.judged if item.power is not None]
        if not known:
            return ""
        seen = round(100 * sum(known) / len(known))
        return f"with these repeats a loss of {100 * told_loss(self.limit):.3g} % is seen in {seen} of 100"

    @property
    def ok(self) -> bool:
        return bool(self.judged) and not self.fallen

    def to_json(self) -> JsonDict:
        judged = [{**item._asdict(), "interval": item.interval and list(item.interval)} for item in self.judged]
        lost = [item._asdict() for item in self.lost]
        names = {"base": self.base, "name": self.name}
        return {"schema": SCHEMA, **names, "limit": self.limit, "ok": self.ok, "judged": judged, "lost": lost}


def told_loss(limit: float) -> float:
    """Returns the loss that the power refers to, as a share: 5 %, or twice the limit if that is more."""
    return max(0.05, 2 * limit)


def read_limit(text: str) -> float | None:
    """Parses ``3%`` to 0.03; None for other text, and for 100 % and more."""
    found = _LIMIT.fullmatch(text)
    return float(found[1]) / 100 if found and float(found[1]) < 100 else None


def gate(base: SweepResults, new: SweepResults, limit: float) -> Gate:
    """Compares the points of equal load. The mean decides whether a point is beyond the limit, the interval of the
    difference whether that exceeds the noise: without any real change, about 5 gates in 100 find a fall."""
    before, after = grouped(base.rows), grouped(new.rows)
    pairs = [(old, now) for old, now in same_points(before, after) if old.first.workload_id == now.first.workload_id]
    judged = tuple(item for old, now in pairs for item in _judged(old, now, limit, 3 * len(pairs)))
    found = {id(old) for old, _ in pairs}
    lost = tuple(_lost(old, new.rows) for old in before if id(old) not in found)
    return Gate(base.name, new.name, limit, judged, lost)


def _judged(old: Group, now: Group, limit: float, count: int) -> Iterator[Judged]:
    for metric in (throughput_of([old, now]), TTFT, ITL):
        was, is_now = old.mean(metric), now.mean(metric)
        if not was or is_now is None:
            continue
        sign = -1 if metric.more_is_better else 1
        loss = sign * (is_now / was - 1)
        moved = difference(old.values(metric), now.values(metric), count)
        interval = Interval(*sorted(sign * end / was for end in moved)) if moved is not None else None
        state = "good"
        if loss > limit:
            state = "unknown" if interval is None else "fell" if interval.low > 0 else "noise"
        told = power(old.values(metric), now.values(metric), limit, told_loss(limit), count)
        yield Judged(now.words, metric.words, was, is_now, loss, interval, state, told)


def _lost(old: Group, rows: Sequence[Row]) -> Lost:
    same = [row for row in rows if row.words == old.first.words and row.workload_id == old.first.workload_id]
    bad = next((row for row in same if row.state != VALID), None)
    if bad is None or bad.state == "open":
        return Lost(old.words, "missing", "it was not measured with this load")
    return Lost(old.words, bad.state, "; ".join(bad.reasons))


def markdown(made: Gate) -> str:
    """Renders the gate as a comment on a change. Escapes text from the folders: it cannot format, link or mention."""
    closed = len(made.fallen)
    verdict = "passes" if made.ok else f"{closed} fell" if closed else "nothing to compare"
    lines = [f"### sglang-hydra report: {verdict}", ""]
    lines += [f"{_plain(made.name)} against {_plain(made.base)}, at most {made.limit:.1%} worse", ""]
    lines += [f"{made.power}.".capitalize(), ""] if made.power else []
    lines += ["| point | measure | before | after | change | 95 % (all rows) | |", "| --- " * 7 + "|"]
    worst = sorted(made.judged, key=lambda item: -item.loss)
    for item in worst[:_MOST_ROWS]:
        between = "" if item.interval is None else f"{item.interval.low:+.1%} to {item.interval.high:+.1%}"
        numbers = f"{item.before:.4g} | {item.after:.4g} | {moved(item.loss)} | {between}"
        lines.append(f"| {_plain(item.words)} | {_plain(item.measure)} | {numbers} | {item.state} |")
    for lost in made.lost[:_MOST_ROWS]:
        lines.append(f"| {_plain(lost.words)} | | | | | {_plain(lost.why)} | {lost.state} |")
    if len(worst) > _MOST_ROWS:
        lines.append(f"\n{len(worst) - _MOST_ROWS} more rows are left out.")
    return "\n".join(lines) + "\n"


def moved(loss: float) -> str:
    """Describes a worsening: ``4.0% worse``, ``2.0% better``."""
    return f"{abs(loss):.1%} {'worse' if loss > 0 else 'better'}"


def _plain(text: str) -> str:
    return _MARKED.sub(lambda found: f"&#{ord(found[0])};", printable(text[:300]))
