"""Where an installed release lies, and which interpreter runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sglang_hydra.releases.records import record_of
from sglang_hydra.releases.release import NotRecorded, installed_release
from tests.releases.environments import environment


def packages_of(venv: Path) -> Path:
    (folder,) = venv.glob("lib/python3*/site-packages")
    return folder


def test_its_folder_its_libraries_and_the_nearest_records_parts(tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv", "0.5.20.post1")
    there = installed_release(f"{venv}/bin/python", "0.5.20.post1")
    known = record_of("0.5.20")
    assert known is not None
    assert there.places == (packages_of(venv),)
    assert there.interpreter == sys.executable
    assert (there.record.version, there.record.real_parts) == ("0.5.20.post1", known.real_parts)
    assert [wheel.name for wheel in there.record.libraries] == ["transformers"]


def test_an_editable_installation_is_found_where_it_lies(tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv", "0.5.23")
    source = tmp_path / "source"
    source.mkdir()
    (packages_of(venv) / "sglang").rename(source / "sglang")
    (packages_of(venv) / "sglang.pth").write_text(f"{source}\n")
    there = installed_release(f"{venv}/bin/python", "0.5.23")
    assert there.places == (source, packages_of(venv))


@pytest.mark.parametrize(("tag", "is_ours"), [(sys.implementation.cache_tag, True), ("cpython-38", False)])
def test_its_own_interpreter_runs_what_ours_cannot_load(tag: str, is_ours: bool, tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv", "0.5.23")
    library = packages_of(venv) / "msgspec"
    library.mkdir()
    (library / "__init__.py").touch()
    suffix = import_suffix() if is_ours else f".{tag}-x86_64-linux-gnu.so"
    (library / f"_core{suffix}").touch()
    there = installed_release(f"{venv}/bin/python", "0.5.23")
    assert there.interpreter == (sys.executable if is_ours else f"{venv}/bin/python")


def import_suffix() -> str:
    from importlib.machinery import EXTENSION_SUFFIXES

    return EXTENSION_SUFFIXES[0]


@pytest.mark.parametrize("version", ["0.4.9", "0.9.1", "0.6.0rc1"])
def test_a_release_beyond_the_records_is_refused(version: str, tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv", version)
    with pytest.raises(NotRecorded, match=rf"SGLang {version} is not recorded here: 0\.5\.2 to 0\.5\.23 are"):
        installed_release(f"{venv}/bin/python", version)


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("transformers", "its environment has no transformers"),
        ("sglang", "its environment has no files of the package"),
    ],
)
def test_what_is_missing_is_named(gone: str, why: str, tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv", "0.5.23")
    for place in packages_of(venv).glob(f"{gone}*"):
        place.rename(tmp_path / place.name)
    with pytest.raises(NotRecorded, match=why):
        installed_release(f"{venv}/bin/python", "0.5.23")
