"""Draft settings."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import speculative
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import MODEL_PATH, Row, changed, unchanged

ROWS = (
    changed(TABLE["SPE001"], {"speculative_algorithm": "EAGLE"}, speculative_algorithm="NEXTN"),
    unchanged(TABLE["SPE001"], speculative_algorithm="EAGLE3"),
    unchanged(TABLE["SPE001"], speculative_algorithm="nextn"),
    changed(TABLE["SPE003"], {"max_running_requests": 48}, speculative_algorithm="EAGLE3"),
    unchanged(TABLE["SPE003"], speculative_algorithm="EAGLE", max_running_requests=5),
    unchanged(TABLE["SPE003"], speculative_algorithm="OTHER"),
    changed(TABLE["SPE004"], {"disable_overlap_schedule": True}, speculative_algorithm="STANDALONE"),
    unchanged(TABLE["SPE004"], speculative_algorithm=""),
    changed(
        TABLE["SPE005"],
        {"enable_mixed_chunk": False},
        speculative_algorithm="EAGLE",
        enable_mixed_chunk=True,
    ),
    unchanged(TABLE["SPE005"], enable_mixed_chunk=True),
    changed(
        TABLE["SPE006"],
        {"speculative_draft_model_path": MODEL_PATH},
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
    ),
    changed(
        TABLE["SPE006"],
        {"speculative_draft_model_path": MODEL_PATH},
        model="glm_4_5",
        speculative_algorithm="EAGLE3",
    ),
    unchanged(TABLE["SPE006"], model="llama_3_1_8b", speculative_algorithm="EAGLE"),
    unchanged(TABLE["SPE006"], model="unknown", speculative_algorithm="EAGLE"),
    unchanged(
        TABLE["SPE006"],
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
        speculative_draft_model_path="org/draft",
    ),
    changed(
        TABLE["SPE009"],
        {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
        model="deepseek_v3",
        speculative_algorithm="EAGLE",
    ),
    changed(
        TABLE["SPE009"],
        {"speculative_num_steps": 5, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8},
        model="qwen3_8b",
        speculative_algorithm="EAGLE",
    ),
    changed(
        TABLE["SPE009"],
        {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
        model="unknown",
        speculative_algorithm="STANDALONE",
    ),
    unchanged(TABLE["SPE009"], model="unknown", speculative_algorithm="EAGLE"),
    unchanged(TABLE["SPE009"], speculative_algorithm="EAGLE", speculative_num_steps=0),
    unchanged(TABLE["SPE009"], speculative_algorithm="EAGLE", speculative_eagle_topk=4),
    unchanged(TABLE["SPE009"]),
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
