"""Paths of another machine: they are made such that nothing here is found by them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sglang_hydra.convert.importing.launches import Launch

ROOT = "/.of-another-machine"
"""No file is here."""
_START = re.compile(r"(?<![\w.:/~-])(?=[/~]|\.{1,2}(?:/|$))")
_UP = re.compile(r"(?<![\w.])\.\.(?![\w.])")
_DOWN = "\u2025"
"""Two dots in one sign, which lead nowhere."""


def elsewhere(launch: Launch) -> Launch:
    """The launch with all of its paths below ``ROOT``: those of its words, its values, its variables and its files."""
    return replace(
        launch,
        words=tuple(map(_moved, launch.words)),
        values=None if launch.values is None else _moved_in(launch.values),
        environment={name: _moved(value) for name, value in launch.environment.items()},
        files={name: _moved(content) for name, content in launch.files.items()},
    )


def as_written(text: str) -> str:
    """A text with the paths as they were."""
    return text.replace(f"{ROOT}/", "").replace(ROOT, "").replace(_DOWN, "..")


def _moved(word: str) -> str:
    return _START.sub(f"{ROOT}/", _UP.sub(_DOWN, word))


def _moved_in(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _moved_in(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved_in(item) for item in value]
    return _moved(value) if isinstance(value, str) else value
