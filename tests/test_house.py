"""The rooms of the package: their layers, and what must stay where earlier versions and other programs look for it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import sglang_hydra
from sglang_hydra import moved

ROOT = Path(__file__).parents[1]
ROOT_FILES = {"__init__.py", "__main__.py", "moved.json", "moved.py", "py.typed", "start.py"}


def test_no_room_imports_upward_and_no_modules_import_each_other_in_a_circle() -> None:
    done = subprocess.run([sys.executable, "tools/house.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_root_of_the_package_has_no_other_files() -> None:
    assert {file.name for file in (ROOT / "sglang_hydra").iterdir() if file.is_file()} == ROOT_FILES


def test_each_room_says_what_belongs_there() -> None:
    for folder in (ROOT / "sglang_hydra").iterdir():
        if folder.is_dir() and folder.name not in ("__pycache__",):
            assert (import_module(f"sglang_hydra.{folder.name}").__doc__ or "").strip(), folder


@pytest.mark.parametrize(
    "name",
    [
        "sglang_hydra.launch.slurm.inside",
        "sglang_hydra.sweep.launching",
        "sglang_hydra.sweep.points",
        "sglang_hydra.plans",
        "sglang_hydra.app",
        "sglang_hydra.fields.parallel",
        "sglang_hydra.verl",
    ],
)
def test_a_module_of_an_earlier_version_is_the_one_of_today(name: str) -> None:
    today = moved.name_of_today(name)
    assert today is not None
    old, new = import_module(name), import_module(today)
    public = [key for key in vars(new) if not key.startswith("_")]
    assert public
    assert all(getattr(old, key) is getattr(new, key) for key in public)


def test_every_old_name_leads_to_a_module() -> None:
    for name in moved.table():
        import_module(str(moved.name_of_today(f"sglang_hydra.{name}")))


def test_public_names_are_no_modules() -> None:
    for name in sglang_hydra.__all__:
        if name != "__version__":
            assert callable(getattr(sglang_hydra, name)), name
