"""On which line of a YAML file each key is."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from sglang_hydra.text.budget import yaml_nodes
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text


def key_lines(file: str) -> Mapping[tuple[str, ...], int]:
    """Returns the 1-based line of every key of a YAML file; empty for a file that cannot be read."""
    try:
        about = os.stat(file)
    except (OSError, ValueError):
        return {}
    return _key_lines(file, (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size))


@functools.lru_cache(maxsize=64)
def _key_lines(file: str, version: tuple[int, ...]) -> Mapping[tuple[str, ...], int]:
    """Returns the line of each key. ``version`` tells a file from an earlier one, or one of another folder."""
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
