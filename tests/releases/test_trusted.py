"""Builds that the user trusts, and wheels that are not what they were, or that attack whoever unpacks them."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_hydra.compose.schema import EngineNode
from sglang_hydra.planning.engines.planned import plan_engine
from sglang_hydra.releases import wheels
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import pinned_file, pinned_records, record_of
from sglang_hydra.releases.release import ask_release, can_answer
from sglang_hydra.releases.trusted import trust
from sglang_hydra.text import user_settings
from sglang_hydra.text.errors import ConfigError, MachineError
from tests.commands import Run, runner
from tests.releases.fake import FILES, VERSION, make_wheel, recorded_wheel, unpacked_release
from tests.releases.test_wheels import _case

MINE = f"{VERSION}+mine"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A wheel of the user's own, beside a recorded release; the settings are in the test's folder."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path}/registry {tmp_path}")
    monkeypatch.delenv("SGLANG_HYDRA_SETTINGS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    user_settings.begin()
    unpacked_release(tmp_path, monkeypatch)
    (tmp_path / "registry").mkdir()
    changed = FILES["sglang/srt/server_args.py"].replace("self.found =", "self.random_seed = 5; self.found =")
    make_wheel(tmp_path / "registry", "sglang", MINE, {**FILES, "sglang/srt/server_args.py": changed})
    yield tmp_path / "registry" / f"sglang-{MINE}-py3-none-any.whl"
    end_children()
    monkeypatch.undo()
    user_settings.begin()


@pytest.mark.parametrize("by", ["file", "version"])
def test_a_trusted_build_is_asked_by_its_whole_version(by: str, build: Path) -> None:
    assert record_of(MINE) is None, "a build of somebody's own is not the recorded release"
    assert record_of(f"{VERSION}+cu126") == record_of(VERSION)
    made = trust(str(build) if by == "file" else MINE)
    assert record_of(MINE) == made
    assert made.wheel.files[0].sha256 == recorded_wheel(build).files[0].sha256
    assert [library.name for library in made.libraries] == ["transformers"]
    assert ask_release(MINE, [_case()])[0].values["random_seed"] == 5
    assert ask_release(VERSION, [_case()])[0].values["random_seed"] == 0
    pins = pinned_file()
    assert pins is not None
    assert pins.stat().st_mode & 0o777 == 0o600


def test_a_trusted_build_whose_bytes_changed_is_not_fetched_again(build: Path) -> None:
    made = trust(str(build))
    wheels.remove(made)
    build.write_bytes(build.read_bytes() + b"\0")
    with pytest.raises(MachineError, match=r"REL003: sglang .* is not the recorded wheel"):
        wheels.fetch(made)
    assert not can_answer(MINE)


def test_a_recorded_release_is_not_replaced(build: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "registry", "sglang", VERSION, {"sglang/__init__.py": ""})
    with pytest.raises(MachineError, match=f"REL008: SGLang {VERSION} cannot be pinned: it is recorded"):
        trust(str(tmp_path / "registry" / f"sglang-{VERSION}-py3-none-any.whl"))
    pins = pinned_file()
    assert pins is not None
    trust(str(build))
    pins.write_text(pins.read_text().replace(f'"{MINE}"', f'"{VERSION}"'))
    assert record_of(VERSION) != pinned_records()[VERSION]


def test_pins_in_a_checkout_are_not_read(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust(str(build))
    pins = pinned_file()
    assert pins is not None
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    pins.rename(checkout / pins.name)
    (checkout / "settings.yaml").touch()
    monkeypatch.chdir(checkout)
    assert pinned_records() == {}
    assert record_of(str(build)) is None
    assert not can_answer(str(build))


def test_pins_that_others_can_write_are_not_read(build: Path) -> None:
    trust(str(build))
    pins = pinned_file()
    assert pins is not None
    pins.chmod(0o666)
    with pytest.raises(MachineError, match=r"REL007: .* others can write it"):
        record_of(MINE)
    pins.chmod(0o600)
    pins.write_text("[]")
    with pytest.raises(MachineError, match="REL007"):
        record_of(MINE)


@pytest.mark.parametrize("member", ["sglang/../../escaped.py", "/tmp/escaped.py", "..\\escaped.py", "link"])
def test_a_wheel_that_leads_out_of_its_folder_is_not_unpacked(member: str, build: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build, "a") as archive:
        if member == "link":
            info = zipfile.ZipInfo("sglang/link")
            info.external_attr = 0o120777 << 16
            archive.writestr(info, "/etc")
        else:
            archive.writestr(member, "x = 1")
    with pytest.raises(MachineError, match=r"REL003: .* leads out of the wheel"):
        trust(str(build))
    assert not list(tmp_path.rglob("escaped.py"))
    assert pinned_records() == {}


@pytest.mark.parametrize("content", [b"", b"PK", b"not a wheel"])
def test_a_file_that_is_no_wheel_is_refused(content: bytes, build: Path) -> None:
    build.write_bytes(content)
    with pytest.raises(MachineError, match=r"REL003: .* is no wheel"):
        trust(str(build))


def test_a_pipe_that_is_named_as_a_wheel_is_refused_at_once(build: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.whl")
    with pytest.raises(MachineError, match=r"REL003: .* it is a pipe"):
        trust(str(tmp_path / "pipe.whl"))


def test_a_file_that_unpacks_to_much_is_not_unpacked(build: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "registry", "sglang", MINE, {**FILES, "sglang/srt/large.py": "#" * (65 << 20)})
    with pytest.raises(MachineError, match=r"REL003: .*large.py' in it is larger than 64 MiB"):
        trust(str(build))
    assert pinned_records() == {}


def test_fetch_trust_on_the_command_line(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = runner(capsys, monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(tmp_path / "cache"))
    made = run("release", "fetch", "--trust", str(build))
    assert made.code == 0
    assert f"SGLang {MINE} is trusted from now on, with the sha256 {recorded_wheel(build).files[0].sha256}" in made.out
    listed = json.loads(run("release", "list", "--json").out)
    assert [row["version"] for row in listed["releases"]] == [VERSION, MINE]
    assert run("release", "remove", MINE).code == 0
    assert pinned_records() == {}
    assert "--trust belongs to release fetch" in run("release", "list", "--trust").err


def test_pins_that_cannot_be_written_are_a_finding(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = runner(capsys, monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "settings").write_text("")
    made = run("release", "fetch", "--trust", str(build))
    assert made.code == 3
    assert "trusted_releases.json cannot be written: Not a directory" in " ".join(made.err.split())
    assert "SGLANG_HYDRA_SETTINGS" in made.err
    (tmp_path / "settings").unlink()
    assert run("release", "fetch", "--trust", str(build)).code == 0


def test_a_release_that_nobody_recorded_is_planned_for_once_it_is_trusted(build: Path, tmp_path: Path) -> None:
    node = EngineNode("sglang", version="9.9.9")
    with pytest.raises(ConfigError, match="VER001"):
        plan_engine(node)
    make_wheel(tmp_path / "registry", "sglang", "9.9.9", FILES)
    trust(str(tmp_path / "registry" / "sglang-9.9.9-py3-none-any.whl"))
    assert plan_engine(node).version == "9.9.9"
    assert ask_release("9.9.9", [_case()])[0].ok
