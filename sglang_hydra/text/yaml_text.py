"""Writes YAML that every reader parses alike: YAML 1.1 (PyYAML) and 1.2 (Compose, Kubernetes) disagree about bare
words.

``on`` and ``12:30`` are not strings in YAML 1.1, ``1e5`` and ``0o17`` not in 1.2. So a text stays bare only where both
agree; every other text is quoted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

_BARE = re.compile(r"(--)?[A-Za-z/][A-Za-z0-9_./@-]*(:[A-Za-z0-9_./@-]+)*")
_RESERVED = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])


class Block(str):
    """A text of several lines for people, written as a literal block below its key."""

    __slots__ = ()


def yaml_text(documents: Sequence[Mapping[str, object]]) -> str:
    """Formats the documents as YAML; keys keep their order."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

        def ignore_aliases(self, data: object) -> bool:
            return True

    Dumper.add_representer(str, _represent)
    Dumper.add_representer(Block, _represent_block)
    return yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=10**9, explicit_start=len(documents) > 1)


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    bare = _BARE.fullmatch(text) and text.lower() not in _RESERVED
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if bare else '"')


def _represent_block(dumper: yaml.SafeDumper, text: Block) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
