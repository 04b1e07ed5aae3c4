"""Where a value came from: the layer that named it, and the line of the file or the number of the argument."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_hydra.quick_yaml import quick_loader


@dataclass(frozen=True)
class Origin:
    """One layer that named a field. ``keys`` leads to it inside ``file``; otherwise ``where`` says it in words.

    Layers, from the weakest to the strongest: schema, gpu, model, gpu_model, verl (what it passes), primary, recipe,
    experiment (a group of an app's own, too), cli, topology, lock, rule.
    """

    layer: str
    value: Any
    where: str = ""
    file: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """``conf/model/tiny.yaml:12`` or ``argument 3``. The file is read now, and only if somebody asks."""
        if self.file is None:
            return self.where
        line = key_lines(self.file).get(self.keys)
        return f"{shown_path(self.file)}:{line}" if line else shown_path(self.file)

    def to_json(self) -> dict[str, Any]:
        return {"layer": self.layer, "place": self.place, "value": self.value}


def key_lines(file: str) -> Mapping[tuple[str, ...], int]:
    """The 1-based line of every key of a YAML file; empty for a file that cannot be read."""
    try:
        about = os.stat(file)
    except (OSError, ValueError):
        return {}
    return _key_lines(file, (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size))


@functools.lru_cache(maxsize=64)
def _key_lines(file: str, version: tuple[int, ...]) -> Mapping[tuple[str, ...], int]:
    """``version`` tells a file from another one that had its name before, or has it in another working directory."""
    import yaml

    try:
        root = yaml.compose(Path(file).read_text(encoding="utf-8"), Loader=quick_loader())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    lines: dict[tuple[str, ...], int] = {}

    def walk(node: Any, prefix: tuple[str, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                path = (*prefix, str(key.value))
                lines[path] = key.start_mark.line + 1
                walk(value, path)

    walk(root, ())
    return lines


def shown_path(file: str) -> str:
    """A path as one would type it here: relative when it lies below the working directory or our conf/."""
    from sglang_hydra.config import conf_dir

    bases = [conf_dir().parent]
    with contextlib.suppress(OSError):  # the working directory may be gone
        bases.insert(0, Path.cwd())
    for base in bases:
        try:
            return str(Path(file).relative_to(base))
        except ValueError:
            continue
    return file
