"""A release's own answer to a question: its values, and each change that its code made, with the place.

Places and operands are data of an answer and kept with it. SGLang's own words are not: ``releases.reasons`` quotes them
from the unpacked wheel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sglang_hydra.text.json_types import EMPTY, Json, JsonObject


class Condition(NamedTuple):
    """A condition at a line of a file of the wheel: whether it was true, and its operands, by their text."""

    file: str
    line: int
    holds: bool
    operands: Mapping[str, object]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


class Step(NamedTuple):
    """A statement that set, computed or refused a value. ``inputs`` are its operands, ``conditions`` those around it,
    the innermost first, ``via`` the statements that computed its value. Values of secrets are ``***``."""

    file: str
    line: int
    function: str
    inputs: JsonObject
    conditions: tuple[Condition, ...] = ()
    via: tuple[Step, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def all_conditions(self) -> Iterator[Condition]:
        """Yields its own conditions, and those of the statements that computed its value."""
        yield from self.conditions
        for step in self.via:
            yield from step.all_conditions()


class Change(NamedTuple):
    """A field of the arguments that got another value; of mappings only the differences. ``step`` is None for an
    unobserved change."""

    field: str
    before: Json
    after: Json
    step: Step | None


class Answer(NamedTuple):
    """A release's answer to a case.

    ``ok`` is None without an answer: ``unanswered`` then names the open question, or why the child failed. ``values``
    holds all fields of an accepted case, ``stage`` and ``error`` describe a refusal. ``environment`` holds the
    variables that it set, ``assumed`` the assumed facts that it read. ``by_library``: transformers refused, because the
    model's config.json is incomplete or of an unknown kind. For a question with ``why``, ``changes`` lists each value
    that its code set after parsing the command line, in order, and ``check`` is the refusing statement."""

    ok: bool | None
    values: JsonObject = EMPTY
    stage: str | None = None
    error: str | None = None
    unanswered: str | None = None
    environment: Mapping[str, str] = EMPTY
    warnings: tuple[str, ...] = ()
    assumed: JsonObject = EMPTY
    by_library: bool = False
    changes: tuple[Change, ...] = ()
    check: Step | None = None

    @property
    def lacks_type(self) -> bool:
        """Returns whether its transformers refused because it is older than the model's type."""
        return self.by_library and "Transformers does not recognize this architecture" in str(self.error)


def answer_of(record: JsonObject) -> Answer:
    """Reads an answer in the child's format."""
    if "failed" in record or "unanswered" in record:
        return Answer(None, unanswered=str(record.get("failed") or record["unanswered"]))
    why = record.get("why", {})
    return Answer(
        ok=bool(record["ok"]),
        values=record.get("values", {}),
        stage=record.get("stage"),
        error=record.get("error"),
        environment=record.get("environment", {}),
        warnings=tuple(record.get("warnings", ())),
        assumed=record.get("assumed", {}),
        by_library=bool(record.get("by_library")),
        changes=tuple(changes_of(why.get("changes", ()))),
        check=step_of(why["check"]) if why.get("check") else None,
    )


def changes_of(rows: Iterable[JsonObject]) -> list[Change]:
    """Reads changes in the child's format."""
    return [Change(row["field"], row["before"], row["after"], step_of(row) if "file" in row else None) for row in rows]


def step_of(row: JsonObject) -> Step:
    """Reads a step in the child's format."""
    return Step(
        row["file"],
        row["line"],
        row["function"],
        row["inputs"],
        tuple(Condition(**condition) for condition in row["conditions"]),
        tuple(step_of(step) for step in row["via"]),
    )
