"""Draft settings."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged, warned

ROWS = (
    refused(
        TABLE["SPE002"],
        "STANDALONE",
        speculative_algorithm="STANDALONE",
        enable_dp_attention=True,
    ),
    unchanged(TABLE["SPE002"], speculative_algorithm="STANDALONE"),
    unchanged(TABLE["SPE002"], speculative_algorithm="EAGLE", enable_dp_attention=True),
    warned(
        TABLE["SPE007"],
        "org/draft",
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
        speculative_draft_model_path="org/draft",
    ),
    unchanged(
        TABLE["SPE007"],
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
        stands={"speculative_draft_model_path": "org/name"},
    ),
    unchanged(
        TABLE["SPE007"],
        model="llama_3_1_8b",
        speculative_algorithm="EAGLE",
        speculative_draft_model_path="org/draft",
    ),
    refused(TABLE["SPE008"], "topk=4", speculative_algorithm="EAGLE", speculative_eagle_topk=4),
    refused(
        TABLE["SPE008"],
        "draft_tokens=8",
        speculative_algorithm="EAGLE",
        speculative_num_draft_tokens=8,
    ),
    unchanged(TABLE["SPE008"], speculative_algorithm="EAGLE"),
    unchanged(TABLE["SPE008"], speculative_eagle_topk=4),
    refused(
        TABLE["SPE010"],
        "without speculative_eagle_topk",
        speculative_algorithm="EAGLE",
        speculative_num_steps=3,
    ),
    unchanged(TABLE["SPE010"], speculative_num_steps=3),
    unchanged(
        TABLE["SPE010"],
        speculative_algorithm="EAGLE",
        speculative_num_steps=3,
        speculative_eagle_topk=1,
    ),
    refused(
        TABLE["SPE011"],
        "got 4",
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=4,
        prefill_attention_backend="trtllm_mha",
    ),
    unchanged(
        TABLE["SPE011"],
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=1,
        attention_backend="trtllm_mha",
    ),
    unchanged(TABLE["SPE011"], speculative_algorithm="EAGLE", speculative_eagle_topk=4),
    refused(
        TABLE["SPE013"],
        "topk=4",
        "page_size=16",
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=4,
        page_size=16,
    ),
    unchanged(
        TABLE["SPE013"],
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=4,
        page_size=16,
        attention_backend="flashinfer",
    ),
    unchanged(
        TABLE["SPE013"],
        speculative_algorithm="EAGLE",
        speculative_eagle_topk=1,
        page_size=16,
    ),
    unchanged(TABLE["SPE013"], speculative_eagle_topk=4, page_size=16),
    refused(TABLE["SPE014"], "OTHER", speculative_algorithm="OTHER", enable_mixed_chunk=True),
    unchanged(TABLE["SPE014"], speculative_algorithm="OTHER"),
    unchanged(TABLE["SPE014"], enable_mixed_chunk=True),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
