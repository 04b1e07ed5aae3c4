"""Pins a build of SGLang that is not recorded, a fork or a release candidate, by its sha256 in the user's settings."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.releases import fetching, wheels
from sglang_hydra.releases.records import Record, Wheel, WheelFile, nearest_record, pinned_file, pinned_records, records
from sglang_hydra.releases.wheels import sha256_of
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.whole_file import write_whole

_VERSION = re.compile(r"[0-9][\w.+!-]*")
_LARGEST = 8 << 20
_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile)
_REQUIRES = r"^Requires-Dist: {}\s*\(?==\s*([\w.]+)"


def trust(named: str, progress: Callable[[str], None] = lambda line: None) -> Record:
    """Pins the wheel ``named``, a file or a version of the registry, and the transformers that it pins; nothing of them
    is run. The real parts and the other libraries are those of the nearest recorded release.

    Raises MachineError: REL002 for a wheel that cannot be had, REL003 for a file that is none, REL007 without a place
    for pins, REL008 for a version that cannot be pinned.
    """
    pins = pinned_file()
    if pins is None:
        raise MachineError(Finding("error", "REL007", "there are no settings: their variable is empty"))
    with tempfile.TemporaryDirectory() as scratch:
        is_file = named.endswith(".whl")
        file = Path(named).expanduser() if is_file else _downloaded("sglang", named, Path(scratch), progress)
        version, text = _metadata(file)
        near = nearest_record(version)
        if version in records() or near is None or release_key(version) is None:
            why = "it is recorded" if version in records() else "no recorded release is like it"
            hint = "give your build a version of its own, as 0.5.23+mine" if version in records() else None
            raise MachineError(Finding("error", "REL008", f"SGLang {version} cannot be pinned: {why}", hint=hint))
        wheel = _wheel_of("sglang", version, file)
        wheels.take(file, wheel)
        libraries = _libraries(text, near, Path(scratch), progress)
    made = Record(version, wheel, libraries, near.real_parts)
    pin(made)
    return made


def pin(record: Record) -> None:
    """Writes a record among the user's pins. Its place has to be there."""
    pins = pinned_file()
    assert pins is not None
    _write(pins, {**pinned_records(), record.version: record})


def forget(version: str) -> None:
    """Removes the pin of a release, where there is one."""
    pins, kept = pinned_file(), dict(pinned_records())
    if pins is not None and kept.pop(version, None) is not None:
        _write(pins, kept)


def _libraries(metadata: str, near: Record, scratch: Path, progress: Callable[[str], None]) -> tuple[Wheel, ...]:
    """Returns those of a recorded release with the transformers that this one pins; else that transformers, from the
    registry and pinned as well, with what a recorded one of the same major version needs."""
    pinned = re.search(_REQUIRES.format("transformers"), metadata, re.MULTILINE)
    for record in (near, *records().values()):
        if pinned is None or ("transformers", pinned[1]) in [(wheel.name, wheel.version) for wheel in record.libraries]:
            return record.libraries
    assert pinned is not None
    file = _downloaded("transformers", pinned[1], scratch, progress)
    made = _wheel_of("transformers", pinned[1], file)
    wheels.take(file, made)
    major = pinned[1].partition(".")[0]
    alike = (
        record
        for record in (near, *records().values())
        for library in record.libraries
        if library.name == "transformers" and library.version.partition(".")[0] == major
    )
    return (made, *(library for library in next(alike, near).libraries if library.name != "transformers"))


def _downloaded(name: str, version: str, scratch: Path, progress: Callable[[str], None]) -> Path:
    near = nearest_record(version)
    progress(f"fetching {name} {version}, to pin it")
    folder = scratch / name
    folder.mkdir()
    tags = fetching.tags(near.wheel.files[0]) if name == "sglang" and near is not None else ()
    return fetching.download(Wheel(name, version, ()), folder, tags)


def _metadata(file: Path) -> tuple[str, str]:
    """Returns the version and the metadata of a wheel of SGLang. Raises MachineError (REL003) for any other file."""
    text = _member(file, "METADATA").decode("utf-8", "replace")
    package, version = (re.search(rf"^{key}: (\S+)$", text, re.MULTILINE) for key in ("Name", "Version"))
    if package is None or version is None or package[1].lower() != "sglang" or not _VERSION.fullmatch(version[1]):
        raise MachineError(Finding("error", "REL003", f"{file} is no wheel of sglang"))
    return version[1], text


def _member(file: Path, name: str) -> bytes:
    """Returns one of a wheel's files about itself. Raises MachineError (REL003) if ``file`` lacks it."""
    try:
        with zipfile.ZipFile(file) as archive:
            (member,) = (one for one in archive.namelist() if re.fullmatch(rf"[^/]+\.dist-info/{name}", one))
            with archive.open(member) as stream:
                content = stream.read(_LARGEST + 1)
    except (
        OSError,
        ValueError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        zlib.error,
        zipfile.BadZipFile,
    ) as failure:
        raise MachineError(Finding("error", "REL003", f"{file} is no wheel: {failure}")) from failure
    if len(content) > _LARGEST:
        raise MachineError(Finding("error", "REL003", f"{file} is no wheel: its {name} is larger than 8 MiB"))
    return content


def _wheel_of(name: str, version: str, file: Path) -> Wheel:
    listed, size = hashlib.sha256(_member(file, "RECORD")).hexdigest(), file.stat().st_size
    return Wheel(name, version, (WheelFile(file.name, sha256_of(file), size, listed, size),))


def _write(pins: Path, kept: dict[str, Record]) -> None:
    def files(wheel: Wheel) -> dict[str, object]:
        return {file.name: [file.sha256, file.size, file.list_sha256, file.part] for file in wheel.files}

    libraries = {f"{wheel.name} {wheel.version}": files(wheel) for made in kept.values() for wheel in made.libraries}
    rows = {
        version: {
            "files": files(made.wheel),
            "libraries": [f"{wheel.name} {wheel.version}" for wheel in made.libraries],
            "real_parts": list(made.real_parts),
        }
        for version, made in kept.items()
    }
    content = {"schema": "sglang_hydra.releases/1", "libraries": libraries, "releases": rows}
    pins.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(pins, json.dumps(content, indent=1) + "\n", mode=0o600)
