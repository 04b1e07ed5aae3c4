"""``resume``: runs the points of a sweep without a result."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path

from sglang_hydra.arguments.secrets import API_KEY_REFERENCE, API_KEY_VARIABLE
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.compose.overrides import KEPT, Request, named_by
from sglang_hydra.measure.sweep.store import Store
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.words import program, short

_KEY_REFERENCE = re.compile(r"(?P<key>\+{0,2}(?:[\w.@/-]+\.)?api_key)=['\"]?\$\{oc\.env:(?P<variable>\w+)\}['\"]?")
_FOR_ONCE = frozenset(("sweep.rerun", "sweep.dry_run", "sweep.folder", "hydra.sweep.dir"))
"""Keys for a single run instead of the sweep, and keys for the place of its folder."""


def run(invocation: Invocation) -> int:
    """Runs the open points in a sweep's folder: with the command that made it, and further overrides on top.

    Raises ConfigError for a folder without a sweep."""
    from sglang_hydra.cli import bench

    if not invocation.requests:
        message = "resume takes the folder of a sweep"
        raise ConfigError.of("STO005", message, hint="resume multirun/SWEEP sweep.rerun=[failed]")
    folder, *more = invocation.requests
    _refuse_files(more)
    record = Store(Path(folder.text).expanduser()).read_sweep()
    typed = {request.name for request in more}
    place = f"{folder.text}/sweep.json"
    words = [word for word in record["words"] if named_by(word) not in typed | _FOR_ONCE]
    requests = [Request(_with_known_key(word), place, KEPT) for word in words]
    requests.append(Request.typed("sweep.folder", folder.text, folder.place))
    name = invocation.value("config_name") or record.get("config_name")
    again = dataclasses.replace(
        invocation,
        verb="bench",
        requests=[*requests, *more],
        config_dirs=invocation.config_dirs or _folders(place, record.get("config_dirs", ())),
        given={**invocation.given, "multirun": True, **({"config_name": name} if name else {})},
    )
    return bench.run(again)


def _folders(place: str, recorded: Sequence[str]) -> list[str]:
    """Returns the config folders of the sweep. Raises ConfigError for a package, which would be imported."""
    named = next((short(str(folder)) for folder in recorded if "://" in str(folder)), None)
    if named is not None:
        message = f"{place}: {named} is not a folder, and a record may not name a package to import"
        raise ConfigError.of("SEC002", message, hint=f"{program()} resume ... --config-dir DIR")
    return list(recorded)


def _with_known_key(word: str) -> str:
    """Replaces a recorded API key by a reference to a variable that is set: SGLANG_HYDRA_API_KEY, or the typed one.
    Raises ConfigError if neither is set."""
    found = _KEY_REFERENCE.fullmatch(word)
    if found is None or (API_KEY_VARIABLE not in os.environ and found["variable"] in os.environ):
        return word
    if API_KEY_VARIABLE in os.environ:
        return f"{found['key']}={API_KEY_REFERENCE}"
    message = f"the sweep has an API key, which no file keeps: {API_KEY_VARIABLE} must be set"
    hints = [f"export {API_KEY_VARIABLE}=..."]
    if found["variable"] != API_KEY_VARIABLE:
        hints.append(f"export {found['variable']}=... and --allow-env {found['variable']}")
    raise ConfigError.of("STO007", message, "api_key", hint=hints)


def _refuse_files(more: Sequence[Request]) -> None:
    from sglang_hydra.planning.recorded.input_files import is_document

    file = next((short(request.text) for request in more if is_document(request.text)), None)
    if file is not None:
        message = f"{file}: resume continues with the recorded words of the sweep, and takes no other file"
        raise ConfigError.of("SWP010", message, hint=f"{program()} bench -m {file} ... begins a sweep from it")
