"""What the user's settings allow, and where they are read from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sglang_hydra.cli.invocation import read_invocation
from sglang_hydra.cli.main import entry
from sglang_hydra.text import user_settings as settings
from sglang_hydra.text.errors import ConfigError

WRONG = [
    ("trusted: [/opt]", "settings.yaml:1: the settings have no key 'trusted'", "trusted_folders"),
    ("hub_token: true\nfetch: maybe", "settings.yaml:2: fetch is true or false", "fetch: true"),
    ("hub_token: 1", "settings.yaml:1: hub_token is true or false", "hub_token: true"),
    ("trusted_folders: 3", "settings.yaml:1: trusted_folders is a list of texts", "trusted_folders: [...]"),
    ("trusted_folders: [.]", "settings.yaml:1: trusted_folders are absolute", "keys are"),
    ("trusted_folders: [/no/such/folder]", "/no/such/folder is no folder here", "keys are"),
    ("trusted_folders: [/]", "the whole file system is no folder to trust", "keys are"),
    ("allowed_env: ['*']", "'*' is no variable's name", "MY_*"),
    ("allowed_env: ['A*B']", "'A*B' is no variable's name", "MY_*"),
    ("- a", "it holds a list", "keys are"),
    ("a: [", "it is no YAML", "keys are"),
    ("a: !!python/object/apply:os.system [id]", "it is no YAML", "keys are"),
]


def _write(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = folder / "settings.yaml"
    file.write_text(text)
    monkeypatch.setenv(settings.FILE_VARIABLE, str(file))
    settings.begin()
    return file


@pytest.mark.parametrize(("text", "message", "hint"), WRONG)
def test_wrong_settings_are_a_finding_with_the_line_and_the_keys(
    text: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, text, monkeypatch)
    with pytest.raises(ConfigError) as refused:
        settings.settings()
    (finding,) = refused.value.findings
    assert finding.id == "SET001"
    assert message in finding.message
    assert hint in str(finding.hint)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_settings_that_others_can_write_allow_nothing(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _write(tmp_path, f"trusted_folders: [{tmp_path}]", monkeypatch)
    file.chmod(mode)
    with pytest.raises(ConfigError, match="others can write it") as refused:
        settings.settings()
    assert str(refused.value.findings[0].hint).startswith(f"chmod go-w {file}. ")
    file.chmod(0o644)
    settings.begin()
    assert settings.settings().trusts(str(tmp_path))


def test_everything_that_the_file_allows_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _write(
        tmp_path, f"trusted_folders: [{tmp_path}]\nallowed_env: [REGION, MY_*]\nhub_token: true\nfetch: no", monkeypatch
    )
    found = settings.settings()
    assert found.trusts(str(tmp_path / "env" / "bin")) == (os.path.realpath(tmp_path), f"{file}:1")
    assert found.trusts(str(tmp_path) + "2") is None
    assert [found.allows_variable(name) for name in ("REGION", "MY_NAME", "REGION2", "XMY_")] == [
        ("REGION", f"{file}:2"),
        ("MY_*", f"{file}:2"),
        None,
        None,
    ]
    assert found.may_use_token
    assert not found.may_fetch


def test_a_flag_beats_the_variable_and_the_variable_beats_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, "hub_token: true\nfetch: true", monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_HUB_TOKEN", "0")
    settings.begin({"fetch": ["false"]})
    assert not settings.settings().may_use_token
    assert not settings.settings().may_fetch


def test_variables_and_flags_add_to_the_lists_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, "allowed_env: [A]", monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_ALLOW_ENV", "B,C_*")
    settings.begin(read_invocation(["plan", "--allow-env", "D,E", "--allow-env=F"]).allowed)
    names = ("A", "B", "C_1", "D", "E", "F", "G")
    assert [settings.settings().allows_variable(name) is not None for name in names] == [True] * 6 + [False]
    assert os.environ["SGLANG_HYDRA_ALLOW_ENV"] == "D,E,F,B,C_*", "a process that is started is allowed the same"


def test_a_link_out_of_a_trusted_folder_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted, outside = tmp_path / "trusted", tmp_path / "outside"
    trusted.mkdir()
    outside.mkdir()
    (trusted / "link").symlink_to(outside)
    monkeypatch.setenv("SGLANG_HYDRA_TRUST", str(trusted))
    settings.begin()
    assert settings.settings().trusts(str(trusted / "x"))
    assert not settings.settings().trusts(str(trusted / "link" / "x"))
    assert not settings.settings().trusts(str(trusted / ".." / "outside"))


def test_the_file_is_looked_for_where_the_variables_of_the_start_say(tmp_path: Path) -> None:
    own = {"XDG_CONFIG_HOME": "/x", "HOME": "/home/me"}
    assert settings.settings_file(own) == "/x/sglang_hydra/settings.yaml"
    assert (
        settings.settings_file({**own, "XDG_CONFIG_HOME": "relative"}) == "/home/me/.config/sglang_hydra/settings.yaml"
    )
    assert settings.settings_file({**own, settings.FILE_VARIABLE: "/s.yaml"}) == "/s.yaml"
    assert settings.settings_file({**own, settings.FILE_VARIABLE: ""}) is None


def test_a_variable_that_changes_later_moves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.yaml").write_text("hub_token: true")
    monkeypatch.setenv(settings.FILE_VARIABLE, str(tmp_path / "settings.yaml"))
    monkeypatch.setenv("SGLANG_HYDRA_ALLOW_ENV", "SECRET")
    assert not settings.settings().may_use_token
    assert settings.settings().allows_variable("SECRET") is None


def test_settings_that_are_a_pipe_are_refused_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "settings.yaml")
    monkeypatch.setenv(settings.FILE_VARIABLE, str(tmp_path / "settings.yaml"))
    settings.begin()
    with pytest.raises(ConfigError, match="it is a pipe, not a file"):
        settings.settings()


def test_a_plan_that_needs_no_decision_reads_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(settings.FILE_VARIABLE, str(tmp_path / "there_is_none.yaml"))
    assert entry(["plan", "gpu=h200", "model=qwen3_8b", "engine.version=0.5.2"]) == 0


def test_settings_that_cannot_be_written_are_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(settings.FILE_VARIABLE, str(tmp_path / "file" / "settings.yaml"))
    monkeypatch.setattr("sys.argv", ["sglang-hydra", "release", "use", "0.5.20"])
    assert entry() == 2
    assert "settings.yaml cannot be written" in " ".join(capsys.readouterr().err.split())


def test_prices_and_results_come_from_the_file_and_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, f"price: [h200=9, h100=2]\nresults: [{tmp_path}]", monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_PRICE", "h200=3.5,b200=5.5")
    monkeypatch.setenv("SGLANG_HYDRA_RESULTS", f"/a{os.pathsep}/b")
    settings.begin()
    found = settings.settings()
    assert [found.price_of(gpu) for gpu in ("h200", "b200", "h100", "l40s")] == [3.5, 5.5, 2.0, None]
    assert [item.value for item in found.results] == ["/a", "/b", str(tmp_path)]
