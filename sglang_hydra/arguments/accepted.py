"""Checks the requested arguments against one release, under the requested names.

Nothing is translated: a name that the release lacks is refused, and its replacement is offered."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sglang_hydra.arguments.every import EVERY, as_text, misfit, nearest_choice, release_problem, releases_with_choice
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.parser import parser_of
from sglang_hydra.arguments.rendering import render
from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret_name, shown_by_processes
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import at_least, same_release
from sglang_hydra.arguments.tables.successors import successor
from sglang_hydra.arguments.tables.table import Argument, Release, known_versions, nearest_known, pinned_rows, release
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import plural, program, some_of

_ORDER = {name: at for at, name in enumerate(EVERY)}
"""The order of arguments on a command line: the same server has the same line, whatever order a user named them in."""


@dataclass
class Accepted:
    """The arguments that ``version`` accepts, and the findings on the others.

    ``known`` is the table's release whose command line it has; ``idle`` lists flags that it accepts and ignores."""

    version: str
    known: Release
    arguments: JsonDict = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)

    def flags(self, *, defaults: bool = False) -> list[str]:
        """Returns the command line; ``defaults`` adds requested values that equal the default. Raises ValueError, in
        words, for a value that no flag of the release can express."""
        return [*(word for name in self.arguments for word in self.words(name, defaults=defaults)), *self.idle]

    written = functools.cached_property(flags)
    """``flags()``, which nobody may change."""

    def words(self, name: str, *, defaults: bool = False) -> list[str]:
        """Returns one of ``arguments`` as words of the command line. Raises ValueError like ``flags``."""
        argument = self.known.arguments[name]
        is_own = argument != release(SPECIFIED_VERSION).arguments.get(name)
        value = as_text(argument, self.arguments[name])
        return render({name: value}, self.known.version, defaults=defaults or is_own)


def accepted(intent: Mapping[str, object], version: str) -> Accepted:
    """Returns the part of ``intent`` that ``version`` accepts. Null counts as unset where it is the default.

    A release outside the table gets the arguments of the release before it (the first one, if it is older than all),
    with a finding."""
    made = begun(version)
    for name in sorted(intent, key=lambda name: _ORDER.get(name, len(_ORDER))):
        if intent[name] is not None:
            _take(made, name, intent[name])
        elif (known := made.known.arguments.get(name)) is not None and known.default is not None:
            made.arguments[name] = None  # no flag can express it: the command is refused
    made.findings += shown_by_processes(intent, "warning")
    return made


def begun(version: str) -> Accepted:
    """Returns the result without any argument, with a finding for a release outside the table."""
    name = nearest_known(version) or known_versions()[0]
    made = Accepted(version, release(name))
    if not same_release(name, version):
        message = f"SGLang {version} is not in the table of releases: its command line is taken to be that of {name}"
        made.findings.append(Finding("warning", "VER002", message, ("engine.version",)))
    elif version not in known_versions() and (row := pinned_rows().get(version)) is not None:
        changes = row["arguments"]
        counts = f"{len(changes['added'])} added, {len(changes['removed'])} removed"
        asks = plural(len(row["questions"]), "new question")
        message = f"SGLang {version} is not recorded. Its wheel has, against {row['near']}: arguments {counts}; {asks}"
        made.findings.append(Finding("warning", "VER002", message, ("engine.version",)))
    return made


def unknown_version(version: str) -> Finding:
    """Returns the error for a release that is not in the table."""
    known = known_versions()
    message = f"engine.version={version} is no release that is known here"
    is_whole = version.count(".") > 1  # 0.5 could mean several releases
    meant = f"engine.version={nearest_known(version) or known[0]}"
    near = Remedy(meant, (meant,), ", the nearest that is known", choice=True) if is_whole else None
    if f"0.{version}" in known:  # 5.9
        near = Remedy.fixed(f"engine.version=0.{version}")
    listed = f"releases are {some_of(version, reversed(known), f'{program()} release list')}"
    trust = f"{program()} release fetch --trust {version} (or its wheel) plans for it by its own code"
    return Finding("error", "VER001", message, ("engine.version",), (near, listed, trust))


def default_of(name: str) -> object:
    """Returns the default of an argument in 0.5.2, else in the newest release that has it: requesting it requests
    nothing."""
    return FIELDS[name].default if name in FIELDS else EVERY[name].default


def _take(made: Accepted, name: str, value: object) -> None:
    argument = made.known.arguments.get(name)
    if argument is None or name.startswith("_"):
        _take_unknown(made, name, value)
    elif name not in SECRET_FIELDS and is_secret_name(name):
        message = f"{name}: a secret would be on the server's command line, where everyone on its machine reads it"
        _refuse(made, "VER008", message, name, "--config FILE of SGLang itself keeps it out of there")
    elif (option := parser_of(made.known.version).by_name.get(name)) is None:
        if value != argument.default:
            _refuse(made, "VER004", f"{name}: the command line of SGLang {made.version} has no flag for it", name)
    elif (wrong := _problem(made, argument, value)) is not None:
        _refuse_value(made, argument, value, wrong)
    else:
        if option.old is not None:
            _note_old(made, name, option.flag, option.old.instead)
        made.arguments[name] = value


