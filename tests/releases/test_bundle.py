"""``release bundle``: a folder from which a machine without network plans; a patched SGLang under its own version."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sglang_hydra.facts.hub import cached_folder
from sglang_hydra.releases import wheels
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import record_of
from sglang_hydra.releases.release import ask_release, can_answer
from sglang_hydra.releases.trusted import trust
from sglang_hydra.text import user_settings
from tests.commands import Run, runner
from tests.releases.test_trusted import MINE, build
from tests.releases.test_wheels import _case

__all__ = ["build"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, build: Path, tmp_path: Path) -> Run:
    made = runner(capsys, monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(tmp_path / "cache"))
    return made


def hub(folder: Path) -> str:
    snapshot = folder / "models--lab--small" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"model_type": "llama"}')
    (snapshot / "model.safetensors").write_bytes(b"\0" * 99)
    (folder / "models--lab--small" / "refs").mkdir()
    (folder / "models--lab--small" / "refs" / "main").write_text("abc")
    return str(folder)


def test_another_machine_plans_from_the_folder_alone(
    run: Run, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", hub(tmp_path / "hub"))
    trust(str(build))
    ask_release(MINE, [_case()])
    packed = tmp_path / "packed"
    done = run("release", "bundle", str(packed), MINE, str(build), "model=lab/small")
    assert done.code == 0, done.err
    assert {file.name.partition("-")[0] for file in (packed / "packages").iterdir()} == {"sglang", "transformers"}
    assert f". {packed}/env.sh && sglang-hydra release fetch --trust {packed}/packages/{build.name}" in done.out
    assert {file.name for file in packed.iterdir()} == {"packages", "hub", "env.sh"}
    assert not list(packed.rglob("*.safetensors"))
    # The other machine: another cache, no settings, no registry but the folder.
    end_children()
    printed = subprocess.run(["bash", "-c", f". {packed}/env.sh; env"], capture_output=True, text=True, check=True)
    for line in printed.stdout.splitlines():
        name, _, value = line.partition("=")
        if name.startswith(("SGLANG_HYDRA_", "HF_HUB", "PIP_")):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "others"))
    user_settings.begin()
    assert not can_answer(MINE)
    assert run("release", "fetch", "--trust", str(packed / "packages" / build.name)).code == 0
    assert ask_release(MINE, [_case()], use_kept=False)[0].values["random_seed"] == 5
    assert cached_folder("lab/small") == str(packed / "hub" / "models--lab--small" / "snapshots" / "abc")


@pytest.mark.parametrize(
    ("words", "id"),
    [([], "REL006"), (["full"], "REL009"), (["new", "model=lab/absent"], "REL009"), (["new", "./no.whl"], "REL006")],
)
def test_what_cannot_be_packed_is_said(
    words: list[str], id: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = run("release", "bundle", *words)
    assert done.code in (2, 3)
    assert id in done.err
    assert not (tmp_path / "new").exists()


def patched_wheel(unpacked: Path, folder: Path) -> Path:
    """A build of SGLang 0.5.23 with another chunk size on large GPUs, as a fork would have it."""
    files = {str(file.relative_to(unpacked)): file.read_bytes() for file in unpacked.rglob("*") if file.is_file()}
    files = {name: content for name, content in files.items() if "__pycache__" not in name and name[0] != "."}
    info = next(name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    mine = info.replace("0.5.23", "0.5.23+mine")
    made = {name.replace(info, mine): content for name, content in files.items() if not name.endswith("RECORD")}
    made[f"{mine}/METADATA"] = made[f"{mine}/METADATA"].replace(b"\nVersion: 0.5.23\n", b"\nVersion: 0.5.23+mine\n")
    place = next(name for name, content in made.items() if b"schedule_conservativeness: " in content)
    before = made[place]
    made[place] = before.replace(b"schedule_conservativeness: float = 1.0", b"schedule_conservativeness: float = 0.7")
    if made[place] == before:
        start = before.index(b"schedule_conservativeness: ")
        made[place] = before[:start] + before[start:].replace(b"1.0", b"0.7", 1)

    def row(name: str, content: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        return f'"{name}",sha256={digest},{len(content)}'  # a name may hold a comma

    listed = "\n".join([*(row(name, content) for name, content in made.items()), f"{mine}/RECORD,,"])
    file = folder / "sglang-0.5.23+mine-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in {**made, f"{mine}/RECORD": listed.encode()}.items():
            archive.writestr(name, content)
    return file


@pytest.mark.registry
def test_a_patched_sglang_is_planned_exactly_under_its_own_version(tmp_path: Path) -> None:
    record = record_of("0.5.23")
    assert record is not None
    with zipfile.ZipFile(wheels.download(record.wheel, tmp_path)) as whole:
        whole.extractall(tmp_path / "whole")
    file = patched_wheel(tmp_path / "whole", tmp_path)
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "settings")}
    env.pop("SGLANG_HYDRA_SETTINGS", None)

    def hydra(*words: str) -> str:
        command = [sys.executable, "-m", "sglang_hydra", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=300).stdout

    hydra("release", "fetch", "--trust", str(file))
    try:
        words = ("plan", "--json", "gpu=h200", "model=gpt_oss_120b", "random_seed=1")
        mine, theirs = (json.loads(hydra(*words, f"engine.version={each}")) for each in ("0.5.23+mine", "0.5.23"))
    finally:
        hydra("release", "remove", "0.5.23+mine")
    assert (mine["engine"]["version"], mine["basis"]) == ("0.5.23+mine", "exact")
    differ = {name for name, value in mine["values"].items() if value != theirs["values"][name]}
    assert differ == {"schedule_conservativeness"}
    assert mine["values"]["schedule_conservativeness"] == 0.7
