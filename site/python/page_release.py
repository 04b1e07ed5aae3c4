"""Lets the planner of a page ask a release: an interpreter of its own, started by the page when a plan first needs it.

The page's part is src/release.js. A child that is not there ends the plan (Wanted); the page starts it and asks again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sglang_hydra.releases import answers, process, wheels
from sglang_hydra.releases.records import Record, Wheel

FOLDER = Path("/wheels")
STAND_IN = "msgspec"
"""The library whose compiled code no browser runs: msgspec.py is there instead."""


class Wanted(BaseException):
    """A plan needs a child that is not there. No Exception: nobody on the way takes it for an answer."""


class Page(Protocol):
    """What the page does, in src/release.js: all of it is JSON. A child is named by its options."""

    def allowed(self) -> bool: ...
    def state(self, options: str, facts: str) -> str: ...
    def ask(self, options: str, case: str) -> str: ...
    def end(self, options: str) -> None: ...


def install(page: Page, folders: Collection[str]) -> None:
    """Makes the releases whose wheels the site has, by their ``folders``, ones that can be asked."""
    known = frozenset(folders)

    def place_of(wheel: Wheel) -> Path | None:
        is_here = page.allowed() and (wheel.name == STAND_IN or wheel.folder in known)
        return FOLDER / wheel.folder if is_here else None

    def sealed(wheel: Wheel) -> Any:
        place = place_of(wheel)
        return wheels._sealed_at(str(place), wheel.lists) if place is not None and place.is_dir() else None

    class Child:
        """As process.Child, in an interpreter of the page."""

        is_alive = True

        def __init__(
            self, record: Record, places: Sequence[Path], facts: Mapping[str, object], python: str | None = None
        ) -> None:
            pairs = [pair for pair in zip(record.wheels, map(str, places), strict=True) if pair[0].name != STAND_IN]
            self.options = json.dumps({
                "version": record.version,
                "release": pairs[0][1],
                "folders": [place for _, place in pairs[1:]],
                "libraries": [wheel.name for wheel, _ in pairs[1:]],
                "real_parts": record.real_parts,
                "lists": {place: wheel.lists for wheel, place in pairs},
                "machine": {name: facts[name] for name in sorted(facts) if name not in process._MAY_CHANGE},
            })  # fmt: skip
            self.facts = json.dumps(facts)
            self.must_be_ready()

        def must_be_ready(self) -> None:
            """Raises Wanted where the page has no such child, or has given it up for a later one."""
            state = page.state(self.options, self.facts)
            if state == "absent":
                raise Wanted
            if state != "ready":
                raise process.ChildFailed(state)

        def ask(self, case: Mapping[str, object]) -> dict[str, Any]:
            self.must_be_ready()
            answer: dict[str, Any] = json.loads(page.ask(self.options, json.dumps(case)))
            if "changed" in answer:
                raise process.changed_file(answer["changed"])
            if "missing" in answer:
                raise process.ChildFailed(f"it reads {answer['missing'][0][1]}, which the site has not")
            if "failed" in answer:
                raise process.ChildFailed(answer["failed"])
            return answer

        def end(self) -> None:
            page.end(self.options)

    kept: dict[str, dict[str, object]] = {}
    answers.kept_answer, answers.keep_answer = kept.get, kept.__setitem__  # type: ignore[assignment]
    wheels.place_of, wheels._sealed = place_of, sealed
    process.Child = Child  # type: ignore[misc, assignment]
