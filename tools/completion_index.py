"""Writes what the shells complete from, so that they need not import anything: sglang_hydra/cli/completion_index.json,
and completion_releases.json with the arguments that each release changed.

    python tools/completion_index.py [--check]

With ``--check`` nothing is written, and the exit code is 1 where the index is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that a bare checkout will do

from generated import write_or_check_files  # noqa: E402

from sglang_hydra.arguments.every import EVERY  # noqa: E402
from sglang_hydra.arguments.fields import FIELDS  # noqa: E402
from sglang_hydra.arguments.parser import parser_of  # noqa: E402
from sglang_hydra.arguments.secrets import is_secret_name  # noqa: E402
from sglang_hydra.arguments.tables.table import known_versions, release  # noqa: E402
from sglang_hydra.cli.completion import INDEX, RELEASES, SHELLS  # noqa: E402
from sglang_hydra.cli.id_pages import known_ids  # noqa: E402
from sglang_hydra.compose.composer import Composer  # noqa: E402
from sglang_hydra.compose.schema import Root  # noqa: E402
from sglang_hydra.compose.settings import bench  # noqa: E402
from sglang_hydra.convert.export.registry import FORMATS  # noqa: E402
from sglang_hydra.show.key_help import GROUPS, Key, keys  # noqa: E402
from sglang_hydra.text.flags import FLAGS, VERBS  # noqa: E402

_BOOLEAN = ["true", "false"]
OFFERED = {"bench.concurrency": [bench.LADDER], "engine.version": list(known_versions())}
"""What keys of ours are often, beside other values."""


def index() -> dict[str, Any]:
    composer = Composer()
    options = {group: composer.options(group) for group in (*composer.groups(), "bench/workload")}
    values = {name: _choices(name) for name in FIELDS}
    values |= {name: _choices_of(key) for name, key in keys().items()}
    nodes = [item.name for item in fields(Root) if is_dataclass(item.type)]
    words = {
        "explain": sorted([*EVERY, *keys(), *GROUPS, *known_ids()]),
        "export": sorted(FORMATS),
        "completion": sorted(SHELLS),
        "help": sorted([*EVERY, *keys(), *GROUPS]),
    }
    return {
        "verbs": list(VERBS),
        "flags": [flag.names[0] for flag in FLAGS],
        "options": {group: found for group, found in options.items() if found},
        "keys": values,
        "nodes": nodes,
        "words": words,
    }


def _choices(name: str) -> list[str]:
    field = FIELDS[name]
    if field.kind == "bool":
        return _BOOLEAN
    return [str(choice) for choice in field.arg.choices or ()]


def _choices_of(key: Key) -> list[str]:
    own = list(key.choices) or OFFERED.get(key.name, [])
    return _BOOLEAN if key.type == "bool" else own


def releases() -> dict[str, Any]:
    """What each release changes in the arguments of the one before it, oldest first."""
    found, before = {}, dict(_arguments(known_versions()[0]))
    for version in known_versions()[1:]:
        now = dict(_arguments(version))
        changed = {name: choices for name, choices in now.items() if before.get(name) != choices}
        found[version] = {"keys": changed, "gone": sorted(set(before) - set(now))}
        before = now
    return found


def _arguments(version: str) -> Iterator[tuple[str, list[str]]]:
    for name, argument in sorted(release(version).arguments.items()):
        if name in parser_of(version).by_name and not is_secret_name(name):
            switch = argument.type == "bool"
            yield name, _BOOLEAN if switch else [str(choice) for choice in argument.choices or ()]


def main() -> int:
    own = json.dumps(index(), indent=0, sort_keys=True) + "\n"  # one entry a line: changes merge
    return write_or_check_files({INDEX: own, RELEASES: json.dumps(releases(), indent=0) + "\n"}, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
