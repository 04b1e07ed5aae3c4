"""Records where a value came from: its layer, and the line of a file or the number of an argument."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import NamedTuple

from sglang_hydra.text.budget import yaml_nodes
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text
from sglang_hydra.text.locations import shown_path


class Origin(NamedTuple):
    """One layer that set a field. ``keys`` leads to the field inside ``file``; without a file, ``where`` names the
    place.

    Layers, from the weakest to the strongest: schema, gpu, model, gpu_model, verl (what it passes), primary, recipe,
    experiment (an app's own groups, too), cli, app (set in the composed config by a Hydra app or a notebook), topology,
    lock, rule."""

    layer: str
    value: object
    where: str = ""
    file: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Returns ``conf/model/tiny.yaml:12`` or ``argument 3``. Reads the file for the line only when called."""
        if self.file is None:
            return self.where
        line = key_lines(self.file).get(self.keys)
        return f"{shown_path(self.file)}:{line}" if line else shown_path(self.file)

    def to_json(self) -> dict[str, object]:
        return {"layer": self.layer, "place": self.place, "value": self.value}


class Named(NamedTuple):
    """A program that a configuration names, with its origin. ``is_of_app``: the user's own Hydra app named it."""

    program: str
    origin: Origin
    is_of_app: bool = False


def key_lines(file: str) -> Mapping[tuple[str, ...], int]:
    """Returns the 1-based line of every key of a YAML file; empty for an unreadable file."""
    try:
        about = os.stat(file)
    except (OSError, ValueError):
        return {}
    return _key_lines(file, (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size))


@functools.lru_cache(maxsize=64)
def _key_lines(file: str, version: tuple[int, ...]) -> Mapping[tuple[str, ...], int]:
    """Returns the line of each key. ``version`` is a cache key that changes when the file changes."""
    import yaml

    try:
        (root,) = yaml_nodes(read_text(file, CONFIG_BYTES), "config")
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    lines: dict[tuple[str, ...], int] = {}

    def walk(node: object, prefix: tuple[str, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                path = (*prefix, str(key.value))
                lines[path] = key.start_mark.line + 1
                walk(value, path)

    walk(root, ())
    return lines
