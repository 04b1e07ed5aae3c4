"""A folder for a machine without network: wheels of releases and configs of models. It is data: what is run is
compared there with what is recorded, or what the user pins there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sglang_hydra.facts.hub import cached_folder
from sglang_hydra.releases import wheels
from sglang_hydra.releases.fetching import download
from sglang_hydra.releases.records import Record
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

_LARGEST_CONFIG = 32 << 20
PACKAGES, _HUB = "packages", "hub"
_ENV = """\
# . env.sh: wheels and configs come from beside this file, and no network is asked.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export HF_HUB_CACHE="$here/hub" HF_HUB_OFFLINE=1 PIP_NO_INDEX=1 PIP_FIND_LINKS="$here/packages"
"""


def bundle(
    folder: Path,
    found: Sequence[Record],
    files: Sequence[Path] = (),
    models: Sequence[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> int:
    """Fills ``folder`` and returns its bytes. ``files`` are wheels of builds that no registry has; ``models`` are hub
    names whose config is in the local cache. Wheels with compiled code are for this system and this Python.

    Raises MachineError: REL002 for a wheel that cannot be had, REL009 for a folder that holds something, or a model
    without a config here.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _unusable(f"{folder} is there and not empty", "release bundle ANOTHER_FOLDER")
    sources = {name: _config_folder(name) for name in models}
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    packages = folder / PACKAGES
    packages.mkdir()
    for wheel in dict.fromkeys(wheel for record in found for wheel in record.wheels):
        given = next((file for file in files if wheels.is_one_of(file, wheel)), None)
        progress(f"{wheel.name} {wheel.version}")
        with tempfile.TemporaryDirectory(dir=folder, prefix=".bundle-") as scratch:
            file = given or download(wheel, Path(scratch))
            shutil.copyfile(file, packages / file.name)
    for name, source in sources.items():
        _copy_config(source, folder / _HUB / f"models--{name.replace('/', '--')}")
    (folder / "env.sh").write_text(_ENV, encoding="utf-8")
    return wheels.bytes_of(folder)


def _config_folder(model: str) -> Path:
    found = cached_folder(model) if "/" in model else None
    if found is None or not (Path(found) / "config.json").is_file():
        raise _unusable(
            f"the config of {model} is not in the cache of Hugging Face here", f"hf download {model} config.json"
        )
    return Path(found)


def _copy_config(source: Path, target: Path) -> None:
    """Copies the JSON files of a snapshot, and names it as the newest."""
    there = target / "snapshots" / source.name
    there.mkdir(parents=True)
    for file in source.glob("*.json"):
        if file.stat().st_size <= _LARGEST_CONFIG:
            shutil.copyfile(file, there / file.name)
    (target / "refs").mkdir()
    (target / "refs" / "main").write_text(source.name, encoding="ascii")


def _unusable(message: str, hint: str) -> MachineError:
    return MachineError(Finding("error", "REL009", message, hint=hint))
