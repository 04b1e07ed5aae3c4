"""One record for every message to the user: an error, a warning or an info, with its remedies."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple

from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside

Level = Literal["error", "warning", "info"]
Stage = Literal["argparse", "post_init", "check", "plan"]
RemedyKind = Literal["advice", "fix", "untried", "planned", "shell"]
Subject = Literal[
    "", "estimate", "image_open", "import_only", "left_out", "misfit", "no_config", "no_device", "no_model", "no_room",
    "no_schema", "no_wheel", "old_flag", "old_switch", "out_of_range", "port_taken", "preset_found",
    "refused_by_release", "release_guessed", "too_few_gpus", "unknown_choice", "unknown_flag", "unnamed_gpu",
    "value_open",
]  # fmt: skip

_BETWEEN = "; or "
_OVERRIDE = re.compile(r"[A-Za-z_][\w./@-]*=\S*")


class Remedy(NamedTuple):
    """One thing to do about a finding.

    ``said`` is the text to type in a shell, and ``note`` follows it on the screen. ``words`` holds the same as data:
    overrides, each replacing the one for its key. ``kind`` says how far the remedy is known to help: ``advice`` is text
    only; ``fix`` corrects the typed words that the finding is about (``Finding.typed``); ``untried`` must be planned
    before it is shown; ``planned`` was planned and removes the finding; ``shell`` is a command to run before the same
    command line. ``choice`` marks a remedy that only the user can choose. ``instead_of`` names the argument whose
    override is removed, ``flag`` is a flag to add to the command, and ``renames`` is the key that was probably meant;
    its value stays."""

    said: str
    words: tuple[str, ...] = ()
    note: str = ""
    kind: RemedyKind = "advice"
    choice: bool = False
    instead_of: str = ""
    flag: str = ""
    renames: str = ""

    @classmethod
    def typed(cls, said: str, why: str = "", *, when: str = "", instead_of: str = "") -> Remedy:
        """Makes an untried remedy from shell words; ``why`` or ``when`` (the condition to choose it) follows them."""
        note = f" {when}" if when else why
        return cls(said, tuple(shlex.split(said)), note, "untried", choice=bool(when), instead_of=instead_of)

    @classmethod
    def fixed(cls, fix: str, said: str | None = None) -> Remedy:
        """Makes the correction of the finding's typed words; ``said`` replaces ``fix`` on the screen."""
        try:
            words = tuple(shlex.split(fix))
        except ValueError:
            words = (fix,)
        return cls(fix if said is None else said, words, kind="fix")

    @classmethod
    def advised(cls, text: str) -> Remedy:
        """Makes advice from a sentence. Overrides, alone or before ": " and a reason, become ``words``."""
        said = text.partition(": ")[0]
        if "=" not in said:
            return cls(text)
        try:
            words = tuple(shlex.split(said))
        except ValueError:
            return cls(text)
        typed = bool(words) and all(map(_OVERRIDE.fullmatch, words))
        return cls(said, words, text[len(said) :]) if typed else cls(text)

    @classmethod
    def meant(cls, key: str) -> Remedy:
        """Makes a remedy that suggests ``key`` in place of the typed key."""
        return cls(f"did you mean {key}?", renames=key)

    def reworded(self, words: Callable[[str], str]) -> Remedy:
        """Returns the remedy with ``words`` applied to all of its texts, the typed ones included."""
        typed, note = tuple(map(words, self.words)), words(self.note)
        return self._replace(said=words(self.said), words=typed, note=note, renames=words(self.renames))

    def __str__(self) -> str:
        return f"{self.said}{self.note}"


Hint = str | Remedy | Iterable["str | Remedy | None"] | None
"""The advice to make a finding with: one remedy or several, the best first; a text becomes advice."""
Offers = str | Remedy | Iterable["str | Remedy"]


def advice_of(given: Hint) -> tuple[Remedy, ...]:
    """Converts advice to remedies; None and empty entries are left out."""
    several = (given,) if isinstance(given, str | Remedy) else given or ()
    return tuple(one if isinstance(one, Remedy) else Remedy.advised(one) for one in several if one)


