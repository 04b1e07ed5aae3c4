"""Decides which environment variables a configuration may read: a typed override any, a file no secret ones."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from sglang_hydra.arguments.secrets import API_KEY_VARIABLE, is_secret_name
from sglang_hydra.arguments.tables.table import all_arguments, every_variable
from sglang_hydra.facts.resolvers import register_resolver
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import json_beside
from sglang_hydra.text.user_settings import settings

_NAMES: Mapping[str, Sequence[str]] = json_beside(__file__)
"""Variables of launchers, schedulers and communication libraries, by program (variables.json)."""
_OF_IMPORT = "SGLANG_HYDRA_"
"""The prefix of an argument's name in a variable that ``import`` writes for a value left to the caller."""
_REFERENCE = re.compile(r"\$\{oc\.env:([A-Za-z_]\w*)(?:,([^${}'\"\\]*))?\}")
_SHORTEST = 4
"""A value with fewer letters is replaced in a message only as a whole word."""

PlaceOf = Callable[[str], tuple[str, bool]]
"""Returns where a key was set, and whether it was typed."""


def may_read(name: str) -> bool:
    """Returns whether a file may read this variable: one known by its exact name, of SGLang or what starts it, or one
    that the user allows. For a secret one the user must name it exactly."""
    allowed = settings().allowed_env
    if is_secret_name(name.upper()):
        return any(item.value == name for item in allowed)
    named = name.removeprefix(_OF_IMPORT).lower() if name.startswith(_OF_IMPORT) else ""
    known = named in all_arguments() or name in every_variable() or any(name in names for names in _NAMES.values())
    return known or settings().allows_variable(name) is not None


def allowing(name: str) -> str:
    """Returns how to allow files to read a variable."""
    return f"--allow-env {name}, or allowed_env: [{name}] in the settings (docs/security.md)"


@dataclass(repr=False, eq=False)
class Reader:
    """Reads variables while one configuration is composed. ``typed`` are the typed overrides with an interpolation;
    ``trusts_files`` is set for the user's own Hydra app."""

    typed: Sequence[str] = ()
    trusts_files: bool = False
    place_of: PlaceOf | None = None
    read: dict[str, str] = field(default_factory=dict)
    refused: list[Finding] = field(default_factory=list)

    def value(self, name: str, default: Sequence[object], node: Any) -> Any:
        """Returns the value of a variable for the text in ``node``. Records a finding if it may not be read."""
        from omegaconf.resolvers.oc import env

        from sglang_hydra.compose.hydra_internals import key_and_text

        key, text = key_and_text(node)
        place, was_typed = self.place_of(key) if self.place_of else ("", True)
        typed = self.trusts_files or (was_typed and any(text in word for word in self.typed))
        if not (typed or may_read(name)):
            what = key if place else f"a defaults list or a search path ({text})"
            message = f"{place + ': ' if place else ''}{what} reads the variable {name}, which files may not read"
            found = Finding("error", "VAR001", message, (key,) if place else (), allowing(name))
            if found not in self.refused:
                self.refused.append(found)
            if not place:
                raise KeyError(message)  # otherwise the composition would be cached
            return ""
        found_value = env(name, *default)
        if name in os.environ and (not typed or is_secret_name(name.upper())):
            self.read[name] = os.environ[name]
        return found_value

    def without_values(self, text: str) -> str:
        """Returns ``text`` with each value of a read variable replaced by its reference."""
        for name, value in self.read.items():
            for spelled in {value, repr(value)[1:-1]} - {""}:
                pattern = re.escape(spelled)
                pattern = pattern if len(spelled) >= _SHORTEST else rf"(?<!\w){pattern}(?!\w)"
                text = re.sub(pattern, lambda _, name=name: f"${{oc.env:{name}}}", text)  # type: ignore[misc]
        return text


_READER: ContextVar[Reader | None] = ContextVar("reader", default=None)


