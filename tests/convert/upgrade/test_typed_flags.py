"""Every flag that was typed is in the new command, or is named with what became of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_hydra.cli.main import entry

PREFILL = (
    "--tp 8 --disaggregation-mode prefill --disable-cuda-graph --load-balance-method round_robin "
    "--chunked-prefill-size 8192 --mem-fraction-static 0.85 --trust-remote-code --disable-radix-cache "
    "--disaggregation-transfer-backend nixl"
)


def upgraded(capsys: pytest.CaptureFixture[str], words: str, typed: str) -> tuple[dict[str, Any], str]:
    """The record of an upgrade, and its screen."""
    command = [*words.split(), "--", "python", "-m", "sglang.launch_server", *typed.split()]
    assert entry(["upgrade", "--json", *command]) == 0
    (server,) = json.loads(capsys.readouterr().out)["servers"]
    assert entry(["upgrade", *command]) == 0
    return server, capsys.readouterr().out


def test_a_prefill_server_with_nine_flags_keeps_all_nine(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--from 0.5.7 --to 0.5.23 gpu=h200"
    server, _ = upgraded(capsys, words, f"--model-path deepseek-ai/DeepSeek-V3 {PREFILL}")
    line = f" {' '.join(server['command'])} "
    for flag in PREFILL.replace("--tp ", "--tp-size ").split(" --"):
        flag = flag.removeprefix("--").strip()
        assert f" --{flag} " in line
    assert server["breaks"] == []


def test_old_flags_stand_among_the_renamed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "--disable-piecewise-cuda-graph --mamba-scheduler-strategy extra_buffer"
    words = "--from 0.5.19 --to 0.5.20 gpu=h200"
    server, screen = upgraded(capsys, words, f"--model-path Qwen/Qwen3-Next-80B-A3B-Instruct --tp 4 {typed}")
    assert sorted((item["before"], item["after"]) for item in server["renamed"]) == [
        (["--disable-piecewise-cuda-graph"], ["--cuda-graph-backend-prefill", "disabled"]),
        (["--mamba-scheduler-strategy", "extra_buffer"], ["--mamba-radix-cache-strategy", "extra_buffer"]),
    ]
    assert "IMP008" not in {finding["id"] for finding in server["findings"]}
    assert "--mamba-scheduler-strategy extra_buffer  ->  --mamba-radix-cache-strategy extra_buffer" in screen
    assert "0 arguments break, 2 renamed" in screen


def test_flags_alone_are_those_of_the_model_that_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    words = "upgrade --from 0.5.19 --to 0.5.20 gpu=h200 model=qwen3_8b -- --mamba-scheduler-strategy extra_buffer"
    assert entry(words.split()) == 0
    assert "--model-path Qwen/Qwen3-8B --mamba-radix-cache-strategy extra_buffer" in capsys.readouterr().out


def test_why_values_cannot_be_compared_is_said_with_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    words = "upgrade --from 0.5.5 --to 0.5.23 gpu=h200 model_path=some/model tp_size=2"
    assert entry(words.split()) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "is not known: 0.5.5: the model's config.json is not known: model.facts_from=PRESET" in screen
    assert "0.5.2's rules" not in screen


def test_an_old_flag_that_0_5_2_has_too_is_renamed(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "--model-path Qwen/Qwen3-8B --cuda-graph-max-bs 64"
    server, _ = upgraded(capsys, "--from 0.5.19 --to 0.5.23 gpu=h200", typed)
    assert [(item["before"], item["after"]) for item in server["renamed"]] == [
        (["--cuda-graph-max-bs", "64"], ["--cuda-graph-max-bs-decode", "64"])
    ]
