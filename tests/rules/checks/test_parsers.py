"""Parsers of tool calls and reasoning, by the family of the model and the release."""

from __future__ import annotations

import pytest

from sglang_hydra.arguments.meant import PARSERS
from sglang_hydra.arguments.tables.table import known_versions, release
from sglang_hydra.rules.checks.api import check_parsers_of_the_model, parser_of
from tests.commands import Run, runner
from tests.plans import composer, planned
from tests.rules.cases import Row, unchanged, warned

ROWS = (
    warned(check_parsers_of_the_model, "does not read", model_path="zai-org/GLM-4.6", tool_call_parser="qwen25"),
    unchanged(check_parsers_of_the_model, model_path="zai-org/GLM-4.6", tool_call_parser="glm45"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def _warned(model: str, *words: str, version: str = "0.5.23") -> dict[str, str]:
    """The arguments that are warned of, each with the value that is offered."""
    plan = planned("gpu=b200", f"model={model}", f"engine.version={version}", *words)
    found = [finding for finding in plan.findings if finding.id == "API002"]
    offered = [word for finding in found for remedy in finding.remedies for word in remedy.words]
    return dict(word.split("=") for word in offered)


# What people typed: sgl-project/sglang#14690, #17593 (V3.2), #17320, #19925; tokenspeed#163; the cookbook's pages.
@pytest.mark.parametrize(
    ("model", "words", "meant"),
    [
        ("deepseek_v3_2", ["tool_call_parser=deepseekv31"], {"tool_call_parser": "deepseekv32"}),
        ("deepseek_v3", ["tool_call_parser=deepseekv31"], {"tool_call_parser": "deepseekv3"}),
        ("deepseek_v4_flash", ["tool_call_parser=deepseekv32"], {"tool_call_parser": "deepseekv4"}),
        ("glm_5_2_nvfp4", ["tool_call_parser=glm45"], {"tool_call_parser": "glm47"}),
        ("glm_4_6", ["tool_call_parser=glm47"], {"tool_call_parser": "glm45"}),
        ("gpt_oss_120b", ["reasoning_parser=qwen3"], {"reasoning_parser": "gpt-oss"}),
        ("qwen3_coder_480b", ["tool_call_parser=qwen25"], {"tool_call_parser": "qwen3_coder"}),
        ("qwen3_5_397b", ["tool_call_parser=hermes"], {"tool_call_parser": "qwen3_coder"}),
        ("qwen3_8b", ["reasoning_parser=gpt-oss"], {"reasoning_parser": "qwen3"}),
        ("gemma_4_26b", ["tool_call_parser=pythonic"], {"tool_call_parser": "gemma4"}),
        ("deepseek_v3_2", ["tool_call_parser=deepseekv32", "reasoning_parser=deepseek-v3"], {}),
        ("glm_4_6", ["tool_call_parser=glm45", "reasoning_parser=glm45"], {}),
        ("glm_5_2_nvfp4", ["tool_call_parser=glm47", "reasoning_parser=glm45"], {}),
        ("qwen3_8b", ["tool_call_parser=hermes", "reasoning_parser=deepseek-r1"], {}),
        ("llama_4_scout", ["tool_call_parser=pythonic"], {}),
        ("minimax_m2_5", ["tool_call_parser=minimax-m2", "reasoning_parser=minimax-append-think"], {}),
        ("nemotron_3_nano", ["tool_call_parser=qwen3_coder", "reasoning_parser=deepseek-r1"], {}),
        ("kimi_k2_6", ["tool_call_parser=auto", "reasoning_parser=auto"], {}),
        ("grok_2", ["tool_call_parser=qwen"], {}),  # no page says
        ("qwen3_8b", [], {}),
    ],
)
def test_a_parser_of_another_family_is_warned_of(model: str, words: list[str], meant: dict[str, str]) -> None:
    assert _warned(model, *words) == meant


def test_a_release_without_the_parser_is_not_told_of_it() -> None:
    assert parser_of("deepseek-ai/DeepSeek-V3.2", "tool_call_parser", "0.5.2") is None
    assert _warned("deepseek_v3_2", "tool_call_parser=deepseekv31", version="0.5.3") == {}


def test_a_preset_with_a_page_has_parsers_that_a_release_takes() -> None:
    named = 0
    for preset in composer().presets("model"):
        path = str(preset.node.get("model_path") or "")
        for argument in PARSERS:
            choices = release(known_versions()[-1]).arguments[argument].choices or ()
            parser = parser_of(path, argument, known_versions()[-1])
            named += parser is not None
            assert parser is None or parser in choices
    assert named > 100


def test_explain_names_the_parser_of_the_model(run: Run) -> None:
    found = run("explain", "tool_call_parser", "gpu=b200", "model=glm_5_2_nvfp4", "engine.version=0.5.23").out
    assert "for this model" in found
    assert "glm47" in found.split("for this model")[1].splitlines()[0]
