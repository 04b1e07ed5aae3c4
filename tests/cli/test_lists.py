"""Lists of the catalog: what a word matches, whole sources where they are piped, ids with what they mean."""

from __future__ import annotations

import json
import re

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.cli.recipes import matches
from sglang_hydra.compose.recipes import recipes
from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2


@pytest.mark.parametrize(
    ("asked", "name", "key", "found"),
    [
        ("a10", "a100_80gb", "gpu", False),
        ("a100", "a100_80gb", "gpu", True),
        ("h100", "h100", "gpu", True),
        ("h100", "h100_pcie", "gpu", False),
        ("H100,t4", "h100", "gpu", True),
        ("00", "h100", "gpu", False),
        ("llama", "llama_3_1_8b", "model", True),
        ("latency", "low-latency", "scenario", True),
        (None, "h100", "gpu", True),
    ],
)
def test_a_gpu_is_matched_as_a_class_and_a_model_by_a_part(asked: str | None, name: str, key: str, found: bool) -> None:
    assert matches(asked, name, key) == found


def test_a_source_is_whole_where_it_is_piped(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["recipes", "gpu=h100", "model=llama"]) == 0
    shown = capsys.readouterr().out
    listed = [recipe for recipe in recipes().values() if recipe.gpu == "h100" and "llama" in recipe.model]
    assert listed
    assert all(recipe.source in shown for recipe in listed)


@pytest.mark.parametrize("words", [["recipes", "gpu=h100", "model=llama"], ["audit", "gpu=t4", "model=gpt_oss"]])
def test_each_id_in_a_list_is_explained_below_it(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(words) == 0
    table, _, legend = capsys.readouterr().out.rpartition("\n\n")
    ids = set(re.findall(r"\b[A-Z]{3}\d{3}\b", table))
    assert ids
    assert ids <= set(re.findall(r"^  ([A-Z]{3}\d{3})  \w", legend, re.MULTILINE))


def test_a_word_that_matches_nothing_gets_a_short_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["recipes", "gpu=a10", "--json"]) == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["hint"].count(",") <= 5
    assert "more: sglang-hydra recipes" in finding["hint"]
