"""The presets of autumn 2026: the parameters that our sizing counts, against published numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from sglang_hydra.architecture.published_checkpoints import UNSIZED
from sglang_hydra.architecture.understanding import understand
from sglang_hydra.fit.colocate import parameters_of
from tests.plans import planned

BILLION = 1e9
GLM_4_7_FLASH_DRAFT = 1_278_055_424
"""Layer 47 of the checkpoint, which is counted in its 31,221,488,576 parameters and drafts."""
GLM_5_3_FLASH_DRAFT = 7_430_000_000
"""One more layer: 288 experts of 3 x 4096 x 2048, sparse attention, a projection of 8192 x 4096."""
MIMO_DRAFTS, MIMO_SOUND = 988_000_000, 261_100_000
"""Three layers that draft, and the encoder of sound, of the checkpoint's 310,775,040,000 parameters: not counted."""

# Preset, published parameters, the largest difference, the source.
NUMBERS = [
    ("glm_4_7", 355 * BILLION, 0.01, "github file index id 71497329899"),
    ("glm_4_7_flash", 31_221_488_576 - GLM_4_7_FLASH_DRAFT, 0.0005, "id 62624914535"),
    ("glm_5_3_flash_bf16", 321 * BILLION - GLM_5_3_FLASH_DRAFT, 0.002, "FlashML-org/FreeToken#215 rounds it to 320B"),
    ("hy3", 295 * BILLION, 0.002, "id 56078186306: 295B-A21B, 80 layers without the one that drafts"),
    ("kimi_linear_48b", 49_122_681_728, 0.0005, "id 62691149540"),
    ("ling_3_flash", 124 * BILLION, 0.005, "AtomicBot-ai/atomic-llama-cpp-turboquant#63"),
    ("mimo_v2_5", 310_775_040_000 - MIMO_DRAFTS - MIMO_SOUND, 0.002, "id 62758385424"),
    ("nemotron_3_5_lightning_nvfp4", 31.6 * BILLION, 0.002, "Nemotron-3 Nano, whose sizes it has"),
    ("qwen3_5_9b", 2 * 8.85 * 1024**3 / 2, 0.02, "id 53944457073: 8.85 GiB on each of two GPUs"),
    ("qwen3_8_27b", 27 * BILLION, 0.02, "the name"),
    ("gemma_4_e4b", 15_992_595_884 / 2, 0.0005, "id 53847601983: bytes of its file"),
    ("deepseek_v4_flash_0731", 284 * BILLION, 0.005, "id 58796471378"),
]


@pytest.mark.parametrize(("name", "published", "within", "source"), NUMBERS, ids=[row[0] for row in NUMBERS])
def test_the_counted_parameters_are_the_published_number(
    name: str, published: float, within: float, source: str
) -> None:
    plan = planned(f"model={name}", "gpu=b200", "tp_size=1", "engine.version=0.5.2")
    counted = parameters_of(understand(plan.values, plan.gpu, plan.model, "0.5.23"))
    assert counted == pytest.approx(published, rel=within), source


@pytest.mark.parametrize("path", [*UNSIZED, "nvidia/Qwen3.8-Flash-Next-NVFP4", "google/gemma-4-12b-it"])
def test_a_name_that_cannot_be_sized_says_why_and_what_helps(path: str) -> None:
    plan = planned(f"model={path}", "gpu=h200")
    (finding,) = (one for one in plan.findings if one.id == "HUB004")
    known = json.dumps([row for name, row in UNSIZED.items() if name.rpartition("/")[2].lower() in path.lower()])
    why = finding.message.partition("the name is known: ")[2].partition(" (")[0]
    assert why
    assert why in known
    assert finding.hint is not None
    assert finding.hint.startswith("model=<its folder>; else model.facts_from=<its config.json>")


def test_a_name_of_nobody_is_as_unknown_as_before() -> None:
    known: Mapping[str, object] = UNSIZED
    plan = planned("model=someone/DeepSeek-V4-Unheard", "gpu=h200")
    assert "someone/DeepSeek-V4-Unheard" not in known
    assert [one for one in plan.findings if "the name is known" in one.message] == []
