"""Finds the meant value for one that does not fit its argument.

``meant.json`` has values of other tools, and the parsers by a part of the model's name (the first match counts)."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sglang_hydra.arguments.fields import FIELDS, Field
from sglang_hydra.text.json_types import JsonObject, json_beside
from sglang_hydra.text.words import is_digits, nearest

_TABLE: JsonObject = json_beside(__file__)
OF_REQUESTS = frozenset(_TABLE["of_requests"])
"""Settings that people try on a server but that belong to each request."""
OFF = frozenset(("off", "none", "no", "false", "disabled", "disable"))
_SIZE = re.compile(r"(\d{1,15})\s*([kKmMgG])(i?)[bB]?(?:\s*tok\w*)?")
_COUNTED = re.compile(r"[\[({'\"]*(\d{1,9})\s*(?![kKmM])[A-Za-z]*[\])}'\"]*")
_EXPONENT = re.compile(r'"(-?\d+(?:\.\d+)?[eE][-+]?\d+)"')
"""A number that YAML reads as text."""
_NUMBER_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
_THOUSANDS = re.compile(r"\d{1,3}(?:(,\d{3})+|(\.\d{3})+)")
_LETTERS_FOR_DIGITS = str.maketrans("OolI", "0011")


def word(key: str, value: str) -> str:
    """Formats ``key=value`` as users type it in a shell."""
    return shlex.join([f"{key}={value}"])


def turned_off(name: str) -> str | None:
    """Returns the word that turns off the feature whose size an argument sets, or None."""
    found: str | None = _TABLE["off"].get(name)
    return found


def values_meant(field: Field, value: Any) -> Iterator[str]:
    """Yields words that set the probably meant values, the likeliest first."""
    name = field.name
    if value is False and name in _TABLE["off"]:
        yield _TABLE["off"][name]
    if isinstance(value, str):
        plain = re.sub(r"[\W_]", "", value).lower()
        own = _TABLE["values"].get(name, {})
        near = plain if plain in own else None if methods_of_bits(value) else nearest(plain, own)
        if plain in OFF and name in _TABLE["off"] and not (plain == "none" and field.optional):  # Python's None: unset
            yield _TABLE["off"][name]
        elif near is not None:
            yield own[near] if "=" in own[near] else word(name, own[near])
    yield from (word(name, text) for text in _as_type(field, value))
    if name == "lora_paths" and isinstance(value, str) and value:
        yield word(name, f"['{value}']")
    if name == "quantization" and methods_of_bits(value):
        yield _TABLE["four_bits"]["online"]


def units_of(key: str) -> Mapping[str, float]:
    """Returns the units in which people give the value of an argument or key, with their size in its own; none for a
    count, which takes 32k."""
    unit = str(FIELDS[key].arg.unit or "") if key in FIELDS else ""
    unit = unit or next((unit for end, unit in _TABLE["units_by_ending"].items() if key.endswith(end)), "-")
    found: Mapping[str, float] = _TABLE["units"].get(unit.split()[0], {})
    return found


def in_units_of(key: str, text: str) -> str | None:
    """Returns ``1800`` for ``30m`` in seconds: the number of a text whose unit suits ``key``; None for other text."""
    measured = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    size = units_of(key).get(measured[2].lower(), None if measured[2] else 1) if measured else None
    return f"{float(measured[1]) * size:.12g}" if measured and size else None


def taking(value: str) -> list[str]:
    """Returns words that set arguments known by a value: ``quantization=awq`` for ``awq``."""
    plain, names = re.sub(r"[\W_]", "", value).lower(), _TABLE["named_by_value"]
    exact = [word(name, plain) for name in names if plain in map(str, FIELDS[name].arg.choices or ())]
    own = [(name, _TABLE["values"].get(name, {}).get(plain)) for name in names]
    return exact or list(dict.fromkeys(one if "=" in one else word(name, one) for name, one in own if one))


def methods_of_bits(value: Any) -> Sequence[str]:
    """Returns the quantization methods for 4 bit weights where ``value`` means these (int4); else none."""
    row = _TABLE["four_bits"]
    return row["methods"] if str(value).lower() in row["typed"] else ()


PARSERS = {"tool_call_parser": "tool", "reasoning_parser": "reasoning"}
"""The arguments that name a parser, with their lists in the table of families."""


def parsers_for(argument: str, model: str) -> Sequence[str]:
    """Returns the parsers that read the output of ``model`` (a hub id, a path, a preset), the published one first; none
    for an unknown family."""
    name = model.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    family = next((one for one in _TABLE["parsers"]["families"] if re.search(one["model"], name)), None)
    return family[PARSERS[argument]] if family and argument in PARSERS else ()


def parser_meant(argument: str, model: str, choices: Sequence[Any]) -> str | None:
    """Returns the parser among ``choices`` for the output of ``model``, or None where none is known."""
    return next((one for one in parsers_for(argument, model) if one in choices), None)


def reads_alike(argument: str, model: str, parser: str) -> bool:
    """Returns whether ``parser`` reads the output of ``model``. Parsers of text between <think> and </think> are
    interchangeable."""
    known, think = parsers_for(argument, model), _TABLE["parsers"]["think"]
    return parser in (think if argument == "reasoning_parser" and known and known[0] in think else known)


def _as_type(field: Field, value: Any) -> Iterator[str]:
    """Yields a value in other spellings that the argument's type can read."""
    if units_of(field.name) and (measured := in_units_of(field.name, str(value))):
        yield measured
    elif field.is_list:
        items = re.split(r"[\s,;]+", value.strip("[](){} ")) if isinstance(value, str) else [str(value)]
        if isinstance(value, (str, int)) and not isinstance(value, bool) and all(map(_READS[field.kind], items)):
            yield f"[{','.join(items)}]"
    elif field.kind == "int" and isinstance(value, (str, float, list)):
        if port := re.fullmatch(r"(\d+)/tcp", str(value)):
            yield port[1]
        else:
            yield from whole_numbers(str(value), may_be_counted=field.name not in ("port", "nccl_port"))
    elif field.kind == "float" and isinstance(value, str):
        if re.fullmatch(r"\d*\.?\d+", plain := value.strip(" ,;:")) and plain != value:
            yield plain
        percent = re.fullmatch(r"(\d+(?:[.,]\d+)?)\s*(?:%|percent|pct)", value)
        parts = re.fullmatch(r"(\d{1,3})/([1-9]\d{0,2})", value)
        if percent:
            share = float(percent[1].replace(",", "."))
            yield f"{share / 100 if share > 1 else share:g}"  # 0.9% of nothing is meant
        elif parts:
            yield f"{int(parts[1]) / int(parts[2]):g}"
        elif re.search(r"\.\.|\.$", value) and re.fullmatch(r"0?\.\d+", once := re.sub(r"\.+", ".", value).rstrip(".")):
            yield once
        elif fraction := re.fullmatch(r"(0?\.\d+)\s*[A-Za-z]+|(\d+(?:\.\d+)?)x", value):  # 0.85GB, 2x
            yield f"{float(fraction[1] or fraction[2]):g}"
        elif re.fullmatch(r"\d*,\d+", value):
            yield f"0{value.replace(',', '.')}".removeprefix("0") if value[0] != "," else f"0.{value[1:]}"
    elif field.arg.json and isinstance(value, str):
        yield from _as_json(value)


