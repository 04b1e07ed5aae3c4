"""``release bundle``: a folder from which a machine without network plans; a patched SGLang under its own version."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
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


@pytest.mark.thorough
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


Edit = Callable[[str, bytes], tuple[str, bytes]]


def changed_wheel(folder: Path, version: str, change: Edit, **added: bytes) -> Path:
    """A whole wheel of another version, made of that of SGLang 0.5.23: ``change`` gives each file name and content."""
    record = record_of("0.5.23")
    assert record is not None
    (folder / "of-0.5.23").mkdir()
    with zipfile.ZipFile(wheels.download(record.wheel, folder / "of-0.5.23")) as whole:
        files = {name: whole.read(name) for name in whole.namelist() if not name.endswith(("/", "/RECORD"))}
    info = f"sglang-{version}.dist-info"
    made = dict(change(name, content) for name, content in files.items())
    made = {name.replace("sglang-0.5.23.dist-info", info): content for name, content in made.items()} | added
    was, now = (f"\nVersion: {each}\n".encode() for each in ("0.5.23", version))
    made[f"{info}/METADATA"] = made[f"{info}/METADATA"].replace(was, now)

    def row(name: str, content: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        return f'"{name}",sha256={digest},{len(content)}'  # a name may hold a comma

    listed = "\n".join([*(row(name, content) for name, content in made.items()), f"{info}/RECORD,,"])
    file = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in {**made, f"{info}/RECORD": listed.encode()}.items():
            archive.writestr(name, content)
    return file


def hydra_of(folder: Path) -> Callable[..., str]:
    """Runs a command line with settings of its own, and returns what it prints."""
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder / "settings")}
    env.pop("SGLANG_HYDRA_SETTINGS", None)

    def hydra(*words: str) -> str:
        command = [sys.executable, "-m", "sglang_hydra", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=300).stdout

    return hydra


def with_another_default(name: str, content: bytes) -> tuple[str, bytes]:
    """What a fork has otherwise: a default."""
    start = content.find(b"schedule_conservativeness: ")
    return name, content if start < 0 else content[:start] + content[start:].replace(b"1.0", b"0.7", 1)


@pytest.mark.registry
@pytest.mark.timeout(600)
def test_a_patched_sglang_is_planned_exactly_under_its_own_version(tmp_path: Path) -> None:
    file, hydra = changed_wheel(tmp_path, "0.5.23+mine", with_another_default), hydra_of(tmp_path)
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


HOOK = b"""import torch

from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view


def handle_stream(server_args):
    cfg = resolving_view(server_args)
    if cfg.stream_every == 1 and cfg.tp_size >= 4:
        declare_resolution(server_args, "_handle_stream", stream_every=cfg.tp_size // 2)
    if cfg.attn_dp_size > 1 and torch.cuda.get_device_properties(0).multi_processor_count > 140:
        declare_resolution(server_args, "_handle_stream", stream_every=8)
"""
CALL = b"""    from sglang.srt.arg_groups.stream_hook import handle_stream

    run_hook(handle_stream, server_args)
    server_args._resolution_finished = True"""


def as_the_next_release(name: str, content: bytes) -> tuple[str, bytes]:
    """A renamed argument, a new rule that asks a new question, a module that moved."""
    if name.endswith(".py"):
        content = content.replace(b"sglang.srt.layers.quantization", b"sglang.srt.layers.quant_methods")
    if name in (f"{GROUPS}/fields/serving.py", f"{GROUPS}/field_order.py"):
        content = content.replace(b"stream_interval", b"stream_every")
    if name == f"{GROUPS}/pipeline.py":
        content = content.replace(b"    server_args._resolution_finished = True", CALL)
    return name.replace("srt/layers/quantization/", "srt/layers/quant_methods/"), content


GROUPS = "sglang/srt/arg_groups"


@pytest.mark.registry
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["0.5.24", "0.5.24rc1", "0.5.24.dev123+gabc1234"])
def test_the_next_release_is_adopted_planned_explained_and_upgraded_to(version: str, tmp_path: Path) -> None:
    hook = {f"{GROUPS}/stream_hook.py": HOOK}
    file, hydra = changed_wheel(tmp_path, version, as_the_next_release, **hook), hydra_of(tmp_path)
    words = (f"engine.version={version}", "gpu=h200", "model=qwen3_8b", "tp_size=4")
    old = tmp_path / "old.sh"
    old.write_text("python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 4 --page-size 16\n")
    said = " ".join(hydra("release", "adopt", str(file)).split())
    try:
        plan = json.loads(hydra("plan", "--json", *words))
        unasked = json.loads(hydra("plan", "--json", *words, "attn_dp_size=4"))
        reasons = json.loads(hydra("explain", "stream_every", *words, "--json"))["release"]["changes"]
        checked = hydra("check", *words)
        exported = hydra("export", "shell", *words, "stream_every=3")
        upgraded = hydra("upgrade", "--from", "0.5.23", "--to", version, str(old), "gpu=h200")
    finally:
        hydra("release", "remove", version)
    named = ("new arguments: stream_every", "gone: stream_interval", "multi_processor_count of the accelerator")
    assert all(each in said for each in named), said
    assert (plan["basis"], plan["launchable"], plan["values"]["stream_every"]) == ("exact", True, 2)
    assert unasked["launchable"] is None
    assert "multi_processor_count" in unasked["why"]
    assert [(each["after"], each["step"]["function"]) for each in reasons] == [(2, "handle_stream")]
    assert "can be launched" in checked
    assert "--stream-every 3" in exported
    assert upgraded.splitlines()[-1].startswith("0 arguments break, 0 renamed, ")
    assert upgraded.splitlines()[-1].endswith(f": {version} takes it")
