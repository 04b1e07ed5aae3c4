"""How much a YAML file stands for once its aliases are followed: a few lines can mean billions of values, or no end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_hydra.text.quick_yaml import quick_load

MOST_VALUES = 100_000
TOO_MUCH = f"its aliases make more than {MOST_VALUES} values of it, or one without end"


def is_too_much(loaded: Any) -> bool:
    """Whether ``loaded`` holds more values than anybody writes, each as often as it is reached."""
    left, waiting = MOST_VALUES, [loaded]
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        left -= len(inner)
        if left < 0:
            return True
        waiting.extend(inner)
    return False


def text_is_too_much(text: str) -> bool:
    """The same for a text; False for one without aliases, and for one that is no YAML, which others report."""
    if "&" not in text or "*" not in text:
        return False
    import yaml

    try:
        return is_too_much(quick_load(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
