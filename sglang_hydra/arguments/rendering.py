"""Writes SGLang's own command line: words that a release reads back as the given values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from sglang_hydra.arguments.fields import FIELDS, LoRARef
from sglang_hydra.arguments.parser import JSON_READERS, WANTED, Option, Parser, parser_of
from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.text.words import typed

_OPTION = re.compile(r"--[a-z0-9-]+(=.*)?", re.DOTALL)
_T = TypeVar("_T")
_ORDER = {name: at for at, name in enumerate(FIELDS)}


def render(values: Mapping[str, object], version: str = SPECIFIED_VERSION, *, defaults: bool = False) -> list[str]:
    """Returns the shortest command line for ``values``: ``parse_argv(render(values, version), version)`` has every
    value that differs from its default. ``defaults`` adds default values that an option can express. Returns words, not
    a shell line; secrets are written like any other value.

    Options come in the order of ``FIELDS``, spelled like the argument (``--tp-size``). Adapters are written as
    ``name=path`` or JSON, so a mapping of them comes back as a list with the same meaning, and a set as a sorted list.
    0.5.2's ``debug_tensor_dump_inject=True`` comes back as the text ``"true"``, which SGLang treats as true. Raises
    ValueError, naming the argument, for an unknown name and for a value that the command line cannot express:
    ``enable_lora=False``, None where another value is the default, a list for a single value, ..."""
    parser = parser_of(version)
    words = []
    for name in sorted(values, key=lambda name: _ORDER.get(name, len(_ORDER))):
        option = parser.by_name.get(name)
        if option is None:
            raise ValueError(f"{name} is no argument of the command line of SGLang {parser.version}")
        words += _Writer(parser, option, name).words(values[name], defaults and name != "node_rank")
    return words


class _Writer:
    """Writes one argument."""

    def __init__(self, parser: Parser, option: Option, name: str) -> None:
        assert option.argument is not None
        self.parser, self.option, self.name, self.argument = parser, option, name, option.argument

    def words(self, value: object, defaults: bool) -> list[str]:
        """Returns the words. ``defaults`` also writes a default that is a number, a text or a pair of flags."""
        default, option = self.argument.default, self.option
        pair = self.argument.action == "BooleanOptionalAction"
        is_written = defaults and (pair or (type(value) in (int, float, str) and value != ""))
        is_default = value == default and isinstance(value, bool) == isinstance(default, bool)
        if (value is None and default is None) or (is_default and not is_written):
            return []
        if option.nargs == 0:
            if not isinstance(value, bool) or not (value or pair):
                raise self._unsayable(value, "the option can only turn it on")
            return [option.flag if value else f"--no-{option.flag[2:]}"]
        if value is None:
            raise self._unsayable(value, "the option needs a value")
        if option.nargs == "?" and value == option.const == "":
            return [option.flag]
        if option.takes_several:
            return self._list(value)
        return self._pair(self._text(value))

    def _list(self, value: object) -> list[str]:
        if self.option.reader == "LoRAPathAction" and isinstance(value, Mapping):
            value = [_named_path(name, path) for name, path in value.items()]
        elif isinstance(value, (set, frozenset)):
            value = sorted(value)
        if not isinstance(value, (list, tuple)):
            raise self._unsayable(value, "it must be a list")
        if not value and self.option.nargs == "+":
            raise self._unsayable(value, "the option takes one value or more")
        texts = [self._text(item) for item in value]
        if len(texts) == 1:
            return self._pair(texts[0])
        for text in texts:
            if not self.parser.word(text).is_value:
                raise self._unsayable(value, f"{text!r} would be read as an option")
        return [self.option.flag, *texts]

    def _pair(self, text: str) -> list[str]:
        if text == "--":
            raise self._unsayable(text, "the word -- is dropped")
        flag = self.option.flag
        return [flag, text] if self.parser.word(text).is_value else [f"{flag}={text}"]

    def _text(self, value: object) -> str:
        """Returns the word for one value. Raises ValueError where reading that word would not return the value."""
        reader = self.option.reader
        if reader == "LoRAPathAction":
            return self._adapter(value)
        if value is True and self.argument.type == "bool":
            return "true"
        try:
            text = value if isinstance(value, str) else json.dumps(value) if reader in JSON_READERS else repr(value)
            read = self.option.read(text)
        except (ValueError, TypeError):
            raise self._unsayable(value, f"{WANTED.get(reader, 'JSON')} is wanted") from None
        is_spelled = isinstance(value, str) and reader in (*JSON_READERS, "human_readable_int")
        if not is_spelled and (read != value or isinstance(value, bool)):
            wanted = f"{WANTED.get(reader, 'text')} is wanted"
            raise self._unsayable(value, f"the option reads it as {read}" if isinstance(value, str) else wanted)
        if self.option.choices is not None and read not in self.option.choices:
            raise self._unsayable(value, f"it is not one of {', '.join(map(str, self.option.choices))}")
        return text

    def _adapter(self, item: object) -> str:
        if isinstance(item, LoRARef):
            item = {"lora_name": item.lora_name, "lora_path": item.lora_path, "pinned": item.pinned}
        if isinstance(item, Mapping) and "lora_name" in item and "lora_path" in item:
            try:
                return json.dumps(dict(item), ensure_ascii=False)
            except (TypeError, ValueError) as failure:
                raise self._unsayable(item, str(failure)) from None
        if not isinstance(item, str):
            raise self._unsayable(item, "an adapter is a path, name=path or a mapping with lora_name and lora_path")
        if item != item.strip() or _looks_like_json(item):
            raise self._unsayable(item, "the option strips it or reads it as JSON")
        return item

    def _unsayable(self, value: object, why: str) -> ValueError:
        shown = "***" if is_secret_name(self.name) else typed(value)
        return ValueError(f"{self.name}={shown} cannot be written on SGLang's command line: {why}")


def _looks_like_json(text: str) -> bool:
    return text.startswith("{") and text.endswith("}")


def _named_path(name: object, path: object) -> object:
    plain = isinstance(name, str) and isinstance(path, str) and "=" not in name
    text = f"{name}={path}"
    if plain and text == text.strip() and not _looks_like_json(text):
        return text
    return {"lora_name": name, "lora_path": path}


def by_option(words: Sequence[_T]) -> Iterator[list[_T]]:
    """Yields each option of a command line with its values; values may be objects other than text."""
    group: list[_T] = []
    for word in words:
        if group and isinstance(word, str) and _OPTION.fullmatch(word):
            yield group
            group = []
        group.append(word)
    if group:
        yield group
