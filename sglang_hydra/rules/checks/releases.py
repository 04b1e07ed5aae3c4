"""Limits our checks to the releases where they hold, and to the arguments that they declare.

releases.json lists each check: the arguments that it ``reads``, by the names of 0.5.2, or the ``layout``, and its
periods, oldest first. A check cannot read undeclared arguments: no release's value is ever mistaken for a default of
0.5.2."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.layout import Layout, layout_of
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import FIRST_NUMBERED, at_least, release_key, same_release
from sglang_hydra.arguments.tables.successors import successor
from sglang_hydra.arguments.tables.table import Release, known_versions, nearest_known, release
from sglang_hydra.rules.resolution import Resolution
from sglang_hydra.rules.rule import Facts, Notice, Refusal, Rule
from sglang_hydra.text.json_types import Json, JsonObject, json_beside

EVERYTHING, LAYOUT = "*", "layout"
"""Declare that a check reads all values, by the release's own names, or the layout of the server's GPUs."""


class Undeclared(Exception):
    """A check reads an argument that releases.json does not declare for it."""


class Unknown(Exception):
    """A check reads a value that is unknown for this plan: it then reports nothing."""


class Period(NamedTuple):
    """The state of a check from the release ``since`` on, until the next period. One of three texts names the source,
    below sglang/srt, in the wheel of ``since`` unless another release precedes it: the check ``holds``; or the fact is
    ``said`` by the release itself, which refuses while it resolves, so that our check counts in estimates alone; or it
    is ``gone``. ``names`` maps its arguments to their places: another argument, or a place in one (``a.b.c``)."""

    since: str = SPECIFIED_VERSION
    holds: str | None = None
    said: str | None = None
    gone: str | None = None
    names: Mapping[str, str] = MappingProxyType({})


class Declared(NamedTuple):
    """The declaration of a check in releases.json."""

    reads: tuple[str, ...]
    periods: tuple[Period, ...]

    def at(self, version: str) -> Period:
        """Returns the period of a release: the last one for a custom build without a version, the first one for a
        release older than all."""
        if len(self.periods) == 1 or (release_key(version) or FIRST_NUMBERED) <= FIRST_NUMBERED:
            return self.periods[-1]
        return next((each for each in reversed(self.periods) if at_least(version, each.since)), self.periods[0])


def declared(check: Rule) -> Declared:
    """Returns the declaration of ``check``. Raises Undeclared where releases.json has none."""
    try:
        return declarations()[check.id]
    except KeyError:
        raise Undeclared(f"rules/checks/releases.json does not name {check.id}") from None


def answer_of(check: Rule, values: JsonObject, facts: Facts, made: Resolution | None = None) -> Refusal | None:
    """Runs ``check`` on the resolved ``values`` of ``facts.release``, those of ``made``. Returns its outcome in that
    release's words, or None where it does not apply."""
    reads, period = _declared_at(check, facts.release)
    if period.gone is not None:
        return None
    try:
        outcome = check.apply(Arguments(check.id, reads, period.names, values, facts, made), facts)
    except Unknown:
        return None
    if not isinstance(outcome, Refusal):
        return None
    if period.said is not None and made is not None and made.answer is not None and not isinstance(outcome, Notice):
        return None
    return _worded(outcome, reads, facts)


@functools.lru_cache(maxsize=4096)
def _declared_at(check: Rule, version: str) -> tuple[Collection[str], Period]:
    known = declared(check)
    return dict.fromkeys(known.reads), known.at(version)


class Arguments:
    """The arguments of one release, read-only, by the names of 0.5.2, limited to those that a check declares."""

    def __init__(
        self,
        check: str,
        reads: Collection[str],
        names: Mapping[str, str],
        values: JsonObject,
        facts: Facts,
        made: Resolution | None,
    ) -> None:
        self._check, self._reads, self._names, self._values, self._facts = check, reads, names, values, facts
        self._made = made

    def __getattr__(self, name: str) -> Json:
        if name not in self._reads:
            raise Undeclared(f"{self._check} reads {name}, which rules/checks/releases.json does not name for it")
        place = self._names.get(name, name)
        return self._values[place] if place in self._values else value_at(self._values, place)

    @property
    def layout(self) -> Layout:
        """Returns the layout of the server's GPUs."""
        if LAYOUT not in self._reads:
            raise Undeclared(f"{self._check} reads the layout, which rules/checks/releases.json does not name for it")
        return self._made.layout if self._made else layout_of(self._values, self._facts.release)

    @property
    def everything(self) -> JsonObject:
        """Returns all values, by the release's own names."""
        if EVERYTHING not in self._reads:
            raise Undeclared(f'{self._check} reads everything: "reads": "{EVERYTHING}" in rules/checks/releases.json')
        names, values = _names_in(self._facts.release), self._values
        return values if names >= values.keys() else {name: values[name] for name in values if name in names}


def value_at(values: Mapping[str, object], path: str) -> Json:
    """Returns the value of an argument, or of a place in one (``cuda_graph_config.decode.bs``). Raises Unknown where it
    is missing."""
    if path in values:
        return values[path]
    found: object = values
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            raise Unknown(path)
        found = found[key]
    return found


def arguments_of(version: str) -> JsonObject:
    """Returns the arguments of a release, by name; those of the newest for a custom build."""
    return FIELDS if same_release(version, SPECIFIED_VERSION) else table_of(version).arguments


@functools.lru_cache(maxsize=64)
def _names_in(version: str) -> frozenset[str]:
    return frozenset(arguments_of(version))


def table_of(version: str) -> Release:
    """Returns the release of the table whose arguments a release has; the newest for a custom build."""
    return release(nearest_known(version) or known_versions()[-1])


def word_for(name: str, version: str) -> str:
    """Returns a release's name for an argument of 0.5.2."""
    if name in arguments_of(version):
        return name
    return successor(name, table_of(version).version).name or name


def _worded(outcome: Refusal, reads: Collection[str], facts: Facts) -> Refusal:
    """Replaces the names of 0.5.2 in ``outcome`` by the release's names."""
    version = facts.release
    words = {name: word for name in reads if (word := word_for(name, version)) != name}
    if not words:
        return outcome
    pattern = re.compile(rf"\b({'|'.join(words)})\b")

    def worded(text: str) -> str:
        return pattern.sub(lambda found: words[found[1]], text)

    remedies = [remedy.reworded(worded) for remedy in outcome.remedies]
    return type(outcome)(worded(outcome.message), *map(worded, outcome.fields), hint=remedies)


@functools.lru_cache(maxsize=1)
def declarations() -> Mapping[str, Declared]:
    """Reads releases.json, by the id of the check."""

    def made(row: JsonObject) -> Declared:
        return Declared(tuple(row["reads"].split()), tuple(Period(**period) for period in row["periods"]))

    return {id: made(row) for id, row in json_beside(__file__).items()}
