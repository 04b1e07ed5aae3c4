"""Whose token the hub is asked with: the user's for a model that was typed, nobody's for one that a file names."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sglang_hydra.cli.main import entry
from tests.commands import Printed, Run

YAML = "gpu: h200\nmodel: org/name\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def of(*words: str) -> Printed:
        code = entry(words)
        return Printed(code, *capsys.readouterr())

    return of


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A hub that gives a config.json to anybody: with which token each time."""
    found: list[Any] = []
    file = tmp_path / "snapshots" / ("a" * 40) / "config.json"
    file.parent.mkdir(parents=True)
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
    known = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "intermediate_size": 1024}
    file.write_text(json.dumps({**known, **dict.fromkeys(fields, 1024)}))
    module: Any = ModuleType("huggingface_hub")
    module.hf_hub_url = lambda *args, **kwargs: "http://127.0.0.1/"

    def download(repo_id: str, filename: str, **options: Any) -> str:
        found.append("the user's" if options.get("token") is None else options["token"])
        return str(file)

    module.hf_hub_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setattr("sglang_hydra.facts.hub._reach", lambda url: None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return found


@pytest.mark.parametrize(
    ("words", "token"),
    [
        (("plan", "mine.yaml"), False),
        (("check", "mine.yaml"), False),
        (("check", "."), False),
        (("fit", "mine.yaml"), False),
        (("diff", "mine.yaml", "gpu=h200 model=qwen3_8b"), False),
        (("explain", "tp_size", "mine.yaml"), False),
        (("export", "shell", "mine.yaml"), False),
        (("upgrade", "--to", "0.5.3", "mine.yaml"), False),
        (("bench", "mine.yaml", "bench.input_len=64", "sweep.dry_run=true"), False),
        (("plan", "mine.yaml", "--hub-token"), "the user's"),
        (("plan", "mine.yaml", "model=org/name"), "the user's"),
        (("plan", "gpu=h200", "model=org/name"), "the user's"),
        (("plan", "gpu=h200", "--", "--model-path", "org/name"), "the user's"),
    ],
)
def test_a_model_that_a_file_names_is_looked_up_anonymously(
    words: Sequence[str], token: Any, run: Run, tokens: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    done = run(*words)
    assert done.code == 0, done.out + done.err
    assert set(tokens) == {token}


def test_a_draft_that_a_file_names_is_looked_up_anonymously(run: Run, tokens: list[Any], tmp_path: Path) -> None:
    draft = "speculative_algorithm: EAGLE\nspeculative_draft_model_path: org/draft\n"
    (tmp_path / "mine.yaml").write_text(f"gpu: h200\nmodel: qwen3_8b\n{draft}")
    run("plan", "mine.yaml")
    assert tokens == [False]


def test_the_plan_says_what_the_settings_decided(run: Run, tokens: list[Any], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    assert "org/name on the hub with your token, as --hub-token allows" in run("plan", "mine.yaml", "--hub-token").out
    tokens.clear()
    said = " ".join(run("plan", "mine.yaml", "--no-fetch").out.split())
    assert "the hub was not asked: a file names the model, and fetch is off (--no-fetch)" in said
    assert tokens == []


@pytest.mark.parametrize("words", [("import", "launch.sh"), ("diagnose", "server.log"), ("recipes", "gpu=h200")])
def test_verbs_that_only_read_ask_the_hub_for_no_model(
    words: Sequence[str], run: Run, tokens: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "launch.sh").write_text("python -m sglang.launch_server --model-path org/name\n")
    (tmp_path / "server.log").write_text("server_args=ServerArgs(model_path='org/name')\nKilled\n")
    assert run(*words).code == 0
    assert tokens == []
