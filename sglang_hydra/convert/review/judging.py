"""Judges every launch file now and in the base, and compares the plans' values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.convert.importing.sources import Source, launches_of
from sglang_hydra.convert.review.base import Tree, working_in
from sglang_hydra.planning.comparing.difference import Difference, compared
from sglang_hydra.planning.recorded.input_files import StartsNothing, content_of, is_document, is_ours
from sglang_hydra.show.verdicts import Checked, verdicts_on
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.locations import file_of

State = Literal["same", "changed", "added", "removed", "new"]
# All sides use the same seed, so that it makes no difference.
_SEED = 42


@dataclass(frozen=True)
class Review:
    """One file. ``before`` is its verdict in the base, None without a base or without the file there; ``state`` is
    ``new`` without a comparison, ``same`` if the plan did not change."""

    name: str
    state: State
    before: Checked | None
    after: Checked | None
    differences: tuple[Difference, ...] = ()


def review(
    requests: Sequence[Request],
    config_dirs: Sequence[str],
    config_name: str | None,
    base: Tree | None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[Review]:
    """Judges the files and folders in ``requests`` one by one with the overrides on top, or the overrides alone, and
    compares each with its counterpart in ``base``. ``variables`` are those that files leave to their caller."""
    after = _verdicts(config_dirs, config_name, requests, variables)
    if base is None:
        return [Review(name, "new", None, verdict) for name, verdict in after]
    named = [
        request._replace(text=base.counterpart(request.text)) if is_document(request.text) else request
        for request in requests
    ]
    there = [request for request in named if not is_document(request.text) or Path(file_of(request.text)).exists()]
    folders = [folder for folder in map(base.counterpart, config_dirs) if Path(folder).is_dir()]
    before: dict[str, Checked] = {}
    if len(there) == len(named) or any(is_document(item.text) for item in there):  # else the base lacks every file
        with working_in(base.here):
            try:
                found = _verdicts(folders, config_name, there, variables)
            except ConfigError as failure:
                found = [("overrides", Checked(None, failure.findings))]
            # A folder without files is no launch file of the base.
            before = {os.path.abspath(base.here / name): verdict for name, verdict in found if not os.path.isdir(name)}
    reviews = [_reviewed(name, before.pop(base.counterpart(name), None), here, base) for name, here in after]
    removed = [Review(base.without_place(file), "removed", there, None) for file, there in before.items()]
    return [*reviews, *removed]


def _verdicts(
    config_dirs: Sequence[str], config_name: str | None, requests: Sequence[Request], variables: Mapping[str, str]
) -> list[tuple[str, Checked]]:
    composer = Composer(config_dirs, config_name or PRIMARY_NAME)
    return verdicts_on(composer, requests, seed=_SEED, others=native_reader(composer, requests, variables))


def _reviewed(name: str, there: Checked | None, here: Checked, base: Tree) -> Review:
    if there is None:
        return Review(name, "added", None, here)
    if here.made is None and is_document(name) and not os.path.exists(file_of(name)):
        return Review(name, "removed", there, None)
    found = () if there.made is None or here.made is None else compared(there.made, here.made)
    bare = base.without_place
    moved = tuple(replace(item, why=(bare(item.why[0]), bare(item.why[1]))) for item in found)
    judged_alike = (there.ok, there.launchable, there.error_ids) == (here.ok, here.launchable, here.error_ids)
    return Review(name, "changed" if moved or not judged_alike else "same", there, here, moved)


_MOST_BYTES = 8 << 20
_OURS = r"^[ \t{-]*(?:override[ \t]+)?/?[\"']?(?:gpu|model|model_path|recipe)[\"']?[ \t]*:"
_IS_OURS = re.compile(_OURS, re.MULTILINE)
_MAY_START = re.compile(rf"sglang|model[-_]path|{_OURS}".encode(), re.MULTILINE)


def without_others(requests: Sequence[Request], composer: Composer) -> list[Request]:
    """Returns the overrides, and the files and folders that are experiments or start an SGLang server. A word that
    exists as a file is no override: a change may add a file called ``engine.python=x.sh``."""
    typed = [item for item in requests if is_document(item.text) or not os.path.lexists(item.text)]
    return [item for item in typed if not is_document(item.text) or _may_start(Path(item.text), composer)]


def _may_start(path: Path, composer: Composer) -> bool:
    """Returns whether ``check`` judges a path: unclear ones yes, links no."""
    if not path.is_file():
        return path.is_dir()
    with path.open("rb") as file:
        if path.is_symlink() or not _MAY_START.search(file.read(_MOST_BYTES)):
            return False
    try:
        content = content_of(path)
        if is_ours(path, content):
            return _IS_OURS.search(content) is not None or path.suffix == ".json"
        launches_of(Source(str(path), content, path.parent), composer)
    except StartsNothing:
        return False
    except ConfigError:
        return True
    return True
