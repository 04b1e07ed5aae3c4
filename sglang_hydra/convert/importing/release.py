"""Guesses the release of a command line: the first release that accepts the most of its options."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from sglang_hydra.releases.table import Argument, OldFlag, Release, known_versions, release
from sglang_hydra.releases.values import problem

if TYPE_CHECKING:
    from sglang_hydra.convert.importing.flags import Option


def release_for(options: Sequence[Option]) -> str | None:
    """Returns the first release that reads most of the options; None where 0.5.2 reads as many."""
    if not any(_is_of_later(option) for option in options):
        return None
    clear = [option for option in options if not option.ambiguous]
    unread = {version: sum(not _reads(version, option) for option in clear) for version in known_versions()}
    best = min(unread, key=lambda version: unread[version])  # of equals the first
    return best if unread[best] < unread[known_versions()[0]] else None


def _is_of_later(option: Option) -> bool:
    return not option.ambiguous and (option.field is None or _chooses_later(option))


def _chooses_later(option: Option) -> bool:
    """Whether the value is none of 0.5.2's choices, not even in other case."""
    if option.field is None or not option.field.arg.choices or not option.values:
        return False
    return option.values[-1].lower() not in [str(choice).lower() for choice in option.field.arg.choices]


def _reads(version: str, option: Option) -> bool:
    at = release(version)
    flag = option.field.flag if option.field is not None else option.flag
    if flag not in _flags_of(version):
        return False
    argument = found_in(at, flag)[0]
    if argument is None or argument.choices is None or not option.values:
        return argument is None or not _chooses_later(option) or problem(argument, option.values[-1]) is None
    return problem(argument, option.values[-1]) is None or not _chooses_later(option)


@lru_cache(maxsize=64)
def _flags_of(version: str) -> frozenset[str]:
    at = release(version)
    own = {flag for argument in at.arguments.values() for flag in argument.flags}
    negated = {
        f"--no-{flag[2:]}"
        for argument in at.arguments.values()
        if argument.action == "BooleanOptionalAction"
        for flag in argument.flags
    }
    return frozenset(own | negated | set(at.old_flags))


def found_in(at: Release, flag: str) -> tuple[Argument | None, OldFlag | None]:
    """Returns what a flag is in a release: an argument, or an old flag that is still accepted."""
    plain = f"--{flag[5:]}" if flag.startswith("--no-") else flag
    for argument in at.arguments.values():
        if flag in argument.flags or (plain in argument.flags and argument.action == "BooleanOptionalAction"):
            return argument, None
    return None, at.old_flags.get(flag)


@lru_cache(maxsize=256)
def first_with_flag(flag: str) -> str | None:
    """The first release of the table that takes a flag, also as an old one."""
    return next((version for version in known_versions() if flag in _flags_of(version)), None)
