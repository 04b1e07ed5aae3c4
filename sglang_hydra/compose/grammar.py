"""Values as text of Hydra's override grammar, and literal text in a world where ``${...}`` means something."""

from __future__ import annotations

import re

from sglang_hydra.text.json_types import Json

_NAME = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_INTERPOLATION = re.compile(r"\$\{[^{}]*\}")
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w.-]*")


def quoted(text: str) -> str:
    """Returns ``text`` as a quoted value of Hydra's override grammar, so that it comes out as the very same string."""
    escaped = re.sub(r"(\\*)'", lambda run: run.group(1) * 2 + "\\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return "'" + escaped + "\\" * trailing + "'"


def literal(value: object) -> Json:
    """Returns ``value`` with every ``${`` in its texts escaped, so that OmegaConf resolves it to the same."""
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
    """Returns whether some text in ``value`` is only known once the whole configuration is (``${gpu.count}``)."""
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, dict):
        return any(has_interpolation(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(has_interpolation(item) for item in value)


def as_override(key: str, value: object) -> str:
    """Returns ``key=value`` in Hydra's grammar for any value of plain types: the way from typed values back to text.

    The value is meant literally: a ``${`` in it is no interpolation. Raises ValueError for a mapping with a key that
    the grammar cannot spell (one with spaces or quotes).
    """
    return written(key, literal(value))


def written(key: str, value: object) -> str:
    """Returns the same for a value in which a ``${`` means what it means to OmegaConf."""
    return f"{key}={_spelled(value)}"


def typed_word(key: str, value: object) -> str:
    """Returns ``written`` as one would type it: a name, and a text that is one interpolation, without quotes."""
    bare = isinstance(value, str) and (_INTERPOLATION.fullmatch(value) or _is_name(value))
    return f"{key}={value}" if bare else written(key, value)


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text.lower() not in ("null", "true", "false", "nan", "inf")


def _spelled(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ",".join(_spelled(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_spelled_key(key)}:{_spelled(item)}" for key, item in value.items()) + "}"
    return quoted(str(value))


def _spelled_key(key: object) -> str:
    if not isinstance(key, str) or not _PLAIN_KEY.fullmatch(key) or key in ("null", "true", "false", "nan", "inf"):
        raise ValueError(f"the key {key!r} cannot be written in an override")
    return key


def unquoted(text: str) -> str:
    """Returns ``text`` without the quotes around it, if it has some; the inside stays as it is."""
    return text[1:-1] if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0] else text


def unescaped(value: object) -> object:
    """Returns the inverse of ``literal`` for a text that has no interpolation in it; anything else stays as it is."""
    if isinstance(value, str) and "${" in value:
        plain = re.sub(r"(\\*)\\\$\{", lambda run: run.group(1)[: len(run.group(1)) // 2] + "${", value)
        return plain if literal(plain) == value else value
    if isinstance(value, list):
        return [unescaped(item) for item in value]
    if isinstance(value, dict):
        return {key: unescaped(item) for key, item in value.items()}
    return value


def split_sweep(value: str) -> list[str]:
    """Returns the points that commas separate, those inside brackets and quotes left alone: ``h100,h200`` is two."""
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
