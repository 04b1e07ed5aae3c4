"""Provides the files that the release can see: its own, those of the models, and declared ones."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .questions import Asked, refuse
from .sealed import Sealed

_SENT = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.chmod")
_LISTED = ("os.listdir", "os.scandir")
_FORBIDDEN = (
    *("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"),
    *("socket.gethostname", "socket.gethostbyaddr", "subprocess.Popen", "os.system", "os.exec", "os.fork"),
    *("os.posix_spawn", "os.startfile", "pty.spawn", "ctypes.dlopen", "webbrowser.open"),
)
_DEVICES = {"/sys/class/infiniband": "infiniband", "/dev/nvidia-caps-imex-channels": "imex"}
"""Folders of devices, with the fact that has the names in them: empty if undeclared."""
_HOST = {"/sys/devices/system/node": None, "/sys/fs/cgroup": None}
"""On a CPU: the memory is the host's, in equal parts, and no container has less."""
_NOWHERE = ("/dev/null", "/dev/urandom")


class Files:
    """The visible files. A file outside of ``roots`` and of the case's ``scratch`` folder is an unanswered question,
    unless the case declares it: a text, a list of names for a folder, None for an absent file. Files of ``sealed``
    wheels are compared with their wheel when they are opened."""

    def __init__(self, roots: Sequence[str], scratch: str, sealed: Sealed | None = None) -> None:
        self.scratch, self.sealed, self._lstat = os.path.realpath(scratch), sealed, os.lstat
        self.roots = tuple(f"{os.path.realpath(root)}/" for root in (*roots, self.scratch))
        self.declared: Mapping[str, Any] = {}
        self.is_sealed = False

    def begin(self, number: int, case: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, str]:
        """Writes the files of one case into an empty working directory. Returns the folder of each model."""
        self.is_sealed = False
        self.home = os.path.join(self.scratch, f"{number:08}")
        os.makedirs(os.path.join(self.home, "work"))
        os.chdir(os.path.join(self.home, "work"))
        host = _HOST if machine["device"] == "cpu" else {}
        devices = {folder: machine.get(fact) for folder, fact in _DEVICES.items()}
        self.declared = {**devices, **host, **case.get("files", {})}
        stated = {*case.get("files", {}), *(folder for folder, fact in _DEVICES.items() if fact in machine)}
        self.assumed = {folder: fact for folder, fact in _DEVICES.items() if folder not in stated}
        for path, content in self.declared.items():
            _write(self._place(path), content)
        folders = {name: _write_model(self.home, name, files) for name, files in case["models"].items()}
        self.is_sealed = True
        return folders

    def end(self) -> None:
        import shutil

        self.is_sealed = False
        os.chdir(self.scratch)
        shutil.rmtree(self.home, ignore_errors=True)

    def place_of(self, path: Any) -> Any:
        """Returns the real place of a path that the release names. Raises Unanswered for an undeclared path."""
        if not self.is_sealed or not isinstance(path, (str, bytes, os.PathLike)):
            return path
        place = self._known_place(path)
        if place is None:
            raise refuse(f"the file {os.path.abspath(os.fsdecode(path))}")
        return place

    def _known_place(self, path: Any) -> Any:
        text = os.path.abspath(os.fsdecode(path))
        if self.sealed is not None and text in self.sealed.stated and not self._is_there(text):
            raise self.sealed.missing(text)
        if self.sealed is not None and self.sealed.is_inside(text) and not self.sealed.has(text):
            return self._place(text)  # an added file counts as absent
        is_above = any(f"{root}/".startswith(f"{text.rstrip('/')}/") for root in self.roots)
        if f"{text}/".startswith(self.roots) or text in _NOWHERE or is_above:
            return path
        if _is_byte_code(text):
            return self._place(text)  # an environment's byte code counts as absent
        for known in self.declared:
            if text == known or text.startswith(f"{known}/"):
                if known in self.assumed:
                    Asked.assumed[self.assumed[known]] = None
                return self._place(text)
        return None

    def _is_there(self, path: str) -> bool:
        try:
            return bool(self._lstat(path))
        except OSError:
            return False

    def _place(self, path: str) -> str:
        return os.path.join(self.home, "declared", path.lstrip("/"))

    def install(self) -> None:
        """Watches every access to a file, and refuses sockets and processes, for the life of the process."""
        make = os.makedirs

        def makedirs(path: Any, *values: Any, **options: Any) -> None:
            if self.is_sealed and self._known_place(path) is None:  # the server can make this folder
                Asked.assumed["made_folders"] = [*Asked.assumed.get("made_folders", []), os.fsdecode(path)]
            else:
                make(path, *values, **options)

        os.makedirs = makedirs  # type: ignore[assignment]
        for name in ("stat", "lstat", "listdir", "scandir", "access", "readlink"):
            setattr(os, name, self._placing(getattr(os, name)))
        import builtins
        import io

        opened = self._placing(io.open)
        io.open = builtins.open = opened
        sys.addaudithook(self._heard)

    def _placing(self, real: Any) -> Any:
        def placed(path: Any = ".", *values: Any, **options: Any) -> Any:
            return real(self.place_of(path), *values, **options)

        return placed

    def _heard(self, event: str, values: tuple[Any, ...]) -> None:
        if event == "open" and self.sealed is not None and isinstance(values[0], (str, bytes)):
            self.sealed.check(os.path.abspath(os.fsdecode(values[0])))
        if event in _LISTED and self.sealed is not None and isinstance(values[0], (str, bytes, os.PathLike)):
            self.sealed.check_folder(os.path.abspath(os.fsdecode(values[0])))
        if not self.is_sealed:
            return
        if event in _FORBIDDEN:
            raise refuse(f"{event} of {values[1] if event == 'socket.connect' else values[:1]!r}")
        if event in _SENT and values and self.place_of(values[0]) is not values[0]:
            if _is_byte_code(os.fsdecode(values[0])):
                raise FileNotFoundError(values[0])  # the source is compiled instead
            raise refuse(f"the file {values[0]}")


def _is_byte_code(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)) == "__pycache__"


def _write(place: str, content: Any) -> None:
    if content is None:
        return
    if isinstance(content, list):
        for name in ("", *content):
            os.makedirs(os.path.join(place, name), exist_ok=True)
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    Path(place).write_text(content, encoding="utf-8")


def _write_model(home: str, name: str, files: Mapping[str, Any]) -> str:
    """Writes a model's folder, with the model's name in its path, because a release may look at names. ``files`` is the
    content of config.json, or under ``files`` that of several files."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..", "~")]
    folder = os.path.join(home, "models", *parts)
    os.makedirs(folder)
    several = files["files"] if set(files) == {"files"} else {"config.json": files}
    for file, content in several.items():
        text = content if isinstance(content, str) else json.dumps(content)
        _write(os.path.join(folder, file), text)
    return folder
