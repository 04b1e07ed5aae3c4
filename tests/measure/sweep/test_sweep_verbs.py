"""``bench``, ``plan -m`` and ``check -m`` as they are typed: what is shown, written for machines, and left alone."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.measure.sweep import progress as sweep_progress
from sglang_hydra.measure.sweep import runner as sweep_runner
from sglang_hydra.measure.sweep.points import Sweep
from sglang_hydra.text import progress
from tests.commands import Run, runner, valid

H200 = ("gpu=h200", "model=qwen3_8b")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Sweep]:
    """The sweeps that the runner got."""
    got: list[Sweep] = []
    monkeypatch.setattr(sweep_runner, "run", lambda sweep: got.append(sweep) or 0)
    monkeypatch.setattr(sweep_progress, "status", lambda folder, as_json: 0)  # there is nothing in that folder
    return got


def test_a_dry_run_shows_the_sweep_and_starts_nothing(run: Run, ran: list[Sweep], tmp_path: Path) -> None:
    printed = run("bench", "-m", *H200, "tp_size=1,2,16", "bench.concurrency=1,8,8", "sweep.dry_run=true")
    assert (printed.code, printed.err, ran) == (0, "", [])
    assert "Sweep of 9 points over tp_size, bench.concurrency" in printed.out
    for said in ("to run      4  on 2 server starts", "3 GPU001", "merged      2", "GPU hours; 120 s a start and 60 s"):
        assert said in printed.out
    assert "3 points, such as tp_size=16 bench.concurrency=1\n      16 ranks need 16 GPUs" in printed.out
    assert not list(tmp_path.iterdir())


def test_the_runner_gets_what_can_be_launched(run: Run, ran: list[Sweep]) -> None:
    printed = run("bench", "-m", *H200, "tp_size=2,16,1", "bench.concurrency=1,8", "sweep.name=mine")
    assert printed.code == 0
    (sweep,) = ran
    # The server of most forecast throughput comes first.
    assert [(len(group.points), group.gpus) for group in sweep.groups] == [(2, 1), (2, 2)]
    assert sweep.words == (*H200, "tp_size=2,16,1", "bench.concurrency=1,8", "sweep.name=mine")
    assert [request.text for request in sweep.source.requests][-3:] == [*H200, "sweep.name=mine"]
    assert [ids for _, ids in sweep.left_out] == [("GPU001",)] * 2
    assert sweep.folder.parts[0] == "multirun"
    assert sweep.running is None


def test_a_hydra_launcher_is_handed_on(run: Run, ran: list[Sweep]) -> None:
    assert run("bench", "-m", *H200, "tp_size=1,2", "hydra/launcher=joblib", "+hydra.job.env_set.A=1").code == 0
    (sweep,) = ran
    assert sweep.hydra_words == ("hydra/launcher=joblib", "+hydra.job.env_set.A=1")
    assert sweep.running is not None
    hydra = sweep.running.config.hydra
    assert hydra.launcher._target_.endswith("JoblibLauncher")
    assert hydra.sweeper._target_ == "hydra_plugins.sglang_hydra.sweeper.SglangSweeper"
    assert hydra.sweep.dir == f"{sweep.folder}/jobs"
    assert sweep.running.config.tp_size == 1


@pytest.mark.parametrize(
    ("words", "id", "said"),
    [
        (("bench", *H200, "tp_size=1,2"), "CLI007", "bench -m ... tp_size=1,2"),
        (("bench", *H200, "gpu=h100,h200"), "CLI007", "bench -m ... gpu=h100,h200"),
        (("bench", *H200, "bench.concurrency=1,2"), "CLI007", "bench -m"),
        (("plan", *H200, "tp_size=1,2"), "CLI007", "plan -m ... judges each"),
        (("bench", "-m", *H200, "tp_size=1,x"), "CLI002", "tp_size"),
        (("bench", "-m", *H200, "tp_size=range(3,1)"), "SWP001", "tp_size=A,B"),
        (("bench", "-m", "gpu=h100", "model=deepseek_v3", "tp_size=1,2"), "SWP007", "plan -m with the same words"),
        (("bench", "-m", "gpu=h100", "model=deepseek_v3", "tp_size=1"), "SWP007", "plan -m with the same words"),
        (("bench", "-m", *H200, "tp_size=1,2", "sweep.budget_gpu_hours=0.01"), "SWP008", "sweep.start_seconds"),
        (("bench", "-m", *H200, "server.yaml"), "CLI004", "there is no such file"),
        (("plan", "-m", *H200, "conf"), "CLI004", "--help"),
        (("stop", "-m", "all"), "CLI013", "bench -m"),
        (("bench", "-m", *H200, "hydra/launcher=nowhere"), "CLI023", "hydra"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_swept_says_what_to_type(
    words: tuple[str, ...], id: str, said: str, run: Run, ran: list[Sweep], tmp_path: Path
) -> None:
    printed = run(*words)
    assert (printed.code, ran) == (2, [])
    assert id in printed.err
    assert said in " ".join(printed.err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "code", "ids"),
    [
        ((*H200, "tp_size=1,2,2", "bench.concurrency=1,8"), 0, []),
        ((*H200, "tp_size=1,3", "sweep.where=tp_size < 9", "bench.repeats=2"), 0, []),
        (("gpu=h100", "model=deepseek_v3", "tp_size=1,2"), 2, ["SWP007"]),
        ((*H200, "tp_size=1,2", "sweep.budget_gpu_hours=0"), 2, ["SWP008"]),
    ],
    ids=str,
)
def test_a_dry_run_has_a_record(words: tuple[str, ...], code: int, ids: list[str], run: Run) -> None:
    printed = run("bench", "-m", "--json", "sweep.dry_run=true", *words)
    record = valid("sweep_plan", printed.out)
    assert (printed.code, printed.err) == (code, "")
    assert [finding["id"] for finding in record["findings"]] == ids
    assert record["total"] == record["kept"] + record["merged"] + sum(item["count"] for item in record["refused"])
    assert record["starts"] == len(record["servers"])
    assert record["kept"] == sum(len(server["points"]) for server in record["servers"])


def test_each_point_is_judged(run: Run) -> None:
    printed = run("plan", "-m", "gpu=h100,h200", "model=deepseek_v3", "tp_size=8,3")
    assert printed.code == 0  # it compares
    lines = printed.out.splitlines()
    assert "would fail" in lines[1]
    assert "FIT001: it does not fit" in lines[1]
    assert "gpu=h200 tp_size=8  can be launched" in lines[3]
    at = lines.index("1 of 4 points can be launched, on 1 server start")
    assert lines[at + 1 :] == ["", "Corrected", "  sglang-hydra plan -m gpu=h200 model=deepseek_v3 tp_size=8"]


@pytest.mark.parametrize(
    ("flags", "words", "code", "verdicts"),
    [
        ([], ["tp_size=1,2"], 0, [(True, True), (True, True)]),
        (["--upstream-only"], ["tp_size=1,16"], 0, [(True, True), (True, False)]),
        ([], ["tp_size=1,16"], 2, [(True, True), (True, False)]),
        ([], ["tp_size=1,4", "pp_size=3", "nnodes=2"], 2, [(False, False), (True, False)]),
        ([], ["engine.version=zero,0.5.2"], 2, [(False, False), (True, True)]),
    ],
)
def test_check_judges_each_point_for_machines(
    flags: list[str], words: list[str], code: int, verdicts: list[tuple[bool, bool]], run: Run
) -> None:
    printed = run("check", "-m", *flags, "--json", *H200, *words)
    record: dict[str, Any] = valid("check", printed.out)
    assert printed.code == code
    assert [(result["ok"], result["launchable"]) for result in record["results"]] == verdicts
    for result in record["results"]:
        assert result["launchable"] or any(finding["level"] == "error" for finding in result["findings"])


def test_what_stands_in_a_value_reaches_the_screen_as_text(run: Run) -> None:
    printed = run("plan", "-m", *H200, "served_model_name='a\x1b[31m',b")
    assert "\x1b" not in printed.out + printed.err


def test_a_key_is_shown_by_no_sweep(run: Run, ran: list[Sweep]) -> None:
    for words in (
        ("plan", "-m"),
        ("bench", "-m", "sweep.dry_run=true"),
        ("bench", "-m", "--json", "sweep.dry_run=true"),
    ):
        printed = run(*words, *H200, "api_key=sekret", "tp_size=1,2")
        assert "sekret" not in printed.out + printed.err


def test_a_terminal_shows_how_far_planning_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run("bench", "-m", *H200, "tp_size=1,2,16", "sweep.dry_run=true").code == 0
    assert "3 points planned, 2 to run" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_points_whose_release_was_not_asked_are_shown(run: Run, ran: list[Sweep]) -> None:
    words = (*H200, "engine.version=0.5.23", "schedule_policy=lpm,fcfs")
    why = "2 points unknown: SGLang 0.5.23 was not asked: its wheel is not here ("
    assert why in run("plan", "-m", *words).out
    assert (
        "by rules    2  points are an estimate by 0.5.2's rules" in run("bench", "-m", *words, "sweep.dry_run=true").out
    )
