"""Parses the command line of any release, by the table of releases: its flags, and the effect of each on its words.

Words belong to options as in Python 3.11's argparse, for the only form of parser that SGLang builds: long options, no
positional words. argparse itself is not used, because Python's versions differ on rare command lines (``--``,
``-1e5``), and because argparse exits at the first error and does not report the word that set a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.arguments.tables.table import Argument, Lazy, OldFlag, Release, known_versions, nearest_known, release
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.json_types import Json
from sglang_hydra.text.words import size_of

HELP = "--help"
CONFIG = "--config"
"""SGLang's own file of arguments, from 0.5.3 on; not an argument of the server."""
_CONFIG_SINCE = "0.5.3"
_NEGATIVE_NUMBER = re.compile(r"^-\d+$|^-\d*\.\d+$")
_PLAIN = re.compile(r"\b(?:int|float|str)\b")


class Option(NamedTuple):
    """One option of one release. ``argument`` is the argument that it sets, or None; ``old`` marks a deprecated flag.
    It takes no word (``nargs`` is 0), one (None), at most one (``?``) or several (``*``, ``+``); ``reader`` names the
    function that reads a word. ``const`` is the value without a word."""

    flag: str
    argument: Argument | None
    nargs: str | int | None = None
    reader: str = "str"
    choices: Sequence[Json] | None = None
    const: object = None
    old: OldFlag | None = None

    @property
    def takes_several(self) -> bool:
        return self.nargs in ("*", "+")

    @property
    def name(self) -> str | None:
        return self.argument.name if self.argument else None

    def read(self, text: str) -> Json:
        """Converts a word to a value. Raises ValueError for an unreadable word; does not check choices."""
        return READERS[self.reader](text)


class Word(NamedTuple):
    """One word of a line. ``options`` are the flags that it can mean: none for a plain value."""

    text: str
    options: tuple[str, ...] = ()
    explicit: str | None = None
    unknown: bool = False

    @property
    def is_value(self) -> bool:
        return not self.options and not self.unknown


@dataclass(frozen=True, repr=False, eq=False)
class Parser:
    """The parser of one release, or of all of them."""

    version: str
    options: Mapping[str, Option]
    by_name: Mapping[str, Option]
    """The option to type for each argument: the one spelled like it, else its first, else a deprecated one."""

    @cached_property
    def flags(self) -> Sequence[str]:
        """Returns the flags that users may type, in the release's order."""
        return (*self.options, HELP)

    def word(self, text: str) -> Word:
        """Classifies a word alone, without the words before it, as argparse does before it reads values."""
        if not text.startswith("-") or text == "-":
            return Word(text)
        if text in self.options or text == HELP:
            return Word(text, (text,))
        head, equals, rest = text.partition("=")
        explicit = rest if equals else None
        if equals and head in self.options:
            return Word(text, (head,), explicit)
        if text.startswith("--"):
            options = tuple(flag for flag in self.flags if flag.startswith(head)) if text != "--" else ()
        else:
            options = (HELP,) if text.startswith("-h") else ()
        if options:
            return Word(text, options, explicit)
        return Word(text, unknown=text == "--" or not (_NEGATIVE_NUMBER.match(text) or " " in text))


def flag_like(name: str) -> str:
    """Returns the flag with the spelling of an argument."""
    return "--" + name.replace("_", "-")


@lru_cache(maxsize=64)
def parser_of(version: str | None) -> Parser:
    """Returns the parser of a release, or of the nearest one of the table. For None it accepts every flag of every
    release, each as the first release with that flag has it."""
    if version is None:
        each = [parser_of(known) for known in known_versions()]
        options = {flag: parser for parser in reversed(each) for flag in parser.options}
        names = {name: parser for parser in reversed(each) for name in parser.by_name}
        return Parser(
            "",
            Lazy(options, lambda flag: options[flag].options[flag]),
            Lazy(names, lambda name: names[name].by_name[name]),
        )
    at = release(nearest_known(version) or known_versions()[0])
    flags = {flag: name for name, own in at.flags.items() for flag in own}
    config = [CONFIG] if at_least(at.version, _CONFIG_SINCE) else []
    made = Lazy(dict.fromkeys([*flags, *at.old_flags, *config]), lambda flag: _option(flag, flags.get(flag), at))
    olds = reversed(list(at.old_flags.values()))
    typed = {old.field: old.flag for old in olds if old.field and old.value in (None, True)}
    typed |= {name: flag_like(name) if flag_like(name) in own else own[0] for name, own in at.flags.items() if own}
    return Parser(at.version, made, Lazy(typed, lambda name: made[typed[name]]))


