"""Translates the arguments of 0.5.2 for another release: renamed, dropped or refused, each with a finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sglang_hydra.arguments.argv import render_argv
from sglang_hydra.arguments.changed_defaults import changed_defaults
from sglang_hydra.arguments.extra import checked_extras
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.releases.order import same_release
from sglang_hydra.releases.successors import successor
from sglang_hydra.releases.table import Release, known_versions, nearest_known, release
from sglang_hydra.releases.values import flag_for, nearest_choice, problem, rendered
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import program, some_of


@dataclass
class Translation:
    """The arguments for ``version``: ``arguments`` by its own names, and the findings on what became of the intent.

    ``known`` is the release of the table whose flags these are; ``idle`` are flags that it accepts and ignores,
    ``renamed`` are 0.5.2's names with what the release
    has in their place.
    """

    version: str
    known: Release
    arguments: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)

    def flags(self, *, defaults: bool = False) -> list[str]:
        """The command line; with ``defaults`` also what 0.5.2 and the release both have by default. Raises ValueError,
        in words, for a value that no flag of that release can say."""
        return [*(word for name in self.arguments for word in self.words(name, defaults=defaults)), *self.idle]

    def words(self, name: str, *, defaults: bool = False) -> list[str]:
        """One of ``arguments`` as words of the command line. Raises ValueError as ``flags`` does."""
        argument, value = self.known.arguments[name], self.arguments[name]
        if release(SPECIFIED_VERSION).arguments.get(name) == argument and name in FIELDS:
            return render_argv({name: value}, defaults=defaults)
        flag = flag_for(argument, self.known)
        if flag is None:
            raise ValueError(f"{name} has no flag in SGLang {self.known.version}")
        return rendered(argument, value, flag)


def unknown_version(version: str) -> Finding:
    """The refusal of a release that is not in the table."""
    known = known_versions()
    message = f"engine.version={version} is no release that is known here"
    fix = f"engine.version={nearest_known(version) or known[0]}"
    hint = f"{fix}; or releases are {some_of(version, reversed(known), f'{program()} release list')}"
    return Finding("error", "VER001", message, ("engine.version",), hint, fix=fix)


def translate(intent: Mapping[str, Any], version: str, extra: Mapping[str, Any] | None = None) -> Translation:
    """``intent`` (0.5.2's arguments) and ``extra`` (the release's own) as ``version`` takes them.

    A release that is not in the table gets what the last one before it gets (the first one, where it is older than
    all), with a finding.
    """
    name = nearest_known(version) or known_versions()[0]
    made = Translation(version, release(name))
    if not same_release(name, version):
        message = f"SGLang {version} is not in the table of releases: its command line is taken to be that of {name}"
        made.findings.append(Finding("warning", "VER002", message, ("engine.version",)))
    for field_name in FIELDS:
        if intent.get(field_name) is not None:
            _place(made, field_name, intent[field_name], intent)
    values, findings = checked_extras(extra or {}, made.known)
    made.arguments.update(values)
    made.findings += findings
    made.findings += _moved_defaults(made, intent)
    return made


def arguments_for(intent: Mapping[str, Any], version: str, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arguments by the names that ``version`` has for them."""
    return (
        dict(intent)
        if same_release(version, SPECIFIED_VERSION) and not extra
        else translate(intent, version, extra).arguments
    )


def _place(made: Translation, name: str, value: Any, intent: Mapping[str, Any]) -> None:
    """Finds a place for one argument, or a finding that says why it has none."""
    argument = made.known.arguments.get(name)
    if argument is None:
        _replace(made, name, value, intent)
        return
    flag = flag_for(argument, made.known)
    if flag is None:
        if value != FIELDS[name].default:
            made.findings.append(_gone(made, name, value, "its command line has no flag for it"))
        return
    wrong = problem(argument, _as_read(name, value))
    if wrong is not None:
        message = f"SGLang {made.known.version}: {name}={shown(value)} {wrong}"
        near = nearest_choice(argument, value)
        key = name if near in (FIELDS[name].arg.choices or (near,)) else f"extra.{name}"
        hint = f"did you mean {key}={near}?" if near else f"leave {name} out"
        made.findings.append(Finding("error", "VER005", message, (name,), hint, stage="argparse"))
        return
    if argument.flag is None:
        old = made.known.old_flags[flag]
        message = f"{name}: {flag} is deprecated in SGLang {made.known.version}" + (
            f", which has {old.instead}" if old.instead else ""
        )
        made.findings.append(Finding("info", "VER006", message, (name,)))
    made.arguments[name] = value


def _replace(made: Translation, name: str, value: Any, intent: Mapping[str, Any]) -> None:
    """Translates an argument that the release does not have into the one that takes its place."""
    if value == FIELDS[name].default:
        return
    flag = FIELDS[name].flag
    old = made.known.old_flags.get(flag)
    if old is not None and old.does_nothing_in(made.known.version) and FIELDS[name].is_flag:
        made.idle.append(flag)
        message = f"{name}: SGLang {made.known.version} accepts {flag} and does nothing with it"
        made.findings.append(Finding("info", "VER006", message, (name,)))
        return
    found = successor(name, made.known.version)
    if found.name is None:
        made.findings.append(_gone(made, name, value, found.advice))
        return
    replacement = found.value_of(value)
    if isinstance(replacement, tuple):
        other = replacement[1]
        replacement = intent.get(other, FIELDS[other].default)
    if intent.get(found.name) not in (None, replacement):
        message = (
            f"{name}={shown(value)} is {found.name} in SGLang {made.known.version}, which was set to another value"
        )
        made.findings.append(Finding("warning", "VER003", message, (name, found.name), f"leave {name} out"))
        return
    wrong = problem(made.known.arguments[found.name], replacement)
    if wrong is not None:
        made.findings.append(
            _gone(made, name, value, f"{found.name} takes its place, and {shown(replacement)} {wrong}")
        )
        return
    message = f"{name}={shown(value)} is {found.name}={shown(replacement)} in SGLang {made.known.version}"
    made.findings.append(Finding("info", "VER003", message, (name,)))
    made.arguments[found.name] = replacement
    made.renamed[name] = found.name


def _gone(made: Translation, name: str, value: Any, advice: str | None) -> Finding:
    message = f"{name}={shown(value)}: SGLang {made.known.version} has no such argument" + (
        f"; {advice}" if advice else ""
    )
    return Finding("error", "VER004", message, (name,), f"leave {name} out", stage="argparse")


def _moved_defaults(made: Translation, intent: Mapping[str, Any]) -> Iterator[Finding]:
    """One finding on the unset arguments whose defaults the release has changed."""
    moved = [
        change
        for name, change in changed_defaults(SPECIFIED_VERSION, made.known.version).items()
        if name not in made.arguments and intent.get(name) is None
    ]
    if moved:
        listed = ", ".join(f"{change.name} {shown(change.before)} -> {shown(change.after)}" for change in moved)
        message = f"defaults of SGLang {made.known.version} that differ from {SPECIFIED_VERSION}'s: {listed}"
        yield Finding("info", "VER007", message, tuple(change.name for change in moved))


def _as_read(name: str, value: Any) -> Any:
    """Adapters, sets and tuples in the form that the table's types name."""
    if name == "lora_paths":
        return list(value) if not isinstance(value, Mapping) else [dict(value)]
    return sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
