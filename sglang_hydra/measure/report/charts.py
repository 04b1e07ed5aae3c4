"""Charts as SVG: scatter plots with their Pareto front, and heat maps. Built as a tree, so no text can break out.

Colours come from the page's CSS classes, so that one file suits light and dark; each mark has a title that browsers
show when it is pointed at. 420 units are as wide as a phone, so that nothing shrinks below reading there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import short as cut

WIDTH, HEIGHT = 420, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 24, 14, 44
_TICKS = 5
_CELL_HEIGHT = 34
_SERIES = 6
_CORNERS = (
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),  # square
    ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),  # triangle
    ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),  # diamond
    ((0, 1.2), (-1.1, -0.8), (1.1, -0.8)),  # triangle, point down
    ((-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4), (0.4, 1.2), (-0.4, 1.2),
     (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4)),  # cross
)  # fmt: skip

_LABEL = 18

Element = ElementTree.Element


class Mark(NamedTuple):
    """A point of a scatter plot. ``series`` numbers its sweep; ``on_front`` marks those that nothing beats."""

    x: float
    y: float
    series: int
    on_front: bool
    title: str


def scatter(marks: Sequence[Mark], x_words: str, y_words: str) -> str:
    """Marks with a line along each series' front."""
    svg = _svg(WIDTH, HEIGHT, f"{y_words} against {x_words}")
    x_ticks, y_ticks = ticks(0, max(mark.x for mark in marks)), ticks(0, max(mark.y for mark in marks))
    x_of = _scale(x_ticks[-1], _LEFT, WIDTH - _RIGHT)
    y_of = _scale(y_ticks[-1], HEIGHT - _BOTTOM, _TOP)
    for value in x_ticks:
        _line(svg, x_of(value), _TOP, x_of(value), HEIGHT - _BOTTOM, "grid")
        _text(svg, x_of(value), HEIGHT - _BOTTOM + 16, short(value), "tick", "middle")
    for value in y_ticks:
        _line(svg, _LEFT, y_of(value), WIDTH - _RIGHT, y_of(value), "grid")
        _text(svg, _LEFT - 6, y_of(value) + 4, short(value), "tick", "end")
    _text(svg, (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, x_words, "axis", "middle")
    label = _text(svg, 0, 0, y_words, "axis", "middle")
    label.set("transform", f"translate(13 {(_TOP + HEIGHT - _BOTTOM) / 2:g}) rotate(-90)")
    for series in sorted({mark.series for mark in marks}):
        front = sorted((mark.x, mark.y) for mark in marks if mark.series == series and mark.on_front)
        if len(front) > 1:
            steps = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in front)
            ElementTree.SubElement(svg, "polyline", {"points": steps, "class": f"front s{series % _SERIES}"})
    for mark in sorted(marks, key=lambda mark: mark.on_front):
        kind = f"mark s{mark.series % _SERIES}" + ("" if mark.on_front else " behind")
        place = _outline(mark.series, x_of(mark.x), y_of(mark.y), 5.0 if mark.on_front else 3.5)
        # Those on the front can be reached by keyboard; of a thousand others none wants to be walked through.
        reached = {"tabindex": "0", "role": "img", "aria-label": printable(mark.title)} if mark.on_front else {}
        _titled(ElementTree.SubElement(svg, "path", {"d": place, "class": kind, **reached}), mark.title)
    return _written(svg)


