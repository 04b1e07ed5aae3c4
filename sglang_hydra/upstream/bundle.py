"""A folder for a machine without network: the wheels of releases, answers that were given here, configs of models."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sglang_hydra.facts.hub import cached_folder
from sglang_hydra.facts.tiny import default_cache
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.upstream import answers, wheels
from sglang_hydra.upstream.records import Record, pinned_file, pinned_records

_LARGEST_CONFIG = 32 << 20
_PACKAGES, _HUB, _SETTINGS = "packages", "hub", "settings"
_ENV = """\
# . env.sh: this machine plans with what lies beside this file, and asks no network.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export SGLANG_HYDRA_CACHE="$here" HF_HUB_CACHE="$here/hub" HF_HUB_OFFLINE=1
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$here/packages"
"""
_ENV_PINS = 'export SGLANG_HYDRA_SETTINGS="$here/settings/settings.yaml"\n'


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
    packages = folder / _PACKAGES
    packages.mkdir()
    for wheel in dict.fromkeys(wheel for record in found for wheel in record.wheels):
        given = next((file for file in files if wheels.is_one_of(file, wheel)), None)
        progress(f"{wheel.name} {wheel.version}")
        with tempfile.TemporaryDirectory(dir=folder, prefix=".bundle-") as scratch:
            file = given or wheels.download(wheel, Path(scratch))
            shutil.copyfile(file, packages / file.name)
    kept = default_cache() / answers.FOLDER
    if kept.is_dir():
        shutil.copytree(kept, folder / answers.FOLDER)
    for name, source in sources.items():
        _copy_config(source, folder / _HUB / f"models--{name.replace('/', '--')}")
    text, pins = _ENV, pinned_file()
    if pins is not None and any(record.version in pinned_records() for record in found):
        (folder / _SETTINGS).mkdir(mode=0o700)
        (folder / _SETTINGS / "settings.yaml").touch()
        shutil.copy2(pins, folder / _SETTINGS / pins.name)
        text += _ENV_PINS
    (folder / "env.sh").write_text(text, encoding="utf-8")
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
