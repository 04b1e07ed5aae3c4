"""One record for every message to the user: an error, a warning, an info."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

Level = Literal["error", "warning", "info"]
Stage = Literal["argparse", "post_init", "check", "plan"]


class Offer(NamedTuple):
    """Overrides that help against a finding, as one types them in a shell, with a note that is shown behind them."""

    typed: str
    note: str = ""


def offers_of(given: Sequence[str | Offer] | str) -> tuple[Offer, ...]:
    """What is offered: one text of overrides, or several alternatives, the best first."""
    several = (given,) if isinstance(given, (str, Offer)) else given
    return tuple(one if isinstance(one, Offer) else Offer(one) for one in several)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, where, and what to type about it.

    ``id`` is stable forever (``MEM003``). ``fields`` names the arguments or config keys concerned, the one
    to change first. ``stage`` says where SGLang would have stopped: ``argparse`` (reading the command line),
    ``post_init`` or ``check``; ``plan`` marks what only we look at, so an error there leaves
    ``Resolution.ok`` alone and makes a plan unlaunchable. ``upstream`` is the inclusive line range in
    SGLang 0.5.2's ``server_args.py``, if the rule has one. Equality is by value, so that a test is a
    comparison of lists.

    ``offers`` are alternatives that may help. A plan tries each (``planning.offers``) and writes those that do before
    the rest of the hint; outside of a plan they are candidates, and ``hint`` names none of them.

    ``typed`` are the words of the command line that it is about, and ``fix`` what to type in their place, where that is
    known: overrides as one types them in a shell.
    """

    level: Level
    id: str
    message: str
    fields: tuple[str, ...] = ()
    hint: str | None = None
    stage: Stage = "plan"
    upstream: tuple[int, int] | None = None
    offers: tuple[Offer, ...] = field(default=(), compare=False, repr=False)
    typed: tuple[str, ...] = field(default=(), compare=False, repr=False)
    fix: str | None = field(default=None, compare=False, repr=False)

    @property
    def ours(self) -> bool:
        """True when SGLang itself has no such check."""
        return self.stage == "plan"

    def to_json(self) -> dict[str, Any]:
        record = asdict(self)
        for name in ("offers", "typed", "fix"):
            del record[name]
        record["fields"] = list(self.fields)
        record["upstream"] = list(self.upstream) if self.upstream else None
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Finding:
        """The finding that ``to_json`` wrote."""
        lines = record["upstream"]
        upstream = (lines[0], lines[1]) if lines else None
        return cls(**{**record, "fields": tuple(record["fields"]), "upstream": upstream})
