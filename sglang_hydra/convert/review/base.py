"""Provides the base of a comparison of repo states: another folder, or a git revision in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
    temporary folder, which is removed after the block; the repo itself is not touched. Raises ConfigError.
    """
    if os.path.isdir(named):
        folder = Path(named).resolve()
        yield Tree(named, folder, folder, Path.cwd())
        return
    from sglang_hydra.convert.review.base import Revision

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


_GIT_S = 120.0
# A checkout may contain another repository, whose settings name programs: git must not use that one.
_NO_PROGRAMS = ("-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
# No protocol has this name; before 2.44 it is git's only way to prevent fetching.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_AS_COMMITTED = "* -export-ignore -export-subst -text -crlf -eol -ident -filter -working-tree-encoding\n"
"""These attributes override those of the tree, by which git would omit or change files."""


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

        Raises ConfigError (REV002), also for blobs that are missing in this clone.
        """
        root.mkdir()
        with _own_repo(self) as env:
            packed = Path(env["GIT_DIR"]) / "tree.tar"
            hint = f"git worktree add ../base {self.named}, and --base ../base"
            _run(self.named, ["archive", "--format=tar", f"--output={packed}", self.commit], env, env["GIT_DIR"], hint)
            with tarfile.open(packed) as archive:
                for member in sorted(archive, key=tarfile.TarInfo.issym):
                    _write(archive, member, root)


def unusable(named: str, why: str, hint: str | None = None) -> ConfigError:
    """Returns REV002 with what to type instead."""
    message = f"--base {printable(short(named))} cannot be used: {printable(short(why, 300))}"
    usual = "--base origin/main after git fetch origin main", "--base FOLDER, a checkout of the base"
    return ConfigError(Finding("error", "REV002", message, hint=hint or usual))


def _asked_here(named: str, *asked: str) -> str:
    return _run(named, ["rev-parse", *asked], {**os.environ, **_NO_FETCH}, None)


def _run(named: str, words: Sequence[str], env: Mapping[str, str], cwd: str | None, hint: str | None = None) -> str:
    """Returns git's output. Raises ConfigError with its last line."""
    command = ["git", *_NO_PROGRAMS, *words]
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(command, cwd=cwd, env=env, stdin=quiet, capture_output=True, timeout=_GIT_S, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as failure:
        raise unusable(named, f"git cannot be run: {failure}") from failure
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise unusable(named, lines[-1] if lines else "it is neither a folder nor a revision that is here", hint)
    return os.fsdecode(done.stdout)


@contextlib.contextmanager
def _own_repo(revision: Revision) -> Iterator[Mapping[str, str]]:
    """Yields the environment of a git with the revision's objects and only our config."""
    with tempfile.TemporaryDirectory(prefix="sglang-hydra-git-") as made:
        own = Path(made)
        for folder in ("objects", "refs", "info"):
            (own / folder).mkdir()
        (own / "info" / "attributes").write_text(_AS_COMMITTED, encoding="ascii")
        (own / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        lines = ["[core]", "repositoryformatversion = 1", "bare = true"]
        lines += ["[extensions]", f"objectformat = {revision.hash_name}"] if revision.hash_name != "sha1" else []
        (own / "config").write_text("\n".join(lines) + "\n", encoding="ascii")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        ours = {"GIT_DIR": made, "GIT_OBJECT_DIRECTORY": revision.objects, "GIT_CONFIG_NOSYSTEM": "1"}
        yield {**inherited, **_NO_FETCH, **ours, "GIT_CONFIG_GLOBAL": os.devnull}


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    """Writes one file or link below ``root``; skips paths outside and git's own folders."""
    file = root / member.name
    stays_inside = not {"", ".", "..", ".git"} & {part.lower() for part in member.name.split("/")}
    # A crafted tree may give a file and a folder the same name; the first one stays.
    with contextlib.suppress(FileExistsError, NotADirectoryError, ValueError):
        if stays_inside and member.issym():
            file.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(member.linkname, file)
        elif stays_inside and member.size <= RECORD_BYTES and (content := archive.extractfile(member)) is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as stream:
                shutil.copyfileobj(content, stream)
