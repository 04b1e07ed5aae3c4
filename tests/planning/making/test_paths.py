"""Paths that are not there: relative ones are refused, absolute ones may be where the server runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_hydra.run.launch.preflight import path_findings
from tests.plans import H200, planned

CASES: list[tuple[str, str | None]] = [
    ("model=./nope", "PTH001"),
    ("model=../nope", "PTH001"),
    ("model_path=models/llama/nope", "PTH001"),
    ("model=/nope/model", "PTH002"),
    ("model=~/nope", "PTH002"),
    ("model=org/name", None),
    ("model_path=s3://bucket/a/b", None),
    ("model=./here", None),
    ("tokenizer_path=./nope", "PTH001"),
    ("tokenizer_path=org/name", None),
    ("speculative_draft_model_path=/nope", "PTH002"),
    ("chat_template=./nope.jinja", "PTH001"),
    ("chat_template=nope.jinja", "PTH001"),
    ("chat_template=/nope.jinja", "PTH002"),
    ("chat_template=llama-2", None),
    ("chat_template=here.jinja", None),
    ("quantization_param_path=nope.json", "PTH001"),
    ("init_expert_location=nope.pt", "PTH001"),
    ("init_expert_location=trivial", None),
    ("lora_paths=['sql=./nope']", "PTH001"),
    ("lora_paths=['sql=/nope']", "PTH002"),
    ("lora_paths={sql: ./nope}", "PTH001"),
    ("lora_paths=[org/name]", None),
    ("download_dir=./nope", None),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (tmp_path / "here.jinja").write_text("")
    (tmp_path / "Qwen3-8B").symlink_to(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("typed", "id"), CASES, ids=[typed for typed, _ in CASES])
def test_a_path_that_is_not_there_is_found(typed: str, id: str | None) -> None:
    plan = planned(*(H200 if not typed.startswith("model") else H200[:1]), typed)
    found = [finding for finding in plan.findings if finding.id.startswith("PTH")]
    assert [finding.id for finding in found] == ([id] if id else [])
    assert not found or found[0].level == {"PTH001": "error", "PTH002": "warning"}[found[0].id]
    assert not (id == "PTH001" and plan.launchable)


def test_an_absolute_path_has_to_be_here_where_the_server_is_to_run_here() -> None:
    plan = planned(*H200, "chat_template=/nope.jinja")
    assert [(item.level, item.id) for item in path_findings(plan)] == [("error", "PTH001")]


def test_a_folder_of_a_name_like_it_is_offered() -> None:
    (finding,) = [item for item in planned(*H200, "tokenizer_path=./qwen3-8b").findings if item.id == "PTH001"]
    assert finding.hint == "tokenizer_path=./Qwen3-8B"
