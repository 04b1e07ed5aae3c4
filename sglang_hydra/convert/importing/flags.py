"""SGLang's flags as arguments: by its own parser for 0.5.2, by the table of releases for what came later."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from sglang_hydra.arguments.argv import field_of, options_of, read_argv
from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.arguments.fields.check import check_value
from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.compose.overrides import value_problem
from sglang_hydra.convert.importing.launches import Launch, is_open, open_names, without_marks
from sglang_hydra.convert.importing.passwords import holds_a_password, without_passwords
from sglang_hydra.convert.importing.release import first_with_flag, found_in, release_for
from sglang_hydra.convert.importing.routed import PREFIX, take_replicas, take_router
from sglang_hydra.releases.order import same_release
from sglang_hydra.releases.table import Argument, Release, nearest_known, release
from sglang_hydra.releases.values import problem
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import nearest, short

_OF_THE_NODE = ("node_rank", "dist_init_addr")
_CONFIG_LONGEST = 1 << 20
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"


@dataclass
class Arguments:
    """What the flags say. ``known`` are arguments of 0.5.2, ``extra`` those of a later release alone; ``version`` is
    the release that the source is for, None where nothing tells. ``left_open`` are arguments whose value only the
    machine knows, with what stands there. ``topology`` are keys of ours for a router and the servers behind it.
    ``unread`` is what of the flags is in none of these."""

    known: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    version: str | None = None
    guessed: bool = False
    left_open: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    topology: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


@dataclass
class Option:
    """One option with the words that belong to it. ``field`` is 0.5.2's argument, None for what it does not have."""

    words: list[str]
    field: Field | None = None
    ambiguous: bool = False

    @property
    def flag(self) -> str:
        return self.words[0].partition("=")[0]

    @property
    def values(self) -> list[str]:
        _, equals, value = self.words[0].partition("=")
        return ([value] if equals else []) + self.words[1:]


def read_arguments(launch: Launch, version: str | None, folder: Path | None = None) -> Arguments:
    """The arguments of a launch. ``version`` is the release that its source names; ``folder`` is where its paths
    start. Nothing is raised: what cannot be read is in the findings."""
    made = Arguments(version=version)
    words = list(launch.words)
    if launch.values is not None and launch.resolved:
        _take_resolved(made, launch.values)
        return made
    if launch.values is not None:
        words = [*_words_of(made, launch.values), *words]
    words = _with_config(made, words, launch.files, folder)
    options = list(_options(words))
    options = [option for option in options if not _take_open(made, option)]
    if launch.behind_router:
        for option in options:
            if option.flag.startswith(PREFIX):
                take_router(made, option.flag, option.values)
        options = [option for option in options if not option.flag.startswith(PREFIX)]
    if made.version is None:
        made.version = release_for(options)
        made.guessed = made.version is not None
    of_later = [option for option in options if option.field is None and not option.ambiguous]
    rest = [word for option in options if option not in of_later for word in option.words]
    values, _, findings = read_argv(rest)
    made.known = {**values, **made.known}
    for option in of_later:
        _take_later(made, option)
    if launch.behind_router:
        take_replicas(made)
    for finding in findings:
        if finding.id == "ARG018" or (finding.id == "ARG014" and _take_later_choice(made, finding, options)):
            continue
        made.findings.append(_masked(finding, options))
        made.unread.append(finding.fields[0] if finding.fields else finding.message)
    return made


