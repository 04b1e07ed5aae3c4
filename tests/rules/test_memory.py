"""Memory fractions and page sizes."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import memory
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.807}, gpu="t4", stands={"device": "cuda"}),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.879}, gpu="rtx_4090"),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.831}, gpu="h100", tp_size=8),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.831}, gpu="h100", tp_size=4, pp_size=2),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.869}, gpu="h20"),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.886}, gpu="h200", tp_size=8),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.821}, gpu="b200", tp_size=8),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.849}, gpu="h100", speculative_algorithm="NEXTN"),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.799}, gpu="h100", speculative_algorithm="STANDALONE"),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.78}, gpu="h100", tp_size=8, enable_dp_attention=True),
    changed(memory.choose_mem_fraction, {"mem_fraction_static": 0.874}, gpu="h100", device="cpu"),
    unchanged(memory.choose_mem_fraction, mem_fraction_static=0.0),
    unchanged(memory.choose_mem_fraction, gpu="cpu", device="cpu"),
    changed(TABLE["MEM002"], {"mem_fraction_static": 0.88}, gpu="xpu", device="xpu"),
    unchanged(TABLE["MEM002"], stands={"mem_fraction_static": 0.5}),
    changed(
        memory.make_room_for_vision,
        {"mem_fraction_static": 0.8 * (0.95 * 0.94375)},
        model="qwen2_5_vl_7b",
        stands={"mem_fraction_static": 0.8},
    ),
    changed(
        memory.make_room_for_vision,
        {"mem_fraction_static": 0.8 * (0.95 * 0.8)},
        model="internvl_26b",
        stands={"mem_fraction_static": 0.8},
    ),
    changed(
        memory.make_room_for_vision,
        {"mem_fraction_static": 0.8 * 0.95},
        model="qwen2_5_vl_7b",
        stands={"mem_fraction_static": 0.8},
        json_model_override_args='{"vision_config": {"num_hidden_layers": 99}}',
    ),
    changed(
        memory.make_room_for_vision,
        {"mem_fraction_static": 0.8 * (0.95 * (1.0 - 0.1 * (26 * 1152**2 / (24 * 1024**2) - 1.0)))},
        model="phi4mm",
        stands={"mem_fraction_static": 0.8},
    ),
    changed(
        memory.make_room_for_vision,
        {"mem_fraction_static": 0.8 * (0.95 * (1.0 - 0.1 * (24 * 1152**2 / (24 * 1024**2) - 1.0)))},
        model="gemma_3_27b",
        stands={"mem_fraction_static": 0.8},
        enable_multimodal=True,
    ),
    unchanged(memory.make_room_for_vision, model="gemma_3_27b", stands={"mem_fraction_static": 0.8}),
    unchanged(memory.make_room_for_vision, model="qwen2_5_vl_7b", mem_fraction_static=0.8),
    unchanged(
        memory.make_room_for_vision,
        model="qwen2_5_vl_7b",
        stands={"mem_fraction_static": 0.8},
        json_model_override_args='{"vision_config": null}',
    ),
    unchanged(
        memory.make_room_for_vision,
        model="qwen2_5_vl_7b",
        stands={"mem_fraction_static": 0.8},
        enable_multimodal=False,
    ),
    unchanged(memory.make_room_for_vision, model="llama_3_1_8b", stands={"mem_fraction_static": 0.8}),
    unchanged(memory.make_room_for_vision, model="unknown", stands={"mem_fraction_static": 0.8}),
    changed(TABLE["PAG001"], {"page_size": 128}, attention_backend="ascend"),
    unchanged(TABLE["PAG001"], decode_attention_backend="ascend", prefill_attention_backend="ascend"),
    changed(TABLE["PAG002"], {"page_size": 64}, attention_backend="flashmla", page_size=32),
    changed(TABLE["PAG002"], {"page_size": 64}, decode_attention_backend="flashmla"),
    unchanged(TABLE["PAG002"], prefill_attention_backend="flashmla"),
    changed(TABLE["PAG003"], {"page_size": 128}, decode_attention_backend="cutlass_mla"),
    unchanged(TABLE["PAG003"], prefill_attention_backend="cutlass_mla"),
    changed(TABLE["PAG004"], {"page_size": 64}, attention_backend="trtllm_mla", page_size=16),
    unchanged(TABLE["PAG004"], attention_backend="trtllm_mla", page_size=32),
    unchanged(TABLE["PAG004"], prefill_attention_backend="trtllm_mla"),
    changed(TABLE["PAG005"], {"page_size": 64}, prefill_attention_backend="trtllm_mha", page_size=128),
    unchanged(TABLE["PAG005"], attention_backend="trtllm_mha", page_size=16),
    changed(TABLE["PAG006"], {"page_size": 1}),
    unchanged(TABLE["PAG006"], page_size=0),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