def whole_numbers(text: str, may_be_counted: bool = True) -> Iterator[str]:
    """Yields the whole numbers that a text probably means, the likeliest first; of ``8GPUs`` if it may be a count."""
    spelled = re.sub("[,.]", "", text) if _THOUSANDS.fullmatch(text) else text.translate(_LETTERS_FOR_DIGITS)
    spelled = spelled.strip(" ,;:").removesuffix(".0").replace("_", "")
    if is_digits(spelled):
        yield spelled.lstrip("0") or "0"
    elif text.lower() in _NUMBER_WORDS:
        yield str(_NUMBER_WORDS.index(text.lower()) + 1)
    elif size := _SIZE.fullmatch(text):  # 32K, 32kb, 32KiB, 1m
        letter = size[2].upper() if size[2] in "mMgG" else "k"
        yield from dict.fromkeys((size[1] + (f"{size[2].upper()}i" if size[3] else letter), size[1] + letter))
        yield f"{size[1]}{size[2].upper()}i"
    elif may_be_counted and (counted := _COUNTED.fullmatch(text)):
        yield counted[1]


def _as_json(text: str) -> Iterator[str]:
    """Yields JSON for an object whose quotes the shell removed."""
    import json

    from sglang_hydra.text.budget import read_yaml

    text += "".join({"{": "}", "[": "]"}[mark] for mark in reversed(_left_open(text)))
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        try:
            found = read_yaml(re.sub(r"([{,]\s*[^\s{}\[\],:]+):(?=\S)", r"\1: ", text), "argument")
        except (ValueError, RecursionError, __import__("yaml").YAMLError):
            return
    if isinstance(found, dict) and all(isinstance(key, str) and item is not None for key, item in found.items()):
        yield _EXPONENT.sub(r"\1", json.dumps(found))


def _left_open(text: str) -> str:
    """Returns the brackets that ``text`` opens and does not close, outside strings."""
    left = ""
    for mark in re.sub(r'"[^"]*"', "", text):
        left = left + mark if mark in "{[" else left[:-1] if mark in "}]" else left
    return left


_READS = {
    "int": lambda text: re.fullmatch(r"-?\d+", text) is not None,
    "float": lambda text: re.fullmatch(r"-?\d+(\.\d+)?", text) is not None,
    "str": lambda text: bool(text),
    "Any": lambda text: False,
}