def _options(words: Sequence[str]) -> Iterator[Option]:
    """Groups words by the option that they belong to; a word that belongs to none is an option of its own."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        meant = options_of(word)
        if meant is not None and not meant:
            yield Option([word], ambiguous=True)
            continue
        field = field_of(meant[0]) if meant is not None and len(meant) == 1 else None
        start, most = at, _takes(word, field, unknown=meant is None)
        while at < len(words) and at - start < most and options_of(words[at]) == ():
            at += 1
        yield Option([word, *words[start:at]], field, ambiguous=meant is not None and field is None)


def _takes(word: str, field: Field | None, *, unknown: bool) -> int:
    """How many words an option may take."""
    if "=" in word:
        return 0
    if field is not None:
        if field.is_flag and field.arg.parser is None:
            return 0
        return 1 << 30 if field.arg.nargs in ("*", "+") else 1
    argument = _first_argument(word) if unknown else None
    if argument is None:
        return 1 << 30 if unknown else 0
    return 0 if _is_switch(argument) else 1 << 30 if argument.nargs in ("*", "+") else 1


def _take_open(made: Arguments, option: Option) -> bool:
    """Leaves out an option whose value is known only where it runs, unless it is a secret. Returns whether it was
    one."""
    if not any(is_open(word) for word in option.words):
        return False
    written = " ".join(option.values) or option.words[0]
    names = [name for word in option.words for name in open_names(word)]
    if option.field is None and not option.flag.startswith("--"):
        written = without_marks(option.words[0])
        message = f"{short(written)} may stand for more flags: nothing in the source says what it is"
        made.findings.append(Finding("warning", "IMP005", message, hint="put them behind the source as key=value"))
        return True
    name = option.field.name if option.field is not None else _name_of(option.flag)
    variable = "".join(char for char in names[0].strip("${}()") if char.isalnum() or char == "_") if names else ""
    if name in SECRET_FIELDS and len(names) == 1 and variable.isidentifier() and without_marks(written) == names[0]:
        made.secrets[name] = f"${{oc.env:{variable}}}"
        return True
    made.left_open[name] = without_passwords(without_marks(written))
    if name in _OF_THE_NODE:
        message = f"{name} is left to the launch: the source takes it from {', '.join(names)} on each node"
        made.findings.append(Finding("info", "IMP005", message, (name,)))
        return True
    shown = "" if is_secret_name(name) else f" {short(without_marks(written))}"
    message = (
        f"{option.flag}{shown}: nothing in the source says what {', '.join(dict.fromkeys(names))} is; it is left out"
    )
    made.findings.append(Finding("warning", "IMP005", message, (name,), f"put {name}=... behind the source"))
    return True


def _take_later(made: Arguments, option: Option) -> None:
    """Reads a flag that 0.5.2 does not have: one of the source's release, or an unknown one."""
    at = _release_of(made)
    argument, old = found_in(at, option.flag) if at is not None else (None, None)
    if old is not None and old.field is not None and old.field in FIELDS and old.value is not None:
        made.known[old.field] = old.value
        message = f"{option.flag} is deprecated in SGLang {at.version if at else ''}"
        hint = f"{old.instead} instead" if old.instead else None
        made.findings.append(Finding("warning", "IMP008", message, (old.field,), hint))
        return
    if argument is None:
        made.findings.append(_unknown(option, made.version))
        made.unread.append(option.flag)
        return
    value = _value(argument, option)
    wrong = problem(argument, value) if value is not _UNREADABLE else "cannot be read"
    if is_secret_name(argument.name) or holds_a_password(value):
        message = f"{option.flag} holds a secret and is an argument of SGLang {made.version} alone: it is left out"
        made.findings.append(Finding("warning", "IMP009", message, (argument.name,), "SGLang's own --config FILE"))
        return
    if wrong is not None:
        message = f"{option.flag} {short(' '.join(option.values))} {wrong} in SGLang {made.version}"
        made.findings.append(Finding("error", "IMP003", message, (argument.name,)))
        made.unread.append(option.flag)
        return
    if argument.name in FIELDS and check_value(argument.name, value) is None:
        made.known[argument.name] = value
        return
    made.extra[argument.name] = value
    message = f"{option.flag} is an argument of SGLang {made.version}; 0.5.2 does not have it"
    made.findings.append(Finding("info", "IMP004", message, (f"extra.{argument.name}",)))


def _take_later_choice(made: Arguments, finding: Finding, options: Sequence[Option]) -> bool:
    """Takes a value that only a later release has among its choices. Returns whether it did."""
    name = finding.fields[0] if finding.fields else ""
    option = next((item for item in reversed(options) if item.field is not None and item.field.name == name), None)
    if option is None or not option.values:
        return False
    text = option.values[-1]
    known = nearest_known(made.version) if made.version else None
    argument = release(known).arguments.get(name) if known else None
    if argument is None or problem(argument, text) is not None:
        return False
    made.known.pop(name, None)
    made.extra[name] = text
    message = f"{option.flag} {text} is a choice of SGLang {made.version}; 0.5.2 does not have it"
    made.findings.append(Finding("info", "IMP004", message, (f"extra.{name}",)))
    return True


def _unknown(option: Option, version: str | None) -> Finding:
    near = nearest(option.flag, _all_flags(version))
    since = first_with_flag(option.flag)
    which = f"SGLang {version}" if version else "no release of SGLang from 0.5.2 on"
    message = f"{option.flag} is unknown: {which} has {'no such' if version else 'such a'} flag; it is left out"
    if since is not None:
        return Finding("error", "IMP003", message, hint=f"SGLang {since} has it: engine.version={since}")
    return Finding("error", "IMP003", message, hint=f"did you mean {near}?" if near else None)


def _masked(finding: Finding, options: Sequence[Option]) -> Finding:
    """Removes words that may be secrets from a finding of SGLang's parser: stray words, values of a key."""
    for option in options:
        if option.field is not None and option.field.arg.secret:
            for value in option.values:
                if value and value in f"{finding.message} {finding.hint}":
                    return Finding("error", finding.id, f"{option.flag} cannot be read", finding.fields, None)
    for option in options:
        word = option.words[0]
        if word[:1] in tuple(_DASHES) and word in finding.message:
            meant = f"--{word.lstrip(_DASHES)}"
            hint = f"it begins with a dash that a text program made of hyphens: {meant}"
            return Finding(finding.level, finding.id, finding.message, finding.fields, hint)
    return finding