@contextlib.contextmanager
def reading(typed: Sequence[str], *, trusts_files: bool) -> Iterator[None]:
    """Makes ``oc.env`` check each variable it reads in this block. ``typed`` are the typed overrides.

    Raises ConfigError for a variable that may not be read; no error shows the value of a file's or secret variable."""
    register_resolver("oc.env", _env)
    reader = Reader([word for word in typed if "${" in word], trusts_files)
    token = _READER.set(reader)
    try:
        yield
    except ConfigError as failure:
        if reader.refused:
            raise ConfigError(*reader.refused) from None
        if not reader.read:
            raise
        findings = [
            replace(found, message=reader.without_values(found.message)).reworded(reader.without_values)
            for found in failure.findings
        ]
        raise ConfigError(*findings) from None
    finally:
        _READER.reset(token)
    if reader.refused:
        raise ConfigError(*reader.refused)


def without_values(text: str) -> str:
    """Returns a message with values of variables replaced by references, while a configuration is composed."""
    reader = _READER.get()
    return reader.without_values(text) if reader else text


def trusts_files() -> bool:
    """Returns whether the user's own Hydra app is being composed."""
    reader = _READER.get()
    return reader is not None and reader.trusts_files


def has_read(value: object) -> bool:
    """Returns whether ``value`` contains the value of a variable that no error may show."""
    reader = _READER.get()
    text = str(value)
    return reader is not None and any(found in text for found in reader.read.values() if found)


def set_places(place_of: PlaceOf | None) -> None:
    """Sets the function that returns the place of a key, for everything resolved from now on."""
    reader = _READER.get()
    if reader is not None:
        reader.place_of = place_of


def is_reference(text: object) -> bool:
    """Returns whether a text's interpolations are all environment variables with literal defaults, to be read later."""
    return isinstance(text, str) and "${" in text and "${" not in _REFERENCE.sub("", text)


class Secrets(Mapping[str, str]):
    """The values of secret fields, read from their variables when taken, as when a server starts.

    Taking one raises ConfigError (VAR003) if its variable is unset, or if only a file names it and may not read it."""

    def __init__(self, texts: Mapping[str, str] | None = None, places: Mapping[str, str] | None = None) -> None:
        self._texts = dict(texts or {})
        self._places = dict(places or {})  # the variables that a file names

    def __getitem__(self, name: str) -> str:
        text = self._texts[name]
        if not is_reference(text):
            return text
        return _REFERENCE.sub(lambda found: self._value(name, found[1], found[2]), text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def literals(self) -> list[str]:
        """Returns the secrets that are written out and not in a variable."""
        return [text for text in self._texts.values() if not is_reference(text)]

    def __repr__(self) -> str:
        return f"Secrets({sorted(self._texts)})"

    def withheld(self) -> Iterator[Finding]:
        """Yields a warning for each variable that a file names and that will not be read."""
        for name, place in self._places.items():
            for found in _REFERENCE.finditer(self._texts[name]):
                if not _may_hand_over(name, found[1]):
                    yield replace(_withheld(name, found[1], place), level="warning")

    def _value(self, name: str, variable: str, default: str | None) -> str:
        place = self._places.get(name)
        if place is not None and not _may_hand_over(name, variable):
            raise ConfigError(_withheld(name, variable, place))
        value = os.environ.get(variable, default)
        if value is None:
            message = f"{name} is read from the variable {variable}, which is not set"
            raise ConfigError.of("VAR003", message, name, hint=f"export {variable}=...")
        return value


def _may_hand_over(name: str, variable: str) -> bool:
    """Returns whether a server gets a variable named in a file: the API key's, the field's own or a readable one."""
    return variable in (API_KEY_VARIABLE, name) or may_read(variable)


def _withheld(name: str, variable: str, place: str) -> Finding:
    message = f"{place}: {name} is the value of {variable}; a server gets it only where the user allows it"
    return Finding("error", "VAR003", message, (name,), allowing(variable))


def _env(key: str, *default: object, _node_: object = None) -> object:
    from omegaconf.resolvers.oc import env

    reader = _READER.get()
    return env(key, *default) if reader is None else reader.value(str(key), default, _node_)
