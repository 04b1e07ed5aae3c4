"""Reads the files of unpacked wheels, each compared with the hash in its wheel's list before use, and their byte code.

The permitted hash of a list comes from outside of the cache. The parent reads wheels with this module too."""

from __future__ import annotations

import base64
import csv
import errno
import functools
import hashlib
import hmac
import importlib.util
import marshal
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, SourceFileLoader
from types import CodeType
from typing import Any

from .questions import Asked, Unanswered, refuse

LEFT_OUT = re.compile(
    r"sglang/(?:multimodal_gen|benchmark)/|sglang/.*\.so$|/tests/"
    r"|transformers/models/(?!auto/).*/(?:modeling|modular|convert|tokenization|image_processing|video_processing|processing"
    r"|feature_extraction)_[^/]*$"
)
"""Parts that no argument code reads: image generation, compiled servers, transformers except its config classes."""

_MARK = 32
"""Bytes of an HMAC-SHA256."""
_MOST = 1 << 26
"""64 MiB: more than the largest read file of a wheel, and than the byte code of a release."""


class Changed(Unanswered):
    """A file differs from its wheel; ``path`` names it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not what its wheel had: it was changed or added")
        self.path = path
        Asked.changed = Asked.changed or path


class Sealed:
    """Reads wheels. ``folders`` has for each unpacked wheel the permitted sha256 of its list of files, RECORD. Raises
    Changed if no list in a folder has it."""

    def __init__(self, folders: Mapping[str, Collection[str]]) -> None:
        self.folders = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
        self.stated: dict[str, str] = {}
        self.codes: dict[str, bytes] = {}
        self.made: dict[str, bytes] = {}
        self.is_reading = False
        for folder, known in zip(self.folders, folders.values(), strict=True):
            self._take_list(folder, known)

    def _take_list(self, folder: str, known: Collection[str]) -> None:
        for entry in sorted(os.listdir(folder)):
            path = f"{folder}{entry}/RECORD"
            if not entry.endswith(".dist-info") or not os.path.isfile(path):
                continue
            try:
                content = _content(path)
            except OSError:
                continue
            if hashlib.sha256(content).hexdigest() in known:
                hashes = stated_hashes(content)
                self.stated |= {folder + name: known for name, known in hashes.items() if not LEFT_OUT.search(name)}
                self.stated[path] = hash_of(content)
                return
        raise Changed(f"{folder}RECORD")

    @functools.cached_property
    def _folders(self) -> dict[str, list[str]]:
        """Returns the names of the files in each folder of the wheels."""
        found: dict[str, list[str]] = {}
        for path in self.stated:
            above, _, name = path.rpartition("/")
            found.setdefault(above, []).append(name)
            while (above := above.rpartition("/")[0]) and above not in found:
                found[above] = []
        return found

    def read(self, path: str) -> bytes:
        """Returns the bytes of a file. Raises Changed if they differ from the wheel, Unanswered if the wheel has the
        file and it was not fetched."""
        try:
            self.is_reading = True
            content = _content(path)
        except FileNotFoundError:
            raise (self.missing(path) if path in self.stated else Changed(path)) from None
        except OSError:  # a link to a forbidden place
            raise Changed(path) from None
        finally:
            self.is_reading = False
        if self.stated.get(path) != hash_of(content):
            raise Changed(path)
        return content

    def missing(self, *paths: str) -> Unanswered:
        """Returns the refusal of files that were not fetched, and keeps it for the process that can fetch them."""
        folder = next(folder for folder in self.folders if paths[0].startswith(folder))
        Asked.missing += [(folder, path.removeprefix(folder)) for path in paths]
        return refuse(f"the file {paths[0].removeprefix(folder)}, which was not fetched")

    def check_folder(self, path: str) -> None:
        """Checks a folder before it is listed. Raises Unanswered if it lacks some of its files, Changed if it has
        others."""
        if self.is_reading or not self.is_inside(path):
            return
        self.is_reading = True
        try:
            here = set(os.listdir(path))
        finally:
            self.is_reading = False
        absent = [f"{path}/{name}" for name in self._folders.get(path, ()) if name not in here]
        if absent:
            raise self.missing(*absent)
        # Byte code that is not ours is not read, and names with a dot are no modules.
        added = (f"{path}/{name}" for name in here if name[0] != "." and name != "__pycache__")
        if other := next((place for place in added if not self.has(place)), None):
            raise Changed(other)

    def is_inside(self, path: str) -> bool:
        """Returns whether a place is a folder of the wheels, or below one."""
        return f"{path}/".startswith(self.folders)

    def has(self, path: str) -> bool:
        """Returns whether the wheels have a file or folder at a place."""
        return path in self.stated or path in self._folders

    def check(self, path: str) -> None:
        """Compares a file before it is opened. A missing file cannot be opened."""
        if not self.is_reading and path.startswith(self.folders) and not os.path.isdir(path):
            if path in self.stated:
                self.read(path)
            elif os.path.exists(path):
                raise Changed(path)

    def find(self, name: str) -> ModuleSpec | None:
        """Returns the module ``name``, or the folder of that name with modules, as the wheels list it."""
        for folder in self.folders:
            base = folder + name.replace(".", "/")
            for suffix in ("/__init__.py", ".py", *EXTENSION_SUFFIXES):
                path = base + suffix
                if path in self.stated:
                    loader = _Extension(name, path) if suffix in EXTENSION_SUFFIXES else _Source(name, path)
                    loader.sealed = self
                    inside = [base] if suffix == "/__init__.py" else None
                    return importlib.util.spec_from_file_location(
                        name, path, loader=loader, submodule_search_locations=inside
                    )
            if base in self._folders:
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [base]
                return spec
        return None

    def code(self, path: str) -> CodeType:
        """Returns the byte code of a source, kept or new."""
        key = f"{self.stated[path]} {path}"
        if key in self.codes:
            kept: CodeType = marshal.loads(self.codes[key])
            return kept
        made = compile(self.read(path), path, "exec", dont_inherit=True, optimize=0)
        self.made[key] = marshal.dumps(made)
        return made

    def kept(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns ``function``, which reads only files of wheels, with its answers kept like byte code."""

        def answer(*values: Any, **options: Any) -> Any:
            key = f"{function.__name__} {[*map(str, values)]} {options}"
            if key not in self.codes:
                self.codes[key] = self.made[key] = marshal.dumps(function(*values, **options))
            return marshal.loads(self.codes[key])

        return answer

    def take_codes(self, path: str, key: bytes) -> None:
        """Reads kept byte code if its mark is made with ``key``."""
        try:
            kept = _content(path)
        except OSError:
            return
        mark, content = kept[:_MARK], kept[_MARK:]
        if hmac.compare_digest(mark, hmac.digest(key, content, hashlib.sha256)):
            self.codes = marshal.loads(content)

    def keep_codes(self, path: str, key: bytes) -> None:
        """Writes all byte code with its mark, if some is new."""
        if self.made:
            content = marshal.dumps({**self.codes, **self.made})
            with open(path, "wb") as file:
                file.write(hmac.digest(key, content, hashlib.sha256) + content)


class _Source(SourceFileLoader):
    sealed: Sealed

    def get_code(self, fullname: str) -> CodeType:
        return self.sealed.code(str(self.path))

    def get_data(self, path: object) -> bytes:
        return self.sealed.read(str(path))


class _Extension(ExtensionFileLoader):
    sealed: Sealed

    def create_module(self, spec: ModuleSpec) -> Any:
        self.sealed.read(str(self.path))
        return super().create_module(spec)


def _content(path: str) -> bytes:
    """Returns the bytes of a regular file; does not wait for a pipe. Raises OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST:
            raise OSError(errno.EINVAL, "it is no file of a wheel", path)
        return file.read()


def stated_hashes(content: bytes) -> dict[str, str]:
    """Returns the hash of each file in a wheel's list."""
    rows = csv.reader(content.decode("utf-8").splitlines())
    return {row[0]: row[1] for row in rows if len(row) > 1 and row[1]}


def hash_of(content: bytes) -> str:
    """Returns the hash of a file in the form of a wheel's list."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
