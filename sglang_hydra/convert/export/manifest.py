"""Fills the manifests of manifest.yaml with the values of a plan."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

from sglang_hydra.text.json_types import Json, JsonObject

_WORD = re.compile(r"<(\w+)>")


def manifest(template: str, **values: object) -> dict[str, Json]:
    """Returns a manifest with ``values`` for its words. Omits a key without a value (None)."""
    filled = _filled(_templates()[template], values)
    return dict(filled)


@cache
def _templates() -> JsonObject:
    content: JsonObject = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return content


def _filled(node: Json, values: JsonObject) -> Json:
    if isinstance(node, dict):
        made: dict[str, Json] = {}
        for key, content in node.items():
            more = {key: _filled(content, values)} if content is not None else values[key[1:-1]]
            made |= {name: value for name, value in more.items() if value is not None}
        return made
    if isinstance(node, list):
        items = [_filled(item, values) for item in node]
        return [each for item in items for each in (item if isinstance(item, list) else [item])]
    if not isinstance(node, str):
        return node
    word = _WORD.fullmatch(node)
    return values[word[1]] if word else _WORD.sub(lambda found: str(values[found[1]]), node)
