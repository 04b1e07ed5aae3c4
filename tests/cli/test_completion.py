"""Completion: what the shells get, that the index is fresh, and that nothing heavy is imported for it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglang_hydra.cli.completion import candidates, script
from sglang_hydra.cli.main import entry

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sglang-hydra pla", ["plan"]),
        ("python serve.py pla", ["plan"]),
        ("sglang-hydra plan gpu=b2", ["gpu=b200"]),
        (
            "sglang-hydra plan model=deepseek_v3",
            ["model=deepseek_v3_1", "model=deepseek_v3_2", "model=deepseek_v3_2_nvfp4"],
        ),
        ("sglang-hydra plan gpu=h200 attention_back", ["attention_backend="]),
        ("sglang-hydra plan disable_cuda_graph=t", ["disable_cuda_graph=true"]),
        ("sglang-hydra bench -m gpu=h100,b2", ["gpu=h100,b200"]),
        ("sglang-hydra bench bench/workload=8", ["bench/workload=8k1k"]),
        ("sglang-hydra plan launch.ready", ["launch.ready_timeout="]),
        ("sglang-hydra plan bench.slo.t", ["bench.slo.ttft_ms="]),
        ("sglang-hydra explain mem_fraction_stati", ["mem_fraction_static", "mem_fraction_static="]),
        ("sglang-hydra plan --js", ["--json"]),
        ("sglang-hydra plan +gpu=gb2", ["+gpu=gb200"]),
        ("sglang-hydra plan engine.version=0.5.10", ["engine.version=0.5.10.post1"]),
        ("sglang-hydra plan dcp_si", ["dcp_size="]),
        ("sglang-hydra plan disable_flashinfer_autotune=f", ["disable_flashinfer_autotune=false"]),
        ("sglang-hydra plan nothing_like_it", []),
        ("sglang-hydra plan engine.version=0.5.23 dcp_si", ["dcp_size="]),
        ("sglang-hydra plan engine.version=0.5.12 dcp_si", []),
        ("sglang-hydra plan engine.version=0.5.23 attention_backend=cu", ["attention_backend=cutedsl_mla"]),
        ("sglang-hydra plan engine.version=0.5.23 nsa_prefill", []),
        ("sglang-hydra plan engine.version=0.5.2 dcp_si", []),
        ("sglang-hydra plan cuda_graph_max_b", ["cuda_graph_max_bs_decode=", "cuda_graph_max_bs_prefill="]),
    ],
)
def test_a_word_is_completed(line: str, expected: list[str]) -> None:
    assert candidates(line) == expected


def test_an_experiment_repo_adds_its_options(tmp_path: Path) -> None:
    for group, name in (("model", "my_model"), ("experiment", "long_context")):
        (tmp_path / group).mkdir()
        (tmp_path / group / f"{name}.yaml").write_text("{}\n")
    line = f"sglang-hydra plan --config-dir {tmp_path} "
    assert candidates(f"{line}model=my") == ["model=my_model"]
    assert candidates(f"{line}+experi") == ["+experiment="]
    assert candidates(f"{line}+experiment=") == ["+experiment=long_context"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sglang-hydra plan mine", ["mine.yaml"]),
        ("sglang-hydra mine", ["mine.yaml"]),
        ("sglang-hydra explain tp_size lab/", ["lab/other.yml"]),
        ("sglang-hydra stop mine", []),
        ("sglang-hydra plan nowhere/", []),
    ],
)
def test_files_are_offered_where_a_verb_takes_them(
    line: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    for name in ("mine.yaml", "mine.txt", "lab/other.yml"):
        (tmp_path / name).write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    assert candidates(line) == expected


def test_results_are_offered_where_a_sweep_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "multirun" / "sweep-1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert candidates("sglang-hydra report multirun/s") == ["multirun/sweep-1"]


def test_the_index_is_fresh() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "completion_index.py"), "--check"]
    ended = subprocess.run(tool, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import runpy, sys; sys.argv = ['completion.py', 'bash', 'sglang-hydra plan gpu=h2'];"
        f"runpy.run_path({str(ROOT / 'sglang_hydra' / 'cli' / 'completion.py')!r}, run_name='__main__');"
        "print(*(name for name in ('hydra', 'omegaconf', 'yaml', 'rich', 'sglang_hydra') if name in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert ended.stdout.split() == ["gpu=h20", "gpu=h200", "gpu=h20_3e"], ended.stderr


BASH = """
eval "$(cat script)"
COMP_LINE="sglang-hydra plan gpu=b20" COMP_POINT=25
_sglang_hydra
echo "${COMPREPLY[*]}"
COMP_LINE="sglang-hydra plan attention_b" COMP_POINT=29
_sglang_hydra 2>/dev/null
echo "${COMPREPLY[*]}"
"""


def test_bash_takes_the_script(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("bash"))
    ended = subprocess.run(["bash", "-c", BASH], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["b200", "attention_backend="], ended.stderr


def typed_in(shell: list[str], setting: str, line: str, wanted: str) -> str:
    """What a terminal shows when ``line`` is typed into a shell after ``setting``, up to ``wanted``."""
    terminal, end = pty.openpty()
    env = {**os.environ, "TERM": "dumb", "PS1": "ready> ", "HISTFILE": "/dev/null"}
    child = subprocess.Popen(shell, stdin=end, stdout=end, stderr=end, env=env, start_new_session=True)
    os.close(end)
    try:
        shown_until(terminal, "ready> ")
        os.write(terminal, f"{setting}; echo se''t\n".encode())
        shown_until(terminal, "\r\nset")
        os.write(terminal, f"{line}\t".encode())
        return shown_until(terminal, wanted)
    finally:
        child.kill()
        child.wait()
        os.close(terminal)


def shown_until(terminal: int, wanted: str) -> str:
    shown, deadline = "", time.monotonic() + 60
    while wanted not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 1 << 16).decode(errors="replace")
    return shown


TYPED = [
    ("sglang-hydra plan gpu=b2", "gpu=b200"),
    ("sglang-hydra bench -m gpu=h100,b2", "gpu=h100,b200"),
    ("sglang-hydra plan disable_cuda_graph=t", "disable_cuda_graph=true"),
    ("sglang-hydra check --fail", "--fail-on"),
]


@pytest.mark.parametrize(("line", "wanted"), TYPED)
def test_the_tab_key_of_bash_completes(line: str, wanted: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("bash"))
    setting = f'bind "set bell-style none"; eval "$(cat {tmp_path}/script)"; complete -p sglang-hydra'
    assert wanted in typed_in(["bash", "--norc", "--noprofile", "-i"], setting, line, wanted)


@pytest.mark.long
@pytest.mark.parametrize(("line", "wanted"), TYPED)
def test_the_tab_key_of_zsh_completes(line: str, wanted: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("zsh"))
    setting = f'autoload -U compinit; compinit -u -d {tmp_path}/dump; eval "$(cat {tmp_path}/script)"'
    assert wanted in typed_in(["zsh", "-f", "-i"], setting, line, wanted)


@pytest.mark.long
def test_zsh_takes_the_script(tmp_path: Path) -> None:
    assert shutil.which("zsh"), "the shell is missing: apt-get install zsh"
    (tmp_path / "script").write_text(script("zsh"))
    code = (
        "compdef() {}; compadd() { print -- $* }; source ./script;"
        "BUFFER='sglang-hydra plan gpu=b20'; CURSOR=${#BUFFER}; _sglang_hydra"
    )
    ended = subprocess.run(["zsh", "-f", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "gpu=b200" in ended.stdout, ended.stderr


@pytest.mark.parametrize("words", [[], ["fish"], ["bash", "zsh"]])
def test_other_shells_are_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["completion", *words]) == 2
    assert "bash, zsh" in capsys.readouterr().err
