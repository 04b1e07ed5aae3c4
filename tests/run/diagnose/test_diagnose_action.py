"""The verb diagnose: files, standard input, overrides, exit codes, JSON, and lines that try to steer the terminal."""

from __future__ import annotations

import gzip
import io
import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang_hydra.text import budget
from sglang_hydra.text.budget import READERS
from tests.commands import Run, runner, valid

DATA = Path(__file__).parents[2] / "data" / "diagnosis" / "logs"
PORT = str(DATA / "produced_port_in_use_052.log")
UNCLASSIFIED = 5
HOSTILE = (
    "torch.OutOfMemoryError: CUDA out of memory. [bold red]Tried[/] \x1b[2J\x1b]0;owned\x07 $(touch /tmp/owned) `id` "
    "\u202e '; -- \x00"
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def typed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def test_a_log_is_classified_with_the_line_and_what_to_type(run: Run) -> None:
    printed = run("diagnose", PORT)
    assert printed.code == 0
    assert f"{PORT}: port_in_use  90% sure" in printed.out
    assert "[Errno 98] error while attempting to bind on address" in printed.out
    assert "SGLang  0.5.2 serving /models/tiny" in printed.out
    assert "error DIA042  a port that the server needs is taken: port" in printed.out
    assert "hint: port=0 takes a free port" in printed.out


def test_standard_input_is_a_log(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, b"launch_server.py: error: unrecognized arguments: --tpsize 2\n")
    printed = run("diagnose", "-")
    assert printed.code == 0
    assert printed.out.startswith("stdin: bad_flag")


def test_several_logs_are_each_diagnosed_and_one_without_a_class_counts(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_text("nothing\nof note\n")
    printed = run("diagnose", PORT, str(other), "--json")
    assert printed.code == UNCLASSIFIED
    record = valid("diagnosis", printed.out)
    assert [(entry["kind"], entry["lines"] > 0) for entry in record["results"]] == [
        ("port_in_use", True),
        ("unknown", True),
    ]
    assert record["results"][1]["last_lines"][-1] == {"number": 2, "text": "of note"}
    assert record["results"][0]["server_args"]["model_path"] == "/models/tiny"
    screen = run("diagnose", str(other))
    assert "2  of note" in screen.out
    assert "DIA000" in screen.out


def test_the_exit_code_is_part_of_the_evidence(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2025-06-11 08:14:09] Load weight begin. avail mem=78.58 GB\n")
    loading = run("diagnose", str(log))
    assert (loading.code, f"{log}: still loading" in loading.out) == (6, True)
    printed = run("diagnose", str(log), "exit_code=137", "--json")
    assert printed.code == 0
    (entry,) = valid("diagnosis", printed.out)["results"]
    assert (entry["kind"], entry["line"], entry["confidence"]) == ("host_oom", None, 0.6)
    assert run("diagnose", str(tmp_path), "exit_code=-9").code == 0  # a run folder: its server.log


def test_a_healthy_server_is_no_failure(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2025-06-11 08:16:00] The server is fired up and ready to roll!\n")
    printed = run("diagnose", str(log))
    assert printed.code == 0
    assert f"{log}: healthy" in printed.out
    assert "DIA060  the server became ready, and no failure is in its log" in printed.out
    (entry,) = valid("diagnosis", run("diagnose", str(log), "--json").out)["results"]
    assert (entry["healthy"], entry["kind"], entry["confidence"], entry["id"]) == (True, "unknown", 0.0, "DIA060")
    assert run("diagnose", str(log), "exit_code=1").code == UNCLASSIFIED


def test_a_run_folder_is_read_with_the_files_that_its_log_turned_over_to(run: Run, tmp_path: Path) -> None:
    (tmp_path / "server.log.start").write_text("server_args=ServerArgs(model_path='/models/tiny', tp_size=2)\n")
    (tmp_path / "server.log").write_text("[2025-06-11 08:16:00] The server is fired up and ready to roll!\n")
    (entry,) = valid("diagnosis", run("diagnose", str(tmp_path), "--json").out)["results"]
    assert (entry["lines"], entry["server_args"]["model_path"]) == (2, "/models/tiny")


def test_what_stands_behind_the_file_is_planned(run: Run) -> None:
    log = str(DATA / "fraction_too_low_current_value.log")
    general = run("diagnose", log)
    assert "type gpu=... after the file" in general.out
    printed = run("diagnose", log, "gpu=h100", "--json")
    (entry,) = valid("diagnosis", printed.out)["results"]
    assert entry["remedies"][0].startswith("mem_fraction_static=0.79 (0.78-0.96 works)")


def test_a_packed_log_is_read(run: Run, tmp_path: Path) -> None:
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(Path(PORT).read_bytes()))
    assert run("diagnose", str(packed)).code == 0
    packed.write_bytes(b"\x1f\x8b broken")
    printed = run("diagnose", str(packed))
    assert printed.code == 2
    assert "DIA902" in printed.err


def test_a_packed_log_has_the_time_of_its_packed_size(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "server's.log.gz"
    packed.write_bytes(gzip.compress(b"[2026-01-01 00:00:00 TP0] one line of a log that says nothing\n" * 500_000))
    slow = READERS["log"]._replace(cpu_s=0.2)
    monkeypatch.setattr(budget, "READERS", {**READERS, "log": slow, "command": slow})
    printed = run("diagnose", str(packed))
    assert (printed.code, "DIA902" in printed.err) == (2, True)
    assert "0.2 s of the processor" in printed.err
    assert f"zcat {shlex.quote(str(packed))} | sglang-hydra diagnose -" in " ".join(printed.err.split())


@pytest.mark.parametrize(
    ("words", "id"),
    [
        ([], "DIA901"),
        (["gpu=h100"], "DIA901"),
        (["/no/such/server.log"], "DIA902"),
        (["/dev"], "DIA902"),
        ([PORT, "exit_code=nine"], "DIA901"),
    ],
)
def test_what_cannot_be_read_is_said(run: Run, words: list[str], id: str) -> None:
    printed = run("diagnose", *words)
    assert printed.code == 2
    assert id in printed.err
    assert json.loads(run("diagnose", *words, "--json").out)["findings"][0]["id"] == id


def test_a_hostile_line_reaches_the_screen_unharmed(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "a [red]b\x1b[31m.log"
    log.write_text(f"[2025-06-11 08:14:09 TP0] Load weight begin.\n{HOSTILE}\n", encoding="utf-8")
    printed = run("diagnose", str(log))
    assert printed.code == 0
    assert "oom_load" in printed.out
    assert all(char.isprintable() or char == "\n" for char in printed.out)
    assert "[bold red]Tried[/]" in printed.out
    record = valid("diagnosis", run("diagnose", str(log), "--json").out)
    assert record["results"][0]["kind"] == "oom_load"


def test_a_secret_in_a_log_is_not_shown(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2025-06-11 08:14:02] server_args=ServerArgs(model_path='m', api_key='correct-horse')\n"
        "python -m sglang.launch_server --api-key correct-horse\n"
        "OSError: [Errno 28] No space left on device: api_key=correct-horse\n"
    )
    for words in (["diagnose", str(log)], ["diagnose", str(log), "--json"]):
        printed = run(*words)
        assert "correct-horse" not in printed.out + printed.err


def test_the_verb_is_listed_and_explained(run: Run) -> None:
    assert "diagnose" in run("--help").out
    explained = run("explain", "DIA004", "--json")
    assert explained.code == 0
    assert json.loads(explained.out)["name"] == "oom graph"
