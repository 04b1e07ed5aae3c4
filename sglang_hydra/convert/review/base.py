"""Provides the base of a comparison of repo states: another folder, or a git revision in a temporary folder."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import RECORD_BYTES
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import short

_OWN_FOLDER = "sglang-hydra-base-"


@dataclass(frozen=True)
class Tree:
    """The base's ``root``, ``here`` (the counterpart of the working directory there), and ``ours``, our root."""

    name: str
    root: Path
    here: Path
    ours: Path

    def counterpart(self, path: str) -> str:
        """Returns the absolute path of the counterpart in the base; a path outside the repo stays itself."""
        full = Path(os.path.abspath(path))
        with contextlib.suppress(ValueError):
            return str(self.root / full.relative_to(self.ours))
        return str(full)

    def without_place(self, content: str) -> str:
        """Removes the base's location from the paths in a text."""
        return content.replace(f"{self.here}{os.sep}", "").replace(f"{self.root}{os.sep}", "")


@contextlib.contextmanager
def base_tree(named: str) -> Iterator[Tree]:
    """Yields the folder or git revision that ``--base`` names; a folder wins over a revision of the same name.

    A folder is another checkout that contains a counterpart of the working directory. A revision is written to a
    temporary folder, which is removed after the block; the repo itself is not touched. Raises ConfigError."""
    if os.path.isdir(named):
        folder = Path(named).resolve()
        yield Tree(named, folder, folder, Path.cwd())
        return
    revision = Revision.named_here(named)
    with tempfile.TemporaryDirectory(prefix=_OWN_FOLDER) as made:
        root = Path(made).resolve() / "tree"
        revision.write_into(root)
        yield Tree(named, root, root / revision.prefix, revision.top)


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Makes ``folder`` the working directory during the block; does nothing for a missing folder."""
    before = Path.cwd()
    if folder.is_dir():
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


_NAME_S, _OBJECTS_S, _CPU_S = 5.0, 20.0, 2
_FILES, _BYTES, _LISTED = 50_000, 1 << 29, 1 << 25
"""The most files of a revision, their bytes in all, and the most bytes of git's list of them: a few trees of some bytes
can mean billions of files."""
_CHUNK, _DEEPEST = 1 << 20, 200
# A checkout may contain another repository, whose settings name programs: git must not use that one.
_OPTIONS = ["-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
_OPTIONS += ["-c", "core.bigFileThreshold=1m"]
# No protocol has this name; before 2.44 it is git's only way to prevent fetching.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
# A crafted tree may give a file and a folder the same name, or names that no folder takes: the first one stays.
_NOT_WRITTEN = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT)


@dataclass(frozen=True)
class Revision:
    """A commit of the working directory's repo, read as the committed bytes.

    A checkout's own config names programs: filters, hooks, a monitor, the remote of a partial clone. So git reads from
    the repo only a name and a folder, and reads the objects under a config of ours, without filters and remotes.
    ``prefix`` is the working directory below ``top``, ``objects`` the repo's folder of objects, ``hash_name`` its hash
    (sha1)."""

    named: str
    commit: str
    top: Path
    prefix: str
    objects: str
    hash_name: str

    @classmethod
    def named_here(cls, named: str) -> Revision:
        """Resolves ``named`` (``HEAD~2``) to a commit. Raises ConfigError (REV002)."""
        asked = ("--show-toplevel", "--show-prefix", "--git-path", "objects", "--show-object-format")
        top, prefix, objects, hash_name = _asked_here(named, *asked).split("\n")[:4]
        commit = _asked_here(named, "--verify", "--quiet", "--end-of-options", f"{named}^{{commit}}").strip()
        return cls(named, commit, Path(top).resolve(), prefix, os.path.abspath(objects), hash_name)

    def write_into(self, root: Path) -> None:
        """Writes the files into the new folder ``root``: links last, nothing outside, no file above 256 MiB.

        Raises ConfigError (REV002), also for blobs that are missing in this clone, and for a revision over the limits.
        """
        root.mkdir()
        hint = f"git worktree add ../base {self.named}, and --base ../base"
        with _own_repo(self) as env:
            words = ["ls-tree", "-r", "-z", "-l", "--full-tree", self.commit]
            listed = _run(self.named, words, env, hint).split("\0")[:-1]
            try:
                rows = sorted(filter(None, map(_Row.of, listed)), key=lambda row: row.is_link)
            except ValueError as failure:
                raise unusable(self.named, str(failure)) from None
            if len(listed) > _FILES or sum(row.size for row in rows) > _BYTES:
                raise unusable(self.named, f"it has more than {_FILES} files or {_BYTES >> 20} MiB", hint)
            wanted = Path(env["GIT_DIR"], "wanted")
            wanted.write_text("".join(f"{row.blob}\n" for row in rows), encoding="ascii")
            with wanted.open("rb") as names, _git(self.named, ["cat-file", "--batch"], env, hint, names) as blobs:
                for row in rows:
                    if not (header := blobs.readline()):
                        break  # git has failed
                    if header != f"{row.blob} blob {row.size}\n".encode():
                        raise unusable(self.named, f"{row.name} is not in this clone", hint)
                    try:
                        _write(row, blobs, root)
                    except OSError as failure:
                        raise unusable(self.named, f"{row.name}: {failure.strerror}", hint) from None
                    blobs.read(1)


class _Row(NamedTuple):
    """One file or link of a revision: its path, the name of its blob and its bytes."""

    name: str
    blob: str
    size: int
    is_link: bool

    @classmethod
    def of(cls, listed: str) -> _Row | None:
        """Reads a row of ``git ls-tree -l``; None for a submodule or a file too large or deep. Raises ValueError for a
        path that leads out or into git's own folder."""
        about, _, name = listed.partition("\t")
        mode, _, blob, size = about.split()
        if {"", ".", "..", ".git"} & {part.lower() for part in name.split("/")}:
            raise ValueError(f"{name!r} leads elsewhere")
        if mode[:2] not in ("10", "12") or name.count("/") > _DEEPEST or (size != "BAD" and int(size) > RECORD_BYTES):
            return None
        return cls(name, blob, 0 if size == "BAD" else int(size), mode[:2] == "12")


