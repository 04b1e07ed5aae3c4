"""What upstream's issue trackers know of a failure: the thread, and the release that mends it. ``threads.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sglang_hydra.releases.order import at_least, release_key
from sglang_hydra.text.quick_yaml import quick_load


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread on one failure. ``line`` and ``at`` are expressions for the deciding line and the place; ``bad`` and
    ``good`` the first releases with and without it, by the ``thread`` or the ``code`` (``by``)."""

    kind: str
    line: str
    thread: str
    at: str = ""
    bad: str | None = None
    good: str | None = None
    by: str | None = None

    @property
    def address(self) -> str:
        repository, _, number = self.thread.partition("#")
        return f"https://github.com/{repository}/issues/{number}"

    @property
    def record(self) -> dict[str, str | None]:
        """The thread in the output for programs."""
        return {"thread": self.address, "first_bad": self.bad, "first_good": self.good, "by": self.by}

    def fits(self, kind: str, line: str, place: str) -> bool:
        """Whether the failure is this one: of its class, with its words, and where a place is known, raised there."""
        return kind == self.kind and _found(self.line, line) and (not place or _found(self.at, place))

    def concerns(self, version: str | None) -> bool:
        """Whether the release may have it; one that is not known may."""
        if version is None or release_key(version) is None:
            return True
        too_old = self.bad is not None and not at_least(version, self.bad)
        return not too_old and not (self.good is not None and at_least(version, self.good))


@cache
def threads() -> tuple[Thread, ...]:
    """Every known thread, in the order of the table."""
    rows = quick_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return tuple(Thread(**row) for row in rows)


def thread_of(kind: str, line: str, place: str, version: str | None) -> Thread | None:
    """The first thread on this failure that concerns the release, None where none is known."""
    found = (thread for thread in threads() if thread.fits(kind, line, place))
    return next((thread for thread in found if thread.concerns(version)), None)


def _found(expression: str, text: str) -> bool:
    return re.search(expression, text) is not None
