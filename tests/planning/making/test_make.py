"""What ``plan`` takes: words, a dict, keywords; and what it refuses before it plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sglang_hydra


@pytest.mark.parametrize("overrides", ["gpu=h200 tp_size=2", {1: 2}, None, 5, ["gpu=h200", 3]], ids=str)
def test_what_is_no_list_of_words_is_a_type_error(overrides: Any) -> None:
    with pytest.raises(TypeError, match="list of words"):
        sglang_hydra.plan(overrides)


def test_a_dict_and_keywords_are_planned_as_words_are() -> None:
    texts = {"model_path": "a/b c", "json_model_override_args": '{"a": "${b}"}'}
    by_words = sglang_hydra.plan(["gpu=h200", "model=qwen3_8b", "tp_size=2", "quantization=null"])
    assert (
        by_words.command
        == sglang_hydra.plan({"tp_size": 2, "quantization": None}, gpu="h200", model="qwen3_8b").command
    )
    assert by_words.command == sglang_hydra.plan(["gpu=h200", "quantization=null"], model="qwen3_8b", tp_size=2).command
    by_path = sglang_hydra.plan({"model_path": Path("/models/x")}, gpu="h200")
    assert by_path.intent["model_path"] == "/models/x"
    assert {**texts, "gpu": None}.items() >= sglang_hydra.plan(texts, gpu="h200").intent.items()
    with pytest.raises(sglang_hydra.ConfigError) as caught:
        sglang_hydra.plan({"tp": 2}, gpu="h200")
    assert caught.value.findings[0].hint == "did you mean tp_size?"
