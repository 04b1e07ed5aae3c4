"""Reads the table of failure classes: one YAML file for each family, read at the first diagnosis.

An entry is one class: its id and its kind, then the other fields of ``FailureClass``. A signature is a text that a
line contains, or a mapping with the fields of ``Signature``; ``needle`` gives one text. ``within`` names libraries and
directories of SGLang: an exception raised there means the class, whatever its message. ``shared`` holds values that
several entries refer to. When a line fits two classes equally well, the earlier entry decides, so the more specific
entries come first. Ids never change."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.text.budget import quick_load
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.words import program


@cache
def read_table(name: str) -> JsonObject:
    """Returns the table that the file of this name beside this package holds."""
    found: JsonObject = quick_load(Path(__file__).parents[1].joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
    return found


LOG_LINES = read_table("log_lines")
"""The texts by which a log shows the state of a server."""

UNKNOWN = "unknown"
"""The kind for a log without a deciding line."""
_FAMILIES = ("memory", "checkpoint", "model", "arguments", "gpu", "cluster", "host", "software", "process")
_ANYTHING = re.compile(r"(?<!\\)\.([*+])")
_BETWEEN = 400
_NEAR = 4096
_LEAST = 2
"""The shortest needle, in characters."""
_PAGE_WIDTH, _MOST_SHOWN, _LEAST_LETTERS = 94, 6, 8
_PROGRAM = re.compile(r"\bsglang-hydra (?=[a-z])")
_NAME = re.compile(r"(?<![\w./-])([a-z][a-z0-9]*(?:_[a-z0-9]+)*)(=?)")
# Python raises these by itself; they are no deliberate error of any code.
_ON_PURPOSE = r"^(?:\w+\.)*(?!(?:Type|Attribute|Index|Name|UnboundLocal|ZeroDivision|ModuleNotFound)Error)\w+\b(?s:.*?)"


@cache  # only a few of the hundreds of expressions are needed for one log, and ``re`` keeps too few compiled
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern. ``.*`` matches at most ``_BETWEEN`` characters: unbounded, it takes quadratic time."""
    return re.compile(_ANYTHING.sub(lambda found: f".{{{int(found[1] == '+')},{_BETWEEN}}}", pattern))


class Weight(IntEnum):
    """The weight of a line as evidence. The smallest number decides, then the earliest line."""

    CAUSE = 1
    """The failure itself, in unambiguous words."""
    GENERAL = 2
    """The failure in general words; a more specific line explains it better."""
    FAULT = 3
    """An exception in SGLang of which only the place is known. A more specific signature in the line wins."""
    EFFECT = 4
    """A consequence that another process, rank or library reports."""
    END = 5
    """The end of a process by a signal or an exit code."""


