"""Fetches parts of wheels by the package client of its interpreter: its index, mirrors, proxies and certificates.

It runs as a separate program, with only pip and the standard library. Its input has ``wheels`` (name, version, file
names, and tags for pip), ``read``, the names of the files to fetch from them, ``folder``, and ``wait_s``, the time to
wait for a first answer (null: pip's own). It prints a line with the names of the wheels of which parts exist, writes
these parts to their places in otherwise empty files with the wheels' names, and prints the number of fetched bytes at
the end.

pip's own modules promise nothing to others: if they differ from the expected ones, or the index gives no parts of
files, it names no wheel, and the caller fetches them whole. Exit code 3: nothing answered in time."""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
import zipfile
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

TAIL = 1 << 16
GAP = 2048
"""Bytes between two wanted files that are fetched too, to send fewer requests."""
SMALL = 300_000
"""A smaller wheel is fetched whole."""
UNREACHED = 3
_AT_ONCE = 8
_ENDS = (".dist-info/METADATA", ".dist-info/RECORD")


def main() -> int:
    begun = time.monotonic()
    asked = json.load(sys.stdin)
    command: Any = import_module("pip._internal.commands").create_command("download")
    with command.main_context():
        found = {}
        session = None
        for wheel in asked["wheels"]:
            words = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", *wheel["tags"]]
            words += ["--retries", "0"] if asked["wait_s"] else []
            options, _ = command.parse_args([*words, wheel["name"]])
            if session is None:
                session = command.get_default_session(options)
                answered = _end_without_answer(session, asked["wait_s"], begun)
            python = import_module("pip._internal.cli.cmdoptions").make_target_python(options)
            finder = command._build_package_finder(options=options, session=session, target_python=python)
            links = [each.link for each in finder.find_all_candidates(wheel["name"])]
            link = next((each for each in links if each.filename in wheel["files"]), None)
            if not answered() and asked["wait_s"] and not any(each.is_file for each in links):
                return UNREACHED
            if link is not None and not link.is_file:
                part = Part(session, link.url_without_fragment, os.path.join(asked["folder"], link.filename))
                if part.begin():
                    found[f"{wheel['name']} {wheel['version']}"] = part
        print(json.dumps(list(found)), flush=True)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for part in found.values():
                list(pool.map(part.fetch, *zip(*runs(part.path, set(asked["read"])), strict=True)))
    print(json.dumps(sum(part.fetched for part in found.values())))
    return 0


def _end_without_answer(session: Any, wait_s: float | None, begun: float) -> Any:
    """Ends this program if the index has not answered ``wait_s`` after ``begun``; the index gets at least half of that,
    even if pip's modules took long. Returns a callable that tells whether it has."""
    first = threading.Event()
    session.hooks["response"].append(lambda *_, **__: first.set())
    if wait_s:
        left = max(wait_s / 2, wait_s - (time.monotonic() - begun))
        watch = threading.Thread(target=lambda: first.wait(left) or os._exit(UNREACHED), daemon=True)
        watch.start()
    return first.is_set


class Part:
    """A wheel at ``url`` that is fetched in parts into ``path``."""

    def __init__(self, session: Any, url: str, path: str) -> None:
        self.session, self.url, self.path = session, url, path
        self.fetched = self.size = 0

    def begin(self) -> bool:
        """Fetches the table of contents. Returns False if the index gives no parts of the file."""
        answer = self._ask(f"-{TAIL}")
        if answer is None:
            return False
        self.size = int(answer.headers["Content-Range"].rpartition("/")[2])
        self._write(max(0, self.size - TAIL), answer.content)
        end = answer.content.rfind(b"PK\x05\x06")
        if end < 0:
            return False
        (start,) = struct.unpack_from("<I", answer.content, end + 16)
        if start < self.size - TAIL:
            self.fetch(start, self.size - TAIL)
        return True

    def fetch(self, start: int, end: int) -> None:
        if start == end:
            return
        answer = self._ask(f"{start}-{end - 1}")
        if answer is None:
            raise OSError("the index gave a part of a file, and now gives none")
        self._write(start, answer.content)

    def _ask(self, span: str) -> Any:
        headers = {"Range": f"bytes={span}", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
        answer = self.session.get(self.url, headers=headers, stream=True)
        if answer.status_code == 206:
            self.fetched += len(answer.content)
            return answer
        answer.close()
        return None

    def _write(self, start: int, content: bytes) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(handle, content, start)
        finally:
            os.close(handle)


def runs(path: str, read: Collection[str]) -> list[tuple[int, int]]:
    """Returns the byte ranges (from, to) of a wheel that hold the wanted files; for a small wheel all but its end."""
    found: list[tuple[int, int]] = []
    with zipfile.ZipFile(path) as archive:
        size = os.path.getsize(path)
        if size <= SMALL:
            return [(0, max(0, size - TAIL))]
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        ends = [*(member.header_offset for member in members[1:]), archive.start_dir]
        for member, end in zip(members, ends, strict=True):
            if not is_wanted(member.filename, read):
                continue
            if found and member.header_offset - found[-1][1] <= GAP:
                found[-1] = (found[-1][0], end)
            else:
                found.append((member.header_offset, end))
    return found


def is_wanted(name: str, read: Collection[str]) -> bool:
    """Returns whether a file of a wheel is to be read, or describes the wheel itself."""
    return name in read or name.endswith(_ENDS)


if __name__ == "__main__":
    sys.exit(main())
