"""Which releases have a class for a model."""

from __future__ import annotations

import pytest

from sglang_hydra.architecture.reading_layers import ENCODERS, KNOWN
from sglang_hydra.arguments.tables.table import first_release_of, has_class, known_versions, last_release


@pytest.mark.parametrize(
    ("architecture", "first"),
    [
        ("LlamaForCausalLM", "0.5.2"),
        ("DeepseekV32ForCausalLM", "0.5.3"),
        ("MiniMaxM2ForCausalLM", "0.5.4.post1"),
        ("Qwen3_5ForConditionalGeneration", "0.5.9"),
        ("DeepseekV4ForCausalLM", "0.5.12"),
        ("KimiK3ForConditionalGeneration", "0.5.17"),
        ("NobodyForCausalLM", None),
    ],
)
def test_the_first_release_of_a_class(architecture: str, first: str | None) -> None:
    assert first_release_of([architecture]) == first
    assert first_release_of([]) is None


def test_the_first_class_that_a_release_has_serves_the_model() -> None:
    assert first_release_of(["NobodyForCausalLM", "DeepseekV4ForCausalLM", "Glm4MoeForCausalLM"]) == "0.5.2"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.2", False),
        ("0.5.8", False),
        ("0.5.8.post1", False),
        ("0.5.9", True),
        ("0.5.9rc1", True),
        ("0.5.10.post1", True),
        ("0.5.23", True),
        ("0.6.0", True),
        ("0.4.0", None),
        ("main", None),
    ],
)
def test_a_release_has_a_class_from_its_first_on(version: str, expected: bool | None) -> None:
    assert has_class(version, ["GlmMoeDsaForCausalLM"]) is expected


def test_a_class_can_be_taken_out_and_a_later_release_may_bring_one() -> None:
    assert has_class("0.5.2", ["VILAForConditionalGeneration"]) is True
    assert has_class("0.5.23", ["VILAForConditionalGeneration"]) is False
    assert has_class("0.5.23", ["NobodyForCausalLM"]) is False
    assert has_class("0.6.0", ["NobodyForCausalLM"]) is None


def test_the_table_ends_with_the_releases_and_agrees_with_what_is_known_of_0_5_2() -> None:
    assert last_release() == known_versions()[-1]
    assert [name for name in (*KNOWN, *ENCODERS) if not has_class("0.5.2", [name])] == []
