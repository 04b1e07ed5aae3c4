"""Thirty manifests of 0.5.8 to 0.5.20, taken to a newer release in place: each passes ``check`` then, or is untouched.

They are written in the style of public ones: names, images and flags are facts, the texts are our own.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sglang_hydra.convert.export.images import images
from tests.commands import Run, runner

FILES = sorted((Path(__file__).parents[2] / "data" / "in_place").iterdir())
IMAGE = "lmsysorg/sglang:v0.5.23"
NOT_WRITTEN = {
    "12-deployment.yaml": "UPG008",  # another's registry: nobody knows what it holds
    "18-compose.yaml": "UPG009",  # one of its two servers does not fit
}
"""Those that are refused where no image is typed, with the id of the reason."""
_FLAG = re.compile(r"--|image:|FROM|sglang(?:\[all\])?==|lmsysorg/sglang:|sglang_version|^\s*- \"?[\w./]+\"?\s*(#.*)?$")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


def test_there_are_thirty() -> None:
    assert len(FILES) == 30


@pytest.mark.corpus
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
@pytest.mark.parametrize("words", [["--to", "0.5.21"], ["--to", "0.5.23", f"launch.image={IMAGE}"]])
def test_a_file_passes_check_or_stays(words: list[str], file: Path, run: Run, tmp_path: Path) -> None:
    before = file.read_text()
    copy = tmp_path / file.name
    copy.write_text(before)
    done = run("upgrade", *words[:2], "--in-place", copy.name, "gpu=h200", *words[2:])
    after = copy.read_text()
    if after == before:
        assert done.code == 2 or "nothing changes" in done.out
        assert done.code == 0 or "error UPG00" in done.err
        return
    assert run("check", copy.name, "gpu=h200").code == 0
    old, new = before.splitlines(), after.splitlines()
    moved = [line[1:] for line in difflib.ndiff(old, new) if line[0] in "+-"]
    assert moved
    assert all(_FLAG.search(line) for line in moved), moved
    assert [line for line in old if line.lstrip().startswith("#")] == [
        line for line in new if line.lstrip().startswith("#")
    ]


@pytest.mark.parametrize("file", [file for file in FILES if file.name in NOT_WRITTEN], ids=lambda file: str(file.name))
def test_what_is_not_written_says_why(file: Path, run: Run, tmp_path: Path) -> None:
    copy = tmp_path / file.name
    copy.write_text(file.read_text())
    done = run("upgrade", "--to", "0.5.21", "--in-place", copy.name, "gpu=h200")
    assert done.code == 2
    assert f"error {NOT_WRITTEN[file.name]}" in done.err
    assert copy.read_text() == file.read_text()


def test_without_an_image_of_the_release_nothing_is_written(run: Run, tmp_path: Path) -> None:
    for name in ("01-deployment.yaml", "05-deployment.yaml", "16-compose.yaml", "21.Dockerfile"):
        copy = tmp_path / name
        copy.write_text(before := (FILES[0].parent / name).read_text())
        done = run("upgrade", "--to", "0.5.23", "--in-place", name, "gpu=h200")
        assert (done.code, copy.read_text()) == (2, before)
        assert "error UPG008" in done.err


@pytest.mark.parametrize("digest", ["", "@sha256:" + "1" * 64])
def test_an_image_keeps_its_registry_and_loses_an_old_digest(
    digest: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the table of images has digests."""
    rows = [replace(row, image=row.image + digest) for row in images()]
    for module in ("export.images", "upgrade.in_place"):
        monkeypatch.setattr(f"sglang_hydra.convert.{module}.images", lambda: rows)
    for name, wanted in (
        ("02-deployment.yaml", f"image: docker.io/lmsysorg/sglang:v0.5.21-cu130-runtime{digest}\n"),
        ("06-deployment.yaml", f"image: lmsysorg/sglang:v0.5.21-cu130-runtime{digest}\n"),
        ("04-deployment.yaml", "# lmsysorg/sglang:v0.5.11-cu130 was tried on 3 May\n"),
    ):
        copy = tmp_path / name
        copy.write_text((FILES[0].parent / name).read_text())
        assert run("upgrade", "--to", "0.5.21", "--in-place", name, "gpu=h200").code == 0
        assert wanted in copy.read_text()


def test_an_image_that_does_not_say_what_it_holds_is_warned_of(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "24-dynamo.yaml"
    copy.write_text((FILES[0].parent / copy.name).read_text())
    done = run("upgrade", "--from", "0.5.8", "--to", "0.5.23", "--in-place", copy.name, "gpu=h200")
    assert done.code == 0
    assert "warning UPG008" in done.err
    assert "--cuda-graph-max-bs-decode" in copy.read_text()


OF_A_TEMPLATE = """\
apiVersion: workloads.x-k8s.io/v1alpha2
kind: RoleBasedGroup
metadata: {name: group}
spec:
  roleTemplates:
    - name: base
      template: {spec: {containers: [{name: engine, image: "IMAGE", command: [sleep, "9"]}]}}
  roles:
    - name: prefill
      templateRef: {name: base}
      patch:
        spec:
          containers:
            - name: engine
              command: [python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B, --cuda-graph-max-bs, "8"]
"""


def test_a_role_has_the_image_of_its_template(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(OF_A_TEMPLATE.replace("IMAGE", "lmsysorg/sglang:v0.5.9"))
    assert run("upgrade", "--to", "0.5.21", "--in-place", file.name, "gpu=h200").code == 0
    assert "lmsysorg/sglang:v0.5.21-cu130-runtime" in file.read_text()
    assert "--cuda-graph-max-bs-decode" in file.read_text()


def test_an_image_for_other_gpus_is_not_replaced(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(before := OF_A_TEMPLATE.replace("IMAGE", "lmsysorg/sglang:v0.5.9-rocm720-mi30x"))
    done = run("upgrade", "--to", "0.5.21", "--in-place", file.name, "gpu=h200")
    assert (done.code, file.read_text()) == (2, before)
    assert "error UPG008" in done.err


@pytest.mark.parametrize("kept", ["lmsysorg/sglang@sha256:" + "1" * 64, "me/sglang:mine@sha256:" + "1" * 64])
def test_a_build_of_an_unknown_release_is_replaced_or_nothing_is_written(kept: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(before := OF_A_TEMPLATE.replace("IMAGE", kept))
    done = run("upgrade", "--to", "0.5.23", "--in-place", file.name, "gpu=h200")
    assert (done.code, file.read_text()) == (2, before)
    assert "error UPG008" in done.err
    new = "lmsysorg/sglang@sha256:" + "2" * 64
    assert run("upgrade", "--to", "0.5.23", "--in-place", file.name, "gpu=h200", f"launch.image={new}").code == 0
    words = "--cuda-graph-max-bs-decode"
    assert file.read_text() == before.replace(kept, new).replace("--cuda-graph-max-bs", words)


@pytest.mark.parametrize("kept", ["lmsysorg/sglang", "docker.io/lmsysorg/sglang:latest"])
def test_a_typed_image_replaces_one_that_does_not_say_what_it_holds(kept: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(before := OF_A_TEMPLATE.replace("IMAGE", kept))
    image = "me/sglang:v0.5.23"
    assert run("upgrade", "--to", "0.5.23", "--in-place", file.name, "gpu=h200", f"launch.image={image}").code == 0
    assert file.read_text() == before.replace(kept, image).replace("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")
