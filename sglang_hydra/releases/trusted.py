"""Pins a build of SGLang that is not recorded, a fork or a release candidate, by its sha256 in the user's settings."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.facts.hub import cached_folder
from sglang_hydra.releases import fetching, wheels
from sglang_hydra.releases.fetching import download
from sglang_hydra.releases.records import Record, Wheel, WheelFile, nearest_record, pinned_file, pinned_records, records
from sglang_hydra.releases.wheels import sha256_of
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.file_text import open_plain
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.user_settings import FILE_VARIABLE
from sglang_hydra.text.whole_file import write_whole

_VERSION = re.compile(r"[0-9][\w.+!-]*", re.ASCII)
_LARGEST = 8 << 20
_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile)
_REQUIRES = r"^Requires-Dist: {}\s*\(?==\s*([\w.]+)"


def trust(named: str, progress: Callable[[str], None] = lambda line: None) -> Record:
    """Pins the wheel ``named``, a file or a version of the registry, and its pinned transformers; runs nothing of them.
    Takes the real parts and the other libraries of the nearest recorded release. Raises MachineError: REL002 for an
    unavailable wheel, REL003 for a file that is not a wheel, REL007 without a place for pins, REL008 for a version that
    cannot be pinned."""
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
    """Writes a record to the user's pins. Raises MachineError (REL007) if that is impossible."""
    pins = pinned_file()
    assert pins is not None
    _write(pins, {**pinned_records(), record.version: record})


def forget(version: str) -> None:
    """Removes the pin of a release, if there is one."""
    pins, kept = pinned_file(), dict(pinned_records())
    if pins is not None and kept.pop(version, None) is not None:
        _write(pins, kept)


def _libraries(metadata: str, near: Record, scratch: Path, progress: Callable[[str], None]) -> tuple[Wheel, ...]:
    """Returns the libraries of a recorded release with the transformers that this one pins; else that transformers,
    from the registry and pinned as well, with the requirements of a recorded one of the same major version."""
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
    """Returns a metadata file of a wheel. Raises MachineError (REL003) if ``file`` lacks it."""
    try:
        with open_plain(file) as opened, wheels.archive_of(opened) as archive:
            (member,) = (one for one in archive.namelist() if re.fullmatch(rf"[^/]+\.dist-info/{name}", one))
            with archive.open(member) as stream:
                content = stream.read(_LARGEST + 1)
    except _UNREADABLE as failure:  # a RuntimeError: encrypted, or by an unknown method
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
    try:
        pins.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(pins, json.dumps(content, indent=1) + "\n", mode=0o600)
    except OSError as failure:
        hint = f"export {FILE_VARIABLE}=FILE in a folder of yours: the pins are written beside it"
        message = f"{pins} cannot be written: {failure.strerror}; the pins are as before"
        raise MachineError(Finding("error", "REL007", message, hint=hint)) from failure


_LARGEST_CONFIG = 32 << 20
PACKAGES, _HUB = "packages", "hub"
_ENV = """\
# . env.sh: wheels and configs come from beside this file, and no network is asked.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export HF_HUB_CACHE="$here/hub" HF_HUB_OFFLINE=1 PIP_NO_INDEX=1 PIP_FIND_LINKS="$here/packages"
"""


def bundle(
    folder: Path,
    found: Sequence[Record],
    files: Sequence[Path] = (),
    models: Sequence[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> int:
    """Fills ``folder`` and returns its bytes. ``files`` are wheels of builds that no registry has; ``models`` are hub
    names whose config is in the local cache. Wheels with compiled code are for this system and this Python. All is
    data: the other machine compares it with its records or its user's pins before it runs anything. Raises
    MachineError: REL002 for an unavailable wheel, REL009 for a folder that is not empty, or a model without a config
    here."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MachineError.of("REL009", f"{folder} is there and not empty", hint="release bundle ANOTHER_FOLDER")
    sources: dict[str, Path] = {}
    for name in models:
        cached = cached_folder(name) if "/" in name else None
        if cached is None or not (Path(cached) / "config.json").is_file():
            message = f"the config of {name} is not in the cache of Hugging Face here"
            raise MachineError.of("REL009", message, hint=f"hf download {name} config.json")
        sources[name] = Path(cached)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    packages = folder / PACKAGES
    packages.mkdir()
    for wheel in dict.fromkeys(wheel for record in found for wheel in record.wheels):
        given = next((file for file in files if wheels.is_one_of(file, wheel)), None)
        progress(f"{wheel.name} {wheel.version}")
        with tempfile.TemporaryDirectory(dir=folder, prefix=".bundle-") as scratch:
            file = given or download(wheel, Path(scratch))
            shutil.copyfile(file, packages / file.name)
    for name, source in sources.items():
        _copy_config(source, folder / _HUB / f"models--{name.replace('/', '--')}")
    (folder / "env.sh").write_text(_ENV, encoding="utf-8")
    return wheels.bytes_of(folder)


def _copy_config(source: Path, target: Path) -> None:
    """Copies the JSON files of a snapshot, and marks it as the newest."""
    there = target / "snapshots" / source.name
    there.mkdir(parents=True)
    for file in source.glob("*.json"):
        if file.stat().st_size <= _LARGEST_CONFIG:
            shutil.copyfile(file, there / file.name)
    (target / "refs").mkdir()
    (target / "refs" / "main").write_text(source.name, encoding="ascii")
