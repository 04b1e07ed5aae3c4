"""Draft models: what they add to the target's weights and cache."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_hydra import ModelFacts
from tests.fit.machines import GIB, dense, model, sized

V3 = "deepseek-ai/DeepSeek-V3"
MTP = {"speculative_num_steps": 1, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 2}


def eagle(architecture: str, **fields: Any) -> ModelFacts:
    return dense(architectures=[architecture], num_hidden_layers=1, **fields)


def drafted(draft: ModelFacts, algorithm: str = "EAGLE") -> float:
    """Bytes of the draft's weights beside the small Llama."""
    arguments = {
        "speculative_algorithm": algorithm,
        "speculative_draft_model_path": "org/draft",
        "max_total_tokens": 100,
        **MTP,
    }
    fitted = sized("l4", dense(), arguments, draft=draft)
    assert fitted.draft is not None
    return fitted.draft.mid - 100 * 2 * 2 * 128 * 2 * (4 if algorithm == "STANDALONE" else 1)


LAYER = (8 + 2 * 2 + 8) * 128 * 1024 * 2 + 3 * 4096 * 1024 * 2


@pytest.mark.parametrize(
    ("draft", "algorithm", "size"),
    [
        (eagle("LlamaForCausalLMEagle"), "EAGLE", LAYER + 2 * 1024 * 1024 * 2),
        (
            eagle("LlamaForCausalLMEagle3", draft_vocab_size=8000),
            "EAGLE3",
            LAYER + 3 * 1024 * 1024 * 2 + (8 + 4) * 128 * 1024 * 2 + 8000 * 1024 * 2,
        ),
        (dense(), "STANDALONE", 4 * LAYER + 2 * 32000 * 1024 * 2 + 128 * 4096 * 4),
    ],
    ids=["eagle", "eagle3", "standalone"],
)
def test_a_draft_shares_what_it_does_not_have(draft: ModelFacts, algorithm: str, size: int) -> None:
    assert drafted(draft, algorithm) == pytest.approx(size, rel=0.02)


def test_next_token_layers_are_one_layer_more_of_the_target() -> None:
    fitted = sized("h200", V3, {"tp_size": 8, "speculative_algorithm": "EAGLE", **MTP})
    assert fitted.draft is not None
    assert fitted.kv is not None
    assert fitted.kv.size is not None
    layer = 256 * 3 * 7168 * 2048 / 8
    cache = fitted.kv.size / 61
    projection = 2 * 7168 * 7168 * 2
    assert fitted.draft.mid == pytest.approx(layer + cache + projection, rel=0.03)


def test_the_next_token_layer_of_an_nvfp4_checkpoint_is_in_16_bits() -> None:
    arguments = {"tp_size": 8, "quantization": "modelopt_fp4", "max_total_tokens": 64, **MTP}
    fitted = sized("b200", "nvidia/DeepSeek-R1-0528-FP4", {**arguments, "speculative_algorithm": "EAGLE"})
    assert fitted.draft is not None
    assert fitted.draft.mid > 256 * 3 * 7168 * 2048 / 8 * 2


def test_a_model_without_next_token_layers_cannot_draft_for_itself() -> None:
    arguments = {"tp_size": 16, "speculative_algorithm": "EAGLE", **MTP}
    fitted = sized("h200", "moonshotai/Kimi-K2-Instruct", arguments)
    assert fitted.fits is None
    assert fitted.unknown[0].startswith("num_nextn_predict_layers")


def test_a_draft_with_fields_missing_is_unknown() -> None:
    draft = ModelFacts({"architectures": ["LlamaForCausalLMEagle"], "hidden_size": 1024})
    arguments = {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "org/draft", **MTP}
    fitted = sized("l4", dense(), arguments, draft=draft)
    assert fitted.draft is None
    assert fitted.fits is None


def test_without_speculation_there_is_no_draft() -> None:
    draft = sized("h100", model("llama_3_1_8b")).draft
    assert draft is not None
    assert draft.high / GIB == 0
