"""Defines the axes of a sweep: the values of one key, or of paired keys, in Hydra's grammar, one at a time.

Values that can be made again are not stored: a million values cost as much memory as ten."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.grammar import as_override, quoted, split_sweep
from sglang_hydra.compose.override_errors import Refused
from sglang_hydra.compose.overrides import KEPT, Request, parsed
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json
from sglang_hydra.text.words import nearest, short

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override, RangeSweep

_FIXED = re.compile(r"^(\+{0,2}|~)(sweep|hydra|ignore)([./=@\[]|$)")
"""The settings of a sweep itself never vary; ``ignore=A,B`` is one list."""
_EMPTY = re.compile(r"\s*(choice|shuffle|sort)\(\s*\)\s*")
_MOST_KEPT = 4096
MOST_POINTS = 1_000_000
"""The most points of one sweep."""
MOST_OF_FILES = 1_000
"""The most points by axes of files, because each is planned. Typed lists multiply them."""


@dataclass(frozen=True)
class Axis:
    """A varying part. ``values`` yields its requests, one for each of ``keys``, always from the first value.

    ``size`` is the number of values, None if counting requires making them; ``typed`` is their source word."""

    keys: tuple[str, ...]
    place: str
    values: Callable[[], Iterator[tuple[Request, ...]]]
    size: int | None = None
    typed: str = ""

    @property
    def is_client(self) -> bool:
        """Returns whether it changes only the load, not the server."""
        return all(re.match(r"bench([./]|$)", key) for key in self.keys)


Options = Callable[[str], Sequence[str]]
"""Returns the options of a config group; empty for an unknown group."""


def axis_of(request: Request, options: Options) -> Axis | None:
    """Returns the axis of an override; None for a single value. Raises ConfigError for an override without values."""
    if request.key is not None or "=" not in request.text or _FIXED.match(request.text):
        return None
    key, _, value = request.text.partition("=")
    if _EMPTY.fullmatch(value):
        raise _nothing(request)
    parts = split_sweep(value)
    try:
        override = parsed(request.text, key)
    except Refused:
        # Text that Hydra's grammar cannot read is checked, and refused, value by value.
        return _listed(key, parts, request) if len(parts) > 1 else None
    if not override.is_sweep_override():
        return None
    if not override.is_discrete_sweep():
        message = f"{request.place}: {short(request.text)} is an interval, which has no list of values"
        raise _error("SWP002", message, key)
    if len(parts) > 1 and override.value_type is not None and override.value_type.name == "SIMPLE_CHOICE_SWEEP":
        return _listed(key, parts, request)

    def values() -> Iterator[tuple[Request, ...]]:
        return _of_function(key, override, request, options)

    return _kept(Axis((_bare(key),), request.place, values, _size_of_range(override.value()), request.text))


def axis_of_params(key: str, values: object, place: str, options: Options) -> Axis:
    """Returns the axis of one key in ``sweep.params``: a list, or text as typed. Raises ConfigError."""
    if isinstance(values, str):
        request = Request(f"{key}={values}", place, KEPT)
        return axis_of(request, options) or _listed(key, [values], request)
    if isinstance(values, Mapping):
        raise _error("SWP004", f"{place}: {key} has a mapping, and needs a list of values", key, f"{key}: [1, 2]")
    items = values if isinstance(values, (list, tuple)) else [values]
    try:
        words = [as_override(key, item).partition("=")[2] for item in items]
    except ValueError as failure:
        raise _error("SWP004", f"{place}: {key}: {failure}", key) from None
    return _listed(key, words, Request(f"{key}={short(str(values))}", place, KEPT))


def zipped(axes: Sequence[Axis], together: Sequence[Json]) -> list[Axis]:
    """Joins the axes of each list of keys in ``together`` into one axis that takes their first values, then their
    second ones, and so on. Keys without a list around them are one list.

    Raises ConfigError for a key that does not vary, is named twice, or has another number of values than the first."""
    if together and all(isinstance(item, str) for item in together):
        together = [together]
    for keys in together:
        if not isinstance(keys, (list, tuple)) or not all(isinstance(key, str) for key in keys):
            message = f"sweep.zip has {keys!r}, which is no list of keys"
            raise _error("SWP003", message, "sweep.zip", "[[tp_size,dp_size]]")
    by_key = {key: axis for axis in axes for key in axis.keys}
    named = [_bare(key) for keys in together for key in keys]
    for key in named:
        if key not in by_key:
            near = None if key in EVERY else nearest(key, by_key)
            message = f"sweep.zip names {key}, which does not vary; what varies is {', '.join(by_key) or 'nothing'}"
            raise _error("SWP003", message, "sweep.zip", f"did you mean {near}?" if near else f"{key}=A,B")
        if named.count(key) > 1:
            raise _error("SWP003", f"sweep.zip names {key} twice", "sweep.zip")
    alone = [axis for axis in axes if axis.keys[0] not in named]
    return [*alone, *(_zipped([by_key[_bare(key)] for key in keys]) for keys in together if keys)]


def check_points(axes: Sequence[Axis]) -> None:
    """Raises ConfigError (SWP002), with the longest axis, if the axes combine to more than ``MOST_POINTS`` points, or
    those of files to more than ``MOST_OF_FILES``."""
    of_files = [axis for axis in axes if re.match(r"sweep[.=]|hydra\.sweeper", axis.place)]
    for some, most, whose in ((of_files, MOST_OF_FILES, " of a file"), (axes, MOST_POINTS, "")):
        sizes = [_size(axis) for axis in some]
        if math.prod(sizes) > most:
            longest = some[sizes.index(max(sizes))]
            word = short(longest.typed) or ", ".join(longest.keys)
            message = f"{longest.place}: {word}: more than {most:,} points{whose} are to be listed"
            hint = f"type this list on the command line: {word if longest.typed else longest.keys[0] + '=A,B'}"
            raise _error("SWP002", message, longest.keys[0], hint if whose else None)


def _size(axis: Axis) -> int:
    """Returns the number of values of an axis; counts at most ``MOST_POINTS`` + 1."""
    return axis.size or sum(1 for _ in itertools.islice(axis.values(), MOST_POINTS + 1))


def combinations(axes: Sequence[Axis]) -> Iterator[tuple[Request, ...]]:
    """Yields every combination of the values of all axes; the last axis varies fastest."""
    if not axes:
        yield ()
        return
    first, *rest = axes
    for requests in first.values():
        for others in combinations(rest):
            yield (*requests, *others)


def _zipped(members: Sequence[Axis]) -> Axis:
    for axis in members:
        check_points([axis])
    columns = [list(axis.values()) for axis in members]
    sizes = {len(column) for column in columns}
    if len(sizes) > 1:
        counts = ", ".join(f"{axis.keys[0]} has {len(column)}" for axis, column in zip(members, columns, strict=True))
        raise _error("SWP003", f"sweep.zip needs as many values of each key: {counts}", "sweep.zip")
    rows = [tuple(itertools.chain(*row)) for row in zip(*columns, strict=True)]
    return Axis(tuple(key for axis in members for key in axis.keys), members[0].place, lambda: iter(rows))


def _listed(key: str, values: Sequence[str], request: Request) -> Axis:
    words = [(Request(f"{key}={value.strip()}", request.place, request.layer),) for value in values]
    if not words:
        raise _nothing(request)
    return Axis((_bare(key),), request.place, lambda: iter(words))


def _kept(axis: Axis) -> Axis:
    """Stores the values of a short axis, so that a shuffle keeps its order and errors appear now."""
    try:
        first = list(itertools.islice(axis.values(), _MOST_KEPT + 1))
    except (ValueError, ArithmeticError) as failure:
        message = f"{axis.place}: the values of {axis.keys[0]} cannot be listed: {failure}"
        raise _error("SWP002", message, axis.keys[0]) from None
    return axis if len(first) > _MOST_KEPT else replace(axis, values=lambda: iter(first))


def _size_of_range(value: object) -> int | None:
    """Returns the number of values of ``range(...)``; None for others, and for an endless range."""
    from hydra.core.override_parser.types import RangeSweep

    if not isinstance(value, RangeSweep):
        return None
    start, stop, step = (Decimal(str(part)) for part in (value.start, value.stop, value.step))
    return max(0, math.ceil((stop - start) / step)) if step else None


def _of_function(key: str, override: Override, request: Request, options: Options) -> Iterator[tuple[Request, ...]]:
    """Yields the values of ``choice(...)``, ``range(...)``, ``glob(...)``, ``sort(...)``, ``shuffle(...)``."""
    from hydra.core.override_parser.types import Glob, RangeSweep

    value: object = override.value()
    values: Iterator[object]
    if isinstance(value, Glob):
        values = iter(value.filter(list(options(_bare(key).partition("@")[0]))))
    elif isinstance(value, RangeSweep) and not (value.shuffle and (_size_of_range(value) or 0) <= MOST_POINTS):
        values = _numbers(value)
    else:
        values = iter(override.sweep_iterator())
    empty = True
    for item in values:
        empty = False
        yield (Request(f"{key}={_spelled(item)}", request.place, request.layer),)
    if empty:
        raise _nothing(request)


def _numbers(given: RangeSweep) -> Iterator[int | float]:
    """Yields ``range(...)`` in the typed decimals: 0.7, 0.75, 0.8 and not 0.7999999999999999."""
    whole = given.range()
    if isinstance(whole, range):
        yield from whole
        return
    number, stop, step = (Decimal(str(part)) for part in (given.start, given.stop, given.step))
    if not step:
        raise ValueError("a step of 0 never ends")
    while number < stop if step > 0 else number > stop:
        yield float(number)
        number += step


def _spelled(item: Json) -> str:
    from hydra.core.override_parser.types import QuotedString, Transformer

    if isinstance(item, QuotedString):
        return item.with_quotes()
    if isinstance(item, str):
        # Hydra drops the quotes within choice(...): text that needs them gets them back.
        return item if _is_plain(item) else quoted(item)
    return Transformer.str(item)


def _is_plain(text: str) -> bool:
    """Returns whether a text, or a number as text, means the same without quotes."""
    try:
        override = parsed(f"x={text}", "x")
    except Refused:
        return False
    value = None if override.is_sweep_override() else override.value()
    return bool(value == text or (type(value) in (int, float) and str(value) == text))


def _nothing(request: Request) -> ConfigError:
    key = request.text.partition("=")[0]
    return _error("SWP001", f"{request.place}: {short(request.text)} gives no value", key, f"{key}=A,B")


def _bare(key: str) -> str:
    return key.lstrip("+")


def _error(id: str, message: str, key: str, hint: str | None = None) -> ConfigError:
    if id == "SWP002" and hint is None:
        hint = f"{key}=range(START,STOP,STEP) or {key}=A,B,C lists them"
    return ConfigError(Finding("error", id, message, (_bare(key),), hint))
