"""Writes values in Hydra's override grammar, and escapes literal text against ``${...}``."""

from __future__ import annotations

import re

from sglang_hydra.text.json_types import Json
from sglang_hydra.text.words import typed

_NAME = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_INTERPOLATION = re.compile(r"\$\{[^{}]*\}")
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w.-]*")
_NO_KEYS = ("null", "true", "false", "nan", "inf")


def quoted(text: str) -> str:
    """Quotes ``text`` in Hydra's override grammar, so that it is parsed to the same string."""
    escaped = re.sub(r"(\\*)'", lambda run: run.group(1) * 2 + "\\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return "'" + escaped + "\\" * trailing + "'"


def literal(value: object) -> Json:
    """Escapes every ``${`` in the texts of ``value``, so that OmegaConf resolves it to the same value."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda run: run.group(1) * 2 + "\\${", value)
    if isinstance(value, (list, tuple)):
        return [literal(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [literal(item) for item in sorted(value, key=str)]
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    return value


def has_interpolation(value: object) -> bool:
    """Returns whether a text in ``value`` depends on the whole configuration (``${gpu.count}``)."""
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, dict):
        return any(has_interpolation(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(has_interpolation(item) for item in value)


def as_override(key: str, value: object) -> str:
    """Writes ``key=value`` in Hydra's grammar for any value of plain types: the reverse of parsing.

    The value is literal: a ``${`` in it is no interpolation. Raises ValueError for a mapping with a key that the
    grammar cannot spell (with spaces or quotes)."""
    return written(key, literal(value))


def written(key: str, value: object) -> str:
    """Writes ``key=value`` for a value whose ``${`` is an interpolation."""
    return f"{key}={_spelled(value)}"


def typed_word(key: str, value: object) -> str:
    """Writes ``key=value`` as people type it: a name, or a text that is one interpolation, without quotes."""
    bare = isinstance(value, str) and (_INTERPOLATION.fullmatch(value) or _is_name(value))
    return f"{key}={value}" if bare else written(key, value)


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text.lower() not in _NO_KEYS


def _spelled(value: object) -> str:
    if value is None or isinstance(value, bool):
        return typed(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ",".join(_spelled(item) for item in value) + "]"
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or not _PLAIN_KEY.fullmatch(key) or key in _NO_KEYS:
                raise ValueError(f"the key {key!r} cannot be written in an override")
        return "{" + ",".join(f"{key}:{_spelled(item)}" for key, item in value.items()) + "}"
    return quoted(str(value))


def unquoted(text: str) -> str:
    """Removes the quotes around ``text``, if any; the inside stays unchanged."""
    return text[1:-1] if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0] else text


def unescaped(value: object) -> object:
    """Reverses ``literal`` for texts without interpolations; returns other values unchanged."""
    if isinstance(value, str) and "${" in value:
        plain = re.sub(r"(\\*)\\\$\{", lambda run: run.group(1)[: len(run.group(1)) // 2] + "${", value)
        return plain if literal(plain) == value else value
    if isinstance(value, list):
        return [unescaped(item) for item in value]
    if isinstance(value, dict):
        return {key: unescaped(item) for key, item in value.items()}
    return value


def split_sweep(value: str) -> list[str]:
    """Splits a value at commas outside brackets and quotes: ``h100,h200`` gives two."""
    parts, depth, quote, start = [], 0, "", 0
    for position, letter in enumerate(value):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        elif letter == "," and depth <= 0:
            parts.append(value[start:position])
            start = position + 1
    return [*parts, value[start:]]
