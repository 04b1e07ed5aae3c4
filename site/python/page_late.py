"""Brings what the page does not load at first: modules that few questions import, and recorded answers of older
releases. Python waits for it: the page (src/worker.js) fetches it synchronously.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

LIBRARY = "/lib/python3.13"
"""Where parts of the standard library go that are not in its archive."""


class NotHere(BaseException):
    """A part does not come. No Exception: nobody on the way takes it for an answer."""


class Parts:
    """Finds modules that no other finder found: ``modules`` has the part of each, ``files`` that of a data file."""

    def __init__(self, fetch: Callable[[str], Any], modules: Mapping[str, str], files: Mapping[str, str]) -> None:
        self._fetch, self._modules, self._files = fetch, modules, files
        self._here: set[str] = set()

    def bring(self, part: str) -> None:
        """Writes the files of a part: 4 bytes with the length of a JSON head, the head, the files."""
        try:
            content = gzip.decompress(self._fetch(part).to_bytes())
        except Exception as error:
            raise NotHere(f"{part} did not come ({error})") from error
        start = 4 + int.from_bytes(content[:4], "big")
        head = json.loads(content[4:start])
        for name in head["folders"]:
            Path("/", name).mkdir(parents=True, exist_ok=True)
        for name, size in head["files"]:
            Path("/", name).write_bytes(content[start : start + size])
            start += size
        self._here.add(part)
        for place, finder in list(sys.path_importer_cache.items()):  # importlib's own function imports much more
            if finder is None:
                del sys.path_importer_cache[place]
            else:
                finder.invalidate_caches()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        part = self._modules.get(name)
        if part is None or part in self._here:
            return None
        self.bring(part)
        return PathFinder.find_spec(name, path)

    def file(self, path: Path) -> Path:
        """Returns ``path``, and brings what is to lie there."""
        part = self._files.get(str(path))
        if part is not None and part not in self._here:
            self.bring(part)
        return path


def install(fetch: Callable[[str], Any]) -> None:
    """Makes all parts that ``page_late.json`` names come when they are needed; ``fetch`` returns the bytes of one."""
    from sglang_hydra.releases import recorded

    table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    parts, place = Parts(fetch, table["modules"], table["files"]), recorded.file_of
    for name in table["files"]:
        Path(name).touch()  # the folder names the releases that are recorded
    sys.meta_path.append(parts)
    recorded.file_of = lambda version: parts.file(place(version))
    importlib.import_module("encodings").__path__.append(f"{LIBRARY}/encodings")
