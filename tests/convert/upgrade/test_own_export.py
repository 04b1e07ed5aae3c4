"""An export of ours: its image, its comment and its annotations are of one release."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Run, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


def _exported(run: Run, version: str) -> Path:
    done = run("export", "k8s", "gpu=h200", "model=gpt_oss", f"engine.version={version}", "-o", "g.yaml")
    assert done.code == 0
    return Path("g.yaml")


def test_no_release_is_written_over_an_image_of_another(run: Run) -> None:
    file = _exported(run, "0.5.2")
    before = file.read_text()
    done = run("upgrade", "--to", "0.5.23", "--in-place", "g.yaml")
    assert done.code == 2
    assert "error UPG008" in done.err
    assert "launch.image=REPOSITORY:TAG, an image of SGLang 0.5.23" in " ".join(done.err.split())
    assert file.read_text() == before


def test_the_image_follows_where_one_is_known_or_named(run: Run) -> None:
    file = _exported(run, "0.5.18")
    assert run("upgrade", "--to", "0.5.20", "--in-place", "g.yaml").code == 0
    assert "image: lmsysorg/sglang:v0.5.20" in file.read_text()
    assert "0.5.18" not in file.read_text()
    assert run("check", "g.yaml").code == 0
    done = run("upgrade", "--to", "0.5.23", "--in-place", "g.yaml", "launch.image=mine/sglang:v0.5.23")
    assert done.code == 0
    assert "image: mine/sglang:v0.5.23" in file.read_text()
    assert run("check", "g.yaml").code == 0


def test_a_comment_of_another_release_than_the_image_is_an_error(run: Run) -> None:
    file = _exported(run, "0.5.18")
    file.write_text(file.read_text().replace("engine.version=0.5.18 ", "engine.version=0.5.20 "))
    done = run("check", "g.yaml")
    assert done.code == 2
    assert "made for SGLang 0.5.20, and its image is of 0.5.18, which is what runs" in " ".join(done.out.split())
