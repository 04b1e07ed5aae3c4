"""Draft models: what they add to the target's weights and cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_hydra import ModelFacts, resolve
from sglang_hydra.architecture.understanding import understand
from sglang_hydra.fit.sizing import Draft, draft_of, fit
from tests.fit.machines import GIB, REPOSITORY, dense, gpu, model, sized
from tests.plans import composer

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


FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def own_draft(name: str, **fields: Any) -> Draft:
    """What the next-token layer of a whole config in conf/configs takes on one H200 of 0.5.18."""
    config = json.loads((REPOSITORY / "conf" / "configs" / f"{name}.json").read_text(encoding="utf-8")) | fields
    values = {"tp_size": 1, "speculative_algorithm": "EAGLE"}
    known = understand(values, gpu("h200"), ModelFacts(config), "0.5.18")
    assert known.config is not None
    assert known.decoder is not None
    return draft_of(known.config, values, known.layout, gpu("h200"), known.decoder, True, "0.5.18")


@pytest.mark.parametrize(
    ("made", "weights", "loaded"),
    [
        (("Qwen--Qwen3.5-27B", {}), 0.79, 5.53),  # as two servers of this shape logged it
        (("Qwen--Qwen3.5-27B", {"quantization_config": FP8_BLOCKS}), 0.45, 5.18),
        (("nvidia--Qwen3.6-27B-NVFP4", {}), 0.79, 5.53),
    ],
)
def test_a_draft_is_built_with_an_embedding_and_a_head_that_the_targets_replace(
    made: tuple[str, dict[str, Any]], weights: float, loaded: float
) -> None:
    draft = own_draft(made[0], **made[1])
    assert draft.weights / GIB == pytest.approx(weights, abs=0.01)
    assert (draft.weights + draft.replaced) / GIB == pytest.approx(loaded, abs=0.01)


@pytest.mark.parametrize("preset", ["qwen3_5_397b", "qwen3_6_35b_nvfp4", "glm_4_6", "glm_5_2_fp8", "step_3_7_flash"])
def test_a_preset_with_next_token_layers_says_how_many(preset: str) -> None:
    facts = composer().model_presets().facts_named(preset)
    assert facts is not None
    values = {"tp_size": 8, "speculative_algorithm": "EAGLE"}
    known = understand(values, gpu("b200"), facts, "0.5.20")
    assert known.config is not None
    assert known.decoder is not None
    assert draft_of(known.config, values, known.layout, gpu("b200"), known.decoder, True, "0.5.20").replaced > 0


def test_a_release_sizes_the_pool_while_the_draft_holds_both() -> None:
    arguments = {"mem_fraction_static": 0.85, "speculative_algorithm": "EAGLE", "disable_cuda_graph": True, **MTP}
    config = {**(dense().config or {}), "num_nextn_predict_layers": 1}
    facts = ModelFacts(config)
    values = dict(resolve({"model_path": "org/model", **arguments}, gpu=gpu("l4"), model=facts, seed=1).values)
    rooms = []
    for release in ("0.5.13", "0.5.14"):
        found = fit(values, gpu("l4"), facts, release=release)
        assert found.kv is not None
        assert found.kv.tokens is not None
        assert found.draft is not None
        rooms.append(found.kv.tokens * (5 if release == "0.5.14" else 4) * 2 * 2 * 128 * 2)
    layer, both = LAYER + 2 * 1024 * 1024 * 2, 2 * 32000 * 1024 * 2
    assert rooms[0] - rooms[1] == pytest.approx(layer + both, rel=0.001)


@pytest.mark.parametrize(
    ("draft", "algorithm", "replaced"),
    [
        (eagle("LlamaForCausalLMEagle"), "EAGLE", 2 * 32000 * 1024 * 2),
        (eagle("LlamaForCausalLMEagle3", draft_vocab_size=8000), "EAGLE3", 32000 * 1024 * 2),
    ],
)
def test_an_eagle_draft_is_built_with_an_embedding_too(draft: ModelFacts, algorithm: str, replaced: int) -> None:
    values = {"speculative_algorithm": algorithm}
    known, own = (understand(values, gpu("l4"), facts, "0.5.18") for facts in (dense(), draft))
    assert known.decoder is not None
    assert own.config is not None
    assert draft_of(own.config, values, own.layout, gpu("l4"), known.decoder, False, "0.5.18").replaced == replaced


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
