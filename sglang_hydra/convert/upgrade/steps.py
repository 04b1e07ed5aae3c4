"""Compares the arguments and variables of one configuration in two releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sglang_hydra.arguments.changed_defaults import changed_defaults
from sglang_hydra.arguments.extra import argument_named, first_with
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret_name
from sglang_hydra.arguments.translate import Translation, translate
from sglang_hydra.compose.overrides import value_problem
from sglang_hydra.convert.upgrade.releases import direction
from sglang_hydra.releases.successors import SAME, successor
from sglang_hydra.releases.table import release
from sglang_hydra.releases.values import flag_for, problem
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import shown

_OLD_PREFIX, _PREFIX = "SGL_", "SGLANG_"
_OURS = "SGLANG_HYDRA_"


@dataclass(frozen=True)
class Broken:
    """An argument that the new release refuses: ``gone``, or its ``choice`` is. ``key`` is ours (``extra.NAME``)."""

    key: str
    value: Any
    kind: str
    message: str
    hint: str | None


@dataclass(frozen=True)
class Respelled:
    """An argument with another flag or value in the new release; ``after`` is empty where it is the default there."""

    key: str
    value: Any
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Moved:
    """A default that nobody set and that is another one now. ``keep`` is what to type for the old one, None where that
    cannot be typed; ``since`` the release that changed it, None on the way back."""

    name: str
    before: Any
    after: Any
    since: str | None
    keep: str | None


@dataclass(frozen=True)
class Variable:
    """A variable that is set and that the new release does not read: ``renamed`` (``instead``), ``gone``, or
    ``unknown`` where the table has it for neither release. ``place`` is engine.env or this shell."""

    name: str
    state: str
    place: str
    instead: str | None = None


@dataclass(frozen=True)
class Steps:
    """Everything that changes for one configuration. ``arguments`` and ``extra`` are what remains of the
    configuration, by our keys."""

    arguments: Mapping[str, Any]
    extra: Mapping[str, Any]
    broken: Sequence[Broken]
    respelled: Sequence[Respelled]
    moved: Sequence[Moved]
    remarks: Sequence[Finding]


def steps_between(
    intent: Mapping[str, Any],
    extra: Mapping[str, Any],
    old: str,
    new: str,
    typed: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Steps:
    """What becomes of ``intent`` (0.5.2's arguments) and ``extra`` (those of ``old``) in ``new``. ``typed`` are the
    words of arguments that were typed with an old flag.

    Raises KeyError for a release that is not in the table.
    """
    arguments = {name: value for name, value in intent.items() if name not in SECRET_FIELDS}
    extra = {argument_named(name, release(old)) or name: value for name, value in extra.items()}
    before = translate(arguments, old, extra)
    broken: list[Broken] = []
    names, arguments, later, beside = _extras(arguments, extra, old, new, broken)
    tried = translate(arguments, new, later)
    for finding in tried.findings:
        if finding.level == "error":
            broken.append(_broken(finding, arguments, later))
    broken += _without_flag(tried, arguments, later)
    gone = {item.key for item in broken}
    kept = {name: value for name, value in arguments.items() if name not in gone}
    kept_extra = {name: value for name, value in later.items() if f"extra.{name}" not in gone}
    translated = translate(kept, new, kept_extra)
    remarks = [
        finding
        for finding in translated.findings
        if finding.id == "VER006" or (finding.id == "VER003" and finding.level == "warning")
    ]
    respelled = [
        replace(item, after=(*item.after, *_words(translated, beside[item.key]))) if item.key in beside else item
        for item in _respelled(before, translated, intent, extra, names, gone, typed)
    ]
    return Steps(kept, kept_extra, broken, respelled, list(_moved(old, new, translated, kept)), remarks)


def _extras(
    arguments: Mapping[str, Any], extra: Mapping[str, Any], old: str, new: str, broken: list[Broken]
) -> tuple[dict[str, str], dict[str, Any], dict[str, Any], dict[str, str]]:
    """Translates the extra arguments of one release to another's names. Returns the new key of each, the arguments
    with those that 0.5.2 has too, the remaining extras, and by the key of an argument the one that it needs beside
    it."""
    known, made, later = release(new), dict(arguments), dict[str, Any]()
    names: dict[str, str] = {}
    for name, value in extra.items():
        if is_secret_name(name):
            continue
        found = _name_in(name, value, old, new)
        if isinstance(found, str):
            message = f"{name}={shown(value)}: SGLang {new} has no such argument; {found}".rstrip("; ")
            broken.append(Broken(f"extra.{name}", plain(value), "gone", message, f"leave extra.{name} out"))
            continue
        name_now, value_now = found
        argument = known.arguments.get(name_now)
        if name_now in FIELDS and made.get(name_now) is None and _is_old_value(name_now, value_now):
            made[name_now] = value_now
            names[name] = name_now
        elif argument is not None:
            later[name_now] = value_now
            names[name] = f"extra.{name_now}"
    beside: dict[str, str] = {}
    for name in extra:
        for other, value in _beside(name, old, new).items():
            if other not in later:
                later = {other: value, **later}
                beside[names.get(name, name)] = other
    return names, made, later, beside


def _beside(name: str, old: str, new: str) -> dict[str, Any]:
    """What the new release needs beside the successor of ``name``, and the old one had by default."""
    if direction(old, new) != "upgrade" or argument_named(name, release(new)) is not None:
        return {}
    also = successor(name, new).also
    beside = successor(also, new) if also else None
    if also is None or beside is None or beside.name is None or also not in release(old).arguments:
        return {}
    return {beside.name: beside.value_of(release(old).arguments[also].default)}


def _name_in(name: str, value: Any, old: str, new: str) -> tuple[str, Any] | str:
    """Returns the name and value of an argument of ``old`` in ``new``, or advice where ``new`` does not have it."""
    known = release(new)
    same = argument_named(name, known)
    if same is not None and flag_for(known.arguments[same], known) is not None:
        return same, value
    if direction(old, new) == "downgrade":
        for candidate in known.arguments:
            if candidate not in release(old).arguments:
                found = successor(candidate, old)
                if found.name == name and found.value is SAME:
                    return candidate, value
        since = first_with(name)
        return f"it came with {since}" if since else ""
    found = successor(name, new)
    if found.name is None or isinstance(found.value, tuple):
        return found.advice or ""
    return found.name, found.value_of(value)


def _is_old_value(name: str, value: Any) -> bool:
    """Whether 0.5.2 takes the value, so that no extra is needed for it."""
    return value_problem(name, value) is None


def _broken(finding: Finding, arguments: Mapping[str, Any], extra: Mapping[str, Any]) -> Broken:
    key = finding.fields[0]
    value = extra.get(key.removeprefix("extra.")) if key.startswith("extra.") else arguments.get(key)
    kind = "choice" if finding.id == "VER005" or "choices" in finding.message else "gone"
    return Broken(key, plain(value), kind, finding.message, finding.hint)


def _without_flag(translated: Translation, arguments: Mapping[str, Any], extra: Mapping[str, Any]) -> Iterator[Broken]:
    """Yields values that no flag of the release can express."""
    keys = {translated.renamed.get(name, name): name for name in arguments}
    for name in translated.arguments:
        try:
            translated.words(name)
        except ValueError as failure:
            key = f"extra.{name}" if name in extra else keys.get(name, name)
            yield Broken(key, plain(translated.arguments[name]), "choice", str(failure), f"leave {key} out")


def _respelled(
    before: Translation,
    after: Translation,
    intent: Mapping[str, Any],
    extra: Mapping[str, Any],
    names: Mapping[str, str],
    gone: set[str],
    typed: Mapping[str, tuple[str, ...]],
) -> Iterator[Respelled]:
    """Yields each argument with other words now. Two spellings of one flag count as the same."""
    for name, value in {**intent, **{f"extra.{name}": value for name, value in extra.items()}}.items():
        plain_name = name.removeprefix("extra.")
        key = names.get(plain_name, name) if name.startswith("extra.") else name
        if key in gone or name in gone or is_secret_name(plain_name) or value is None:
            continue
        ours = key.removeprefix("extra.")
        then = typed.get(plain_name) or _words(before, before.renamed.get(plain_name, plain_name))
        now = _words(after, after.renamed.get(ours, ours))
        if then and then != now:
            yield Respelled(key, plain(value), then, now)


def _words(translated: Translation, name: str) -> tuple[str, ...]:
    try:
        return tuple(translated.words(name)) if name in translated.arguments else ()
    except ValueError:
        return ()


def _moved(old: str, new: str, translated: Translation, kept: Mapping[str, Any]) -> Iterator[Moved]:
    forward = direction(old, new) == "upgrade"
    for name, change in changed_defaults(old, new).items():
        if name in translated.arguments or kept.get(name) is not None or is_secret_name(name):
            continue
        keep = None
        argument = translated.known.arguments[name]
        typeable = change.before is not None and not isinstance(change.before, dict)
        if typeable and flag_for(argument, translated.known) is not None and problem(argument, change.before) is None:
            key = name if name in FIELDS and _is_old_value(name, change.before) else f"extra.{name}"
            keep = f"{key}={shown(change.before)}"
        yield Moved(name, change.before, change.after, change.since if forward else None, keep)


def variables_between(planned: Mapping[str, str], inherited: Mapping[str, str], old: str, new: str) -> list[Variable]:
    """Variables of SGLang that are set and that ``new`` does not read. ``planned`` is what the launch sets,
    ``inherited`` what this shell has."""
    before, after = release(old).variables, release(new).variables
    found = []
    for name in dict.fromkeys([*planned, *inherited]):
        mine = name.startswith((_PREFIX, _OLD_PREFIX)) and not name.startswith(_OURS)
        if not mine or name in after or is_secret_name(name):
            continue
        place = "engine.env" if name in planned else "this shell"
        instead = _other_spelling(name)
        if instead in after:
            found.append(Variable(name, "renamed", place, instead))
        else:
            found.append(Variable(name, "gone" if name in before else "unknown", place))
    return found


def _other_spelling(name: str) -> str:
    """Returns the name with SGLang's other prefix: releases after 0.5.2 have SGLANG_ where it had SGL_."""
    if name.startswith(_PREFIX):
        return _OLD_PREFIX + name.removeprefix(_PREFIX)
    return _PREFIX + name.removeprefix(_OLD_PREFIX)
