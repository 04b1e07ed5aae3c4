"""Guesses the release of a command line: every release that reads all of it, and has a class for its model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from sglang_hydra.arguments.release_flags import Option, argument_of, flags_of, value_of
from sglang_hydra.releases.architectures import first_release_of
from sglang_hydra.releases.order import at_least
from sglang_hydra.releases.table import known_versions, release
from sglang_hydra.releases.values import problem

_UNREAD, _IDLE = 2, 1


class Guess(NamedTuple):
    """The releases from ``first`` to ``last`` fit. ``evidence`` are the flags, and the model's class, without which
    more would; there is none where every release fits."""

    first: str
    last: str
    evidence: tuple[str, ...] = ()


def guess_release(options: Sequence[Option], architectures: Iterable[str] = ()) -> Guess:
    """The releases that read the most of the options, of those that have a class for the model."""
    known = known_versions()
    names = tuple(architectures)
    since = (first_release_of(names) if names else None) or known[0]
    clear = [option for option in options if not option.ambiguous]
    costs = {option.words[0]: _costs(option) for option in clear}
    able = [at for at, version in enumerate(known) if at_least(version, since)]
    total = {at: sum(cost[at] for cost in costs.values()) for at in able}
    least = min(total.values())
    fits = [at for at in able if total[at] == least]
    evidence = [word.partition("=")[0] for word, cost in costs.items() if max(cost) > min(cost)]
    evidence += names[:1] if since != known[0] else []
    return Guess(known[fits[0]], known[fits[-1]], tuple(dict.fromkeys(evidence)))


def _costs(option: Option) -> tuple[int, ...]:
    """For each release what is lost of an option there."""
    own = option.field
    choices = tuple(map(str, own.arg.choices)) if own is not None and own.arg.choices else ()
    if own is None:
        return _costs_of(option.flag, tuple(option.values))
    # In other case than the choice's it is a slip, and none of a later release.
    is_own = not choices or not option.values or option.values[-1].lower() in map(str.lower, choices)
    return _costs_of(own.flag, None if is_own else tuple(option.values))


@lru_cache(maxsize=4096)
def _costs_of(flag: str, words: tuple[str, ...] | None) -> tuple[int, ...]:
    """The same of a flag, with its words where they matter."""
    made = []
    for version in known_versions():
        argument, old = argument_of(release(version), flag)
        if flag not in flags_of(version):
            made.append(_UNREAD)
        elif argument is None:
            made.append(_IDLE)
        elif words is None or (old is not None and old.value is not None):
            made.append(0)
        else:
            made.append(_UNREAD if problem(argument, value_of(argument, flag, words)) is not None else 0)
    return tuple(made)
