"""The cache of unpacked wheels: which releases can be run here, fetching one, removing one.

A wheel is unpacked only when its sha256 is that of its record, into a folder that appears whole or not at all. What is
fetched comes from the user's own package client, with the user's registry, mirror and proxy. No code of a package is
run for it: a wheel is an archive.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sglang_hydra.facts.tiny import default_cache
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.upstream.records import Record, Wheel, WheelFile, pinned_records, records

_SECONDS = 1800
_FOLDER = "wheels"
_MIB = 1 << 20
_MOST_UNPACKED = 1 << 30
_VERIFIED = ".verified"
"""In the folder of a wheel: the state of its files when they were last compared with their sha256."""
_CHUNK = 1 << 20
_LAST = "3.12"
"""For this Python wheels of SGLang are asked for: they hold the same sources for each."""

_LEFT_OUT = re.compile(
    r"sglang/(?:multimodal_gen|benchmark)/|sglang/.*\.so$|/tests/"
    r"|transformers/models/(?!auto/).*/(?:modeling|modular|convert|tokenization|image_processing|video_processing|processing"
    r"|feature_extraction)_[^/]*$"
)
"""What no argument code reads: image generation, compiled servers, transformers beside its config classes."""


def folders() -> tuple[Path, ...]:
    """Where unpacked wheels may lie, the first one first: the user's cache, and a private folder beside the temporary
    files where that cannot be written."""
    private = Path(tempfile.gettempdir(), f"sglang_hydra-{os.getuid()}")
    return default_cache() / _FOLDER, private / _FOLDER


def place_of(wheel: Wheel) -> Path | None:
    """The folder of an unpacked wheel, None where it is not here."""
    for folder in folders():
        place = folder / wheel.folder
        if place.is_dir() and _is_ours(folder):
            return place
    return None


def missing(record: Record) -> tuple[Wheel, ...]:
    """The wheels that would have to be fetched to run a release."""
    return tuple(wheel for wheel in record.wheels if place_of(wheel) is None)


def installed_releases() -> tuple[str, ...]:
    """The releases that can be run without fetching anything, oldest first."""
    return tuple(version for version, record in records().items() if not missing(record))


def download_size(record: Record) -> int:
    """Bytes that ``fetch`` would download."""
    return sum(wheel.size for wheel in missing(record))


def size_on_disk(record: Record) -> int:
    """Bytes of its unpacked wheels, libraries that other releases use too among them."""
    places = [place for wheel in record.wheels if (place := place_of(wheel)) is not None]
    return sum(map(bytes_of, places))


def fetch(record: Record, progress: Callable[[str], None] = lambda line: None) -> tuple[Path, ...]:
    """Downloads and unpacks what is missing of a release; ``progress`` is given one line for each wheel.

    Answers with the folders of its wheels, in the order of ``record.wheels``. Raises MachineError (REL002, REL003).
    """
    wanted = missing(record)
    if wanted:
        target = _writable_folder()
        for wheel in wanted:
            progress(f"fetching {wheel.name} {wheel.version}, {wheel.size / _MIB:.1f} MiB, into {target}")
            with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as scratch:
                _unpack(download(wheel, Path(scratch)), wheel, target)
    return tuple(place for wheel in record.wheels if (place := place_of(wheel)) is not None)


def verify(place: Path) -> None:
    """Compares the files of an unpacked wheel with the sha256 that it states for each, once and whenever one was
    touched. Raises MachineError (REL003) where one was changed or added."""
    files = dict(sorted(_states(str(place), "")))
    state = hashlib.sha256(repr(files).encode()).hexdigest()
    seal = place / _VERIFIED
    if seal.is_file() and seal.read_text(encoding="ascii", errors="replace") == state:
        return
    known = {"": ""}
    for stated in place.glob("*.dist-info/RECORD"):
        rows = csv.reader(stated.read_text(encoding="utf-8").splitlines())
        known |= {row[0]: row[1] for row in rows if len(row) > 1} | {stated.relative_to(place).as_posix(): ""}
    wrong = next((name for name in files if not _is_stated(place / name, known.get(name))), None)
    if wrong is not None:
        message = f"{place / wrong} is not what its wheel had: it was changed or added"
        raise MachineError(Finding("error", "REL003", message, hint=f"rm -r {place}, and fetch the release again"))
    with contextlib.suppress(OSError):
        seal.write_text(state, encoding="ascii")


def _states(folder: str, below: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The size and time of each file of a wheel, without byte code."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _states(entry.path, f"{below}{entry.name}/")
            elif entry.name != _VERIFIED:
                at = entry.stat(follow_symlinks=False)
                yield below + entry.name, (at.st_size, at.st_mtime_ns)


def _is_stated(file: Path, stated: str | None) -> bool:
    if not stated:
        return stated == ""
    return base64.urlsafe_b64encode(bytes.fromhex(_sha256(file))).decode().rstrip("=") == stated.removeprefix("sha256=")


def take(file: Path, wheel: Wheel) -> None:
    """Unpacks a wheel that is already here. Raises MachineError (REL003) where it is not the recorded one."""
    _unpack(file, wheel, _writable_folder())


def remove(record: Record) -> int:
    """Removes a release, and the libraries that no other release here needs; answers with the bytes that were freed."""
    others = [records()[version] for version in installed_releases() if version != record.version]
    used = {wheel.folder for other in others for wheel in other.wheels}
    places = [place_of(wheel) for wheel in record.wheels if wheel.folder not in used]
    return remove_folders([place for place in places if place is not None])


def stale_folders() -> list[Path]:
    """Unpacked wheels that no release uses: another version of this package unpacked them, or their pin is gone."""
    known = (*records().values(), *pinned_records().values())
    used = tuple({f"{wheel.name}-{wheel.version}-{wheel.digest[:12]}" for each in known for wheel in each.wheels})
    places = (place for folder in folders() if _is_ours(folder) for place in folder.iterdir() if place.is_dir())
    return sorted(place for place in places if not place.name.startswith((".", *used)))


def bytes_of(place: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def remove_folders(places: Sequence[Path]) -> int:
    """Removes unpacked wheels; answers with the bytes that were freed."""
    freed = 0
    for place in places:
        freed += bytes_of(place)
        gone = place.with_name(f".removed-{place.name}-{os.getpid()}")
        place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    return freed


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can have put files there."""
    try:
        state = folder.stat()
    except OSError:
        return False
    return state.st_uid in (os.getuid(), 0) and not state.st_mode & 0o002


