"""The flags of any release, by the table of releases: which argument a flag is, what its words mean, what is read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sglang_hydra.arguments.argv import field_of, options_of, read_argv
from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.arguments.fields.check import check_value
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.vllm import counterpart, in_sglangs_words
from sglang_hydra.releases.order import at_least, same_release
from sglang_hydra.releases.successors import SAME, successor
from sglang_hydra.releases.table import Argument, OldFlag, Release, known_versions, nearest_known, release
from sglang_hydra.releases.values import problem
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import nearest, short

_UNREADABLE = object()
_ANY = 1 << 30


@dataclass
class Option:
    """One option with the words that belong to it. ``field`` is 0.5.2's argument, None for what it does not have."""

    words: list[str]
    field: Field | None = None
    ambiguous: bool = False
    place: int = 0

    @property
    def flag(self) -> str:
        return self.words[0].partition("=")[0]

    @property
    def values(self) -> list[str]:
        _, equals, value = self.words[0].partition("=")
        return ([value] if equals else []) + self.words[1:]


@dataclass
class Flags:
    """What options say under one release. ``known`` are arguments that 0.5.2 has too, ``extra`` the others; ``places``
    number the words that set them, from 1. ``unread`` are flags that are in neither, with a finding each; ``idle`` are
    old flags that the release accepts and ignores, ``old`` the words of those that it takes for an argument."""

    known: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    idle: dict[str, str] = field(default_factory=dict)
    old: dict[str, tuple[str, ...]] = field(default_factory=dict)


def options_in(words: Sequence[str], version: str | None = None) -> Iterator[Option]:
    """Groups words by the option that they belong to; a word that belongs to none is an option of its own. A flag that
    ``version`` spells in full is never a shortened one of 0.5.2."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        meant = None if _is_of_release_only(word, version) else options_of(word)
        if meant is not None and not meant:
            yield Option([word], ambiguous=True, place=at)
            continue
        own = field_of(meant[0]) if meant is not None and len(meant) == 1 else None
        start, most = at, _takes(word, own, version, unknown=meant is None)
        while at < len(words) and at - start < most and options_of(words[at]) == ():
            at += 1
        yield Option([word, *words[start:at]], own, ambiguous=meant is not None and own is None, place=start)


def _is_of_release_only(word: str, version: str | None) -> bool:
    flag = word.partition("=")[0]
    known = nearest_known(version) if version else None
    return known is not None and field_of(flag) is None and flag in flags_of(known)


def _takes(word: str, own: Field | None, version: str | None, *, unknown: bool) -> int:
    """How many words an option may take."""
    if "=" in word:
        return 0
    if own is not None:
        if own.is_flag and own.arg.parser is None:
            return 0
        return _ANY if own.arg.nargs in ("*", "+") else 1
    found = described(word.partition("=")[0], version) if unknown else None
    if found is None:
        return _ANY if unknown else 0
    argument, old = found
    if old is not None and (argument is None or old.value is not None):
        return 0
    if argument is None or is_switch(argument):
        return 0
    return _ANY if argument.nargs in ("+", "*") else 1


def described(flag: str, version: str | None) -> tuple[Argument | None, OldFlag | None] | None:
    """What a flag is in ``version``, else in the first release that has it; None for a flag of no release."""
    known = nearest_known(version) if version else None
    if known is None or flag not in flags_of(known):
        known = first_with_flag(flag)
    return argument_of(release(known), flag) if known else None


def argument_of(at: Release, flag: str) -> tuple[Argument | None, OldFlag | None]:
    """The argument that a flag feeds in a release, and the old flag that it is, if it is one."""
    argument, old = found_in(at, flag)
    if old is not None and old.field is not None:
        argument = at.arguments.get(old.field)
    return argument, old


def found_in(at: Release, flag: str) -> tuple[Argument | None, OldFlag | None]:
    """Returns what a flag is in a release: an argument, or an old flag that is still accepted."""
    name = _by_flag(at.version).get(flag)
    return (at.arguments[name], None) if name is not None else (None, at.old_flags.get(flag))


@lru_cache(maxsize=64)
def _by_flag(version: str) -> dict[str, str]:
    """The argument of each flag of a release, ``--no-`` flags among them."""
    made: dict[str, str] = {}
    for name, argument in release(version).arguments.items():
        for flag in argument.flags:
            made.setdefault(flag, name)
            if argument.action == "BooleanOptionalAction":
                made.setdefault(f"--no-{flag[2:]}", name)
    return made


@lru_cache(maxsize=64)
def flags_of(version: str) -> frozenset[str]:
    """Every flag that a release of the table takes, the old ones too. Raises KeyError for an unknown release."""
    return frozenset({*_by_flag(version), *release(version).old_flags})


@lru_cache(maxsize=256)
def first_with_flag(flag: str) -> str | None:
    """The first release of the table that takes a flag, also as an old one."""
    return next((version for version in known_versions() if flag in flags_of(version)), None)


def read_flags(options: Sequence[Option], version: str | None) -> Flags:
    """What ``options`` say under ``version``: 0.5.2's grammar reads what it has too, the table of releases what is the
    release's own, old names by what they mean there. Nothing is raised: ``findings`` has what is wrong."""
    made = Flags()
    later = [option for option in options if option.field is None and not option.ambiguous]
    earlier = [option for option in options if option not in later]
    values, places, findings = read_argv([word for option in earlier for word in option.words])
    made.known = dict(values)
    starts = [option.place for option in earlier for _ in option.words]
    made.places = {name: starts[place - 1] for name, place in places.items() if place <= len(starts)}
    at = later_release(version)
    for option in earlier:  # 0.5.2 has it, and the release only still accepts it
        if option.field is not None and at is not None and found_in(at, option.flag)[1] is not None:
            made.old[option.field.name] = tuple(option.words)
    for option in later:
        _take_later(made, option, version)
    for finding in findings:
        if finding.id == "ARG014" and _take_later_choice(made, finding, options, version):
            continue
        made.findings.append(finding)
        if finding.id != "ARG018":
            made.unread.append(finding.fields[0] if finding.fields else finding.message)
    return made


