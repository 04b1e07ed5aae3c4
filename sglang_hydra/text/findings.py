"""One record for every message to the user: an error, a warning, an info; and what can be done about it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from sglang_hydra.text.json_types import JsonDict, JsonObject

Level = Literal["error", "warning", "info"]
Stage = Literal["argparse", "post_init", "check", "plan"]
RemedyKind = Literal["advice", "fix", "untried", "planned", "shell"]

_BETWEEN = "; or "
_OVERRIDE = re.compile(r"[A-Za-z_][\w./@-]*=\S*")


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to do about a finding.

    ``said`` is how it is typed in a shell, ``note`` what is said behind it. ``words`` are the same as data: overrides,
    each in place of the one for its key. ``kind`` says how far it is known to help: ``advice`` is only said; a ``fix``
    is what the words that the finding is about (``Finding.typed``) should have been; what is ``untried`` is planned
    before it is shown; ``planned`` was, and the finding is gone; ``shell`` is a
    command to run before the same command line. A ``choice`` is one that only the user can make.
    ``instead_of`` is the argument whose override is taken out, ``flag`` one to add to the command, and ``renames`` the
    key that was meant, whose value stays.
    """

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
        """Words for a shell. ``why`` is said right behind them; ``when`` says what the user must choose it for."""
        note = f" {when}" if when else why
        return cls(said, tuple(shlex.split(said)), note, "untried", choice=bool(when), instead_of=instead_of)

    @classmethod
    def fixed(cls, fix: str, said: str | None = None) -> Remedy:
        """Returns what the words that a finding is about should have been; ``said`` where it reads otherwise."""
        try:
            words = tuple(shlex.split(fix))
        except ValueError:
            words = (fix,)
        return cls(fix if said is None else said, words, kind="fix")

    @classmethod
    def advised(cls, text: str) -> Remedy:
        """Returns a sentence; one that is overrides alone, or overrides, a colon and why, can be typed too."""
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
        """Returns the key that was probably meant by the one that was typed."""
        return cls(f"did you mean {key}?", renames=key)

    def reworded(self, words: Callable[[str], str]) -> Remedy:
        """Returns the same in other words, which are those to type, too."""
        typed, note = tuple(map(words, self.words)), words(self.note)
        return replace(self, said=words(self.said), words=typed, note=note, renames=words(self.renames))

    def __str__(self) -> str:
        return f"{self.said}{self.note}"


Hint = str | Remedy | Iterable["str | Remedy | None"] | None
"""What a finding is made with: one remedy or several, the best first; a text is advice."""
Offers = str | Remedy | Iterable["str | Remedy"]


def advice_of(given: Hint) -> tuple[Remedy, ...]:
    """Returns the remedies that ``given`` says; what is None or empty is left out."""
    several = (given,) if isinstance(given, str | Remedy) else given or ()
    return tuple(one if isinstance(one, Remedy) else Remedy.advised(one) for one in several if one)


def offers_of(given: Offers) -> tuple[Remedy, ...]:
    """Remedies that are still to be tried: one text of overrides, or several alternatives, the best first."""
    several = (given,) if isinstance(given, str | Remedy) else given
    return tuple(one if isinstance(one, Remedy) else Remedy.typed(one) for one in several)


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Finding:
    """What was found, where, and what to do about it.

    ``id`` is stable forever (``MEM003``). ``fields`` names the arguments or config keys concerned, the one
    to change first. ``stage`` says where SGLang would have stopped: ``argparse`` (reading the command line),
    ``post_init`` or ``check``; ``plan`` marks what only we look at, so an error there leaves
    ``Resolution.ok`` alone and makes a plan unlaunchable. ``upstream`` is the inclusive line range in
    SGLang 0.5.2's ``server_args.py``, if the rule has one. ``typed`` are the words of the command line that it is
    about. Equality is by what is shown, so that a test is a comparison of lists.

    ``remedies`` are alternatives, the best first. It is made with those to try (``offers``), the one that the typed
    words should have been (``fix``), and any others (``hint``).
    """

    level: Level
    id: str
    message: str
    fields: tuple[str, ...]
    stage: Stage
    upstream: tuple[int, int] | None
    remedies: tuple[Remedy, ...] = field(repr=False)  # with the words as typed, which may hold a secret
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
    def hint(self) -> str | None:
        """Returns the remedies in one line for a screen or a record; those that were not tried are not named."""
        return _BETWEEN.join(map(str, self.shown)) or None

    @property
    def shown(self) -> tuple[Remedy, ...]:
        """Returns the remedies to name."""
        return tuple(remedy for remedy in self.remedies if remedy.kind != "untried" and str(remedy))

    @property
    def offers(self) -> tuple[Remedy, ...]:
        """Returns those that are to be planned, or were."""
        return tuple(remedy for remedy in self.remedies if remedy.kind in ("untried", "planned"))

    @property
    def ours(self) -> bool:
        """Returns True when SGLang itself has no such check."""
        return self.stage == "plan"

    def reworded(self, words: Callable[[str], str]) -> Finding:
        """Returns the same with its remedies in other words."""
        return replace(self, remedies=tuple(remedy.reworded(words) for remedy in self.remedies))

    def said(self, hint: Hint) -> Finding:
        """Returns the same with other advice in place of all its remedies."""
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
        """Returns the finding that ``to_json`` wrote."""
        lines, hint = record["upstream"], record["hint"]
        upstream = (lines[0], lines[1]) if lines else None
        several = hint.split(_BETWEEN) if hint else None
        return cls(**{**record, "fields": tuple(record["fields"]), "upstream": upstream, "hint": several})


_NAMES = tuple(item.name for item in fields(Finding))
