"""One record for everything that is said to the user: a refusal, a warning, a remark."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["error", "warning", "info"]
Stage = Literal["argparse", "post_init", "check", "plan"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, where, and what to type about it.

    ``id`` is stable forever (``MEM003``). ``fields`` names the arguments or config keys concerned, the one
    to change first. ``stage`` says where SGLang would have stopped: ``argparse`` (reading the command line),
    ``post_init`` or ``check``; ``plan`` marks what only we look at, so an error there leaves
    ``Resolution.ok`` alone and makes a plan unlaunchable. ``upstream`` is the inclusive line range in
    SGLang 0.5.2's ``server_args.py``, if the rule has one. Equality is by value, so that a test is a
    comparison of lists.
    """

    level: Level
    id: str
    message: str
    fields: tuple[str, ...] = ()
    hint: str | None = None
    stage: Stage = "plan"
    upstream: tuple[int, int] | None = None

    @property
    def ours(self) -> bool:
        """True when SGLang itself has no such check."""
        return self.stage == "plan"

    def to_json(self) -> dict[str, Any]:
        record = asdict(self)
        record["fields"] = list(self.fields)
        record["upstream"] = list(self.upstream) if self.upstream else None
        return record
