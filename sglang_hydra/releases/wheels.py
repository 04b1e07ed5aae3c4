"""Manages the cache of unpacked wheels: the releases that can run here, fetching one, removing one.

Only the needed files of a wheel are fetched if its index gives parts of files, else the whole file, whose sha256 must
then be the recorded one. Every unpacked file must have the hash in the wheel's list, and the list the recorded sha256.
A folder appears whole or not at all. No package code runs for it: a wheel is an archive."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from sglang_hydra.facts.tiny import default_cache
from sglang_hydra.releases.child.questions import Unanswered
from sglang_hydra.releases.child.sealed import LEFT_OUT, Changed, Sealed, hash_of, stated_hashes
from sglang_hydra.releases.fetching import Progress, download, fetch_parts, not_fetched, other_file
from sglang_hydra.releases.parts import is_wanted
from sglang_hydra.releases.process import changed_file, codes_of
from sglang_hydra.releases.records import Record, Wheel, pinned_records, records
from sglang_hydra.text.budget import READERS, OverBudget, check_items, uncounted
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.private import make_private, require_private
from sglang_hydra.text.progress import growing
from sglang_hydra.text.words import plural

_FOLDER = "wheels"
_MIB = 1 << 20
_MOST_UNPACKED, _LARGEST_FILE = 1 << 30, 64 << 20
_LAST_RECORD = 22 + (1 << 16)
"""Bytes of the record at the end of a zip archive, with the longest comment."""
_CHUNK = 1 << 20
_READ = Path(__file__).with_name("read_files.txt")
"""The files that the argument code of some release opens, by their names in the wheels, written by
tools/record_release.py. A missing one is fetched when the code asks for it."""


def folders() -> tuple[Path, ...]:
    """Returns the possible folders of unpacked wheels, the first one first: the user's cache, and, if that cannot be
    written, a private folder beside the temporary files."""
    private = Path(tempfile.gettempdir(), f"sglang_hydra-{os.getuid()}")
    return default_cache() / _FOLDER, private / _FOLDER


def place_of(wheel: Wheel) -> Path | None:
    """Returns the folder of an unpacked wheel, or None. Raises MachineError (REL015) for one that others can change."""
    for folder in folders():
        place = folder / wheel.folder
        if place.is_dir():
            require_private(place)
            return place
    return None


def missing(record: Record) -> tuple[Wheel, ...]:
    """Returns the wheels that are missing to run a release."""
    return tuple(wheel for wheel in record.wheels if place_of(wheel) is None)


def installed_releases() -> tuple[str, ...]:
    """Returns the releases that run without fetching, oldest first."""
    return tuple(version for version, record in records().items() if not missing(record))


def download_size(record: Record) -> int:
    """Returns the bytes that ``fetch`` downloads from an index that gives parts of files."""
    return sum(wheel.part for wheel in missing(record))


def size_on_disk(record: Record) -> int:
    """Returns the bytes of its unpacked wheels, including libraries shared with other releases."""
    places = [place for wheel in record.wheels if (place := place_of(wheel)) is not None]
    return sum(map(bytes_of, places))


@uncounted()
def fetch(record: Record, progress: Progress = lambda line: None, *, wait_s: float | None = None) -> tuple[Path, ...]:
    """Downloads and unpacks the missing wheels of a release; ``progress`` gets a line for each. ``wait_s`` as for
    ``fetch_parts``. Returns the folders of its wheels, in the order of ``record.wheels``. Raises MachineError: REL002
    for an unavailable or unwritable file, REL003 for another file than the recorded one, REL015."""
    wanted = missing(record)
    if wanted:
        target = _writable_folder()
        title = f"what is run of SGLang {record.version} and its libraries"

        def begun(found: Sequence[Wheel]) -> None:
            size = sum(wheel.part for wheel in found) / _MIB
            progress(f"fetching {title}, once: {size:.1f} MiB, into {target}")

        size = sum(wheel.part for wheel in wanted)
        with _scratch(target) as scratch, _written(wanted[0]), growing(scratch, size, f"SGLang {record.version}"):
            found = fetch_parts(wanted, read_files(), scratch, begun, wait_s)
            for wheel in wanted:
                if wheel not in found:
                    progress(f"fetching {wheel.name} {wheel.version} whole, {wheel.size / _MIB:.1f} MiB, into {target}")
                file = found.get(wheel) or _whole(wheel, scratch)
                _unpack(file, wheel, target, scratch, is_whole=wheel not in found or is_one_of(file, wheel))
    return tuple(place for wheel in record.wheels if (place := place_of(wheel)) is not None)


@uncounted()
def complete(record: Record, names: Mapping[Path, Collection[str]], progress: Progress = lambda line: None) -> None:
    """Fetches further files of unpacked wheels, by their names in the wheels. Raises MachineError like ``fetch``."""
    for wheel in record.wheels:
        place = place_of(wheel)
        wanted = frozenset(names.get(place.resolve(), ()) if place is not None else ())
        if place is None or not wanted:
            continue
        with _scratch(place.parent) as scratch, _written(wheel):
            progress(f"fetching {plural(len(wanted), 'more file')} of {wheel.name} {wheel.version}, into {place}")
            found = fetch_parts([wheel], wanted, scratch, lambda _: None)
            for name, content in _members(found.get(wheel) or _whole(wheel, scratch), wheel, wanted.__contains__):
                if content is not None:
                    _put(scratch / "file", content)
                    (place / name).parent.mkdir(parents=True, exist_ok=True)
                    (scratch / "file").replace(place / name)


def _whole(wheel: Wheel, scratch: Path) -> Path:
    return download(wheel, Path(tempfile.mkdtemp(dir=scratch)))


@functools.cache
def read_files() -> frozenset[str]:
    """Returns the files that are fetched of each wheel that has them."""
    return frozenset(_READ.read_text(encoding="utf-8").split("\n"))


def source_names(wheel: Wheel) -> list[str]:
    """Returns the files of an unpacked wheel, by its list; none for a missing wheel."""
    sealed = _sealed(wheel)
    return [] if sealed is None else [path.removeprefix(sealed.folders[0]) for path in sealed.stated]


def source_text(wheel: Wheel, name: str) -> str | None:
    """Returns the text of a file of an unpacked wheel; None if the wheel or the file is not here. Raises MachineError
    (REL003) if it differs from the wheel."""
    sealed = _sealed(wheel)
    if sealed is None or (path := sealed.folders[0] + name) not in sealed.stated:
        return None
    try:
        return sealed.read(path).decode("utf-8")
    except Changed as failure:
        raise changed_file(failure.path) from None
    except Unanswered:
        return None


def _sealed(wheel: Wheel) -> Sealed | None:
    place = place_of(wheel)
    return None if place is None else _sealed_at(str(place), wheel.lists)


@functools.lru_cache(maxsize=4)
def _sealed_at(place: str, lists: tuple[str, ...]) -> Sealed:
    try:
        return Sealed({place: lists})
    except Changed as failure:
        raise changed_file(failure.path) from None


def take(file: Path, wheel: Wheel) -> None:
    """Unpacks a wheel that is already here. Raises MachineError (REL003) if it is not the recorded one."""
    target = _writable_folder()
    with _scratch(target) as scratch, _written(wheel):
        _unpack(file, wheel, target, scratch)


def remove(record: Record) -> int:
    """Removes a release, and the libraries that no other release here needs; returns the freed bytes."""
    others = [records()[version] for version in installed_releases() if version != record.version]
    used = {wheel.folder for other in others for wheel in other.wheels}
    places = [place_of(wheel) for wheel in record.wheels if wheel.folder not in used]
    with contextlib.suppress(OSError):
        codes_of(record).unlink()
    return remove_folders([place for place in places if place is not None])


def stale_folders() -> list[Path]:
    """Returns unpacked wheels that no release uses: another version of this package unpacked them, or their pin was
    removed. Also removes the remains of an interrupted fetch."""
    known = (*records().values(), *pinned_records().values())
    used = tuple({f"{wheel.name}-{wheel.version}-{wheel.digest[:12]}" for each in known for wheel in each.wheels})
    found = []
    for folder in filter(Path.is_dir, folders()):
        require_private(folder)
        _sweep(folder)
        found += [place for place in folder.iterdir() if place.is_dir() and not place.name.startswith((".", *used))]
    return sorted(found)


def bytes_of(place: Path) -> int:
    """Returns the bytes of the files below a folder."""
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def remove_folders(places: Sequence[Path]) -> int:
    """Removes unpacked wheels; returns the freed bytes."""
    freed = 0
    for place in places:
        freed += bytes_of(place)
        with _scratch(place.parent) as scratch:
            place.rename(scratch / place.name)
    return freed


@contextlib.contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """Yields a folder below ``target`` that is locked while this process uses it, and removed at the end. First removes
    the folder of a killed process, whose lock nobody holds."""
    import fcntl  # a browser has none

    _sweep(target)
    while True:
        folder = Path(tempfile.mkdtemp(dir=target, prefix=".fetch-"))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():  # it was not deleted before it was locked
            break
        os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _sweep(target: Path) -> None:
    import fcntl

    for folder in target.glob(".*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


@contextlib.contextmanager
def _written(wheel: Wheel) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise not_fetched(wheel, failure.strerror or str(failure)) from failure


def _writable_folder() -> Path:
    for folder in folders():
        try:
            make_private(folder)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    tried = " and ".join(str(folder) for folder in folders())
    message = f"no folder for wheels can be written: {tried}"
    raise MachineError.of("REL002", message, hint="SGLANG_HYDRA_CACHE=/a/folder")


def is_one_of(file: Path, wheel: Wheel) -> bool:
    """Returns whether a file is one of the recorded files of a wheel."""
    return sha256_of(file) in {known.sha256 for known in wheel.files}


def _unpack(file: Path, wheel: Wheel, target: Path, scratch: Path, *, is_whole: bool = True) -> None:
    """Unpacks the needed files of a wheel below ``target``; of a wheel that is there in parts, these parts. Raises
    MachineError (REL003) for any but a recorded file."""
    if is_whole and not is_one_of(file, wheel):
        raise other_file(wheel)
    draft = Path(tempfile.mkdtemp(dir=scratch))
    for name, content in _members(file, wheel, lambda name: is_whole or is_wanted(name, read_files())):
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            _put(draft / name, content)
    try:
        draft.rename(target / wheel.folder)
    except OSError:
        if not (target / wheel.folder).is_dir():  # another process was first
            raise


def _members(file: Path, wheel: Wheel, is_taken: Callable[[str], bool]) -> Iterator[tuple[str, bytes | None]]:
    """Yields the files of a wheel, with the content of the unpacked ones: each is compared with the wheel's list, and
    the list with the record."""
    try:
        with open(file, "rb") as opened, archive_of(opened) as archive:
            _must_be_plain(archive, wheel)
            names = [each for each in archive.namelist() if not each.endswith("/")]
            lists = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
            listed = next((archive.read(name) for name in lists), b"")
            if hashlib.sha256(listed).hexdigest() not in wheel.lists:
                raise _no_wheel(wheel, "the list of its files is not the recorded one")
            stated = {**stated_hashes(listed), **dict.fromkeys(lists, hash_of(listed))}
            for name in (name for name in names if name in stated and not LEFT_OUT.search(name)):
                if not is_taken(name):
                    yield name, None
                    continue
                if archive.getinfo(name).file_size > _LARGEST_FILE:
                    raise _no_wheel(wheel, f"{name!r} in it is larger than {_LARGEST_FILE >> 20} MiB")
                content = archive.read(name)
                if stated[name] != hash_of(content):
                    raise _no_wheel(wheel, f"{name!r} in it is not what its list states")
                yield name, content
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError) as failure:
        raise _no_wheel(wheel, str(failure)) from failure


def archive_of(opened: BinaryIO) -> zipfile.ZipFile:
    """Opens a wheel. Raises OverBudget for one with too many files, before their list is read."""
    opened.seek(0, os.SEEK_END)
    opened.seek(max(0, opened.tell() - _LAST_RECORD))
    end = opened.read()
    at = end.rfind(b"PK\5\6")
    size = int.from_bytes(end[at + 12 : at + 16], "little") if at >= 0 else 0  # of the list of files
    if size > READERS["wheel"].size:
        raise OverBudget(f"the list of its files is larger than {READERS['wheel'].size >> 20} MiB")
    archive = zipfile.ZipFile(opened)
    check_items(len(archive.infolist()), "wheel", "files")
    return archive


def _put(file: Path, content: bytes) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(content)


def _must_be_plain(archive: zipfile.ZipFile, wheel: Wheel) -> None:
    """Refuses an archive with links, with names that lead elsewhere, or with more than 1 GiB: no wheel has these."""
    for member in archive.infolist():
        is_out = member.filename.startswith("/") or ".." in re.split(r"[/\\]", member.filename)
        if is_out or stat.S_ISLNK(member.external_attr >> 16):
            raise _no_wheel(wheel, f"{member.filename!r} leads out of the wheel")
    if sum(member.file_size for member in archive.infolist()) > _MOST_UNPACKED:
        raise _no_wheel(wheel, "it is larger than 1 GiB")


def _no_wheel(wheel: Wheel, why: str) -> MachineError:
    message = f"{wheel.name} {wheel.version} is not unpacked: {why}"
    return MachineError(Finding("error", "REL003", message, hint="nothing was unpacked or run"))


def sha256_of(file: Path) -> str:
    """Returns the sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
