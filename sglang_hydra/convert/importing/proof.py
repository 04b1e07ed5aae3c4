"""Compares the words of a source with the words of its export: argparse reads both, by the table of releases alone.

Nothing here is shared with the reader of ``flags``: what that one misreads or drops, this one still finds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sglang_hydra.arguments.argv import render_argv
from sglang_hydra.arguments.secrets import HIDDEN, is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.translate import translate
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.experiment import is_reference
from sglang_hydra.convert.importing.flags import Arguments
from sglang_hydra.convert.importing.launches import Launch, is_open, without_marks
from sglang_hydra.convert.importing.passwords import holds_a_password, without_passwords
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.releases.order import same_release
from sglang_hydra.releases.successors import successor
from sglang_hydra.releases.table import OldFlag, Release, known_versions, nearest_known, release
from sglang_hydra.text.errors import ConfigError

_STRAY = "words"


class Difference(NamedTuple):
    """An argument of the source that the export has not (``after`` is null), or has with another value; a value is the
    words behind the flag. ``why`` is the reason, null where there is none; ``harmless`` where it is the same server."""

    name: str
    before: Any
    after: Any
    why: str | None = None
    harmless: bool = False


def requests_of(settings: Mapping[str, Any], place: str) -> list[Request]:
    """What was imported (``choices``, ``overrides`` and ``nodes`` in one), as overrides."""
    return [
        Request.typed(key, value, place or "the source", "experiment", interpolate=is_reference(value))
        for key, value in settings.items()
    ]


def argv_of(known: Mapping[str, Any], extra: Mapping[str, Any], version: str | None) -> tuple[str, ...] | None:
    """SGLang's flags for arguments; None for those that no command line can express."""
    try:
        if not extra and (version is None or same_release(version, SPECIFIED_VERSION)):
            return tuple(render_argv(known, defaults=True))
        return tuple(translate(known, nearest_known(version or "") or known_versions()[0], extra).flags(defaults=True))
    except (ValueError, KeyError):
        return None


def compared(
    settings: Mapping[str, Any],
    version: str | None,
    states: Mapping[str, str],
    read: tuple[Launch, Arguments, Typed],
    composer: Composer,
) -> Iterator[Difference]:
    """Exports what was imported and compares it with the words of the source; each difference with its reason.

    ``states`` are those of the arguments by their names, ``read`` is what the import was made of.
    """
    _, arguments, _ = read
    requests = [item for item in requests_of(settings, "") if not is_reference(item.value) and item.key != "gpu"]
    try:
        composition = composer.compose(requests)
    except ConfigError as failure:
        yield Difference(_STRAY, None, None, failure.findings[0].message)
        return
    export = argv_of(composition.intent, composition.nodes["extra"], version)
    known = release(nearest_known(version or "") or known_versions()[0]).arguments
    for item in differences(arguments.words, export or (), version):
        why, harmless = _reason(item, states, *read)
        before, after = (_shown(item.name in known, item.name, value) for value in (item.before, item.after))
        yield Difference(without_marks(item.name), before, after, why, harmless)


def _reason(
    item: Difference, states: Mapping[str, str], launch: Launch, arguments: Arguments, typed: Typed
) -> tuple[str | None, bool]:
    """Why the export says otherwise, and whether it is the same server nevertheless."""
    name, state = item.name, states.get(item.name)
    flag = "--" + name.replace("_", "-")
    if name in typed.values or (name == "model_path" and "model" in typed.choices):
        return "what stands behind the source wins", True
    if name in ("node_rank", "dist_init_addr") and name in arguments.left_open:
        return "each node's own, which the launch gives", True
    if name == "model_path" and any(item.id == "IMP007" and item.fields == (name,) for item in arguments.findings):
        return "the name that the source has for it elsewhere", True
    if state in ("redundant", "secret"):
        return "redundant under its release" if state == "redundant" else "a reference to a variable", True
    if is_open(str(item.before)) and state == "kept":
        return "the rest of the source tells it", True
    if state == "open" or is_open(str(item.before)):
        return "only known where it runs", False
    if name == "model_path" and str(item.before).lower() == str(item.after).lower():
        return "the same checkpoint, as its preset spells it", True
    if flag in arguments.idle:
        return arguments.idle[flag], True
    if launch.behind_router and (name.startswith("router_") or name in ("dp_size", "host", "port")):
        return "the topology has it", True
    return ("the release would not read it" if name in states or flag in arguments.unread else None), False


