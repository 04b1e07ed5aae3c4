"""What a release's own code answered to a question: the values, and each change that it made, with its place.

Places and operands are data of an answer and are kept with it. SGLang's own words are not: ``releases.reasons`` quotes
them from the unpacked wheel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sglang_hydra.text.json_types import Json, JsonObject


@dataclass(frozen=True)
class Condition:
    """A condition at a line of a file of the wheel: whether it was true, and what it read, by its text."""

    file: str
    line: int
    holds: bool
    operands: Mapping[str, object]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Step:
    """A statement that set, computed or refused a value. ``inputs`` are what it read, ``conditions`` those under which
    it was run, the innermost first, ``via`` the statements that its value came from. Values of secrets are ``***``."""

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
        """Yields its own conditions, and those of what its value came from."""
        yield from self.conditions
        for step in self.via:
            yield from step.all_conditions()


@dataclass(frozen=True)
class Change:
    """A field of the arguments that got another value; of mappings only what differs. ``step`` is None where nobody
    saw it happen."""

    field: str
    before: Json
    after: Json
    step: Step | None


@dataclass(frozen=True)
class Answer:
    """What a release made of a case.

    ``ok`` is None where it has no answer: ``unanswered`` says which question nobody answered, or why the child failed.
    ``values`` are all its fields where it accepts, ``stage`` and ``error`` its refusal. ``environment`` are variables
    that it set, ``assumed`` facts that were assumed and asked for. ``by_library`` says that transformers refused: what
    was given of the model is then no whole config.json, or one that it does not read.
    Asked with ``why``, ``changes`` has each value that its code set after the command line was parsed, in their order,
    and ``check`` is what refused.
    """

    ok: bool | None
    values: JsonObject = field(default_factory=dict)
    stage: str | None = None
    error: str | None = None
    unanswered: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    assumed: JsonObject = field(default_factory=dict)
    by_library: bool = False
    changes: tuple[Change, ...] = ()
    check: Step | None = None

    @property
    def lacks_type(self) -> bool:
        """Returns whether its transformers refused because it is older than the model's type."""
        return self.by_library and "Transformers does not recognize this architecture" in str(self.error)


def answer_of(record: JsonObject) -> Answer:
    """Returns the answer as the child writes it."""
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
        changes=tuple(change_of(row) for row in why.get("changes", ())),
        check=step_of(why["check"]) if why.get("check") else None,
    )


def change_of(row: JsonObject) -> Change:
    """Returns a change as the child writes it."""
    return Change(row["field"], row["before"], row["after"], step_of(row) if "file" in row else None)


def step_of(row: JsonObject) -> Step:
    """Returns a step as the child writes it."""
    return Step(
        row["file"],
        row["line"],
        row["function"],
        row["inputs"],
        tuple(Condition(**condition) for condition in row["conditions"]),
        tuple(step_of(step) for step in row["via"]),
    )
