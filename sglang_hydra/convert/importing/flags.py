"""Reads a launch's flags as arguments, with the parser of its release."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.parser import flag_like, parser_of
from sglang_hydra.arguments.reading import Reading, Typed, options_in, read_options
from sglang_hydra.arguments.release_guess import Guess, guess_release
from sglang_hydra.arguments.secrets import SECRET_FIELDS, has_secret_form, is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.convert.frameworks.adapters import refused_keywords
from sglang_hydra.convert.importing.launches import Launch, is_open, open_names, without_marks
from sglang_hydra.planning.engines.planned import release_meant
from sglang_hydra.run.diagnose.server_args import named
from sglang_hydra.text.budget import read_yaml
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.words import short, without_secret_forms

_OF_THE_NODE = ("node_rank", "dist_init_addr")
_CONFIG_LONGEST = 1 << 20
PLACEHOLDERS = frozenset(("...", "[...]", "\u2026", "\\n"))
"""Documentation writes these for more flags, or for the end of a line."""
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"


@dataclass
class Arguments:
    """The arguments in the flags. ``version`` is the release of the source, None if unknown; ``values`` use the names
    of ``read_by``, which is then the release to plan for. ``left_open`` are arguments with a value that only the
    machine knows, with their text. ``unread`` are flags in none of these. ``idle`` are flags that the release ignores,
    with the reason; ``old`` maps arguments to the words of their deprecated flags. ``words`` are the flags of the
    source."""

    values: JsonDict = field(default_factory=dict)
    version: str | None = None
    read_by: str = SPECIFIED_VERSION
    guess: Guess | None = None
    left_open: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    words: Sequence[str] = ()
    idle: dict[str, str] = field(default_factory=dict)
    old: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_arguments(
    launch: Launch,
    version: str | None,
    folder: Path | None = None,
    architectures: Callable[[Sequence[Typed]], Sequence[str]] = lambda options: (),
) -> Arguments:
    """Returns the arguments of a launch. ``version`` is the release that its source names; without it, guesses the
    release, also by the ``architectures`` of the model that the options name. ``folder`` is the base of its paths.
    Raises nothing: unreadable parts become findings."""
    made = Arguments(version=version, read_by=version or release_meant())
    words = list(launch.words)
    if launch.values is not None and launch.resolved:
        _take_resolved(made, launch.values)
        return made
    if launch.values is not None:
        refused = refused_keywords(launch.place, launch.values, made.read_by) if launch.keywords else {}
        made.findings += refused.values()
        made.unread += refused
        taken = {key: value for key, value in launch.values.items() if key not in refused}
        words = [*_words_of(made, taken), *words]
    made.words = words = _with_config(made, words, launch.files, folder)
    options: list[Typed] = []
    left_open: list[Typed] = []
    for option in options_in(words, version):
        (left_open if _take_open(made, option) else options).append(option)
    flags = [option.flag for option in left_open if option.flag[:2] == "--" and not is_open(option.flag)]
    if made.version is None:
        made.guess = guess_release([*options, *options_in(flags, version)], architectures(options))
        if not made.guess.includes(made.read_by):
            made.version = made.read_by = made.guess.last
        options = list(options_in([word for option in options for word in option.words], made.read_by))
    options += _refused(flags, made.read_by)
    _take(made, read_options(options, made.read_by, needs_model=False), options)
    return made


def _refused(flags: Sequence[str], version: str) -> list[Typed]:
    """Returns the flags that a release refuses, with any value."""
    found = options_in(flags, version)
    return [item for item in found if item.option is None or (item.option.old and item.option.old.refused)]


def _take(made: Arguments, read: Reading, options: Sequence[Typed]) -> None:
    for name, value in read.values.items():
        if name not in FIELDS and (is_secret_name(name) or has_secret_form(value)):
            message = f"{name} holds a secret and is an argument of SGLang {made.version} alone: it is left out"
            made.findings.append(Finding("warning", "IMP009", message, (name,), "SGLang's own --config FILE"))
        else:
            made.values.setdefault(name, value)
    made.findings += [_masked(finding, options) for finding in read.findings]
    made.unread += read.unread
    made.idle |= read.idle
    made.old |= read.old


def _take_open(made: Arguments, option: Typed) -> bool:
    """Leaves out an option whose value is known only at run time, unless it is a secret. Returns whether it was such an
    option."""
    if option.words[0] in PLACEHOLDERS:
        message = f"{option.words[0]} is a placeholder for flags that the source leaves out"
        made.findings.append(Finding("warning", "IMP005", message, hint="put them behind the source as key=value"))
        return True
    if not any(is_open(word) for word in option.words):
        return False
    written = " ".join(option.values) or option.words[0]
    names = [name for word in option.words for name in open_names(word)]
    if option.option is None and not option.flag.startswith("--"):
        written = without_marks(option.words[0])
        message = f"{short(written)} may hold more flags: nothing in the source says what it is"
        made.findings.append(Finding("warning", "IMP005", message, hint="put them behind the source as key=value"))
        return True
    flag = without_marks(option.flag)
    name = option.name or flag.lstrip("-").replace("-", "_")
    variable = "".join(char for char in names[0].strip("${}()") if char.isalnum() or char == "_") if names else ""
    if name in SECRET_FIELDS and len(names) == 1 and variable.isidentifier() and without_marks(written) == names[0]:
        made.secrets[name] = f"${{oc.env:{variable}}}"
        return True
    made.left_open[name] = without_secret_forms(without_marks(written))
    if name in _OF_THE_NODE:
        message = f"{name} is left to the launch: the source takes it from {', '.join(names)} on each node"
        made.findings.append(Finding("info", "IMP005", message, (name,)))
        return True
    shown = "" if is_secret_name(name) or not option.values else f" {short(without_marks(written))}"
    message = f"{flag}{shown}: nothing in the source says what {', '.join(dict.fromkeys(names))} is; it is left out"
    made.findings.append(Finding("warning", "IMP005", message, (name,), f"put {name}=... behind the source"))
    return True


def _masked(finding: Finding, options: Sequence[Typed]) -> Finding:
    """Removes words that may be secrets from a finding of SGLang's parser: stray words, values of a key."""
    for option in options:
        if option.name in SECRET_FIELDS:
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


