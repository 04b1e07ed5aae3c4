"""Describes each known release: its wheel by sha256, its libraries, its parts that must be real.

tools/record_release.py writes ``releases.json``, from the registry and from running each release."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import at_least, is_candidate_of, same_release
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.user_settings import others_can_write, settings, settings_folder
from sglang_hydra.text.words import program

PINNED = "trusted_releases.json"
"""The releases that the user pinned, beside the settings."""
RECORDS = Path(__file__).with_name("releases.json")
_UNPACKED = "2"
"""Changes when other files of a wheel are unpacked: older unpacked folders are then unused."""


class WheelFile(NamedTuple):
    """One file of the registry; ``size`` in bytes. ``list_sha256`` is that of its RECORD, the list of its files by
    their sha256; ``part`` is the number of bytes to fetch if its index gives parts of files."""

    name: str
    sha256: str
    size: int
    list_sha256: str
    part: int


class Wheel(NamedTuple):
    """One version of a package. Several ``files`` are builds for different interpreters and systems."""

    name: str
    version: str
    files: tuple[WheelFile, ...]

    @property
    def size(self) -> int:
        """Returns the bytes to download, of the largest build."""
        return max(file.size for file in self.files)

    @property
    def part(self) -> int:
        """Returns the bytes to download if the index gives parts, of the largest build."""
        return max(file.part for file in self.files)

    @property
    def lists(self) -> tuple[str, ...]:
        """Returns the permitted sha256 of the wheel's list of files."""
        return tuple(file.list_sha256 for file in self.files)

    @property
    def digest(self) -> str:
        """Returns a digest of the wheel's bytes and of the unpacked files: other builds differ."""
        files = sorted(file.sha256 for file in self.files)
        return hashlib.sha256(" ".join([_UNPACKED, *files]).encode()).hexdigest()

    @property
    @functools.lru_cache(maxsize=1024)  # noqa: B019 - it has no state
    def folder(self) -> str:
        """Returns the name of its folder in the cache; a compiled library has one for each interpreter and system."""
        import platform
        import sys

        build = f"-{sys.implementation.cache_tag}-{sys.platform}-{platform.machine()}" if len(self.files) > 1 else ""
        return f"{self.name}-{self.version}-{self.digest[:12]}{build}"


@dataclass(frozen=True)
class Record:
    """One release. ``libraries`` are transformers and its and the release's requirements; ``real_parts`` the modules
    below sglang.srt.layers and sglang.srt.distributed that the argument code uses."""

    version: str
    wheel: Wheel
    libraries: tuple[Wheel, ...]
    real_parts: tuple[str, ...]

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        return (self.wheel, *self.libraries)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Returns a digest of everything on which its answers depend: its wheels' bytes and its real parts."""
        parts = [*(wheel.digest for wheel in self.wheels), *self.real_parts]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=4)
def records(path: Path = RECORDS) -> Mapping[str, Record]:
    """Returns every recorded release by its version, oldest first."""
    return _read(path)


def newest_release() -> str:
    """Returns the version of the newest recorded release."""
    return [*records()][-1]


def default_release() -> str:
    """Returns the release of a plan if none is named or installed: the user's choice, else the newest."""
    chosen = settings().release
    return newest_release() if chosen is None else chosen.value


_NAMED = re.compile(r"(?!.*\.whl$)(?:(?:[\w./-]*/)?sglang[:=@-]+)?v?(\d+(?:\.\w+)+)(?:-[a-z][\w.-]*)?", re.IGNORECASE)


def release_named(text: str) -> str:
    """Returns the release of a typed name: ``latest`` is the newest recorded one, ``v0.5.23`` is 0.5.23, and so is the
    tag of an image for it (``lmsysorg/sglang:v0.5.23-cu129``). The path of a wheel names itself."""
    if text.lower() in ("latest", "newest"):
        return newest_release()
    named = _NAMED.fullmatch(text)
    return named[1] if named else text


@functools.lru_cache(maxsize=1)
def _first_readers() -> Mapping[str, str]:
    rows = json.loads(RECORDS.read_text(encoding="utf-8"))["model_types"]
    return {name: version for version, names in rows.items() for name in names}


def first_reading(model_type: object) -> str | None:
    """Returns the first recorded release that reads a config.json of this type without code from the model's
    repository; None if unknown, as for a type that each release reads in another way."""
    return _first_readers().get(str(model_type))


def pinned_file() -> Path | None:
    """Returns the file of the user's own pins; None without settings."""
    folder = settings_folder()
    return None if folder is None else Path(folder, PINNED)


def pinned_records() -> Mapping[str, Record]:
    """Returns the releases that the user pinned with ``release fetch --trust``, in the form of releases.json. Raises
    MachineError (REL007) for a file that others can write or that has another content."""
    path = pinned_file()
    if path is None or not os.path.exists(path):
        return {}
    if others_can_write(path):
        raise _not_ours(path, "others can write it")
    try:
        return _read(path)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as failure:
        raise _not_ours(path, f"it is not what release fetch --trust writes ({failure})") from failure


def _not_ours(path: Path, why: str) -> MachineError:
    message = f"{path} is not read: {why}"
    return MachineError(Finding("error", "REL007", message, hint=f"chmod go-w {shlex.quote(str(path))}, or remove it"))


def _read(path: Path) -> dict[str, Record]:
    content = json.loads(path.read_text(encoding="utf-8"))
    libraries = {name: _wheel(name, files) for name, files in content["libraries"].items()}
    return {
        version: Record(
            version,
            _wheel(f"sglang {version}", row["files"]),
            tuple(libraries[name] for name in row["libraries"]),
            tuple(row["real_parts"]),
        )
        for version, row in content["releases"].items()
    }


def _wheel(title: str, files: Mapping[str, tuple[str, int, str, int]]) -> Wheel:
    name, _, version = title.partition(" ")
    return Wheel(name, version, tuple(WheelFile(file, *facts) for file, facts in files.items()))


def record_of(version: str) -> Record | None:
    """Returns the record of a release, or None. A build that the user pinned is known by its whole version
    (0.5.23+mine); a recorded release cannot be replaced."""
    if version in records():
        return records()[version]
    pinned = {known: record for known, record in pinned_records().items() if known not in records()}
    found = (record for known, record in (*records().items(), *pinned.items()) if same_release(known, version))
    return pinned.get(version) or next(found, None)


def not_recorded(version: str) -> Finding:
    """Returns the finding on a release without a record, with what to type."""
    version_or_newest = version if version[:1].isdigit() else newest_release()
    hint = f"{program()} release fetch --trust {version_or_newest}; {program()} release list shows the recorded ones"
    return Finding("error", "REL001", f"SGLang {version} is not recorded here", hint=hint)


def nearest_record(version: str) -> Record | None:
    """Returns the record of the release itself, of the final release of a candidate, or of the last one before it."""
    exact = record_of(version)
    if exact is not None:
        return exact
    final = next((record for known, record in records().items() if is_candidate_of(version, known)), None)
    earlier = [record for known, record in records().items() if at_least(version, known)]
    return final or (earlier[-1] if earlier else None)
