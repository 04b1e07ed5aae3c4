"""The package as users get it: built once, and installed into environments of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import uv

from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2

REPOSITORY = Path(__file__).resolve().parents[2]
MARGIN_S = 280


class Environment(NamedTuple):
    """A virtual environment: its folder, and the programs in it."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def command(self) -> str:
        return str(self.folder / "bin" / "sglang-hydra")


class Built(NamedTuple):
    """What a release consists of."""

    wheel: Path
    sdist: Path


def variables(**more: str) -> dict[str, str]:
    """This process's variables without what leads to the checkout; an index given to pip is uv's too."""
    unwanted = ("PYTHONPATH", "VIRTUAL_ENV", "SGLANG_", "CUDA_", "HYDRA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    if "PIP_INDEX_URL" in kept:
        kept.setdefault("UV_DEFAULT_INDEX", kept["PIP_INDEX_URL"])
    return {**kept, "HF_HUB_OFFLINE": "1", **more}


def run(*command: object, cwd: Path, exits: int = 0, **env: str) -> str:
    """Runs a program in ``cwd``, which is not the checkout, and returns what it printed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=variables(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=MARGIN_S,
        check=False,
    )
    assert done.returncode == exits, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def run_uv(*arguments: object, cwd: Path, **env: str) -> str:
    return run(uv.find_uv_bin(), *arguments, cwd=cwd, exits=0, **env)


def make_environment(folder: Path, *packages: object) -> Environment:
    """An environment with this interpreter and these packages."""
    made = Environment(folder)
    run_uv("venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    run_uv("pip", "install", "--quiet", "--python", made.python, *packages, cwd=folder.parent)
    return made


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, and the wheel made from it."""
    folder = tmp_path_factory.mktemp("dist")
    run_uv("build", "--quiet", "--out-dir", folder, REPOSITORY, cwd=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and its core dependencies, and nothing else."""
    return make_environment(tmp_path_factory.mktemp("environments") / "wheel", built.wheel)
