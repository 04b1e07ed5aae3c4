"""Compares the arguments and variables of one configuration in two releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sglang_hydra.arguments.accepted import Accepted, accepted, default_of
from sglang_hydra.arguments.changed_defaults import changed_defaults
from sglang_hydra.arguments.every import EVERY, first_with, release_problem
from sglang_hydra.arguments.parser import parser_of
from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret_name
from sglang_hydra.arguments.tables.successors import SAME, successor
from sglang_hydra.arguments.tables.table import release
from sglang_hydra.convert.upgrade.releases import direction
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, plain
from sglang_hydra.text.screen import shown

_OLD_PREFIX, _PREFIX = "SGL_", "SGLANG_"
_OURS = "SGLANG_HYDRA_"


@dataclass(frozen=True)
class Broken:
    """An argument that the new release refuses: it is ``gone``, or its ``choice`` is."""

    key: str
    value: Json
    kind: str
    message: str
    hint: str | None


@dataclass(frozen=True)
class Respelled:
    """An argument with another flag or value in the new release; ``after`` is empty for the default there."""

    key: str
    value: Json
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Moved:
    """A default that nobody set and that has changed. ``keep`` is what to type for the old value, None if that cannot
    be typed; ``since`` is the release that changed it, None for a downgrade."""

    name: str
    before: Json
    after: Json
    since: str | None
    keep: str | None


@dataclass(frozen=True)
class Variable:
    """A set variable that the new release does not read: ``renamed`` (``instead``), ``gone``, or ``unknown`` in both
    releases. ``place`` is engine.env or this shell."""

    name: str
    state: str
    place: str
    instead: str | None = None


@dataclass(frozen=True)
class Steps:
    """All changes for one configuration. ``arguments`` are the remaining ones, by the new release's names; ``renamed``
    maps old names to new ones."""

    arguments: JsonObject
    renamed: Mapping[str, str]
    broken: Sequence[Broken]
    respelled: Sequence[Respelled]
    moved: Sequence[Moved]
    remarks: Sequence[Finding]


def steps_between(
    intent: JsonObject, old: str, new: str, typed: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> Steps:
    """Converts ``intent`` (arguments of ``old``) to ``new``. ``typed`` are the words of arguments that were typed with
    an old flag.

    Raises KeyError for a release outside the table."""
    secret = {name for name in intent if name in SECRET_FIELDS or is_secret_name(name)}
    given = {name: value for name, value in intent.items() if value is not None and name not in secret}
    before = accepted(given, old)
    # Arguments that the old release also lacked say nothing about the new one.
    made = _Renaming(old, new)
    for name, value in given.items():
        made.take(name, value, given)
    tried = accepted(made.arguments, new)
    old_names = {after: name for name, after in made.names.items()}
    broken = [
        *made.broken,
        *(_broken(item, made.arguments, old_names) for item in tried.findings if item.level == "error"),
    ]
    broken += _without_flag(tried, old_names)
    gone = {made.names.get(item.key, item.key) for item in broken}
    kept = {name: value for name, value in made.arguments.items() if name not in gone}
    after = accepted(kept, new)
    remarks = [*made.remarks, *(finding for finding in after.findings if finding.about == "old_flag")]
    renamed = {name: now for name, now in made.names.items() if now in kept}
    respelled = list(_respelled(before, after, given, made, {item.key for item in broken}, typed))
    return Steps(kept, renamed, broken, respelled, list(_moved(old, new, after, kept)), remarks)


class _Renaming:
    """The arguments of one release under the names of another. ``names`` maps old names to changed ones, ``beside``
    maps an argument to another one that its successor needs."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new
        self.arguments: JsonDict = {}
        self.names: dict[str, str] = {}
        self.beside: dict[str, str] = {}
        self.broken: list[Broken] = []
        self.remarks: list[Finding] = []

    def take(self, name: str, value: Json, given: JsonObject) -> None:
        known = release(self.new)
        flag = known.old_flags.get("--" + name.replace("_", "-"))
        has_flag = flag is not None and (flag.field is not None or flag.does_nothing)
        if name in known.arguments or name not in EVERY or has_flag:
            self.arguments[name] = value
            return
        if value == default_of(name):
            return
        found = _name_in(name, value, self.old, self.new)
        if isinstance(found, str):
            message = f"{name}={shown(value)}: SGLang {self.new} has no such argument; {found}".rstrip("; ")
            self.broken.append(Broken(name, plain(value), "gone", message, f"leave {name} out"))
            return
        now, after = found
        if isinstance(after, tuple):  # the value of another argument
            after = given.get(after[1], default_of(after[1]))
        if given.get(now) not in (None, after):
            message = f"{name}={shown(value)} is {now} in SGLang {self.new}, which was set to another value"
            self.remarks.append(Finding("warning", "VER003", message, (name, now), f"leave {name} out"))
            return
        for other, default in _beside(name, self.old, self.new).items():
            if other not in given and other not in self.arguments:
                self.arguments[other] = default
                self.beside[name] = other
        self.arguments[now] = after
        self.names[name] = now


