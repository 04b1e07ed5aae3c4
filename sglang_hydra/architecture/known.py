"""Reads sizes from a model's config, and reports missing fields and impossible values."""

from __future__ import annotations

from collections.abc import Mapping

from sglang_hydra.facts.config_view import TEXT_PARTS, is_own_text
from sglang_hydra.text.errors import CarriedError, ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, JsonObject
from sglang_hydra.text.words import short

_LARGEST = 1 << 40  # far above every size of a model


class Missing(CarriedError):
    """A formula needs fields that the config does not state. ``names`` are their paths in the usual spelling."""

    def __init__(self, *names: str) -> None:
        super().__init__(", ".join(names))
        self.names = names


class WrongField(ConfigError):
    """A field of the config.json ``source`` has an impossible value: ``name`` is its path, ``problem`` the reason."""

    def __init__(self, source: str, name: str, problem: str) -> None:
        super().__init__(Finding("error", "FIT010", f"{source}: {problem}", ("model_path",)))
        self.source, self.name, self.problem = source, name, problem


class Fields:
    """The fields of a config, or of a part of one, read as sizes.

    Every reader takes the spellings of a field in different families; the first one is reported when none is present.
    null counts as missing, as in SGLang's ``getattr(config, name, default)``."""

    __slots__ = ("prefix", "source", "values")

    def __init__(self, values: JsonObject, source: str, prefix: str = "") -> None:
        self.values = values
        self.source = source
        self.prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, name: str) -> Json:
        return self.values.get(name)

    def size(self, *names: str, default: int | None = None, most: int = _LARGEST) -> int:
        """Returns a whole number from 1 to ``most``. Raises Missing, or WrongField (FIT010) for any other value."""
        number = self._whole(names, default)
        if number == 0:
            raise self.wrong(names[0], 0, "a whole number above 0")
        if number > most:
            raise self.wrong(names[0], number, f"a whole number up to {most}")
        return number

    def count(self, *names: str, default: int | None = None) -> int:
        """Returns a whole number, 0 included (no shared expert, no dense layer). Raises Missing or WrongField."""
        return self._whole(names, default)

    def flag(self, *names: str, default: bool = False) -> bool:
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if value not in (0, 1) or not isinstance(value, (bool, int)):
                raise self.wrong(name, value, "true or false")
            return bool(value)
        return default

    def number(self, *names: str, default: float | None = None) -> float:
        """Returns a finite number above 0, whole or not: a factor or a share. Raises like ``size``."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
                raise self.wrong(name, value, "a finite number above 0")
            return float(value)
        if default is None:
            raise Missing(f"{self.prefix}{names[0]}")
        return default

    def numbers(self, name: str) -> tuple[int, ...]:
        """Returns a list of whole numbers, 0 included; () where it is missing."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)) or not all(_is_whole(item) for item in value):
            raise self.wrong(name, value, "a list of whole numbers")
        return tuple(value)

    def block(self, name: str) -> tuple[int, int] | None:
        """Returns the rows and columns of a block, or None where it is missing."""
        sizes = self.numbers(name)
        if name not in self:
            return None
        if len(sizes) != 2 or 0 in sizes:
            raise self.wrong(name, self.values[name], "a list of two whole numbers above 0")
        return sizes[0], sizes[1]

    def words(self, name: str) -> tuple[str, ...]:
        """Returns a list of strings; () where it is missing."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, value, "a list of names")
        return tuple(value)

    def part(self, *names: str) -> Fields | None:
        """Returns the first nested object with one of these names, or None."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if not isinstance(value, Mapping):
                raise self.wrong(name, value, "an object")
            return Fields(value, self.source, f"{self.prefix}{name}.")
        return None

    def wrong(self, name: str, value: Json, wanted: str) -> WrongField:
        """Makes the error for an impossible value; it names the file and the field."""
        name = f"{self.prefix}{name}"
        return WrongField(self.source, name, f"{name} is {short(repr(value))}, {wanted} is needed")

    def _whole(self, names: tuple[str, ...], default: int | None) -> int:
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if _is_whole(value) or (isinstance(value, float) and value.is_integer() and 0 <= value <= _LARGEST):
                return int(value)
            raise self.wrong(name, value, "a whole number")
        if default is None:
            raise Missing(f"{self.prefix}{names[0]}")
        return default


def _is_whole(value: Json) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def text_part(config: Fields) -> Fields:
    """Returns the language model's fields: the nested part of a multimodal config, else the whole config. Fields
    missing in the part come from outside it, where some publishers put the dtype and the vocabulary."""
    if is_own_text(config.values):
        return config
    for name in TEXT_PARTS:
        part = config.part(name)
        if part is not None:
            return Fields({**config.values, **part.values}, config.source, part.prefix)
    return config
