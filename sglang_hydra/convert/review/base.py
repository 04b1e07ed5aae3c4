"""The state of a repo that a change is compared with: another folder, or a git revision written out beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import short

_GIT_S = 120.0
# A checkout may hold another repository, whose settings name programs: it is not taken for the one that is meant.
_NO_PROGRAMS = ("-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


@dataclass(frozen=True)
class Tree:
    """Where the base is: ``root`` is the whole of it, ``here`` what the working directory is there."""

    name: str
    root: Path
    here: Path
    ours: Path

    def counterpart(self, path: str) -> str:
        """Returns the same path in the base, absolute; a path outside of the repo is returned as it is."""
        full = Path(os.path.abspath(path))
        with contextlib.suppress(ValueError):
            return str(self.root / full.relative_to(self.ours))
        return str(full)

    def without_place(self, content: str) -> str:
        """Returns a text with paths as they are in the repo."""
        return content.replace(f"{self.here}{os.sep}", "").replace(f"{self.root}{os.sep}", "")


@contextlib.contextmanager
def base_tree(named: str) -> Iterator[Tree]:
    """The folder or the git revision that ``--base`` names; a folder wins over a revision of its name.

    A folder is another checkout, in which the working directory has its counterpart. A revision is written into a
    temporary folder, which is gone when the block ends; the repo itself is not touched. Raises ConfigError.
    """
    if os.path.isdir(named):
        folder = Path(named).resolve()
        yield Tree(named, folder, folder, Path.cwd())
        return
    import tempfile

    top = Path(_git("rev-parse", "--show-toplevel", about=named).strip()).resolve()
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{named}^{{commit}}", about=named).strip()
    with tempfile.TemporaryDirectory(prefix="sglang-hydra-base-") as made:
        root = Path(made).resolve() / "tree"
        root.mkdir()
        index = str(root.parent / "index")
        _git("read-tree", commit, about=named, index=index)
        _git("checkout-index", "--all", f"--prefix={root}{os.sep}", about=named, index=index, cwd=str(top))
        yield Tree(named, root, root / Path.cwd().resolve().relative_to(top), top)


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Makes ``folder`` the working directory for a while. A folder that does not exist changes nothing."""
    before = Path.cwd()
    if folder.is_dir():
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _git(*arguments: str, about: str, index: str | None = None, cwd: str | None = None) -> str:
    """Returns what git prints. Raises ConfigError with git's last line."""
    import subprocess

    env = {**os.environ, "GIT_LFS_SKIP_SMUDGE": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if index:
        env["GIT_INDEX_FILE"] = index
    try:
        done = subprocess.run(
            ["git", *_NO_PROGRAMS, *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as failure:
        raise _unusable(about, f"git cannot be run: {failure}") from failure
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _unusable(about, words[-1] if words else "it is neither a folder nor a revision that is here")
    return os.fsdecode(done.stdout)


def _unusable(named: str, why: str) -> ConfigError:
    return ConfigError(
        Finding(
            "error",
            "REV002",
            f"--base {printable(short(named))} cannot be used: {printable(short(why, 300))}",
            hint="--base origin/main after git fetch origin main; or --base FOLDER, a checkout of the base",
        )
    )
