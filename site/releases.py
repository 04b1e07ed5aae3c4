"""Puts those files of releases beside the site that their argument code reads, so that a browser can ask them.

The wheels come by the package client, and each file is compared with the list of its wheel, and that with
sglang_hydra/releases/releases.json, as it is read here; the browser does the same again. Of each package the newest
wheel is whole; an older one has what it does not share with the next newer.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_SMALL = 300_000
_STAND_IN = "msgspec"
_SHORTEST = 3
"""Lines that are copied from the newer wheel; fewer are written again."""
_PLACES = 30
"""Places of a line that are looked at: a blank line has thousands."""


class Archive(NamedTuple):
    """The files of a wheel as one (``parts.joined``), and where each of them lies in it."""

    content: bytes
    places: dict[str, tuple[int, int]]


def write_releases(out: Path) -> list[str]:
    """Writes an archive for each wheel below ``out``, and index.json with their sizes and the newer wheel that each is
    made of. Returns the releases that a browser can ask, newest first."""
    from sglang_hydra.arguments.specified import SPECIFIED_VERSION
    from sglang_hydra.releases import wheels
    from sglang_hydra.releases.records import records

    out.mkdir()
    index: dict[str, list[object]] = {}
    newer: dict[str, tuple[str, Archive]] = {}
    taken: list[str] = []
    for version, record in reversed(records().items()):
        if version == SPECIFIED_VERSION:  # the planner's own rules are those of this one
            continue
        wheels.fetch(record, lambda line: print(line, file=sys.stderr))
        for wheel in record.wheels:
            if wheel.name == _STAND_IN or wheel.folder in index:
                continue
            made, base = archive(wheel), newer.get(wheel.name)
            packed = gzip.compress(difference(base[1], made) if base else made.content, 9, mtime=0)
            (out / f"{wheel.folder}.bin").write_bytes(packed)
            index[wheel.folder] = [len(packed), base and base[0]]
            newer[wheel.name] = (wheel.folder, made)
        taken.append(version)
    (out / "index.json").write_text(json.dumps(index), encoding="utf-8")
    return taken


def archive(wheel: object) -> Archive:
    """Returns the files of a wheel that are read, with all folders of the wheel."""
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
    return archive_of(files, (str(PurePosixPath(name).parent) for name in names))


def archive_of(files: Mapping[str, bytes], folders: Iterable[str]) -> Archive:
    from parts import joined

    content = joined(files, folders)
    end, places = len(content), {}
    for name in sorted(files, reverse=True):
        places[name] = (end - len(files[name]), end)
        end -= len(files[name])
    return Archive(content, places)


def difference(newer: Archive, older: Archive) -> bytes:
    """Returns what makes the content of the older archive from that of the newer: the length of a list, the list, and
    the bytes that are new. Of the list, ``[place, length]`` is a copy and a number so many new bytes."""
    first = min((begin for begin, _ in older.places.values()), default=len(older.content))
    steps: list[object] = [first]
    new = [older.content[:first]]
    for name, (begin, end) in sorted(older.places.items(), key=lambda item: item[1]):
        text = older.content[begin:end]
        at, until = newer.places.get(name, (0, 0))
        for step in _steps(newer.content[at:until], text):
            if isinstance(step, bytes):
                steps.append(len(step))
                new.append(step)
            else:
                steps.append([at + step[0], step[1]])
    head = json.dumps(steps, separators=(",", ":")).encode()
    return len(head).to_bytes(4, "big") + head + b"".join(new)


def _steps(newer: bytes, older: bytes) -> Iterator[tuple[int, int] | bytes]:
    """Yields copies of whole lines, as place and length, and the bytes between them."""
    if newer == older:
        yield from [(0, len(newer))] if newer else []
        return
    known, lines = newer.splitlines(keepends=True), older.splitlines(keepends=True)
    starts, places = [0], {}
    for number, line in enumerate(known):
        starts.append(starts[-1] + len(line))
        places.setdefault(line, []).append(number)
    at, new = 0, []
    while at < len(lines):
        best, length = 0, 0
        for place in places.get(lines[at], ())[:_PLACES]:
            size = 0
            while place + size < len(known) and at + size < len(lines) and known[place + size] == lines[at + size]:
                size += 1
            if size > length:
                best, length = place, size
        if length >= _SHORTEST:
            if new:
                yield b"".join(new)
                new = []
            yield starts[best], starts[best + length] - starts[best]
            at += length
        else:
            new.append(lines[at])
            at += 1
    if new:
        yield b"".join(new)
