"""Guesses the release of a command line: every release that reads all words and has a class for its model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from sglang_hydra.arguments.parser import parser_of
from sglang_hydra.arguments.reading import Typed
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.arguments.tables.table import first_release_of, known_versions, nearest_known

_UNREAD, _IDLE = 2, 1


class Guess(NamedTuple):
    """The releases from ``first`` to ``last`` fit. ``evidence`` lists the flags, and the model's class, that exclude
    others; it is empty where every release fits."""

    first: str
    last: str
    evidence: tuple[str, ...] = ()

    def includes(self, version: str) -> bool:
        """Returns whether a release is in the range."""
        return at_least(version, self.first) and at_least(self.last, nearest_known(version) or version)


def guess_release(options: Sequence[Typed], architectures: Iterable[str] = ()) -> Guess:
    """Returns the releases that read most of the options, among those with a class for the model."""
    known = known_versions()
    names = tuple(architectures)
    since = (first_release_of(names) if names else None) or known[0]
    costs = {item.words[0]: _costs(item.flag, tuple(item.values)) for item in options if not item.word.is_value}
    able = [at for at, version in enumerate(known) if at_least(version, since)]
    total = {at: sum(cost[at] for cost in costs.values()) for at in able}
    least = min(total.values())
    fits = [at for at in able if total[at] == least]
    evidence = [word.partition("=")[0] for word, cost in costs.items() if max(cost) > min(cost)]
    evidence += names[:1] if since != known[0] else []
    return Guess(known[fits[0]], known[fits[-1]], tuple(dict.fromkeys(evidence)))


@lru_cache(maxsize=4096)
def _costs(flag: str, values: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the cost of an option in each release: 2 if it cannot be read, 1 if it is ignored, else 0."""
    return tuple(_cost(flag, values, version) for version in known_versions())


def _cost(flag: str, values: tuple[str, ...], version: str) -> int:
    parser = parser_of(version)
    options = parser.word(flag).options
    option = parser.options.get(options[0]) if len(options) == 1 else None
    if option is None or (option.old and option.old.refused):
        return _UNREAD
    if option.argument is None:
        return _IDLE if option.old else 0
    try:
        read = [option.read(value) for value in values] if option.nargs != 0 else []
    except ValueError:
        return _UNREAD
    # A choice with other capitals is a slip, not another release.
    choices = {str(choice).lower() for choice in option.choices or ()}
    return _UNREAD if choices and any(str(value).lower() not in choices for value in read) else 0
