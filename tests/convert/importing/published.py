"""The published launches of tests/data/published_launches.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

_FILE = Path(__file__).parents[2] / "data" / "published_launches.yaml"


class Case(NamedTuple):
    """A text, and for each of its servers the flags."""

    name: str
    text: str
    flags: tuple[str, ...]


PUBLISHED = [Case(row["name"], row["text"], tuple(row["flags"])) for row in yaml.safe_load(_FILE.read_text("utf-8"))]
