"""Draft settings."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import speculative
from tests.rules.cases import Row, refused, unchanged, warned

ROWS = (
    refused(
        speculative.standalone_draft_without_dp_attention,
        "STANDALONE",
        speculative_algorithm="STANDALONE",
        enable_dp_attention=True,
    ),
    unchanged(speculative.standalone_draft_without_dp_attention, speculative_algorithm="STANDALONE"),
    unchanged(
        speculative.standalone_draft_without_dp_attention, speculative_algorithm="EAGLE", enable_dp_attention=True
    ),
    warned(
        speculative.own_layers_beat_another_draft,
        "org/draft",
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
        speculative_draft_model_path="org/draft",
    ),
    unchanged(
        speculative.own_layers_beat_another_draft,
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
        stands={"speculative_draft_model_path": "org/name"},
    ),
    unchanged(
        speculative.own_layers_beat_another_draft,
        model="llama_3_1_8b",
        speculative_algorithm="EAGLE",
        speculative_draft_model_path="org/draft",
    ),
    refused(
        speculative.draft_shape_starts_with_steps, "topk=4", speculative_algorithm="EAGLE", speculative_eagle_topk=4
    ),
    refused(
        speculative.draft_shape_starts_with_steps,
        "draft_tokens=8",
        speculative_algorithm="EAGLE",
        speculative_num_draft_tokens=8,
    ),
    unchanged(speculative.draft_shape_starts_with_steps, speculative_algorithm="EAGLE"),
    unchanged(speculative.draft_shape_starts_with_steps, speculative_eagle_topk=4),
    refused(
        speculative.draft_shape_has_topk,
        "without speculative_eagle_topk",
        speculative_algorithm="EAGLE",
        speculative_num_steps=3,
    ),
    unchanged(speculative.draft_shape_has_topk, speculative_num_steps=3),
    unchanged(
        speculative.draft_shape_has_topk,
        speculative_algorithm="EAGLE",
        speculative_num_steps=3,
        speculative_eagle_topk=1,
    ),
    refused(
        speculative.trtllm_mha_verifies_chains,
        "got 4",
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=4,
        prefill_attention_backend="trtllm_mha",
    ),
    unchanged(
        speculative.trtllm_mha_verifies_chains,
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=1,
        attention_backend="trtllm_mha",
    ),
    unchanged(speculative.trtllm_mha_verifies_chains, speculative_algorithm="EAGLE", speculative_eagle_topk=4),
    refused(
        speculative.trees_need_pages_of_one,
        "topk=4",
        "page_size=16",
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=4,
        page_size=16,
    ),
    unchanged(
        speculative.trees_need_pages_of_one,
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=4,
        page_size=16,
        attention_backend="flashinfer",
    ),
    unchanged(
        speculative.trees_need_pages_of_one,
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=1,
        page_size=16,
    ),
    unchanged(speculative.trees_need_pages_of_one, speculative_eagle_topk=4, page_size=16),
    refused(speculative.drafts_without_mixed_chunks, "OTHER", speculative_algorithm="OTHER", enable_mixed_chunk=True),
    unchanged(speculative.drafts_without_mixed_chunks, speculative_algorithm="OTHER"),
    unchanged(speculative.drafts_without_mixed_chunks, enable_mixed_chunk=True),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
