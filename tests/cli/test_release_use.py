"""``release use VERSION``: the release of the user's choice, in the settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra.releases.records import newest_release
from sglang_hydra.text import user_settings
from tests.commands import Run, runner

PLAN = ("plan", "gpu=h200", "model=gpt_oss")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    of = runner(capsys, monkeypatch)
    monkeypatch.setenv(user_settings.FILE_VARIABLE, str(tmp_path / "mine" / "settings.yaml"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "settings.yaml").write_text("# of mine\nfetch: false\n")
    return of


def test_a_chosen_release_is_planned_for_until_it_is_taken_back(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine" / "settings.yaml"
    assert f"SGLang {newest_release()}, the newest recorded one" in run("release", "use").out
    for version in ("0.5.18", "0.5.20"):
        assert run("release", "use", version).code == 0
        assert f"yes, by SGLang {version}" in run(*PLAN).out
    assert file.read_text() == "# of mine\nfetch: false\nrelease: 0.5.20\n"
    assert f"as {file}:3 says" in " ".join(run("release", "use").out.split())
    assert "yes, by SGLang 0.5.18" in run(*PLAN, "engine.version=0.5.18").out
    assert run("release", "use", "--none").code == 0
    assert file.read_text() == "# of mine\nfetch: false\n"
    assert f"yes, by SGLang {newest_release()}" in run(*PLAN).out


def test_the_variable_goes_before_the_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(user_settings.KEYS["release"].variable, "0.5.18")
    done = run("release", "use", "0.5.20")
    assert "SGLANG_HYDRA_RELEASE is set and overrides the file" in " ".join(done.out.split())
    assert "yes, by SGLang 0.5.18" in run(*PLAN).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("use", "0.9.9"), "VER001"),
        (("use", "banana"), "VER001"),
        (("use", "0.5.18", "0.5.20"), "release use takes one release"),
        (("use", "0.5.18", "--none"), "release use takes one release"),
        (("fetch", "--none"), "--none belongs to release use"),
    ],
)
def test_what_cannot_be_used_changes_nothing(run: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = run("release", *words)
    assert done.code == 2
    assert said in done.err
    assert (tmp_path / "mine" / "settings.yaml").read_text() == "# of mine\nfetch: false\n"


@pytest.mark.parametrize("content", ["[a, b]\n", "{fetch: true}\n", "fetch: maybe\n"])
def test_a_file_that_takes_no_line_is_left_as_it_is(run: Run, tmp_path: Path, content: str) -> None:
    file = tmp_path / "mine" / "settings.yaml"
    file.write_text(content)
    done = run("release", "use", "0.5.20")
    assert done.code == 2
    assert "SET001" in done.err
    assert file.read_text() == content


def test_a_release_in_the_settings_that_is_none_is_said_with_its_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine" / "settings.yaml").write_text("release: newest\n")
    done = run(*PLAN)
    assert done.code == 2
    assert "settings.yaml:1=newest is no version of SGLang" in " ".join(done.err.split())


def test_words_of_other_tools(run: Run) -> None:
    assert f"SGLang {newest_release()}, as" in " ".join(run("release", "use", "newest").out.split())
    for words, hint in (("install v0.5.20", "release fetch 0.5.20"), ("delete 0.5.18", "release remove 0.5.18")):
        refused = run("release", *words.split())
        assert (refused.code, f"hint: sglang-hydra {hint}\n" in refused.err) == (2, True), refused.err
