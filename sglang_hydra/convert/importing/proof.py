"""Compares the words of a source with those of its export: the release's parser groups both, without converting
values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from sglang_hydra.arguments.accepted import accepted
from sglang_hydra.arguments.reading import options_in
from sglang_hydra.arguments.rendering import render
from sglang_hydra.arguments.secrets import HIDDEN, has_secret_form, is_secret_name
from sglang_hydra.arguments.tables.table import known_versions, nearest_known, release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.experiment import is_reference
from sglang_hydra.convert.importing.flags import Arguments
from sglang_hydra.convert.importing.launches import is_open, without_marks
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.json_types import Json
from sglang_hydra.text.words import without_secret_forms

_STRAY = "words"


class Deviation(NamedTuple):
    """An argument of the source that the export lacks (``after`` is None) or changes; a value is the words after the
    flag. ``why`` is the reason, if any; ``harmless``: the server is the same."""

    name: str
    before: Json
    after: Json
    why: str | None = None
    harmless: bool = False


def requests_of(settings: Mapping[str, object], place: str) -> list[Request]:
    """Returns the imported settings (``choices``, ``overrides`` and ``nodes`` together) as overrides."""
    return [
        Request.typed(key, value, place or "the source", "experiment", interpolate=is_reference(value))
        for key, value in settings.items()
    ]


def argv_of(arguments: Mapping[str, object], version: str | None) -> tuple[str, ...] | None:
    """Returns SGLang's flags for arguments, or for the ones that the release accepts; None if no command line can."""
    known = version or known_versions()[0]
    given = {name: value for name, value in arguments.items() if value is not None}
    with suppress(ValueError):
        return tuple(render(given, known, defaults=True))
    with suppress(ValueError):
        return tuple(accepted(given, known).flags(defaults=True))
    return None


def compared(
    settings: Mapping[str, object],
    version: str | None,
    states: Mapping[str, str],
    arguments: Arguments,
    typed: Typed,
    composer: Composer,
) -> Iterator[Deviation]:
    """Exports the imported settings and compares them with the source's words; yields each difference with its reason.

    ``states`` maps arguments to their states; ``arguments`` and ``typed`` are the inputs of the import."""
    requests = [item for item in requests_of(settings, "") if not is_reference(item.value) and item.key != "gpu"]
    try:
        composition = composer.compose(requests)
    except ConfigError as failure:
        yield Deviation(_STRAY, None, None, failure.findings[0].message)
        return
    export = argv_of(composition.intent, version)
    known = release(nearest_known(version or "") or known_versions()[0]).arguments
    for item in differences(arguments.words, export or (), version):
        why, harmless = _reason(item, states, arguments, typed)
        before, after = (_shown(item.name in known, item.name, value) for value in (item.before, item.after))
        yield Deviation(without_marks(item.name), before, after, why, harmless)


def _reason(item: Deviation, states: Mapping[str, str], arguments: Arguments, typed: Typed) -> tuple[str | None, bool]:
    """Returns the reason for a difference, and whether the server is the same nevertheless."""
    name, state = item.name, states.get(item.name)
    flag = "--" + name.replace("_", "-")
    if name in typed.values or (name == "model_path" and "model" in typed.choices):
        return "overrides after the source win", True
    if name in ("node_rank", "dist_init_addr") and name in arguments.left_open:
        return "each node's own, which the launch gives", True
    if name == "model_path" and (name,) in {one.fields for one in arguments.findings if one.about == "preset_found"}:
        return "the name that the source has for it elsewhere", True
    if state == "secret":
        return "a reference to a variable", True
    if is_open(str(item.before)) and state == "kept":
        return "the rest of the source tells it", True
    if state == "open" or is_open(str(item.before)):
        return "only known where it runs", False
    if flag in arguments.idle:
        return arguments.idle[flag], True
    return ("the release would not read it" if name in states or flag in arguments.unread else None), False


def _shown(is_known: bool, name: str, value: object) -> object:
    """Returns a value to show: without marks and possible secrets."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not is_known or is_secret_name(name) or has_secret_form(value):
        return HIDDEN
    return without_secret_forms(without_marks(value)) if isinstance(value, str) else value


def differences(source: Sequence[str], export: Sequence[str], version: str | None) -> list[Deviation]:
    """Returns the parts of ``source`` that ``export`` lacks or changes, by the names and defaults of ``version`` (None:
    the oldest known release).

    An argument at its default in one of them may be missing in the other."""
    at = release(nearest_known(version or "") or known_versions()[0])
    before, after = (_meaning_of(words, at.version) for words in (source, export))
    found = []
    for name, value in before.items():
        argument = at.arguments.get(name)
        default = None if argument is None else _canonical(argument.default)
        if after.get(name, default) != value:
            found.append(Deviation(name, value, after.get(name)))
    return found


def _meaning_of(words: Sequence[str], version: str) -> dict[str, object]:
    """Returns the meaning of words under a release, by argument: a switch by its effect, values by their text. An
    unknown option has its own name; words without an option are under ``words``."""
    made: dict[str, object] = {}
    for typed in options_in(words, version):
        option, values = typed.option, typed.values
        if option is None or option.argument is None:
            is_flag = typed.flag.startswith("--")
            made[typed.flag.lstrip("-").replace("-", "_") if is_flag else _STRAY] = (
                " ".join(values if is_flag else typed.words) or True
            )
        elif option.nargs == 0 or (option.nargs == "?" and not values) or (option.old and option.const is not None):
            made[option.argument.name] = _canonical(option.const)
        else:
            made[option.argument.name] = _canonical(values if option.takes_several else " ".join(values))
    return made


def _canonical(value: object) -> object:
    """Returns one canonical spelling per value: numbers by value, JSON without blanks, else text."""
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True)
    text = str(value).strip()
    for read in (int, float):
        try:
            return float(read(text))
        except (ValueError, OverflowError):
            continue
    if text[:1] in ("{", "["):
        try:
            return json.dumps(read_json(text, "argument"), sort_keys=True)
        except ValueError:
            return text
    return text.lower() if text.lower() in ("true", "false", "none", "null") else text