Stage = IntEnum("Stage", "UNKNOWN START CONNECT LOAD KV GRAPHS SERVE", start=0)
"""The stages of a server in startup order. ``UNKNOWN`` when the log does not show the stage."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Describes a line that proves a failure.

    The line contains one of the texts ``needles``. ``pattern`` is a regular expression that must match too, ``unless``
    one that must not. ``stage`` is the required stage of the server, ``frame`` a required file or function in the
    traceback (``^at `` begins the innermost frame outside Python's own library, ``^hit at `` the same in a traceback
    that ends its process). ``in_warning`` also accepts lines marked as warnings; ``exception`` accepts only the last
    line of a traceback. ``request`` marks a failure of one request: the server lives, and any later work acquits it.
    ``advice``, ``what`` and ``retryable`` replace those of the class."""

    needles: tuple[str, ...]
    pattern: str | None = None
    unless: str | None = None
    weight: Weight = Weight.CAUSE
    stage: Stage | None = None
    frame: str | None = None
    in_warning: bool = False
    request: bool = False
    exception: bool = False
    advice: tuple[str, ...] = ()
    what: str | None = None
    retryable: bool | None = None

    def __post_init__(self) -> None:
        """Raises TypeError for a needle that is too short to decide anything."""
        if short := [needle for needle in self.needles if len(needle.strip()) < _LEAST]:
            raise TypeError(f"needle {short[0]!r} decides nothing: it has fewer than {_LEAST} letters")

    def fits(self, line: str, needle: str) -> bool:
        """Returns whether ``pattern`` and ``unless`` accept a line around ``needle`` (``_NEAR`` characters)."""
        if len(line) > _NEAR:  # the time that a pattern takes may grow with the square of what it searches
            start = max(0, line.find(needle) - _NEAR // 4)
            line = line[start : start + _NEAR]
        fits = self.pattern is None or _compiled(self.pattern).search(line) is not None
        return fits and (self.unless is None or _compiled(self.unless).search(line) is None)

    def fits_trace(self, frames: Sequence[str]) -> bool:
        """Returns whether the traceback has the required frame, if any. ``^$`` requires a log without frames."""
        return self.frame is None or any(_compiled(self.frame).search(frame) for frame in frames or ("",))


@dataclass(frozen=True, slots=True)
class Detail:
    """A number or a name in the deciding line.

    ``pattern`` is a regular expression. ``text`` is the result, with ``\\1`` for the first group; without ``text`` the
    result is the last group that matched."""

    pattern: str
    text: str | None = None

    def of(self, line: str) -> str | None:
        found = _compiled(self.pattern).search(line)
        return found and (found.expand(self.text) if self.text else found[found.lastindex or 0])


@dataclass(frozen=True)
class FailureClass:
    """One class of failure.

    ``kind`` and ``id`` are stable. ``what`` says briefly what happened, ``meaning`` why, ``advice`` what to type, best
    first. ``retryable``: the same command may succeed next time. ``changes`` are overrides to plan, smallest first;
    ``memory`` means that the fit knows better ones. An exit by one of ``signals`` means this class when no line says
    more. The first of ``details`` that matches is shown. ``places`` are libraries and directories of SGLang whose
    exceptions mean this class."""

    id: str
    kind: str
    what: str
    meaning: str
    advice: tuple[str, ...]
    signatures: tuple[Signature, ...]
    retryable: bool = False
    changes: tuple[str, ...] = ()
    memory: bool = False
    signals: tuple[int, ...] = ()
    details: tuple[Detail, ...] = ()
    places: tuple[Signature, ...] = ()

    @property
    def name(self) -> str:
        return self.kind

    @property
    def fields(self) -> tuple[str, ...]:
        """Returns the arguments that the advice names, the first one to change first."""
        names = (found for part in self.advice for found in _NAME.findall(part) if found[1] or "_" in found[0])
        return tuple(dict.fromkeys(name for name, _ in names if name in FIELDS))

    def detail(self, line: str) -> str | None:
        """Returns the numbers and names in the deciding line, or None."""
        return next((text for detail in self.details if (text := detail.of(line))), None)

    @property
    def known_by(self) -> list[str]:
        """Returns some texts that identify the class, the strongest evidence first."""
        signatures = sorted(self.signatures, key=lambda signature: signature.weight)
        told = (item for item in signatures if item.weight < Weight.END and item.frame is None)
        found = dict.fromkeys(needle.strip() for item in told for needle in item.needles)
        return [needle for needle in found if len(needle) >= _LEAST_LETTERS][:_MOST_SHOWN]

    @property
    def page(self) -> str:
        """Returns the page for ``explain DIA007``."""
        again = "the same command may succeed next time" if self.retryable else "the same command fails again"
        known = [f"Known by: {', '.join(self.known_by)}"] if self.known_by else []
        advice = f"To type: {'; or '.join(self.advice)}."
        parts = [f"What: {self.what}.", f"Why: {self.meaning}", advice, f"Again: {again}.", *known]
        wrapper = textwrap.TextWrapper(
            _PAGE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        return as_typed("\n".join(map(wrapper.fill, parts)))


def as_typed(advice: str) -> str:
    """Replaces ``sglang-hydra`` in ``advice`` by the name under which this program was started."""
    return _PROGRAM.sub(f"{program()} ", advice)


@cache
def failure_classes() -> tuple[FailureClass, ...]:
    """Returns all classes of failure, in the order in which they are tried."""
    files = (Path(__file__).with_name(f"{family}.yaml") for family in _FAMILIES)
    return tuple(failure for file in files for failure in read_classes(file.read_text(encoding="utf-8"), file.name))


@cache
def classes_by_kind() -> Mapping[str, FailureClass]:
    return {failure.kind: failure for failure in failure_classes()}


def page_of(id: str) -> FailureClass | None:
    """Returns the failure class with this id, or None for another id."""
    return next((failure for failure in failure_classes() if failure.id == id), None)


def read_classes(text: str, name: str) -> list[FailureClass]:
    """Returns the classes of one file. Raises ValueError, with the file and the id, for an incomplete entry."""
    found = []
    for head, row in quick_load(text).items():
        if head == "shared":
            continue
        id, _, kind = head.partition(" ")
        try:
            lists = {key: tuple(row[key]) for key in ("advice", "changes", "signals") if key in row or key == "advice"}
            places = [item for item in row["signatures"] if not isinstance(item, str) and "within" in item]
            lines = [item for item in row["signatures"] if item not in places]
            read = {**lists, "places": tuple(map(_place, places)), "signatures": tuple(map(_signature, lines))}
            details = tuple(Detail(**detail) for detail in row.get("details", ()))
            found.append(FailureClass(id, kind, **{**row, **read, "details": details}))
        except (KeyError, TypeError) as invalid:
            raise ValueError(f"{name}: {id}: {invalid}") from None
    return found


def _signature(item: str | JsonObject) -> Signature:
    if isinstance(item, str):
        return Signature((item,))
    row: JsonDict = {**item, "advice": tuple(item.get("advice", ()))}
    row |= {name: kinds[row[name].upper()] for name, kinds in (("weight", Weight), ("stage", Stage)) if name in row}
    return Signature(tuple(row.pop("needles", None) or (row.pop("needle"),)), **row)


def _place(item: JsonObject) -> Signature:
    """Returns a signature for any exception that code below ``within`` raises on purpose."""
    row = {"weight": "effect", **item, "needles": ("Error", "Exception"), "exception": True}
    row["frame"] = f"^at .*/(?:{row.pop('within')})"
    row["pattern"] = _ON_PURPOSE + row.get("pattern", "")
    return _signature(row)
