"""Reading an environment's packages from disk: which interpreter is asked, and that none is started without need."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from sglang_hydra.facts.environments import find_python
from sglang_hydra.facts.installed import installed, normalised
from sglang_hydra.facts.trust import grant

NEVER = "#!/bin/sh\nexit 9\n"


def environment(root: Path, *distributions: str, settings: str = "home = /usr/bin\n") -> str:
    """A virtual environment whose interpreter fails when it is run."""
    site = root / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    (root / "pyvenv.cfg").write_text(settings)
    for name in distributions:
        (site / name).mkdir()
    python = root / "bin" / "python"
    python.parent.mkdir()
    python.write_text(NEVER)
    python.chmod(0o755)
    return str(python)


def test_a_virtual_environment_is_read_without_being_started(tmp_path: Path) -> None:
    python = environment(tmp_path, "sglang-0.5.2.dist-info", "SomeThing_else-1.0.egg-info", "torch")
    assert installed(python) == ({"sglang": "0.5.2", "something-else": "1.0"}, None)


def test_our_own_environment_gives_what_importlib_gives() -> None:
    for ours in (None, sys.executable):
        versions = installed(ours).versions
        for name in ("hydra-core", "omegaconf", "rich"):
            assert versions[name] == importlib.metadata.version(name)


def test_an_interpreter_outside_a_virtual_environment_that_was_typed_is_asked_for_its_path(tmp_path: Path) -> None:
    (tmp_path / "sglang-0.5.23.dist-info").mkdir()
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "{tmp_path}"\n')
    python.chmod(0o755)
    assert installed(str(python)) == ({}, f"{python} was not asked, because a file names it and you did not type it")
    grant(str(python))
    assert installed(str(python)).versions == {"sglang": "0.5.23"}


def test_an_environment_that_sees_its_base_and_was_typed_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment(tmp_path, "sglang-0.5.2.dist-info", settings="include-system-site-packages = true\n")
    asked: list[str] = []
    monkeypatch.setattr("sglang_hydra.facts.installed._asked_paths", lambda path: asked.append(path))
    assert installed(python).versions == {"sglang": "0.5.2"}
    assert asked == []
    grant(python)
    installed(python)
    assert asked == [python]


def test_the_first_folder_on_the_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("first", "2.0"), ("second", "1.0")):
        (tmp_path / folder / f"thing-{version}.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), "/nowhere"])
    assert installed(None).versions == {"thing": "2.0"}


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "is not a program here"), (NEVER, "is no Python interpreter that runs here")],
)
def test_what_is_no_interpreter_is_said(content: str | None, says: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    if content is not None:
        python.write_text(content)
        python.chmod(0o755)
    grant(str(python))
    assert installed(str(python)).versions == {}
    assert says in str(installed(str(python)).problem)


def test_a_link_to_an_interpreter_is_not_followed(tmp_path: Path) -> None:
    environment(tmp_path / "venv", "sglang-0.5.2.dist-info")
    (tmp_path / "venv" / "bin" / "python").unlink()
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    assert installed(str(tmp_path / "venv" / "bin" / "python")).versions == {"sglang": "0.5.2"}


def test_an_interpreter_may_be_named_as_in_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = environment(tmp_path / "venv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.path.dirname(python))
    for spelled in ("venv/bin/python", "./venv/bin/python", "~/venv/bin/python", "python"):
        assert find_python(spelled) == python
    assert find_python("no-such-python") is None
    assert find_python(str(tmp_path)) is None


@pytest.mark.parametrize("name", ["sglang_router", "SGLang-Router", "sglang.router", "sglang--router"])
def test_names_are_compared_as_the_index_does(name: str) -> None:
    assert normalised(name) == "sglang-router"
