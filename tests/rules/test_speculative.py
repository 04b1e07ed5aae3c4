"""Draft settings."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import speculative
from tests.rules.cases import MODEL_PATH, Row, changed, unchanged

ROWS = (
    changed(speculative.nextn_is_eagle, {"speculative_algorithm": "EAGLE"}, speculative_algorithm="NEXTN"),
    unchanged(speculative.nextn_is_eagle, speculative_algorithm="EAGLE3"),
    unchanged(speculative.nextn_is_eagle, speculative_algorithm="nextn"),
    changed(speculative.limit_requests_when_drafting, {"max_running_requests": 48}, speculative_algorithm="EAGLE3"),
    unchanged(speculative.limit_requests_when_drafting, speculative_algorithm="EAGLE", max_running_requests=5),
    unchanged(speculative.limit_requests_when_drafting, speculative_algorithm="OTHER"),
    changed(
        speculative.no_overlap_when_drafting, {"disable_overlap_schedule": True}, speculative_algorithm="STANDALONE"
    ),
    unchanged(speculative.no_overlap_when_drafting, speculative_algorithm=""),
    changed(
        speculative.no_mixed_chunks_when_drafting,
        {"enable_mixed_chunk": False},
        speculative_algorithm="EAGLE",
        enable_mixed_chunk=True,
    ),
    unchanged(speculative.no_mixed_chunks_when_drafting, enable_mixed_chunk=True),
    changed(
        speculative.draft_with_own_layers,
        {"speculative_draft_model_path": MODEL_PATH},
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
    ),
    changed(
        speculative.draft_with_own_layers,
        {"speculative_draft_model_path": MODEL_PATH},
        model="glm_4_5",
        speculative_algorithm="EAGLE3",
    ),
    unchanged(speculative.draft_with_own_layers, model="llama_3_1_8b", speculative_algorithm="EAGLE"),
    unchanged(speculative.draft_with_own_layers, model="unknown", speculative_algorithm="EAGLE"),
    unchanged(
        speculative.draft_with_own_layers,
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
        speculative_draft_model_path="org/draft",
    ),
    changed(
        speculative.choose_draft_shape,
        {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
    ),
    changed(
        speculative.choose_draft_shape,
        {"speculative_num_steps": 5, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8},
        model="qwen3_8b",
        speculative_algorithm="EAGLE",
    ),
    changed(
        speculative.choose_draft_shape,
        {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
        model="unknown",
        speculative_algorithm="STANDALONE",
    ),
    unchanged(speculative.choose_draft_shape, model="unknown", speculative_algorithm="EAGLE"),
    unchanged(speculative.choose_draft_shape, speculative_algorithm="EAGLE", speculative_num_steps=0),
    unchanged(speculative.choose_draft_shape, speculative_algorithm="EAGLE", speculative_eagle_topk=4),
    unchanged(speculative.choose_draft_shape),
    changed(
        speculative.verify_a_whole_chain,
        {"speculative_num_draft_tokens": 6},
        speculative_algorithm="EAGLE",
        speculative_num_steps=5,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=2,
    ),
    unchanged(
        speculative.verify_a_whole_chain,
        speculative_algorithm="EAGLE",
        speculative_num_steps=5,
        speculative_eagle_topk=2,
        speculative_num_draft_tokens=2,
    ),
    unchanged(speculative.verify_a_whole_chain, speculative_algorithm="EAGLE", speculative_eagle_topk=1),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