def _take_later(made: Flags, option: Option, version: str | None) -> None:
    """Reads a flag that 0.5.2 does not have: one of ``version``, an old one that it still takes, or an unknown one."""
    at = later_release(version)
    flag = _in_full(option.flag, at) if at is not None else option.flag
    argument, old = argument_of(at, flag) if at is not None else (None, None)
    if old is not None and at is not None:
        argument = _note_old(made, flag, old, argument, at)
        if argument is None:
            return
    if argument is None:
        made.findings.append(_unknown(option, version))
        made.unread.append(option.flag)
        return
    value = old.value if old is not None and old.value is not None else value_of(argument, flag, option.values)
    wrong = problem(argument, value) if value is not _UNREADABLE else "cannot be read"
    if wrong is not None:
        message = f"{option.flag} {short(' '.join(option.values))} {wrong} in SGLang {version}"
        made.findings.append(Finding("error", "IMP003", message, (argument.name,)))
        made.unread.append(option.flag)
        return
    made.places[argument.name] = option.place
    if old is not None:
        made.old[argument.name] = tuple(option.words)
    if argument.name in FIELDS and check_value(argument.name, value) is None:
        made.known[argument.name] = value
        return
    made.extra[argument.name] = value
    message = f"{option.flag} is an argument of SGLang {version}; 0.5.2 does not have it"
    made.findings.append(Finding("info", "IMP004", message, (f"extra.{argument.name}",)))


def _note_old(made: Flags, flag: str, old: OldFlag, argument: Argument | None, at: Release) -> Argument | None:
    """Says that a flag is an old one. Returns the argument that it stands for; None where it does nothing."""
    instead = old.instead.partition("=")[0] if old.instead else None
    if argument is None and old.value is not None and instead is not None:
        argument = found_in(at, instead)[0]
    does = "is deprecated in" if argument is not None else "does nothing in"
    hint = f"{old.instead} instead" if old.instead else None
    fields = (argument.name,) if argument is not None else ()
    made.findings.append(Finding("warning", "IMP008", f"{flag} {does} SGLang {at.version}", fields, hint))
    if argument is None:
        made.idle[flag] = f"SGLang {at.version} accepts it and does nothing with it"
    return argument


def _in_full(flag: str, at: Release) -> str:
    """The flag that a shortened one means, where it means one alone."""
    if flag in flags_of(at.version) or not flag.startswith("--"):
        return flag
    meant = [known for known in flags_of(at.version) if known.startswith(flag)]
    names = {getattr(argument_of(at, known)[0], "name", known) for known in meant}
    return min(meant, key=len) if len(names) == 1 else flag


def _take_later_choice(made: Flags, finding: Finding, options: Sequence[Option], version: str | None) -> bool:
    """Takes a value that only a later release has among its choices. Returns whether it did."""
    name = finding.fields[0] if finding.fields else ""
    option = next((item for item in reversed(options) if item.field is not None and item.field.name == name), None)
    at = later_release(version)
    argument = at.arguments.get(name) if at is not None else None
    if option is None or not option.values or argument is None or problem(argument, option.values[-1]) is not None:
        return False
    made.known.pop(name, None)
    made.extra[name] = option.values[-1]
    made.places[name] = option.place
    message = f"{option.flag} {option.values[-1]} is a choice of SGLang {version}; 0.5.2 does not have it"
    made.findings.append(Finding("info", "IMP004", message, (f"extra.{name}",)))
    return True


