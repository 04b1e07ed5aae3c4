"""Formats and places of weights."""

from __future__ import annotations

import pytest

from sglang_hydra.rules import loading
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, changed, unchanged

ROWS = (
    changed(TABLE["LOD002"], {"load_format": "gguf", "quantization": "gguf"}, model_path="a.gguf"),
    changed(
        TABLE["LOD002"],
        {"load_format": "gguf", "quantization": "gguf"},
        model_path="a.gguf",
        load_format="gguf",
        quantization="fp8",
    ),
    unchanged(TABLE["LOD002"], model_path="a.gguf", load_format="dummy"),
    unchanged(TABLE["LOD002"], model_path="org/name"),
    changed(loading.load_from_remote, {"load_format": "remote"}, model_path="s3://bucket/model", load_format="pt"),
    changed(loading.load_from_remote, {"load_format": "remote"}, model_path="a://"),
    changed(loading.load_from_remote, {"load_format": "remote"}, model_path="://a://b"),
    unchanged(loading.load_from_remote, model_path="://x"),
    unchanged(loading.load_from_remote, model_path="s3:/x"),
    unchanged(loading.load_from_remote, model_path="C:\\m"),
    changed(TABLE["LOD004"], {"custom_weight_loader": []}),
    unchanged(TABLE["LOD004"], custom_weight_loader=["a.b"]),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rule_answers_as_its_row_says(row: Row) -> None:
    row.check()