def heat_map(
    columns: Sequence[str], rows: Sequence[str], values: Sequence[Sequence[float | None]], x_words: str, y_words: str
) -> str:
    """A table of ``values`` (by row, None where nothing valid was measured) under the labels of its two axes."""
    rows_shown = [cut(row, _LABEL) for row in rows]
    left = 14 + 7 * max(len(row) for row in rows_shown)
    head = _TOP + 12
    height = head + _CELL_HEIGHT * len(rows) + _BOTTOM
    svg = _svg(WIDTH, height, f"by {x_words} and {y_words}")
    _text(svg, 2, _TOP, y_words, "axis", "start")
    width = (WIDTH - left - _RIGHT) / len(columns)
    known = [value for row in values for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    for row_number, (row, cells) in enumerate(zip(rows, values, strict=True)):
        top = head + row_number * _CELL_HEIGHT
        _text(svg, left - 6, top + _CELL_HEIGHT / 2 + 4, rows_shown[row_number], "tick", "end")
        for number, value in enumerate(cells):
            place = {"x": left + number * width + 1, "y": top + 1, "width": width - 2, "height": _CELL_HEIGHT - 2}
            attributes = {name: f"{size:.1f}" for name, size in place.items()}
            share = 0.5 if high == low else ((value or low) - low) / (high - low)
            kind = "cell none" if value is None else "cell"
            cell = ElementTree.SubElement(svg, "rect", {**attributes, "class": kind, "rx": "3"})
            if value is not None:
                cell.set("style", f"fill-opacity:{0.08 + 0.52 * share:.2f}")
            shown = "not measured" if value is None else short(value)
            _titled(cell, f"{x_words}={columns[number]}, {y_words}={row}: {shown}")
            words = "" if value is None else short(value)
            _text(svg, left + (number + 0.5) * width, top + _CELL_HEIGHT / 2 + 4, words, "value", "middle")
    bottom = head + _CELL_HEIGHT * len(rows)
    for number, column in enumerate(columns):
        label = cut(column, max(4, int(width / 6.5)))
        _text(svg, left + (number + 0.5) * width, bottom + 16, label, "tick", "middle")
    _text(svg, (left + WIDTH - _RIGHT) / 2, bottom + 36, x_words, "axis", "middle")
    return _written(svg)


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers from ``low`` to the first that is not below ``high``."""
    if not high > low:
        return [low, low + 1]
    rough = (high - low) / _TICKS
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    count = math.ceil((high - low) / step - 1e-9)
    return [low + step * number for number in range(count + 1)]


def short(value: float) -> str:
    """A number in at most three or four digits: 0.012, 1.5, 1,240, 12.4k."""
    if value and abs(value) < 1:
        return f"{value:.2g}"
    if abs(value) >= 10_000:
        return f"{value / 1000:.3g}k" if abs(value) < 1e6 else f"{value / 1e6:.3g}M"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def legend_mark(series: int) -> str:
    """The mark of a series alone, for a legend."""
    svg = Element("svg", {"viewBox": "0 0 14 14", "class": "key", "aria-hidden": "true"})
    ElementTree.SubElement(svg, "path", {"d": _outline(series, 7, 7, 5), "class": f"mark s{series % _SERIES}"})
    return _written(svg)


def _outline(series: int, x: float, y: float, size: float) -> str:
    """The mark of a series: each has a shape of its own beside its colour, for whoever does not tell the colours
    apart. All have about the same area."""
    if series % _SERIES == 0:
        half = f"a{size:g},{size:g} 0 1,0"
        return f"M{x - size:.1f},{y:.1f}{half} {2 * size:g},0{half} {-2 * size:g},0z"
    corners = _CORNERS[series % _SERIES - 1]
    return "M" + "L".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners) + "z"


def _svg(width: float, height: float, title: str) -> Element:
    svg = Element("svg", {"viewBox": f"0 0 {width:g} {height:g}", "role": "img"})
    ElementTree.SubElement(svg, "title").text = printable(title)
    return svg


def _scale(top: float, begin: float, end: float) -> Callable[[float], float]:
    return lambda value: begin + (end - begin) * (value / top if top else 0.0)


def _line(svg: Element, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    ElementTree.SubElement(svg, "line", {**ends, "class": kind})


def _text(svg: Element, x: float, y: float, words: str, kind: str, anchor: str) -> Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind, "text-anchor": anchor}
    element = ElementTree.SubElement(svg, "text", place)
    element.text = printable(words)
    return element


def _titled(element: Element, words: str) -> None:
    ElementTree.SubElement(element, "title").text = printable(words)


def _written(svg: Element) -> str:
    return ElementTree.tostring(svg, encoding="unicode")