def _words_of(made: Arguments, values: Mapping[str, object]) -> list[str]:
    """Turns keys and values into flags, as SGLang's --config does."""
    words: list[str] = []
    for key, value in values.items():
        if value is None or value is False:
            continue
        flag = flag_like(str(key))
        if not (every := parser_of(None)).word(flag).options:
            option = every.by_name.get(str(key).replace("-", "_"))
            flag = flag if option is None else option.flag
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [flag, *(_word(item) for item in value)] if value else []
        elif isinstance(value, Mapping):
            words += [flag, json.dumps(dict(value), default=str)]
        else:
            words += [flag, _word(value)] if not _word(value).startswith("-") else [f"{flag}={_word(value)}"]
    return words


def _word(value: object) -> str:
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


def _content(name: str, files: Mapping[str, str], folder: Path | None) -> Mapping[str, object] | None:
    text = files.get(name, files.get(name.rpartition("/")[2]))
    if text is None and folder is not None and not is_open(name) and "\0" not in name:
        path = folder / name
        try:
            if path.is_file() and path.stat().st_size <= _CONFIG_LONGEST:
                text = read_text(path, errors="replace")
        except OSError:
            return None
    try:
        content = read_yaml(text, "config") if text is not None else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return content if isinstance(content, Mapping) else None


def _take_resolved(made: Arguments, values: Mapping[str, object]) -> None:
    """Takes the non-default arguments of a log."""
    taken, refused = named(values, made.read_by)
    made.values |= taken
    made.unread += refused
    for name in refused:
        message = f"{name}: SGLang {made.read_by} does not take the value in the log; it is left out"
        made.findings.append(Finding("warning", "IMP003", message, (name,)))
    for name in ("tokenizer_path", "served_model_name"):  # unset, they follow the model
        if made.values.get(name) == made.values.get("model_path"):
            made.values.pop(name, None)
    for name in SECRET_FIELDS:
        if values.get(name) is not None:
            made.values[name] = str(values[name])
    if made.values.pop("random_seed", None) is not None:
        message = "random_seed is left out: a log does not tell whether it was set or drawn"
        made.findings.append(
            Finding("info", "IMP005", message, ("random_seed",), "put random_seed=... behind the source")
        )
