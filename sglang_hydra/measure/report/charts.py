"""Draws charts as SVG: scatter plots with a line per server and their Pareto front. Builds them as a tree, so that no
text can break the markup.

Colours come from the page's CSS classes, so that one file suits light and dark themes; each mark shows a title on
hover. 420 units equal the width of a phone, so that the text stays readable there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from sglang_hydra.text.screen import printable

WIDTH, HEIGHT = 420, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 24, 14, 44
_TICKS = 5
_COLOURS = 6
_CORNERS = (
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),  # square
    ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),  # triangle
    ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),  # diamond
    ((0, 1.2), (-1.1, -0.8), (1.1, -0.8)),  # triangle, point down
    ((-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4), (0.4, 1.2), (-0.4, 1.2),
     (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4)),  # cross
)  # fmt: skip

_LABEL_HEIGHT = 12

Element = ElementTree.Element


class Mark(NamedTuple):
    """A point of a scatter plot. ``series`` numbers its server, ``older`` counts the sweeps after its own, ``point`` is
    its row in the table. ``on_front``: no other point beats it; ``missed``: it misses the limits. Marks with the same
    ``line`` are joined in ``order``; each has a ``label``. ``x_noise`` and ``y_noise`` are the 95 % intervals, None
    without repeats."""

    x: float
    y: float
    series: int
    on_front: bool
    title: str
    line: str = ""
    order: float = 0.0
    label: str = ""
    older: int = 0
    point: int = 0
    missed: bool = False
    x_noise: tuple[float, float] | None = None
    y_noise: tuple[float, float] | None = None

    @property
    def kind(self) -> str:
        return f"s{self.series % _COLOURS}" + (" old" if self.older else "")


class Axis(NamedTuple):
    """The label of an axis, and its limit."""

    words: str
    more_is_better: bool = False
    limit: float | None = None


class _Scale(NamedTuple):
    ticks: list[float]
    of: Callable[[float], float]

    def within(self, value: float) -> float:
        """Returns the position of a value, moved to the edge of the plot if it is outside."""
        return self.of(min(max(value, self.ticks[0]), self.ticks[-1]))


def scatter(marks: Sequence[Mark], x: Axis, y: Axis, is_log: bool = False) -> str:
    """Draws the marks with a line for each ``line``, a broad one along each sweep's front, and the noise of each mark.
    Logarithmic axes need positive numbers."""
    svg = Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img"})
    _titled(svg, f"{y.words} against {x.words}")
    make = _log_scale if is_log else _even_scale
    x_scale = make([mark.x for mark in marks], _LEFT, WIDTH - _RIGHT)
    y_scale = make([mark.y for mark in marks], HEIGHT - _BOTTOM, _TOP)
    _frame(svg, x, y, x_scale, y_scale)
    for older in sorted({mark.older for mark in marks}, reverse=True):
        front = sorted((mark for mark in marks if mark.older == older and mark.on_front), key=lambda mark: mark.x)
        _joined(svg, front, x_scale, y_scale, "front" + (" old" if older else ""))
    for name in sorted({mark.line for mark in marks if mark.line}):
        line = sorted((mark for mark in marks if mark.line == name), key=lambda mark: mark.order)
        _joined(svg, line, x_scale, y_scale, f"server {line[0].kind}", {"data-s": str(line[0].series)})
    for mark in sorted(marks, key=lambda mark: (-mark.older, mark.on_front)):
        _mark(svg, mark, x_scale, y_scale)
    current = (mark for mark in marks if mark.label and not mark.older)
    _labels(svg, [mark for mark in current if mark.on_front or mark.series < _COLOURS - 1], x_scale, y_scale)
    return _written(svg)


def _frame(svg: Element, x: Axis, y: Axis, x_scale: _Scale, y_scale: _Scale) -> None:
    """Draws the grid, the area beyond a limit, the labels of the axes, and the better direction."""
    if x.limit is not None:
        at = x_scale.within(x.limit)
        left, right = (_LEFT, at) if x.more_is_better else (at, WIDTH - _RIGHT)
        place = {"x": left, "y": _TOP, "width": max(0.0, right - left), "height": HEIGHT - _BOTTOM - _TOP}
        shade = {"class": "beyond", **{name: f"{size:.1f}" for name, size in place.items()}}
        _titled(ElementTree.SubElement(svg, "rect", shade), f"beyond the limit of {short(x.limit)}: {x.words}")
    for value in x_scale.ticks:
        _line(svg, x_scale.of(value), _TOP, x_scale.of(value), HEIGHT - _BOTTOM, "grid")
        _text(svg, x_scale.of(value), HEIGHT - _BOTTOM + 16, short(value), "tick", "middle")
    for value in y_scale.ticks:
        _line(svg, _LEFT, y_scale.of(value), WIDTH - _RIGHT, y_scale.of(value), "grid")
        _text(svg, _LEFT - 6, y_scale.of(value) + 4, short(value), "tick", "end")
    _text(svg, (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, x.words, "axis", "middle")
    label = _text(svg, 0, 0, y.words, "axis", "middle")
    label.set("transform", f"translate(13 {(_TOP + HEIGHT - _BOTTOM) / 2:g}) rotate(-90)")
    better = (WIDTH - _RIGHT, "better \u2192", "end") if x.more_is_better else (_LEFT, "\u2190 better", "start")
    _text(svg, better[0], HEIGHT - 8, better[1], "better", better[2])


def _joined(
    svg: Element, marks: Sequence[Mark], x: _Scale, y: _Scale, kind: str, data: Mapping[str, str] | None = None
) -> None:
    if len(marks) > 1:
        steps = " ".join(f"{x.of(mark.x):.1f},{y.of(mark.y):.1f}" for mark in marks)
        ElementTree.SubElement(svg, "polyline", {"points": steps, "class": kind, **(data or {})})


def _labels(svg: Element, marks: Sequence[Mark], x: _Scale, y: _Scale) -> None:
    """Writes the loads beside their marks, front first; omits a label that would cover another."""
    taken: list[tuple[float, float, float]] = []
    for mark in sorted(marks, key=lambda mark: (not mark.on_front, -mark.order)):
        left, bottom = x.of(mark.x) + 7, y.of(mark.y) - 6
        right = left + 7 * len(mark.label)
        if all(right < begin or left > end or abs(bottom - line) > _LABEL_HEIGHT for begin, end, line in taken):
            taken.append((left, right, bottom))
            _text(svg, left, bottom, mark.label, "tick", "start").set("data-s", str(mark.series))


def _mark(svg: Element, mark: Mark, x: _Scale, y: _Scale) -> None:
    data = {"data-s": str(mark.series), "data-p": str(mark.point)}
    at_x, at_y = x.of(mark.x), y.of(mark.y)
    # A whisker ends at the plot's edge, so that one with few repeats does not dominate it.
    if mark.x_noise is not None:
        left, right = map(x.within, mark.x_noise)
        _line(svg, left, at_y, right, at_y, f"noise {mark.kind}", data)
    if mark.y_noise is not None:
        low, high = map(y.within, mark.y_noise)
        _line(svg, at_x, low, at_x, high, f"noise {mark.kind}", data)
    kind = f"mark {mark.kind}" + ("" if mark.on_front else " behind") + (" missed" if mark.missed else "")
    place = _outline(mark.series, at_x, at_y, 5.0 if mark.on_front else 3.5)
    # Only marks on the front are reachable by keyboard; thousands of others would be too many.
    reached = {"tabindex": "0", "role": "img", "aria-label": _lines(mark.title)} if mark.on_front else {}
    _titled(ElementTree.SubElement(svg, "path", {"d": place, "class": kind, **data, **reached}), mark.title)


def ticks(low: float, high: float) -> list[float]:
    """Returns about five round numbers from ``low`` to the first one that is at least ``high``."""
    if not high > low:
        return [low, low + 1]
    rough = (high - low) / _TICKS
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    count = math.ceil((high - low) / step - 1e-9)
    return [low + step * number for number in range(count + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns 1, 2 and 5 times powers of ten around both positive numbers, or only the powers if there would be
    many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 2)
    for factors in ((1, 2, 5), (1,)):
        steps = [factor * 10.0**power for power in powers for factor in factors]
        first = max(number for number, step in enumerate(steps) if step <= low * (1 + 1e-9))
        last = next(number for number, step in enumerate(steps) if step >= high * (1 - 1e-9) and number > first)
        if last - first <= 2 * _TICKS:
            break
    return steps[first : last + 1]


def short(value: float) -> str:
    """Formats a number with three or four digits: 0.012, 1.5, 1,240, 12.4k."""
    if value and abs(value) < 1:
        return f"{value:.2g}"
    if abs(value) >= 10_000:
        return f"{value / 1000:.3g}k" if abs(value) < 1e6 else f"{value / 1e6:.3g}M"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def legend_mark(series: int) -> str:
    """Returns a series' mark alone, for a legend."""
    svg = Element("svg", {"viewBox": "0 0 14 14", "class": "key", "aria-hidden": "true"})
    ElementTree.SubElement(svg, "path", {"d": _outline(series, 7, 7, 5), "class": f"mark s{series % _COLOURS}"})
    return _written(svg)


