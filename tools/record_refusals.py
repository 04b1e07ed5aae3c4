"""Records where releases refuse: sglang_hydra/releases/refusals/VERSION.json.gz, from their wheels.

    python tools/record_refusals.py 0.5.23                   # downloads its wheel
    python tools/record_refusals.py --wheels FOLDER 0.5.23   # keeps it there, and takes what is there
    python tools/record_refusals.py --check --wheels FOLDER 0.5.23   # writes nothing; 1 where the record is another

Every raise, assertion and logged error of the server's code is read as syntax: its place, the words that identify its
message, and the arguments, variables and questions to the platform that the conditions above it read. Part of
adopting a release (adopt_release.py).

Exit code: 0 written or the same, 1 another one, 2 a wheel could not be had.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import itertools
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that a bare checkout will do

import read_releases  # noqa: E402
from releases.wheel import Wheel  # noqa: E402

from sglang_hydra.arguments.tables.table import release  # noqa: E402
from sglang_hydra.releases.reading_refusals import Reader, Site  # noqa: E402
from sglang_hydra.releases.refusals import COLUMNS, FOLDER  # noqa: E402

_FOLDERS = ("sglang/srt", "sglang/kernels", "sglang/jit_kernel", "sglang/cli")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="where wheels are kept; otherwise they are not")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(argv)
    differs = False
    with tempfile.TemporaryDirectory() as scratch:
        try:
            wheels = read_releases.download(options.versions, options.wheels or Path(scratch))
        except read_releases.WheelError as failure:
            print(f"record_refusals: {failure}", file=sys.stderr)
            return 2
        for version, file in zip(options.versions, wheels, strict=True):
            content, target = written(version, sites(version, Wheel(file))), FOLDER / f"{version}.json.gz"
            differs |= not target.is_file() or target.read_bytes() != content
            if not options.check:
                FOLDER.mkdir(exist_ok=True)
                target.write_bytes(content)
            print(f"{target.name}: {len(content) / 1024:.0f} KiB")
    return int(options.check and differs)


def written(version: str, sites: Iterable[Site]) -> bytes:
    """The file of a release: its sites by columns, each name and each condition once, a number as the step to it."""
    rows = [(*site[:5], tuple(json.dumps(guard, separators=(",", ":")) for guard in site.guards)) for site in sites]
    tables: dict[str, list[Any]] = {}
    content: dict[str, Any] = {"release": version}
    for at, name in enumerate(COLUMNS):
        column: list[Any] = [row[at] for row in rows]
        if name != "line":
            tables[name] = list(dict.fromkeys(column))
            places = {one: place for place, one in enumerate(tables[name])}
            column = [places[one] for one in column]
        content[name] = [number - before for before, number in itertools.pairwise([0, *column])]
    conditions = list(dict.fromkeys(guard for guards in tables["guards"] for guard in guards))
    places = {one: place for place, one in enumerate(conditions)}
    tables["guards"] = [[places[one] for one in guards] for guards in tables["guards"]]
    content["tables"] = {**tables, "conditions": list(map(json.loads, conditions))}
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)


def sites(version: str, wheel: Wheel) -> Iterator[Site]:
    """The sites of a release, from its wheel."""
    gc.disable()  # millions of nodes that all stay: collecting them doubles the time
    try:
        sources = [(name.removeprefix("sglang/"), text) for folder in _FOLDERS for name, text in wheel.sources(folder)]
        return iter(list(Reader(release(version).arguments, sources).sites()))
    finally:
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
