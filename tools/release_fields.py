"""Writes sglang_hydra/run/diagnose/releases.json: which arguments the server of each SGLang release has, as changes.

    python tools/release_fields.py FOLDER

FOLDER holds the wheels of the releases, as ``pip download --no-deps sglang==VERSION`` leaves them. The class is read
with ast and never imported: ``ServerArgs`` of ``server_args.py``, and from 0.5.20 on the classes of
``arg_groups/fields`` that name a namespace.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "sglang_hydra" / "run" / "diagnose" / "releases.json"
_DECLARES = re.compile(r"srt/(?:server_args|arg_groups/fields/\w+)\.py$")
_WHEEL = re.compile(r"sglang-(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?-")


def main(arguments: list[str]) -> int:
    releases = []
    before: list[str] = []
    for wheel in sorted(Path(arguments[0]).glob("sglang-*.whl"), key=_order):
        names = list(dict.fromkeys(_fields(wheel)))
        change = {
            "version": wheel.name.split("-")[1],
            "added": sorted(set(names) - set(before)),
            "removed": sorted(set(before) - set(names)),
        }
        releases.append(change)
        before = names
    record = {"source": "the wheels of SGLang on PyPI, read with tools/release_fields.py", "releases": releases}
    TABLE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def _order(wheel: Path) -> tuple[int, ...]:
    found = _WHEEL.match(wheel.name)
    assert found is not None, wheel.name
    return tuple(int(part or 0) for part in found.groups())


def _fields(wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        for name in filter(_DECLARES.search, archive.namelist()):
            tree = ast.parse(archive.read(name))
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and (node.name == "ServerArgs" or _is_namespace(node)):
                    yield from _annotated(node)


def _is_namespace(node: ast.ClassDef) -> bool:
    return any(
        isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and item.targets[0].id == "_NS_PATH"
        for item in node.body
    )


def _annotated(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if "ClassVar" not in ast.unparse(item.annotation) and not item.target.id.startswith("_"):
            yield item.target.id


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