def _beside(name: str, old: str, new: str) -> JsonDict:
    """Returns the argument that the successor of ``name`` also needs, with the old release's default."""
    if direction(old, new) != "upgrade":
        return {}
    also = successor(name, new).also
    beside = successor(also, new) if also else None
    if also is None or beside is None or beside.name is None or also not in release(old).arguments:
        return {}
    return {beside.name: beside.value_of(release(old).arguments[also].default)}


def _name_in(name: str, value: Json, old: str, new: str) -> tuple[str, Json] | str:
    """Returns the name and value of an argument of ``old`` in ``new``, or advice if ``new`` lacks it."""
    known = release(new)
    if direction(old, new) == "downgrade":
        for candidate in known.arguments:
            if candidate not in release(old).arguments:
                found = successor(candidate, old)
                if found.name == name and found.value is SAME:
                    return candidate, value
        since = first_with(name)
        return f"it came with {since}" if since else ""
    found = successor(name, new)
    if found.name is None:
        return found.advice or ""
    return found.name, found.value_of(value)


def _broken(finding: Finding, arguments: JsonObject, old_names: Mapping[str, str]) -> Broken:
    name = finding.fields[0]
    kind = "choice" if finding.about == "misfit" else "gone"
    key = old_names.get(name, name)
    offered = " or ".join(offer.said for offer in finding.offers)
    return Broken(key, plain(arguments.get(name)), kind, finding.message, finding.hint or offered or f"leave {key} out")


def _without_flag(tried: Accepted, old_names: Mapping[str, str]) -> Iterator[Broken]:
    """Yields values that no flag of the release can express."""
    for name, value in tried.arguments.items():
        try:
            tried.words(name)
        except ValueError as failure:
            key = old_names.get(name, name)
            yield Broken(key, plain(value), "choice", str(failure), f"leave {key} out")


def _respelled(
    before: Accepted,
    after: Accepted,
    given: JsonObject,
    made: _Renaming,
    gone: set[str],
    typed: Mapping[str, tuple[str, ...]],
) -> Iterator[Respelled]:
    """Yields each argument whose words change. Two spellings of one flag count as the same."""
    for name, value in given.items():
        now = made.names.get(name, name)
        if name in gone or now in gone:
            continue
        then, words = typed.get(name) or _words(before, name), _words(after, now)
        if name in made.beside:
            words = (*words, *_words(after, made.beside[name]))
        if then and then != words:
            yield Respelled(name, plain(value), then, words)


def _words(made: Accepted, name: str) -> tuple[str, ...]:
    try:
        return tuple(made.words(name)) if name in made.arguments else ()
    except ValueError:
        return ()


def _moved(old: str, new: str, after: Accepted, kept: JsonObject) -> Iterator[Moved]:
    forward = direction(old, new) == "upgrade"
    for name, change in changed_defaults(old, new).items():
        if kept.get(name) is not None or is_secret_name(name):
            continue
        keep = None
        typeable = change.before is not None and not isinstance(change.before, dict)
        has_flag = name in parser_of(after.known.version).by_name
        if typeable and has_flag and not name.startswith("_") and release_problem(name, change.before, new) is None:
            keep = f"{name}={shown(change.before)}"
        yield Moved(name, change.before, change.after, change.since if forward else None, keep)


def variables_between(planned: Mapping[str, str], inherited: Mapping[str, str], old: str, new: str) -> list[Variable]:
    """Returns SGLang's set variables that ``new`` does not read. ``planned`` are those of the launch, ``inherited``
    those of this shell."""
    before, after = release(old).variables, release(new).variables
    found = []
    for name in dict.fromkeys([*planned, *inherited]):
        mine = name.startswith((_PREFIX, _OLD_PREFIX)) and not name.startswith(_OURS)
        if not mine or name in after or is_secret_name(name):
            continue
        place = "engine.env" if name in planned else "this shell"
        is_new = name.startswith(_PREFIX)  # releases after 0.5.2 changed SGL_ to SGLANG_
        instead = (_OLD_PREFIX if is_new else _PREFIX) + name.removeprefix(_PREFIX if is_new else _OLD_PREFIX)
        if instead in after:
            found.append(Variable(name, "renamed", place, instead))
        else:
            found.append(Variable(name, "gone" if name in before else "unknown", place))
    return found