def _problem(made: Accepted, argument: Argument, value: object) -> str | None:
    if argument.name in FIELDS:
        return release_problem(argument.name, value, made.known.version)
    wrong = misfit(argument, value)
    return None if wrong is None else f"{argument.name}={shown(value)} {wrong}"


def _refuse_value(made: Accepted, argument: Argument, value: object, wrong: str) -> None:
    near = nearest_choice(argument, value)
    offers = [f"{argument.name}={near}"] if near else []
    others = releases_with_choice(argument.name, value)[-1:]
    offers += [f"engine.version={one} {_word(argument.name, value)}" for one in others]
    hint = None if offers else f"leave {argument.name} out"
    message = f"SGLang {made.version}: {wrong}"
    made.findings.append(Finding("error", "VER005", message, (argument.name,), hint, stage="argparse", offers=offers))


def _take_unknown(made: Accepted, name: str, value: object) -> None:
    """Accepts another release's argument where the command line still has its flag; else refuses it."""
    if name not in EVERY or value == default_of(name):
        return
    flag = "--" + name.replace("_", "-")
    old = made.known.old_flags.get(flag)
    if old is not None and old.does_nothing and EVERY[name].is_flag:
        made.idle.append(flag)
        message = f"{name}: SGLang {made.version} accepts {flag} and ignores it"
        made.findings.append(Finding("info", "VER006", message, (name,)))
    elif old is not None and old.field is not None and old.field in made.known.arguments:
        _note_old(made, name, flag, old.instead)
        _take(made, old.field, value if old.value is None else old.value)
    else:
        refuse_gone(made, name, value)


def _note_old(made: Accepted, name: str, flag: str, instead: str | None) -> None:
    message = f"{name}: {flag} is deprecated in SGLang {made.version}"
    made.findings.append(Finding("info", "VER006", message + (f", which has {instead}" if instead else ""), (name,)))


def refuse_gone(made: Accepted, name: str, value: object) -> None:
    """Refuses an argument that the release lacks, and offers its replacement or the releases that have it."""
    having = [one for one in known_versions() if name in release(one).arguments]
    first, last = having[0], having[-1]
    message = f"{name}={shown(value)}: SGLang {made.version} has no such argument"
    if at_least(first, made.known.version):
        earlier = _as_earlier(made, name, value, last)
        releases = (f"engine.version={one}" for one in dict.fromkeys((first, last)))
        _refuse(made, "VER004", f"{message}; it came with {first}", name, None, *earlier, *releases)
        return
    found = successor(name, made.known.version)
    if isinstance(found.value, tuple):  # the value of another argument
        found = found._replace(value=made.arguments.get(found.value[1], default_of(found.value[1])))
    if found.name is None:
        advice = f"; {found.advice}" if found.advice else ""
        _refuse(made, "VER004", f"{message}; {last} was the last that had it{advice}", name, f"leave {name} out")
        return
    after = found.value_of(value)
    wrong = misfit(made.known.arguments[found.name], after)
    if wrong is not None:
        why = f"{found.name} takes its place, and {shown(after)} {wrong}"
        _refuse(made, "VER004", f"{message}; {why}", name, f"leave {name} out")
        return
    offer = Remedy.typed(_word(found.name, after), instead_of=name)
    _refuse(made, "VER004", f"{message}; {found.name} takes its place", name, None, offer)


def _as_earlier(made: Accepted, name: str, value: object, since: str) -> Iterator[Remedy]:
    """Yields the argument of an older release that ``since`` calls ``name``, with the value that means ``value``."""
    for one, argument in made.known.arguments.items():
        found = successor(one, since) if one not in release(since).arguments else None
        if found is not None and found.name == name:
            old = (old for old in (value, True) if found.value_of(old) == value and misfit(argument, old) is None)
            yield from (Remedy.typed(_word(one, each), instead_of=name) for each in list(old)[:1])


def _word(name: str, value: object) -> str:
    """Formats ``name=value`` as users type it in a shell."""
    items = value if isinstance(value, (list, tuple)) else [value]
    text = ",".join(map(shown, items))
    return shlex.join([f"{name}=[{text}]" if isinstance(value, (list, tuple)) else f"{name}={text}"])


def _refuse(made: Accepted, id: str, message: str, name: str, hint: str | None = None, *offers: str | Remedy) -> None:
    made.findings.append(Finding("error", id, message, (name,), hint, stage="argparse", offers=offers))
