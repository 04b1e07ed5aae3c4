"""Matrices that a quantized format does not let SGLang cut: refused while the layers are built."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_hydra import ModelFacts, resolve
from sglang_hydra.architecture.alignment import misaligned
from sglang_hydra.architecture.understanding import understand
from tests.fit.machines import dense, gpu, model

BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}


def problems(facts: ModelFacts, **arguments: Any) -> list[str]:
    values = resolve({"model_path": "org/model", **arguments}, gpu=gpu("h100"), model=facts, seed=1).values
    return misaligned(understand(values, gpu("h100"), facts))


@pytest.mark.parametrize(
    ("fields", "tp_size", "said"),
    [
        ({"quantization_config": BLOCKS, "intermediate_size": 4096}, 8, None),
        (
            {"quantization_config": BLOCKS, "intermediate_size": 1536},
            8,
            "mlp.gate_proj: 192 outputs on each GPU do not",
        ),
        ({"quantization_config": AWQ, "intermediate_size": 4096}, 8, None),
        ({"quantization_config": AWQ, "intermediate_size": 1536}, 8, "mlp.down_proj: 192 inputs on each GPU do not"),
        ({"quantization_config": GPTQ, "intermediate_size": 1536}, 8, "do not divide by the groups of 128"),
        ({"quantization_config": {**AWQ, "group_size": 64}, "intermediate_size": 1536}, 8, None),
        ({"quantization_config": {**BLOCKS, "ignored_layers": ["mlp"]}, "intermediate_size": 1536}, 8, None),
        ({"intermediate_size": 1536}, 8, None),
    ],
)
def test_a_cut_through_a_block_or_a_group_is_named(fields: dict[str, Any], tp_size: int, said: str | None) -> None:
    found = problems(dense(**fields), tp_size=tp_size)
    assert bool(found) is (said is not None), found
    assert said is None or said in "; ".join(found)


def test_experts_are_cut_at_blocks_unless_they_are_spread_whole() -> None:
    # Qwen3-235B-A22B-FP8 on eight GPUs: experts of 1536 / 8 = 192 columns, the known failure of tp 8 without ep.
    facts = model("Qwen/Qwen3-235B-A22B-FP8")
    assert "the experts: 192 outputs" in "; ".join(problems(facts, tp_size=8))
    assert problems(facts, tp_size=8, ep_size=2) == []
    assert problems(facts, tp_size=4) == []


def test_what_is_not_known_has_no_problem() -> None:
    assert problems(ModelFacts(None), tp_size=8) == []
