"""The state of a repo that a change is compared with: another folder, or a git revision written out beside it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OWN_FOLDER = "sglang-hydra-base-"


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
    from sglang_hydra.convert.review.revision import Revision

    revision = Revision.named_here(named)
    with tempfile.TemporaryDirectory(prefix=_OWN_FOLDER) as made:
        root = Path(made).resolve() / "tree"
        revision.write_into(root)
        yield Tree(named, root, root / revision.prefix, revision.top)


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