def _outline(series: int, x: float, y: float, size: float) -> str:
    """Returns the outline of a series' mark. Each series also has its own shape, for readers who cannot distinguish the
    colours. All have about the same area."""
    shape = (series + series // _COLOURS) % _COLOURS
    if shape == 0:
        half = f"a{size:g},{size:g} 0 1,0"
        return f"M{x - size:.1f},{y:.1f}{half} {2 * size:g},0{half} {-2 * size:g},0z"
    corners = _CORNERS[shape - 1]
    return "M" + "L".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners) + "z"


def _even_scale(values: Sequence[float], begin: float, end: float) -> _Scale:
    found = ticks(0, max(values))
    return _Scale(found, lambda value: begin + (end - begin) * value / found[-1])


def _log_scale(values: Sequence[float], begin: float, end: float) -> _Scale:
    found = log_ticks(min(values), max(values))
    low, high = math.log10(found[0]), math.log10(found[-1])
    return _Scale(found, lambda value: begin + (end - begin) * (math.log10(value) - low) / (high - low))


def _line(
    svg: Element, x1: float, y1: float, x2: float, y2: float, kind: str, data: Mapping[str, str] | None = None
) -> None:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    ElementTree.SubElement(svg, "line", {**ends, "class": kind, **(data or {})})


def _text(svg: Element, x: float, y: float, words: str, kind: str, anchor: str) -> Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind, "text-anchor": anchor}
    element = ElementTree.SubElement(svg, "text", place)
    element.text = printable(words)
    return element


def _titled(element: Element, words: str) -> None:
    ElementTree.SubElement(element, "title").text = _lines(words)


def _lines(words: str) -> str:
    return "\n".join(printable(line) for line in words.split("\n"))


def _written(svg: Element) -> str:
    return ElementTree.tostring(svg, encoding="unicode")
