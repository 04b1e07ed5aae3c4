"""The files of unpacked wheels, each compared with the hash that its wheel states before it is used, and byte code made
of them. What the list of a wheel must be, by its hash, comes from outside of the cache.

The parent reads wheels with it too.
"""

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
"""What no argument code reads: image generation, compiled servers, transformers beside its config classes."""

_MARK = 32
"""Bytes of an HMAC-SHA256."""
_MOST = 1 << 26
"""More than the largest file of a wheel that is read, and than the byte code of a release: 64 MiB."""


class Changed(Unanswered):
    """A file is not what its wheel had; ``path`` is which."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not what its wheel had: it was changed or added")
        self.path = path
        Asked.changed = Asked.changed or path


class Sealed:
    """Reads wheels. ``folders`` has for each unpacked wheel the sha256 that its list of files, RECORD, may have. Raises
    Changed where none of the lists in a folder has one."""

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
        """Returns the names of the files in each folder that the wheels have."""
        found: dict[str, list[str]] = {}
        for path in self.stated:
            above, _, name = path.rpartition("/")
            found.setdefault(above, []).append(name)
            while (above := above.rpartition("/")[0]) and above not in found:
                found[above] = []
        return found

    def read(self, path: str) -> bytes:
        """Returns the bytes of a file. Raises Changed where they are not those of the wheel, Unanswered where the wheel
        has it and it was not fetched."""
        try:
            self.is_reading = True
            content = _content(path)
        except FileNotFoundError:
            raise (self.missing(path) if path in self.stated else Changed(path)) from None
        except OSError:  # it is a link to where this process may not look
            raise Changed(path) from None
        finally:
            self.is_reading = False
        if self.stated.get(path) != hash_of(content):
            raise Changed(path)
        return content

    def missing(self, *paths: str) -> Unanswered:
        """Returns the refusal of files that a wheel has and that were not fetched, kept for who can fetch them."""
        folder = next(folder for folder in self.folders if paths[0].startswith(folder))
        Asked.missing += [(folder, path.removeprefix(folder)) for path in paths]
        return refuse(f"the file {paths[0].removeprefix(folder)}, which was not fetched")

    def check_folder(self, path: str) -> None:
        """Raises Unanswered where a folder is about to be listed that has not all its files here, Changed for one that
        has others."""
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
        """Returns whether a place is one of the wheels' folders, or below it."""
        return f"{path}/".startswith(self.folders)

    def has(self, path: str) -> bool:
        """Returns whether the wheels have a file or a folder there."""
        return path in self.stated or path in self._folders

    def check(self, path: str) -> None:
        """Compares a file that is about to be opened. What is not there opens for nobody."""
        if not self.is_reading and path.startswith(self.folders) and not os.path.isdir(path):
            if path in self.stated:
                self.read(path)
            elif os.path.exists(path):
                raise Changed(path)

    def find(self, name: str) -> ModuleSpec | None:
        """Returns the module ``name``, or the folder of that name where modules lie, as the wheels list it."""
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
        """Returns the byte code of a source, kept from before or made now."""
        key = f"{self.stated[path]} {path}"
        if key in self.codes:
            kept: CodeType = marshal.loads(self.codes[key])
            return kept
        made = compile(self.read(path), path, "exec", dont_inherit=True, optimize=0)
        self.made[key] = marshal.dumps(made)
        return made

    def kept(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns ``function``, which reads files of wheels alone, with its answers kept as byte code is."""

        def answer(*values: Any, **options: Any) -> Any:
            key = f"{function.__name__} {[*map(str, values)]} {options}"
            if key not in self.codes:
                self.codes[key] = self.made[key] = marshal.dumps(function(*values, **options))
            return marshal.loads(self.codes[key])

        return answer

    def take_codes(self, path: str, key: bytes) -> None:
        """Takes byte code that was kept, where its mark is that of ``key``."""
        try:
            kept = _content(path)
        except OSError:
            return
        mark, content = kept[:_MARK], kept[_MARK:]
        if hmac.compare_digest(mark, hmac.digest(key, content, hashlib.sha256)):
            self.codes = marshal.loads(content)

    def keep_codes(self, path: str, key: bytes) -> None:
        """Writes all byte code with its mark, where some was made."""
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
    """Returns the bytes of a plain file; nobody waits for a pipe. Raises OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST:
            raise OSError(errno.EINVAL, "it is no file of a wheel", path)
        return file.read()


def stated_hashes(content: bytes) -> dict[str, str]:
    """Returns the hash of each file that the list of a wheel states."""
    rows = csv.reader(content.decode("utf-8").splitlines())
    return {row[0]: row[1] for row in rows if len(row) > 1 and row[1]}


def hash_of(content: bytes) -> str:
    """Returns the hash of a file as a wheel states it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
