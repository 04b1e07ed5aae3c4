"""Puts those files of releases beside the site that their argument code reads, so that a browser can ask them.

The wheels come by the package client, and each file is compared with the list of its wheel, and that with
sglang_hydra/releases/releases.json, as it is read here; the browser does the same again.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path, PurePosixPath

MOST_MB = 17
"""For all releases. The newest come first, as many as fit."""
_SMALL = 300_000
_STAND_IN = "msgspec"


def write_releases(out: Path) -> list[str]:
    """Writes an archive for each wheel below ``out``, and index.json with their sizes. Returns the releases that a
    browser can ask, newest first."""
    from sglang_hydra.arguments.specified import SPECIFIED_VERSION
    from sglang_hydra.releases import wheels
    from sglang_hydra.releases.records import records

    out.mkdir()
    sizes: dict[str, int] = {}
    taken: list[str] = []
    for version, record in reversed(records().items()):
        if version == SPECIFIED_VERSION:  # the planner's own rules are those of this one
            continue
        wheels.fetch(record, lambda line: print(line, file=sys.stderr))
        new = {wheel.folder: archive(wheel) for wheel in record.wheels if not wheel.folder.startswith(_STAND_IN)
               and wheel.folder not in sizes}  # fmt: skip
        if sum(sizes.values()) + sum(map(len, new.values())) > MOST_MB * 1e6:
            break
        for folder, content in new.items():
            (out / f"{folder}.bin").write_bytes(content)
            sizes[folder] = len(content)
        taken.append(version)
    (out / "index.json").write_text(json.dumps(sizes), encoding="utf-8")
    return taken


def archive(wheel: object) -> bytes:
    """Returns the files of a wheel that are read, joined and compressed, with all folders of the wheel."""
    from parts import joined

    from sglang_hydra.releases import wheels
    from sglang_hydra.releases.parts import is_wanted
    from sglang_hydra.releases.records import Wheel

    assert isinstance(wheel, Wheel)
    place, names = wheels.place_of(wheel), sorted(wheels.source_names(wheel))
    sealed = wheels._sealed(wheel)
    assert place is not None
    assert sealed is not None
    wanted = [name for name in names if wheel.size < _SMALL or is_wanted(name, wheels.read_files())]
    files = {name: sealed.read(sealed.folders[0] + name) for name in wanted if (place / name).is_file()}
    return gzip.compress(joined(files, (str(PurePosixPath(name).parent) for name in names)), 9, mtime=0)