def _shown(is_known: bool, name: str, value: Any) -> Any:
    """A value for people and programs: without marks, and without what may be a secret."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not is_known or is_secret_name(name) or holds_a_password(value):
        return HIDDEN
    return without_passwords(without_marks(value)) if isinstance(value, str) else value


def differences(source: Sequence[str], export: Sequence[str], version: str | None) -> list[Difference]:
    """What of the ``source`` is not in the ``export``, by the names and the defaults of ``version`` (0.5.2 for none).

    An argument at its default in one of them may be missing in the other.
    """
    at = release(nearest_known(version or "") or known_versions()[0])
    before, after = meaning_of(source, at), meaning_of(export, at)
    found = []
    for name, value in before.items():
        argument = at.arguments.get(name)
        default = None if argument is None else _canonical(argument.default)
        if after.get(name, default) != value:
            found.append(Difference(name, value, after.get(name)))
    return found


def meaning_of(words: Sequence[str], at: Release) -> dict[str, Any]:
    """What words say under a release, by its arguments. A flag that it does not have is there by its own name."""
    made: dict[str, Any] = {}
    rest = list(words)
    while rest:
        try:
            read, rest = _parser(at.version).parse_known_args(rest)
        except argparse.ArgumentError as failure:
            return {**made, str(failure): True}
        for key, value in vars(read).items():
            if value is not None:
                _take(made, key, value, at)
        rest = _take_strange(made, rest)
    return made


def _take(made: dict[str, Any], key: str, value: Any, at: Release) -> None:
    """Puts down what argparse read: an argument, or an old flag by what it stands for."""
    old = at.old_flags.get(key)
    if old is None:
        argument = at.arguments[key]
        is_switch = argument.action in ("store_true", "BooleanOptionalAction")
        many = argument.nargs in ("+", "*")
        made[key] = value if is_switch else [_canonical(item) for item in value] if many else _canonical(value)
        return
    name = old.field or _name_of(old, at)
    if name is not None:
        made[name] = _canonical(old.value if old.value is not None else value)


def _name_of(old: OldFlag, at: Release) -> str | None:
    if old.instead is None or old.value is None:
        return None
    return successor(old.flag.lstrip("-").replace("-", "_"), at.version).name


def _take_strange(made: dict[str, Any], rest: Sequence[str]) -> list[str]:
    """Takes the first word that argparse does not know, and those that stand behind it."""
    if not rest:
        return []
    head, equals, value = rest[0].partition("=")
    name = head.lstrip("-").replace("-", "_") if head.startswith("--") else _STRAY
    end = 1
    while end < len(rest) and not rest[end].startswith("--"):
        end += 1
    values = [value] if equals else list(rest[1:end]) if name != _STRAY else list(rest[:end])
    made[name] = " ".join(values) if values else True
    return list(rest[end:])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise argparse.ArgumentError(None, message)


@lru_cache(maxsize=8)
def _parser(version: str) -> argparse.ArgumentParser:
    """A parser of every flag of a release; it converts nothing, and refuses no value."""
    at = release(version)
    parser = _Parser(add_help=False, exit_on_error=False, argument_default=None)
    for name, argument in at.arguments.items():
        if not argument.flags:
            continue
        kinds: dict[str, Any] = {"dest": name, "default": None}
        if argument.action == "BooleanOptionalAction":
            kinds["action"] = argparse.BooleanOptionalAction
        elif argument.action == "store_true":
            kinds |= {"action": "store_const", "const": True}
        elif argument.nargs in ("+", "*", "?"):
            kinds |= {"nargs": "*" if argument.nargs != "?" else "?", "const": argument.const}
            kinds = {key: value for key, value in kinds.items() if key != "const" or argument.nargs == "?"}
        parser.add_argument(*argument.flags, **kinds)
    for flag, old in at.old_flags.items():
        takes = old.action == "DeprecatedAliasStoreAction"
        many = takes and old.field is not None and at.arguments[old.field].nargs in ("+", "*")
        kinds = {"dest": flag, "default": None}
        kinds |= ({"nargs": "*"} if many else {}) if takes else {"action": "store_const", "const": True}
        parser.add_argument(flag, **kinds)
    return parser


def _canonical(value: Any) -> Any:
    """One spelling for each value: numbers by what they are, JSON without its blanks, everything else as text."""
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
            return json.dumps(json.loads(text), sort_keys=True)
        except ValueError:
            return text
    return text.lower() if text.lower() in ("true", "false", "none", "null") else text
