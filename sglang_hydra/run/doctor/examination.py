"""Defines a check and its result, and the phrases that several checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from sglang_hydra.text.json_types import JsonDict, JsonObject

if TYPE_CHECKING:
    from sglang_hydra.run.doctor.machine_state import World

State = Literal["ok", "warning", "error", "unknown"]


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of one check.

    ``id`` is stable forever (``DOC003``). ``state``: ``ok`` nothing to do; ``warning`` a server may start, but slower,
    smaller or without some settings; ``error`` a server fails here; ``unknown`` the check could not find out. ``found``
    is one sentence with numbers and units. ``details`` has one line per GPU, folder or package. ``fix`` is what to
    type, or None. ``values`` holds the numbers alone; each key names its unit (``free_mib``), and None means unknown.
    """

    id: str
    subject: str
    state: State
    found: str
    fix: str | None = None
    details: tuple[str, ...] = ()
    values: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonDict:
        return {**asdict(self), "details": list(self.details)}


class Checked(NamedTuple):
    """The result of a check, without the id and subject that an Examination adds."""

    state: State
    found: str
    fix: str | None = None
    details: tuple[str, ...] = ()
    values: JsonObject = {}


Look = Callable[["World"], Checked]


@dataclass(frozen=True, slots=True)
class Check:
    """A small pure function from the observed state to a verdict; its docstring is its page."""

    id: str
    subject: str
    look: Look

    @property
    def name(self) -> str:
        return self.look.__name__

    @property
    def page(self) -> str:
        return self.look.__doc__ or ""

    def __call__(self, world: World) -> Examination:
        return Examination(self.id, self.subject, *self.look(world))


def check(id: str, subject: str) -> Callable[[Look], Check]:
    """Turns a function into a check. Its docstring is its page: what, why, source, example."""
    return partial(Check, id, subject)


_GIB = 1 << 30
_MIB = 1 << 20


def size(count: float | None) -> str:
    """Writes bytes as GiB, or MiB below one GiB; ``unknown`` for None."""
    if count is None:
        return "unknown"
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


def mib(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:.0f} MiB"


def gib(count: float | None) -> float | None:
    return None if count is None else round(count / _GIB, 3)


def numbers(places: Iterable[int]) -> str:
    """Joins sorted numbers, with ranges: ``0-3, 5``."""
    runs = groupby(enumerate(sorted(set(places))), lambda item: item[1] - item[0])
    ends = [(run[0][1], run[-1][1]) for _, found in runs if (run := list(found))]
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def several(places: Sequence[int], word: str = "GPU") -> str:
    """Returns ``GPU 3`` or ``GPUs 0-3``."""
    return f"{word}{'s' if len(set(places)) > 1 else ''} {numbers(places)}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Joins the first ``most`` names, and counts the rest."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def dotted(version: Sequence[int] | None) -> str:
    return "unknown" if version is None else ".".join(str(part) for part in version)