def _unknown(option: Option, version: str | None) -> Finding:
    near = nearest(option.flag, _all_flags(version))
    since = first_with_flag(option.flag)
    which = f"SGLang {version}" if version else "no release of SGLang from 0.5.2 on"
    message = f"{option.flag} is unknown: {which} has {'no such' if version else 'such a'} flag"
    hint = f"did you mean {near}?" if near else None
    if counterpart(option.flag) is not None:
        words, note = in_sglangs_words(option.flag, option.values)
        hint = "; or ".join(filter(None, (shlex.join(words or []), note))) or "leave it out"
        message = f"{option.flag} is a flag of vLLM, and {which} has no such"
    if since is not None:
        hint = f"SGLang {since} has it: engine.version={since}"
        hint = _successor_of(option, version, since) or hint
    fix = hint.partition("; or ")[0] if hint and counterpart(option.flag) is not None and since is None else None
    return Finding("error", "IMP003", message, hint=hint, typed=tuple(option.words), fix=fix)


def _successor_of(option: Option, version: str | None, since: str) -> str | None:
    """What to type in place of a flag that ``version`` no longer has."""
    at = later_release(version)
    if at is None or at_least(since, at.version):
        return None
    found = successor(option.flag.lstrip("-").replace("-", "_"), at.version)
    if found.name is None:
        return found.advice and f"SGLang {since} has it; {found.advice}"
    argument = at.arguments[found.name]
    values = option.values if found.value is SAME else [str(found.value)]
    words = [argument.flag or found.name, *(found.values.get(value, value) for value in values)]
    return f"{' '.join(words)}: SGLang {since} called it {option.flag}"


@lru_cache(maxsize=64)
def _all_flags(version: str | None) -> tuple[str, ...]:
    own = [flag for item in FIELDS.values() for flag in item.flags]
    known = nearest_known(version) if version else None
    later = [flag for argument in release(known).arguments.values() for flag in argument.flags] if known else []
    return tuple(dict.fromkeys([*own, *later]))


def later_release(version: str | None) -> Release | None:
    """The release of the table that ``version`` is, or is nearest to; None for 0.5.2 and for none."""
    known = nearest_known(version) if version else None
    return release(known) if known and not same_release(known, SPECIFIED_VERSION) else None


def is_switch(argument: Argument) -> bool:
    return argument.action in ("store_true", "BooleanOptionalAction")


def value_of(argument: Argument, flag: str, words: Sequence[str]) -> Any:
    """The value that a flag with these words gives to an argument of the table; a value of no use is none of its
    type."""
    if is_switch(argument) or (argument.type == "bool" and argument.action is None and not words):
        return not flag.startswith("--no-") if not words else _UNREADABLE
    if argument.nargs in ("+", "*"):
        return [_typed(argument, text, listed=True) for text in words]
    if not words:
        return argument.const if argument.nargs == "?" else _UNREADABLE
    return _typed(argument, words[0]) if len(words) == 1 else _UNREADABLE


def _typed(argument: Argument, text: str, *, listed: bool = False) -> Any:
    """Converts a word to the first type that the argument takes: int, float, bool, text."""
    for read in (int, float, _true_or_false, str):
        try:
            value: Any = read(text)
        except ValueError:
            continue
        if problem(argument, [value] if listed else value) is None:
            return value
    return text


def _true_or_false(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError(text)


def name_of_flag(flag: str) -> str:
    """The argument that a flag is in the first release that has it; else the flag's own words."""
    found = described(flag, None)
    return found[0].name if found and found[0] else flag.lstrip("-").replace("-", "_")


def flags_as_overrides(
    argv: Sequence[str], version: str | None, *, needs_model: bool
) -> tuple[dict[str, Any], dict[str, int]]:
    """What ``argv`` gives under ``version``, by our keys (``extra.NAME`` for what 0.5.2 does not have), and for each
    the number of its word. Raises ConfigError with all that cannot be read."""
    read = read_flags(list(options_in(argv, version)), version)
    wrong = [item for item in read.findings if item.level == "error" and (needs_model or item.id != "ARG018")]
    if wrong:
        raise ConfigError(*wrong)
    keys = {name: f"extra.{name}" if name in read.extra else name for name in (*read.known, *read.extra)}
    values = {**read.known, **read.extra}
    return {key: values[name] for name, key in keys.items()}, {key: read.places[name] for name, key in keys.items()}
