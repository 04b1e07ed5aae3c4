"""Provides a release: its arguments, its reading of words, the values of an intent, and its messages.

One interface has three kinds behind it. This package's rules resolve 0.5.2; a recorded answer, else the release's own
code (a sealed wheel, a trusted install), resolves every other release. Without any answer, 0.5.2's rules give an
estimate, which is marked: ``Resolution.basis`` is ``rules``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sglang_hydra.arguments.accepted import Accepted, accepted
from sglang_hydra.arguments.every import fields_of
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.fields.arg import Field
from sglang_hydra.arguments.reading import Reading, read
from sglang_hydra.arguments.secrets import SECRET_FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.arguments.tables.table import known_versions, nearest_known
from sglang_hydra.releases.asking import Asking
from sglang_hydra.releases.resolving import resolved
from sglang_hydra.rules.resolution import Resolution, resolve
from sglang_hydra.rules.rule import Facts

_TAKEN: dict[str, Accepted] = {}


@dataclass(frozen=True)
class Provider:
    """One release of SGLang."""

    version: str

    @property
    def is_by_rules(self) -> bool:
        """Returns whether this package's own rules are the release's."""
        return same_release(self.version, SPECIFIED_VERSION)

    def fields(self) -> Mapping[str, Field]:
        """Returns the release's arguments by name: type, default, choices, flags, help."""
        return fields_of(nearest_known(self.version) or known_versions()[0])

    def read(self, words: Sequence[str]) -> Reading:
        """Reads a command line by the release's own parser rules; returns its values and its errors."""
        return read(words, self.version)

    def accept(self, intent: Mapping[str, object]) -> Accepted:
        """Returns the part of ``intent`` that the release accepts, and the findings on the rest."""
        return accepted(intent, self.version)

    def _taken(self, intent: Mapping[str, object]) -> Accepted:
        """Returns ``accept(intent)``, which nobody may change; keeps those without findings."""
        key = f"{self.version} {intent!r}"
        made = _TAKEN.get(key) or self.accept(intent)
        return made if made.findings or len(_TAKEN) >= 1024 else _TAKEN.setdefault(key, made)

    def render(self, intent: Mapping[str, object]) -> list[str]:
        """Returns the command line for ``intent``, without the program. Raises ValueError for an unwritable value."""
        return self.accept(intent).flags(defaults=True)

    def resolve(self, facts: Facts, asking: Asking) -> Resolution:
        """Returns the values that the release gives to ``facts.given`` on this GPU and for this model."""
        given = self._taken({name: value for name, value in facts.given.items() if name not in SECRET_FIELDS})
        if not self.is_by_rules:
            return resolved(given, facts, asking, lambda: _by_rules(facts))
        own = _by_rules(facts)
        return replace(own, findings=(*given.findings, *own.findings))


def _by_rules(facts: Facts) -> Resolution:
    known = {name: value for name, value in facts.given.items() if name in FIELDS}
    made = resolve(known, gpu=facts.gpu, model=facts.model, seed=facts.seed, draw=False, env=facts.env)
    return replace(made, intent=MappingProxyType(dict(facts.given)))