def offers_of(given: Offers) -> tuple[Remedy, ...]:
    """Converts alternatives to remedies that are still to be tried; a text holds overrides. The best comes first."""
    several = (given,) if isinstance(given, str | Remedy) else given
    return tuple(one if isinstance(one, Remedy) else Remedy.typed(one) for one in several)


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Finding:
    """A message: the problem, its place, and its remedies.

    ``id`` is stable forever (``MEM003``). ``fields`` names the arguments or config keys concerned; change the first one
    first. ``stage`` is the point where SGLang would have stopped: ``argparse`` (reading the command line),
    ``post_init`` or ``check``. ``plan`` marks a check that only this package makes: such an error leaves
    ``Resolution.ok`` alone and makes a plan unlaunchable. ``upstream`` is the inclusive line range in SGLang 0.5.2's
    ``server_args.py``, if the rule has one. ``typed`` holds the words of the command line that the finding is about.
    Two findings are equal if they show the same, so that a test compares lists. ``remedies`` are alternatives, the best
    first: those to try (``offers``), the correction of the typed words (``fix``), and any others (``hint``)."""

    level: Level
    id: str
    message: str
    fields: tuple[str, ...]
    stage: Stage
    upstream: tuple[int, int] | None
    remedies: tuple[Remedy, ...] = field(repr=False)  # may quote the command line, which may hold a secret
    typed: tuple[str, ...] = field(repr=False)

    def __init__(
        self,
        level: Level,
        id: str,
        message: str,
        fields: tuple[str, ...] = (),
        hint: Hint = None,
        stage: Stage = "plan",
        upstream: tuple[int, int] | None = None,
        *,
        offers: Offers = (),
        fix: str | Remedy | None = None,
        typed: tuple[str, ...] = (),
        remedies: tuple[Remedy, ...] = (),
    ) -> None:
        instead = (Remedy.fixed(fix),) if isinstance(fix, str) else (fix,) if fix else ()
        given = (*remedies, *offers_of(offers), *instead, *advice_of(hint))
        for name, value in zip(_NAMES, (level, id, message, fields, stage, upstream, given, typed), strict=True):
            object.__setattr__(self, name, value)

    @property
    def about(self) -> Subject:
        """Returns the subject of the finding, which control flow asks for and not its id: findings.json lists the ids
        of each; empty for all others."""
        return _subjects().get(self.id, "")

    @property
    def hint(self) -> str | None:
        """Returns the remedies in one line for a screen or a record, without untried ones; None if there are none."""
        return _BETWEEN.join(map(str, self.shown)) or None

    @property
    def shown(self) -> tuple[Remedy, ...]:
        """Returns the remedies to show: all but the untried and the empty ones."""
        return tuple(remedy for remedy in self.remedies if remedy.kind != "untried" and str(remedy))

    @property
    def offers(self) -> tuple[Remedy, ...]:
        """Returns the remedies that are to be planned or were planned."""
        return tuple(remedy for remedy in self.remedies if remedy.kind in ("untried", "planned"))

    @property
    def ours(self) -> bool:
        """Returns True where SGLang itself has no such check."""
        return self.stage == "plan"

    def reworded(self, words: Callable[[str], str]) -> Finding:
        """Returns the finding with ``words`` applied to the texts of its remedies."""
        return replace(self, remedies=tuple(remedy.reworded(words) for remedy in self.remedies))

    def said(self, hint: Hint) -> Finding:
        """Returns the finding with ``hint`` in place of all its remedies."""
        return replace(self, remedies=advice_of(hint))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Finding) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return self.level, self.id, self.message, self.fields, self.hint, self.stage, self.upstream

    def to_json(self) -> JsonDict:
        return {
            "level": self.level,
            "id": self.id,
            "message": self.message,
            "fields": list(self.fields),
            "hint": self.hint,
            "stage": self.stage,
            "upstream": list(self.upstream) if self.upstream else None,
        }

    @classmethod
    def from_json(cls, record: JsonObject) -> Finding:
        """Reads a finding from the record that ``to_json`` wrote."""
        lines, hint = record["upstream"], record["hint"]
        upstream = (lines[0], lines[1]) if lines else None
        several = hint.split(_BETWEEN) if hint else None
        return cls(**{**record, "fields": tuple(record["fields"]), "upstream": upstream, "hint": several})


_NAMES = tuple(item.name for item in fields(Finding))


@functools.cache
def _subjects() -> dict[str, Subject]:
    return {id: subject for subject, ids in json_beside(__file__).items() for id in ids}
