"""What an environment has, without importing it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sglang_hydra.facts.installed import find_package, interpreter_paths, torch_build
from sglang_hydra.facts.trust import grant
from tests.facts.facts_fakes import site, tool


def venv(root: Path, settings: str = "home = /usr/bin\ninclude-system-site-packages = false\n") -> Path:
    (root / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (root / "pyvenv.cfg").write_text(settings, encoding="utf-8")
    tool(root / "bin", "python", fails="it is not to be started")
    return root / "lib" / "python3.11" / "site-packages"


@pytest.mark.parametrize("python", [None, sys.executable])
def test_this_interpreter_is_read_from_its_own_path(python: str | None) -> None:
    assert interpreter_paths(python) == tuple(path for path in sys.path if path)


def test_a_virtual_environment_is_read_without_starting_it(tmp_path: Path) -> None:
    folder = venv(tmp_path)
    assert interpreter_paths(str(tmp_path / "bin" / "python")) == (str(folder),)


def test_an_editable_install_is_found_through_its_pth_file(tmp_path: Path) -> None:
    folder = venv(tmp_path / "venv")
    (site_of_source := tmp_path / "source" / "python").mkdir(parents=True)
    (site_of_source / "sglang").mkdir()
    (folder / "_sglang.pth").write_text(f"# a comment\nimport os\n{site_of_source}\n/no/such/place\n", encoding="utf-8")
    paths = interpreter_paths(str(tmp_path / "venv" / "bin" / "python"))
    assert paths == (str(folder), str(site_of_source))
    assert find_package("sglang", paths)


def test_any_other_interpreter_is_asked(tmp_path: Path) -> None:
    tool(tmp_path, "python", prints="/a\n/b\n")
    grant(str(tmp_path / "python"))
    assert interpreter_paths(str(tmp_path / "python")) == ("/a", "/b")


def test_a_real_interpreter_tells_the_path_it_imports_from(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    grant(str(link))
    assert find_package("json", interpreter_paths(str(link)))


def test_an_environment_that_shows_its_base_is_asked(tmp_path: Path) -> None:
    venv(tmp_path, "include-system-site-packages = true\n")
    tool(tmp_path / "bin", "python", prints="/base\n")
    grant(str(tmp_path / "bin" / "python"))
    assert interpreter_paths(str(tmp_path / "bin" / "python")) == ("/base",)


def test_an_interpreter_that_fails_has_no_paths(tmp_path: Path) -> None:
    tool(tmp_path, "python", fails="cannot start")
    grant(str(tmp_path / "python"))
    assert interpreter_paths(str(tmp_path / "python")) == ()


def test_no_interpreter_has_no_paths(tmp_path: Path) -> None:
    assert interpreter_paths(str(tmp_path / "none")) == ()


@pytest.mark.parametrize(
    ("name", "found"), [("flashinfer", True), ("flash", False), ("spaced", True), ("single", True)]
)
def test_a_package_is_found_as_importing_would_find_it(tmp_path: Path, name: str, found: bool) -> None:
    paths = site(tmp_path, "flashinfer")
    (tmp_path / "spaced").mkdir()
    (tmp_path / "single.py").touch()
    assert find_package(name, paths) is found
    assert name not in sys.modules


@pytest.mark.parametrize(
    ("stated", "build"),
    [
        ({"cuda": "12.8", "hip": None}, {"cuda": "12.8", "hip": None, "xpu": None}),
        ({"cuda": None, "hip": "6.3.4"}, {"cuda": None, "hip": "6.3.4", "xpu": None}),
        ({"xpu": "20250101"}, {"cuda": None, "hip": None, "xpu": "20250101"}),
    ],
)
def test_a_torch_states_what_it_was_built_for(
    tmp_path: Path, stated: dict[str, str | None], build: dict[str, str | None]
) -> None:
    assert torch_build(["/no/such/place", *site(tmp_path, torch=stated)]) == build


def test_without_torch_there_is_no_build(tmp_path: Path) -> None:
    assert torch_build(site(tmp_path)) is None
