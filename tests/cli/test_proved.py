"""A correction is shown only where it keeps what was typed, starts no more, and is not refused itself."""

from __future__ import annotations

import shlex
import socket

import pytest

from sglang_hydra.cli.proved import keeps
from sglang_hydra.text.findings import Finding
from tests.commands import Run, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.mark.parametrize(
    ("typed", "wrong", "made", "is_kept"),
    [
        ("plan gpu=h100 tp=2", "tp=2", "plan gpu=h100 tp_size=2", True),
        ("plan gpu=h100 tp=2 port=1", "tp=2", "plan gpu=h100 tp_size=2", False),
        ("plan gpu=h100 tp=2 --all", "tp=2", "plan gpu=h100 tp_size=2", False),
        ("plan gpu=h100 tp=2 -o x", "tp=2", "plan gpu=h100 tp_size=2 -o y", False),
        ("check a.yaml tp=2", "tp=2", "check tp_size=2", False),
        ("plan gpu.count=4 gpu=2xh200", "gpu=2xh200", "plan gpu=h200 gpu.count=2", False),
        ("plan tp_size=2 tp=4", "tp=4", "plan tp_size=2 tp_size=4", True),
        ("plan tp=4 tp_size=2", "tp=4", "plan tp_size=4", False),
        ("plan a.x=2 b.x=4", "a.x=2", "plan x=2 tp_size=2 tp_size=4", False),
        ("plan tp_size = 4 port=1", "tp_size = 4", "plan tp_size=4 port=1", True),
        ("plan x='a b' host=\"h\" tp=1", "tp=1", "plan 'x=a b' host=h tp_size=1", True),
        ("plan -- --tp 2 --port 1 --x y", "--x y", "plan -- --tp 2 --port 1", True),
        ("plan -- --tp 2 --port 1 --x y", "--x y", "plan -- --tp 2", False),
        ("plan -- --tp 2 --port 1 --x y", "--x y", "plan tp_size=2 port=1", True),
        ("serve tp=2", "tp=2", "serve tp_size=2", True),
        ("plan tp=2", "tp=2", "serve tp_size=2", False),
        ("run tp=2", "run", "serve tp=2", True),
        ("serve tp=2 --dry-run", "--dry-run", "serve tp=2", False),
        ("serve tp=2 dry_run=true", "dry_run=true", "serve tp=2", False),
        ("plan all", "plan", "stop all", False),
        ("kill all", "kill", "stop all", True),
        ("models tiny", "models", "bench tiny", False),
    ],
)  # fmt: skip
def test_what_is_kept(typed: str, wrong: str, made: str, is_kept: bool) -> None:
    about = Finding("error", "CLI004", "wrong", typed=tuple(shlex.split(wrong)))
    assert keeps(shlex.split(typed), shlex.split(made), [about]) == is_kept


def test_the_keys_of_a_finding_without_words_may_change() -> None:
    about = Finding("error", "FIT001", "it does not fit", ("tp_size",))
    assert keeps(["plan", "tp_size=2"], ["plan", "tp_size=4"], [about])
    assert not keeps(["plan", "tp_size=2", "port=1"], ["plan", "tp_size=4", "port=2"], [about])
    assert keeps(["plan", "tp_size=2", "port=1"], ["plan", "tp_size=4", "port=2"], [about], ["port"])


@pytest.mark.parametrize(
    ("typed", "corrected"),
    [
        ("plan gpu.count=4 gpu=2xh200 model=qwen3_8b", None),
        ("suggest mem-frac 0.85 gpu=h100 model=qwen3_8b tpsize=2",
         "suggest mem_fraction_static=0.85 gpu=h100 model=qwen3_8b tp_size=2"),
        ("suggest gpu=mi300 'gpu=h100;model=qwen3_8b'", "suggest gpu=mi300x gpu=h100 model=qwen3_8b"),
        ("explain tp_size gpu=h100 model=qwen3_8b tp_size: 2", "explain tp_size gpu=h100 model=qwen3_8b tp_size=2"),
        ("gpu = h100 port=8000 model=deepseek-r1", None),
        ("diff gpu=h100,model=qwen3_8b gpu=h200,model=qwen3_8b", None),
        ("upgrade gpu=h100 model=qwen3_8b", "upgrade --to=0.5.23 gpu=h100 model=qwen3_8b"),
    ],
)  # fmt: skip
def test_only_a_proved_command_is_shown(typed: str, corrected: str | None, run: Run) -> None:
    shown = run(*shlex.split(typed))
    assert shown.code == 2
    assert ("Corrected\n" in shown.err) == (corrected is not None)
    if corrected is not None:
        assert shown.err.rstrip().endswith(f"Corrected\n  sglang-hydra {corrected}")
        assert run(*shlex.split(corrected)).code == 0


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("trtllm-serve Qwen/Qwen3-8B --dtype fp16 --tp_size two --max_batch_size 64",
         "plan model=Qwen/Qwen3-8B gpu=h100 max_running_requests=64"),
        ("docker run -v ollama:/data ollama/ollama:latest run qwen3", "plan model=org/name gpu=h100"),
    ],
)  # fmt: skip
def test_a_command_of_another_program_is_answered_with_values_that_are_taken(typed: str, hint: str, run: Run) -> None:
    shown = run(*shlex.split(typed))
    assert f"hint: sglang-hydra {hint}\n" in shown.err
    if "org/name" not in hint:
        assert "error" not in run(*shlex.split(hint)).err


def test_the_proof_of_a_correction_asks_no_server(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        shown = run("dif", "gpu=h200 model=qwen3_8b", url)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert shown.code == 2
    assert f"diff 'gpu=h200 model=qwen3_8b' {url}" in shown.out + shown.err