def unusable(named: str, why: str, hint: str | None = None) -> ConfigError:
    """Returns REV002 with what to type instead."""
    message = f"--base {printable(short(named))} cannot be used: {printable(short(why, 300))}"
    usual = "--base origin/main after git fetch origin main", "--base FOLDER, a checkout of the base"
    return ConfigError(Finding("error", "REV002", message, hint=hint or usual))


def _asked_here(named: str, *asked: str) -> str:
    return _run(named, ["rev-parse", *asked], {**os.environ, **_NO_FETCH})


def _run(named: str, words: Sequence[str], env: Mapping[str, str], hint: str | None = None) -> str:
    """Returns git's output. Raises ConfigError with its last line."""
    with _git(named, words, env, hint) as said:
        content = said.read(_LISTED + 1)
        if len(content) > _LISTED:
            raise unusable(named, f"it has more than {_FILES} files", hint)
    return os.fsdecode(content)


@contextlib.contextmanager
def _git(
    named: str, words: Sequence[str], env: Mapping[str, str], hint: str | None = None, given: BinaryIO | None = None
) -> Iterator[BinaryIO]:
    """Yields git's output as it comes, for a bounded time. Raises ConfigError with its last line."""
    command, stdin = ["git", *_OPTIONS, *words], given or subprocess.DEVNULL
    with tempfile.TemporaryFile() as errors:
        try:
            git = subprocess.Popen(command, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=errors)
        except (OSError, ValueError) as failure:
            raise unusable(named, f"git cannot be run: {failure}") from failure
        with contextlib.suppress(ImportError, AttributeError, OSError):  # Linux's
            import resource

            resource.prlimit(git.pid, resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
        seconds = _NAME_S if hint is None else _OBJECTS_S
        late = threading.Timer(seconds, git.kill)
        late.start()
        try:
            assert git.stdout is not None
            with git.stdout as said:
                yield cast(BinaryIO, said)
            git.wait()
        finally:
            late.cancel()
            git.kill()
            git.wait()
        if git.returncode == -signal.SIGKILL:
            raise unusable(named, f"git takes more than {_CPU_S} s of the processor, or {seconds:g} s", hint)
        if git.returncode:
            errors.seek(0)
            lines = errors.read(_CHUNK).decode("utf-8", "replace").strip().splitlines()
            raise unusable(named, lines[-1] if lines else "it is neither a folder nor a revision that is here", hint)


@contextlib.contextmanager
def _own_repo(revision: Revision) -> Iterator[Mapping[str, str]]:
    """Yields the environment of a git with the revision's objects and only our config."""
    with tempfile.TemporaryDirectory(prefix="sglang-hydra-git-") as made:
        own = Path(made)
        for folder in ("objects", "refs"):
            (own / folder).mkdir()
        (own / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        lines = ["[core]", "repositoryformatversion = 1", "bare = true"]
        lines += ["[extensions]", f"objectformat = {revision.hash_name}"] if revision.hash_name != "sha1" else []
        (own / "config").write_text("\n".join(lines) + "\n", encoding="ascii")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        ours = {"GIT_DIR": made, "GIT_OBJECT_DIRECTORY": revision.objects, "GIT_CONFIG_NOSYSTEM": "1"}
        yield {**inherited, **_NO_FETCH, **ours, "GIT_CONFIG_GLOBAL": os.devnull}


def _write(row: _Row, blobs: BinaryIO, root: Path) -> None:
    """Writes one file or link below ``root``, never through a link. Raises OSError."""
    file, left = root / row.name, row.size
    try:
        if row.is_link and os.path.realpath(file.parent) != str(file.parent):
            raise OSError(errno.ENOTDIR, "a link leads there")
        file.parent.mkdir(parents=True, exist_ok=True)
        if row.is_link:
            target, left = blobs.read(left), 0
            os.symlink(os.fsdecode(target), file)
            return
        with file.open("xb") as stream:
            while left and (chunk := blobs.read(min(left, _CHUNK))):
                left -= stream.write(chunk)
    except ValueError:  # a link with a zero byte
        pass
    except OSError as failure:
        if failure.errno not in _NOT_WRITTEN:
            raise
    while left and (chunk := blobs.read(min(left, _CHUNK))):
        left -= len(chunk)
