"""Which of many files start servers: a hook and a workflow name every file that changed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.sources import Source, launches_of
from sglang_hydra.planning.recorded.input_files import StartsNothing, content_of, is_document, is_ours
from sglang_hydra.text.errors import ConfigError

_MOST_BYTES = 8 << 20
_OURS = r"^[ \t{-]*(?:override[ \t]+)?/?[\"']?(?:gpu|model|model_path|recipe)[\"']?[ \t]*:"
_IS_OURS = re.compile(_OURS, re.MULTILINE)
_MAY_START = re.compile(rf"sglang|model[-_]path|{_OURS}".encode(), re.MULTILINE)


def without_others(requests: Sequence[Request], composer: Composer) -> list[Request]:
    """The overrides, and of the files and folders those that are experiments or start a server of SGLang's. What there
    is a file of is no override: a change may bring one that is called ``engine.python=x.sh``."""
    typed = [item for item in requests if is_document(item.text) or not os.path.lexists(item.text)]
    return [item for item in typed if not is_document(item.text) or _may_start(Path(item.text), composer)]


def _may_start(path: Path, composer: Composer) -> bool:
    """Whether ``check`` has something to say of a path; what cannot be told is judged, and a link is not followed."""
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