def _words_of(made: Arguments, values: Mapping[str, Any]) -> list[str]:
    """Turns keys and values into the flags that SGLang's --config makes of them."""
    words: list[str] = []
    for key, value in values.items():
        if value is None or value is False:
            continue
        flag = f"--{str(key).replace('_', '-')}"
        if not options_of(flag) and first_with_flag(flag) is None:
            named = str(key).replace("-", "_")
            flag = FIELDS[named].flag if named in FIELDS else flag
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [flag, *(_word(item) for item in value)] if value else []
        elif isinstance(value, Mapping):
            words += [flag, json.dumps(dict(value), default=str)]
        else:
            words += [flag, _word(value)] if not _word(value).startswith("-") else [f"{flag}={_word(value)}"]
    return words


def _word(value: Any) -> str:
    return json.dumps(value, default=str) if isinstance(value, (dict, list, bool)) else str(value)


def _with_config(made: Arguments, words: list[str], files: Mapping[str, str], folder: Path | None) -> list[str]:
    """Replaces ``--config FILE`` by the file's content; flags beside it win, as they do for SGLang."""
    for at, word in enumerate(words):
        if word.partition("=")[0] != "--config":
            continue
        name = word.partition("=")[2] or (words[at + 1] if at + 1 < len(words) else "")
        rest = [*words[:at], *words[at + (1 if "=" in word else 2) :]]
        content = _content(name, files, folder)
        if content is None:
            message = f"--config {short(without_marks(name))}: the file is not here; what it says is left out"
            made.findings.append(Finding("warning", "IMP005", message, hint="import that file beside this source"))
            return rest
        return [*_words_of(made, content), *rest]
    return words


def _content(name: str, files: Mapping[str, str], folder: Path | None) -> Mapping[str, Any] | None:
    import yaml

    text = files.get(name)
    if text is None and folder is not None and not is_open(name) and "\0" not in name:
        path = folder / name
        try:
            if path.is_file() and path.stat().st_size <= _CONFIG_LONGEST:
                text = read_text(path, errors="replace")
        except OSError:
            return None
    try:
        content = yaml.safe_load(text) if text is not None else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return content if isinstance(content, Mapping) else None


def _take_resolved(made: Arguments, values: Mapping[str, Any]) -> None:
    """Takes the arguments of a log, without defaults."""
    from sglang_hydra.run.diagnose.server_args import RENAMED, named

    at = _release_of(made)
    defaults = at.arguments if at is not None else {}
    for name, value in named(values).items():
        if name in defaults and name not in (*SECRET_FIELDS, "model_path") and defaults[name].default == value:
            continue
        if value_problem(name, value) is None:
            made.known[name] = value
        elif name in defaults and problem(defaults[name], value) is None:
            made.extra[name] = value
        else:
            made.unread.append(name)
            message = f"{name}: the log has a value that is none of 0.5.2's; it is left out"
            made.findings.append(Finding("warning", "IMP003", message, (name,)))
    for name in SECRET_FIELDS:
        if values.get(name) is not None:
            made.known[name] = str(values[name])
    if "random_seed" in made.known:
        del made.known["random_seed"]
        message = "random_seed is left out: a log does not tell whether it was set or drawn"
        made.findings.append(
            Finding("info", "IMP005", message, ("random_seed",), "put random_seed=... behind the source")
        )
    for name, value in values.items():
        argument = defaults.get(name)
        if (
            argument is None
            or name in FIELDS
            or name in RENAMED
            or is_secret_name(name)
            or name.startswith("_")
            or not argument.flags
        ):
            continue
        if value != argument.default and argument.computed is None and problem(argument, value) is None:
            made.extra[name] = value


def _release_of(made: Arguments) -> Release | None:
    known = nearest_known(made.version) if made.version else None
    return release(known) if known and not same_release(known, SPECIFIED_VERSION) else None


def _first_argument(word: str) -> Argument | None:
    flag = word.partition("=")[0]
    since = first_with_flag(flag)
    return found_in(release(since), flag)[0] if since else None


def _name_of(flag: str) -> str:
    argument = _first_argument(flag)
    return argument.name if argument else flag.lstrip("-").replace("-", "_")


@lru_cache(maxsize=64)
def _all_flags(version: str | None) -> tuple[str, ...]:
    own = [flag for field in FIELDS.values() for flag in field.flags]
    known = nearest_known(version) if version else None
    later = [flag for argument in release(known).arguments.values() for flag in argument.flags] if known else []
    return tuple(dict.fromkeys([*own, *later]))


_UNREADABLE = object()


def _is_switch(argument: Argument) -> bool:
    return argument.action in ("store_true", "BooleanOptionalAction")


def _value(argument: Argument, option: Option) -> Any:
    """Converts the value of a later release's option to the type in the table."""
    if _is_switch(argument):
        return not option.flag.startswith("--no-") if not option.values else _UNREADABLE
    if argument.nargs in ("+", "*"):
        return [_typed(argument, text, listed=True) for text in option.values]
    if not option.values:
        return argument.const if argument.nargs == "?" else _UNREADABLE
    return _typed(argument, option.values[0]) if len(option.values) == 1 else _UNREADABLE


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
