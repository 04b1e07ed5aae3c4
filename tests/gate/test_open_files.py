"""Files that leave something open: what they do not say refuses nothing, and what is wrong whatever it is does."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.planning.recorded.input_files import StartsNothing
from sglang_hydra.show.verdicts import Checked, verdicts_on
from tests.plans import without_accelerator, without_engines

LAUNCH = "python3 -m sglang.launch_server --model-path"
COMPOSER = Composer()


@pytest.fixture(autouse=True)
def _without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    without_accelerator(monkeypatch)


def judged(folder: Path, text: str, name: str = "serve.sh", *words: str) -> Checked:
    (folder / name).write_text(text, encoding="utf-8")
    typed = [Request(word, "argument 2") for word in words]
    requests = [Request(str(folder / name), "argument 1"), *typed]
    ((_, verdict),) = verdicts_on(COMPOSER, requests, seed=42, others=native_reader(COMPOSER, typed))
    return verdict


@pytest.mark.parametrize(
    ("flags", "errors"),
    [
        ("Qwen/Qwen3-8B --tp 4", []),
        ("Qwen/Qwen3-8B --tp 3", ["CFG004"]),
        ("Qwen/Qwen3-8B --tp 4 --attention-backend fa3", []),  # on Hopper
        ("Qwen/Qwen3-32B --tp 16", []),  # a node may have 16 GPUs
        ("openai/gpt-oss-120b", []),  # not on 80 GB
        ("deepseek-ai/DeepSeek-V3 --trust-remote-code", ["FIT001"]),  # on no GPU
        ("Qwen/Qwen3-8B --device cpu", []),
    ],
)
def test_a_file_without_a_gpu_is_refused_only_for_what_every_gpu_refuses(
    tmp_path: Path, flags: str, errors: list[str]
) -> None:
    verdict = judged(tmp_path, f"{LAUNCH} {flags}\n")
    assert [item.id for item in verdict.findings if item.level == "error"] == errors
    if "cpu" not in flags:
        assert verdict.findings[0].id == "IMP010"
        assert verdict.launchable is (False if errors else None)
        named = judged(tmp_path, f"{LAUNCH} {flags}\n", "s.sh", "gpu=h200").findings
        assert "IMP010" not in {item.id for item in named}


def test_one_of_several_named_gpus_decides_nothing(tmp_path: Path) -> None:
    text = f"# for A100-80GB and H200\n{LAUNCH} deepseek-ai/DeepSeek-V3 --tp 8 --trust-remote-code\n"
    assert "error" not in {item.level for item in judged(tmp_path, text).findings}


@pytest.mark.parametrize("line", ["", "pip install sglang==0.5.6.post2.dev8005\n", "# runs a patched SGLang\n"])
def test_a_flag_of_an_own_build_is_a_warning(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, f"{line}{LAUNCH} Qwen/Qwen3-8B --enable-mtp\n", "serve.sh", "gpu=h100")
    assert {item.level for item in verdict.findings if item.id == "ARG010"} == {"warning" if line else "error"}


def test_an_empty_default_of_a_script_is_open(tmp_path: Path) -> None:
    verdict = judged(tmp_path, f'MODEL=""\n{LAUNCH} "$MODEL" --tp 2\n', "serve.sh", "gpu=h100")
    assert "error" not in {item.level for item in verdict.findings}


def test_prose_that_names_a_command_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Use `python -m sglang.launch_server` or `sglang serve` here.\n")
    with pytest.raises(StartsNothing):
        native_reader(COMPOSER)(tmp_path / "a.md", (tmp_path / "a.md").read_text())


def test_a_rank_that_no_node_has_is_refused(tmp_path: Path) -> None:
    flags = "--tp 16 --nnodes 2 --node-rank 2 --dist-init-addr 10.0.0.1:5000 --trust-remote-code"
    verdict = judged(tmp_path, f"{LAUNCH} deepseek-ai/DeepSeek-R1 {flags}\n", "serve.sh", "gpu=h100")
    assert "NOD001" in verdict.error_ids
