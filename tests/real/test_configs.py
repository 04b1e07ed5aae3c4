"""The real SGLang 0.5.2 reads model folders itself, and refuses and accepts what their plans say."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.facts.trust import grant
from sglang_hydra.planning.comparing.installed import ask_about
from sglang_hydra.planning.making.make import plan
from sglang_hydra.releases.case import folder_to_read
from tests.conformance_configs import recorded

SIZES = {"num_hidden_layers": 16, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 96}
LLAVA = {"model_type": "llava", **SIZES}
QWEN2_VL = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}
NO_ARCHITECTURE: dict[str, Any] = {"architectures": [], "model_type": "llama"}
NAMED = """json_model_override_args='{"architectures":["LlamaForCausalLM"]}'"""
GPT_OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}
FOLDERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "llava of Qwen": ({"architectures": ["LlavaQwenForCausalLM"], **LLAVA}, ()),
    "llava of Llama": ({"architectures": ["LlavaLlamaForCausalLM"], **LLAVA}, ()),
    "Qwen2-VL with depth": (
        {
            "architectures": ["Qwen2VLForConditionalGeneration"],
            "model_type": "qwen2_vl",
            "vision_config": {"depth": 32},
        },
        (),
    ),
    "Mllama": ({"architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama"}, ()),
    "no architecture": ({"architectures": [], "model_type": "llama"}, ()),
    "no architecture, overridden": ({"architectures": [], "model_type": "llama"}, (NAMED,)),
    "no architecture, fraction given": (
        {"architectures": [], "model_type": "llama"},
        (NAMED, "mem_fraction_static=0.8"),
    ),
    "null, overridden": ({"architectures": None, "model_type": "llama"}, (NAMED,)),
    "gpt-oss": (GPT_OSS, ()),
    "unknown type": ({"architectures": ["LlamaForCausalLM"], "model_type": "llava_qwen"}, ()),
    "text part overridden": (
        QWEN2_VL,
        ("""json_model_override_args='{"text_config":{"num_attention_heads":4}}'""",),
    ),
}
SAMPLE = 60


def written(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return f"model_path={folder}"


@pytest.mark.parametrize("gpu", ["h100", "b200", "mi300x", "cpu"])
def test_0_5_2_refuses_and_accepts_what_the_plans_of_folders_say(
    gpu: str, sglang_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)
    drawn = random.Random(f"configs {gpu}").sample(recorded(), SAMPLE)
    words = [
        (written(tmp_path / "00" / str(number), config), *more)
        for number, (config, more) in enumerate(
            [*FOLDERS.values(), *((record["case"]["config"], ()) for record in drawn)]
        )
    ]
    plans = [plan([f"gpu={gpu}", "random_seed=1", *each]) for each in words]
    grant(sglang_python)
    answers = [ask_about(made, sglang_python) for made in plans]
    for made, (answer, compared) in zip(plans, answers, strict=True):
        assert answer.ok is made.resolution.ok, (made.model.config, answer)
        assert compared is None or compared.differences == (), (made.model.config, compared)
        assert folder_to_read(made.model, made.values) is not None
    assert {answer.ok for answer, _ in answers} == {True, False}
