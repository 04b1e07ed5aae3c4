"""Installing beside SGLang changes nothing that it has installed: a resolver's dry run, which needs only metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.conftest import REPOSITORY, Built, run_uv

pytestmark = pytest.mark.registry

# Resolved for the machines that SGLang is made for, whatever machine this runs on.
TARGET = ("--python-platform", "x86_64-manylinux_2_34", "--python-version", "3.11")
OURS = {"sglang-hydra", "hydra-core", "omegaconf", "antlr4-python3-runtime"}


def resolved(folder: Path, name: str, *requirements: str, constraints: Path | None = None) -> dict[str, str]:
    """What would be installed for the requirements: package to version."""
    wanted = folder / f"{name}.in"
    wanted.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    limits = ("--constraint", constraints) if constraints else ()
    printed = run_uv("pip", "compile", "--quiet", "--no-header", "--no-annotate", *TARGET, *limits, wanted, cwd=folder)
    lines = [line.partition(" ; ")[0] for line in printed.splitlines() if line and not line.startswith("#")]
    return {name: version for name, _, version in (line.partition("==" if "==" in line else " @ ") for line in lines)}


@pytest.mark.parametrize("release", ["sglang[srt]==0.5.2", "sglang==0.5.23"])
def test_it_is_added_to_an_environment_of_sglang_without_any_change_there(
    release: str, built: Built, tmp_path: Path
) -> None:
    alone = resolved(tmp_path, "alone", release)
    assert {"torch", "transformers", "sglang"} <= alone.keys()
    pins = tmp_path / "installed.txt"
    pins.write_text("".join(f"{name}=={version}\n" for name, version in alone.items()), encoding="utf-8")
    together = resolved(tmp_path, "together", release, f"sglang-hydra @ {built.wheel.as_uri()}", constraints=pins)
    assert {name: version for name, version in together.items() if name in alone} == alone
    added = together.keys() - alone.keys()
    assert added >= OURS
    assert added - OURS <= {"rich", "markdown-it-py", "mdurl", "pygments", "nvidia-ml-py", "psutil", "pyyaml"}


def test_its_extras_can_be_installed_with_the_pinned_torch(built: Built, tmp_path: Path) -> None:
    for extra, package in {"local": "torch", "hf": "transformers"}.items():
        requirement = f"sglang-hydra[{extra}] @ {built.wheel.as_uri()}"
        found = resolved(tmp_path, extra, requirement, constraints=REPOSITORY / "constraints.txt")
        assert package in found
        assert found.get("torch") in (None, "2.13.0")
