"""Where in the text of a manifest its servers are: nothing outside of their containers is edited."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from sglang_hydra.convert.importing.manifests import started, words_of
from sglang_hydra.text.budget import yaml_nodes

_WORDS = ("entrypoint", "command", "args")
Span = tuple[int, int]
"""The offsets of the first character and of that behind the last."""


def server_spans(text: str) -> list[Span]:
    """Returns the spans of the containers that start servers, in order; none without containers."""
    try:
        documents = yaml_nodes(text, "manifest", yaml.SafeLoader)
        return sorted({span for document in documents for span in _spans(document, set())})
    except (yaml.YAMLError, ValueError, RecursionError):
        return []


def _spans(node: yaml.Node | None, seen: set[int]) -> Iterator[Span]:
    if node is None or id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _spans(item, seen)
        return
    values = {str(key.value): value for key, value in node.value}
    words = [word for key in _WORDS if key in values for word in words_of(_plain(values[key]))]
    image = values.get("image")
    if any(True for _ in started(words, {}, "", str(_plain(image)) if image is not None else "")):
        yield node.start_mark.index, node.end_mark.index
        return
    for value in values.values():
        yield from _spans(value, seen)


def _plain(node: yaml.Node) -> str | list[str] | None:
    """Returns the text of a scalar, the texts of a list."""
    if isinstance(node, yaml.SequenceNode):
        return [str(item.value) for item in node.value if isinstance(item, yaml.ScalarNode)]
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None