def _writable_folder() -> Path:
    for folder in folders():
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError:
            continue
        if _is_ours(folder):
            return folder
    tried = " and ".join(str(folder) for folder in folders())
    raise MachineError(
        Finding("error", "REL002", f"no folder for wheels can be written: {tried}", hint="SGLANG_HYDRA_CACHE=/a/folder")
    )


def download(wheel: Wheel, scratch: Path, wanted: Sequence[str] = ()) -> Path:
    """One file of ``wheel`` into the empty folder ``scratch``, by the package client of this interpreter; any file of a
    wheel that has none yet, with the ``wanted`` tags. Raises MachineError (REL002)."""
    lines = f"{wheel.name}=={wheel.version} " + " ".join(f"--hash=sha256:{file.sha256}" for file in wheel.files)
    (scratch / "requirements.txt").write_text(lines + "\n", encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input"),
        *("--disable-pip-version-check", "-r", "requirements.txt", "-d", "."),
        *(("--require-hashes",) if wheel.files else ()),
        *(tags(wheel.files[0]) if len(wheel.files) == 1 else wanted),
    ]
    try:
        done = subprocess.run(
            command, cwd=scratch, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise _not_fetched(wheel, str(failure)) from failure
    found = next(scratch.glob("*.whl"), None)
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise _other_file(wheel)
    if done.returncode or found is None:
        raise _not_fetched(wheel, _why_of(done.stderr))
    return found


def tags(file: WheelFile) -> Sequence[str]:
    """What to ask the package client for, so that any system and Python gets this file."""
    python, abi, platforms = file.name.removesuffix(".whl").split("-")[-3:]
    if platforms == "any":
        return ("--python-version", _LAST)
    asked = [word for platform in platforms.split(".") for word in ("--platform", platform)]
    number = f"{python[2]}.{python[3:]}"
    return ("--python-version", number, "--implementation", "cp", "--abi", abi, *asked)


def is_one_of(file: Path, wheel: Wheel) -> bool:
    """Whether a file is one of the recorded files of a wheel."""
    return _sha256(file) in {known.sha256 for known in wheel.files}


def _not_fetched(wheel: Wheel, why: str) -> MachineError:
    message = f"{wheel.name} {wheel.version} was not fetched: {why}"
    hint = "the package client is pip of this interpreter, with your PIP_INDEX_URL, mirrors and proxies"
    return MachineError(Finding("error", "REL002", message, hint=hint))


def _other_file(wheel: Wheel) -> MachineError:
    message = f"{wheel.name} {wheel.version} is not the recorded wheel: its sha256 differs"
    return MachineError(Finding("error", "REL003", message, hint="nothing of it was unpacked or run"))


def _why_of(text: str) -> str:
    """Why the package client brought nothing. It says the same of an index that has no such file and of one that it
    cannot reach, but for its warnings."""
    if "Retrying (Retry(" in text:
        return "the package index cannot be reached"
    if "(from versions: none)" in text:
        return "the package index cannot be reached, or has no file of it"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return (lines[-1] if lines else "pip printed nothing")[:300]


def _unpack(file: Path, wheel: Wheel, target: Path) -> None:
    """Unpacks what is run of a wheel below ``target``. Raises MachineError (REL003) for any but a recorded file."""
    if _sha256(file) not in {known.sha256 for known in wheel.files}:
        raise _other_file(wheel)
    draft = Path(tempfile.mkdtemp(dir=target, prefix=".unpack-"))
    try:
        with zipfile.ZipFile(file) as archive:
            _must_be_plain(archive, wheel)
            for name in archive.namelist():
                if not _LEFT_OUT.search(name):
                    archive.extract(name, draft)
        draft.chmod(0o755)
        try:
            draft.rename(target / wheel.folder)
        except OSError:
            if not (target / wheel.folder).is_dir():  # another process was first
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _must_be_plain(archive: zipfile.ZipFile, wheel: Wheel) -> None:
    """Refuses an archive with links, with names that lead out of it, or too large: no wheel is one."""
    for member in archive.infolist():
        is_out = member.filename.startswith("/") or ".." in re.split(r"[/\\]", member.filename)
        if is_out or stat.S_ISLNK(member.external_attr >> 16):
            raise _no_wheel(wheel, f"{member.filename!r} in it leads out of it")
    if sum(member.file_size for member in archive.infolist()) > _MOST_UNPACKED:
        raise _no_wheel(wheel, "it is larger than 1 GiB")


def _no_wheel(wheel: Wheel, why: str) -> MachineError:
    message = f"{wheel.name} {wheel.version} is not unpacked: {why}"
    return MachineError(Finding("error", "REL003", message, hint="nothing of it was unpacked or run"))


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
