"""The verb: what is refused, what is written where, and what is said beside it."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_hydra.convert.export.registry import FORMATS
from tests.commands import Run, runner, valid

ROOT = Path(__file__).parents[3]
H200 = ["gpu=h200", "model=qwen3_8b"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_printed(format: str, run: Run) -> None:
    done = run("export", format, *H200, "random_seed=3")
    assert done.code == 0
    assert "Qwen/Qwen3-8B" in done.out
    assert not done.out.startswith("\n")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_a_record(format: str, run: Run) -> None:
    record = valid("export", run("export", format, *H200, "random_seed=3", "--json").out)
    assert record["format"] == format
    assert record["argv"] == [["--model-path", "Qwen/Qwen3-8B", "--random-seed", "3"]]
    assert record["text"] == run("export", format, *H200, "random_seed=3").out


def test_a_script_is_written_as_a_program(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    done = run("export", "shell", *H200, "-o", str(file))
    assert done.code == 0
    assert done.out == f"Written to {file}\n"
    assert file.read_text().startswith("#!/usr/bin/env bash\n")
    assert file.stat().st_mode & stat.S_IXUSR
    assert list(tmp_path.iterdir()) == [file]
    assert run("export", "compose", *H200, f"--output={tmp_path}/compose.yaml").code == 0
    assert not (tmp_path / "compose.yaml").stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize("place", ["no/such/folder/serve.sh", ".", "a\0b"])
def test_a_file_that_cannot_be_written_is_said(
    place: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("export", "shell", *H200, "-o", place)
    assert done.code == 2
    assert "EXP017" in done.err
    assert list(tmp_path.iterdir()) == []


def test_the_line_in_the_header_makes_the_same_artifact(run: Run) -> None:
    first = run("export", "shell", *H200, "random_seed=3", "served_model_name='a b'").out
    line = next(line for line in first.splitlines() if "once more: " in line).partition("once more: ")[2]
    assert run(*shlex.split(line)[1:]).out == first


def test_the_line_in_the_header_writes_the_same_artifact_once_more(run: Run) -> None:
    record = valid("export", run("export", "shell", *H200, "--json").out)
    assert "once more: sglang-hydra export shell gpu=h200 model=qwen3_8b\n" in record["text"]
    assert "--random-seed" not in record["argv"][0]


@pytest.mark.parametrize("format", ["shell", "argv", "engine-kwargs", "docker", "compose", "slurm", "k8s"])
def test_the_same_words_write_the_same_bytes(format: str, run: Run) -> None:
    first, again = (run("export", format, "gpu=h100", "model=qwen3_8b", "tp_size=2") for _ in range(2))
    assert (first.code, first.out) == (0, again.out), first.err


def test_a_plan_that_sglang_refuses_is_not_exported(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("mine\n")
    for words in (
        ["tp_size=3", "dp_size=2", "enable_dp_attention=true"],
        ["tp_size=3", "launch.force=true", "nnodes=2"],
    ):
        done = run("export", "shell", *H200, *words, "-o", str(file))
        assert done.code == 2
        assert done.out == ""
        assert "error" in done.err
    assert file.read_text() == "mine\n"


def test_a_plan_that_only_we_refuse_is_exported_when_forced(run: Run) -> None:
    words = ["gpu=h100", "model=deepseek_v3", "tp_size=8"]
    refused = run("export", "shell", *words)
    assert (refused.code, refused.out) == (2, "")
    assert "FIT001" in refused.err
    forced = run("export", "shell", *words, "launch.force=true")
    assert forced.code == 0
    assert "# error FIT001" in forced.out
    record = json.loads(run("export", "shell", *words, "--json").out)
    assert record["schema"] == "sglang_hydra.findings/1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "export needs a format"),
        (H200, "export needs a format"),
        (["helm", *H200], "'helm' is no format of export"),
        (["dokcer", *H200], "sglang-hydra export docker"),
    ],
)
def test_the_formats_are_named_where_none_was_typed(words: list[str], said: str, run: Run) -> None:
    done = run("export", *words)
    assert done.code == 2
    assert said in done.err
    assert "EXP012" in done.err


def test_a_fabric_that_is_none_is_refused_by_every_verb(run: Run) -> None:
    for verb in (["export", "k8s"], ["check", "--strict"]):
        done = run(*verb, *H200, "fabric=rocee")
        assert done.code == 2
        assert "fabric=roce" in done.err + done.out
        assert "EXP001" in done.err + done.out


def test_only_export_takes_a_file(run: Run) -> None:
    done = run("plan", *H200, "-o", "x")
    assert done.code == 2
    assert "EXP016" in done.err


def test_the_embedded_engine_is_not_exported(run: Run) -> None:
    done = run("export", "shell", "engine=transformers", "gpu=cpu", "model=tiny")
    assert done.code == 2
    assert "EXP018" in done.err


def test_sglang_is_exported_where_only_the_embedded_engine_is_installed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang_hydra.planning.engines import planned
    from sglang_hydra.planning.engines.base import Availability

    monkeypatch.setattr(type(planned.TRANSFORMERS), "available", lambda self, python: Availability(True, "5.23.0"))
    done = run("export", "shell", "gpu=cpu", "model=tiny")
    assert done.code == 0
    assert "sglang.launch_server" in done.out


@pytest.mark.corpus
@pytest.mark.parametrize(
    "typed", ["api_key=correct-horse", "+engine.env.HF_TOKEN=correct-horse", "+engine.env={HF_TOKEN: correct-horse}"]
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_typed_secret_is_nowhere(format: str, typed: str, run: Run) -> None:
    done = run("export", format, *H200, typed)
    assert done.code == 0, done.err
    assert "correct-horse" not in done.out + done.err
    assert "correct-horse" not in run("export", format, *H200, typed, "--json").out


def test_bytes_that_are_no_text_are_refused(run: Run) -> None:
    done = run("export", "shell", *H200, "served_model_name=" + os.fsdecode(b"a\xff"))
    assert done.code == 2
    assert "EXP004" in done.err


def test_unicode_is_written_whatever_the_terminal_knows(run: Run) -> None:
    assert "模型" in run("export", "shell", *H200, "served_model_name=模型").out


def test_the_exports_in_the_documentation_are_not_stale() -> None:
    done = subprocess.run([sys.executable, "tools/export_pages.py", "--check"], cwd=ROOT, timeout=250)
    assert done.returncode == 0, "docs/exports is stale: make generate"


def test_the_command_above_each_of_them_makes_it(run: Run) -> None:
    for file in (ROOT / "docs" / "exports").rglob("*.*"):
        content = file.read_text(encoding="utf-8")
        if "once more: " in content:
            line = next(line for line in content.splitlines() if "once more: " in line)
            words = shlex.split(line.partition("once more: ")[2])
            assert run(*words[1:]).out == content, file


def test_the_commands_of_the_page_work(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in page.splitlines() if line.startswith("sglang-hydra ")]
    assert len(commands) == 4
    monkeypatch.chdir(tmp_path)
    for _, *words in commands:
        done = run(*words)
        assert done.code == 0, done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deepseek.yaml", "serve.sh"]


def test_every_file_that_the_page_links_to_is_there() -> None:
    page = ROOT / "docs" / "export.md"
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).is_file(), link