def _option(flag: str, name: str | None, at: Release) -> Option:
    old = at.old_flags.get(flag)
    if old is not None:
        return _old_option(old, at.arguments.get(old.field or ""))
    if name is None:
        return Option(flag, None)
    argument = at.arguments[name]
    if argument.action == "BooleanOptionalAction":
        return Option(flag, argument, 0, const=flag in argument.flags)
    if argument.action == "store_true":
        return Option(flag, argument, 0, const=True)
    reader = argument.action if argument.action == "LoRAPathAction" else argument.reader
    read_by = reader if reader and reader in READERS else _plain_kind(argument.type)
    return Option(flag, argument, argument.nargs, read_by, _choices_of(argument, at.version), argument.const)


@lru_cache(maxsize=256)
def _plain_kind(type: str) -> str:
    plain = _PLAIN.search(type)
    return plain[0] if plain else "str"


def _choices_of(argument: Argument, version: str) -> Sequence[object] | None:
    """Returns the release's choices; for 0.5.2 the live lists, which other code may extend."""
    if version == SPECIFIED_VERSION and argument.choices is not None:
        return FIELDS[argument.name].arg.choices
    return argument.choices


def _old_option(old: OldFlag, argument: Argument | None) -> Option:
    stores = old.action == "DeprecatedAliasStoreAction"
    nargs = old.nargs if stores else None if old.choices else 0
    return Option(old.flag, argument, nargs, old.reader or "str", old.choices, old.value, old)


@lru_cache(maxsize=512)
def first_with_flag(flag: str) -> str | None:
    """Returns the first release of the table that accepts a flag, even as a deprecated one; else None."""
    return next((version for version in known_versions() if flag in parser_of(version).options), None)


def _nullable(text: str) -> str | None:
    return None if text in ("", "None") else text


def _size(text: str) -> int:
    size = size_of(text.strip())
    return int(text) if size is None else size


def _json(text: str) -> Json:
    try:
        return read_json(text, "argument")
    except RecursionError as failure:
        raise ValueError(str(failure)) from failure


def _json_object(text: str) -> Mapping[str, object]:
    value = _json(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


def _graph_backend(text: str) -> str:
    if text == "tc_piecewise":
        raise ValueError(text)
    return text


def _adapter(text: str) -> Json:
    """Reads an adapter: a path, ``name=path``, or JSON. Raises ValueError, in words, for incomplete JSON."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return text
    try:
        adapter = _json(text)
    except ValueError as failure:
        raise ValueError(f"is not JSON: {failure}") from failure
    if missing := [key for key in ("lora_name", "lora_path") if key not in adapter]:
        raise ValueError(f"has no {' and no '.join(missing)}")
    return adapter


READERS: Mapping[str, Callable[[str], object]] = {
    "int": int, "float": float, "str": str, "nullable_str": _nullable, "human_readable_int": _size,
    "json.loads": _json, "json_list_type": _json, "parse_cuda_graph_config_arg": _json_object,
    "parse_cuda_graph_backend_arg": _graph_backend, "LoRAPathAction": _adapter,
}  # fmt: skip
"""The readers of words, by the name of the release's own function; they raise ValueError for unreadable words."""
JSON_READERS = ("json.loads", "json_list_type", "parse_cuda_graph_config_arg")
WANTED: Mapping[str, str] = {"int": "a whole number", "human_readable_int": "a whole number", "float": "a number"}
