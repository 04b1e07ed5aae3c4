"""Planning for another release: what is told to it, under which name, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest

from sglang_hydra.arguments.fields import FIELDS, fresh_defaults
from sglang_hydra.arguments.translate import arguments_for, translate
from sglang_hydra.planning.verdict import verdict_on
from sglang_hydra.releases.table import known_versions, release
from sglang_hydra.schemas import schema_of
from sglang_hydra.text.findings import Finding
from tests.plans import H200, planned, refused, without_engines

LATEST = "engine.version=0.5.23"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


def said(findings: Sequence[Finding], level: str = "error") -> list[tuple[str, str]]:
    return [(finding.id, finding.fields[0]) for finding in findings if finding.level == level]


def flags(*overrides: str) -> list[str]:
    """What stands on the command line after the model, the seed left out."""
    words = list(planned(*overrides, "random_seed=42").command)
    words = words[words.index("--model-path") + 2 :]
    at = words.index("--random-seed")
    return words[:at] + words[at + 2 :]


TOLD: dict[tuple[str, ...], list[str]] = {
    (LATEST,): [],
    (LATEST, "tp_size=2", "chunked_prefill_size=-1"): ["--chunked-prefill-size", "-1", "--tp-size", "2"],
    (LATEST, "cuda_graph_max_bs=64"): ["--cuda-graph-max-bs-decode", "64"],
    (LATEST, "cuda_graph_bs=[1,2]"): ["--cuda-graph-bs-decode", "1", "2"],
    (LATEST, "max_micro_batch_size=4"): ["--pp-max-micro-batch-size", "4"],
    (LATEST, "stream_output=true"): ["--incremental-streaming-output"],
    (LATEST, "enable_deepep_moe=true"): ["--moe-a2a-backend", "deepep"],
    (LATEST, "tp_size=2", "enable_ep_moe=true"): ["--tp-size", "2", "--ep-size", "2"],
    (LATEST, "disable_cuda_graph=true"): ["--disable-cuda-graph"],
    (LATEST, "torchao_config=''"): [],
    (LATEST, "lora_paths=['a=/x']", "max_lora_rank=8", "lora_target_modules=[q_proj]"): [
        "--max-lora-rank", "8", "--lora-target-modules", "q_proj", "--lora-paths", "a=/x",
    ],
    ("engine.version=0.5.3", "enable_flashinfer_mxfp4_moe=true"): ["--moe-runner-backend", "flashinfer_mxfp4"],
    ("engine.version=0.5.13", "cuda_graph_max_bs=64"): ["--cuda-graph-max-bs", "64"],
    ("engine.version=0.5.2", "cuda_graph_max_bs=64"): ["--cuda-graph-max-bs", "64"],
    (LATEST, "extra.dcp_size=2"): ["--dcp-size", "2"],
    (LATEST, "extra.gc_threshold=[700,10,10]"): ["--gc-threshold", "700", "10", "10"],
    (LATEST, "extra.enable_tf32_matmul=false"): ["--no-enable-tf32-matmul"],
    (LATEST, "extra.enable_tf32_matmul=true"): ["--enable-tf32-matmul"],
    (LATEST, "extra.mm_process_config={image:{max_pixels:100}}"): [
        "--mm-process-config", '{"image": {"max_pixels": 100}}',
    ],
    (LATEST, "extra.mm_process_config='{\"a\": 1}'"): ["--mm-process-config", '{"a": 1}'],
    (LATEST, "extra.cuda_graph_prefill_max_context=16k"): ["--cuda-graph-prefill-max-context", "16k"],
    (LATEST, "extra.otlp_service_name=-odd"): ["--otlp-service-name=-odd"],
    (LATEST, "extra.otlp_service_name=7"): ["--otlp-service-name", "7"],
    (LATEST, "extra.enable_mis=true"): ["--enable-mis"],
    (LATEST, "extra.enable_mis=false"): [],
    (LATEST, "extra.model_checksum=''"): ["--model-checksum"],
    (LATEST, "extra.attention_backend=dsa"): ["--attention-backend", "dsa"],
    (LATEST, "attention_backend=fa3", "extra.attention_backend=dsa"): ["--attention-backend", "dsa"],
}  # fmt: skip


@pytest.mark.parametrize("overrides", TOLD, ids=str)
def test_a_release_is_told_in_its_own_words(overrides: tuple[str, ...]) -> None:
    made = planned(*H200, *overrides)
    assert said(made.findings) == []
    assert flags(*H200, *overrides) == TOLD[overrides]
    jsonschema.validate(made.to_json(), schema_of("plan"))


REFUSED: dict[tuple[str, ...], tuple[str, str, str, str]] = {
    (LATEST, "torchao_config=int4wo-128"): ("VER004", "torchao_config", "has no such argument", "leave torchao_config"),
    (LATEST, "hybrid_kvcache_ratio=0.5"): ("VER004", "hybrid_kvcache_ratio", "swa_full_tokens_ratio", "leave"),
    (LATEST, "enable_nan_detection=true"): ("VER004", "enable_nan_detection", "SGLANG_SPEC_NAN_DETECTION=1", ""),
    (LATEST, "attention_backend=cutlass_mla"): ("VER005", "attention_backend", "none of its choices: triton", "extra."),
    (LATEST, "extra.nonsense=1"): ("VER008", "extra.nonsense", "nonsense: SGLang 0.5.23 has no such argument", ""),
    (LATEST, "extra.dcp_sise=2"): ("VER008", "extra.dcp_sise", "has no such argument", "did you mean dcp_size?"),
    (LATEST, "extra.dcp_size=two"): ("VER008", "extra.dcp_size", "is not int", ""),
    (LATEST, "extra.dcp_size=true"): ("VER008", "extra.dcp_size", "is not int", ""),
    (LATEST, "extra.gc_threshold=5"): ("VER008", "extra.gc_threshold", "is not list[int]", ""),
    (LATEST, "extra.gc_threshold=[]"): ("VER008", "extra.gc_threshold", "takes one value or more", ""),
    (LATEST, "extra.mm_process_config='{'"): ("VER008", "extra.mm_process_config", "is not dict", ""),
    (LATEST, "extra.retraction_policy=longest"): ("VER008", "extra.retraction_policy", "length, priority", "length?"),
    (LATEST, "extra.cuda_graph_config=5"): ("VER008", "extra.cuda_graph_config", "is not CudaGraphConfig", ""),
    (LATEST, "extra.tp_size=4"): ("VER008", "extra.tp_size", "is an argument of SGLang 0.5.2 too", "tp_size=4"),
    (LATEST, "extra.custom_sigquit_handler=x"): ("VER008", "extra.custom_sigquit_handler", "no flag for it", ""),
    (LATEST, "extra.admin_api_key=hush"): ("VER008", "extra.admin_api_key", "a secret would stand", "--config"),
    ("extra.dcp_size=2",): (
        "VER008",
        "extra.dcp_size",
        "SGLang 0.5.2 has no such argument",
        "engine.version=0.5.15 has it",
    ),
    (LATEST, "extra.mamba_scheduler_strategy=extra_buffer"): (
        "VER008",
        "extra.mamba_scheduler_strategy",
        "has no such argument",
        "mamba_radix_cache_strategy=extra_buffer",
    ),
    (LATEST, "extra.disable_piecewise_cuda_graph=true"): (
        "VER008",
        "extra.disable_piecewise_cuda_graph",
        "has no such argument",
        "cuda_graph_backend_prefill=disabled",
    ),
    ("engine.version=0.5.14", "extra.dcp_size=2"): ("VER008", "extra.dcp_size", "0.5.14", "engine.version=0.5.15"),
}


@pytest.mark.parametrize("overrides", REFUSED, ids=str)
def test_what_a_release_does_not_take_is_refused_with_what_to_do(overrides: tuple[str, ...]) -> None:
    id, field, message, hint = REFUSED[overrides]
    made = planned(*H200, *overrides)
    (finding,) = [item for item in made.findings if item.id == id]
    assert finding.fields == (field,)
    assert message in finding.message
    assert hint in (finding.hint or "")
    assert not made.ok
    assert not finding.ours
    assert "hush" not in json.dumps(made.to_json())


def test_an_unknown_version_lists_the_known_ones() -> None:
    for version in ("0.6.0", "0.5.1", "0.5.99"):
        (finding,) = refused(*H200, f"engine.version={version}")
        assert finding.id == "VER001"
        fix, _, listed = (finding.hint or "").partition("; or ")
        assert fix.removeprefix("engine.version=") in known_versions()
        assert listed.endswith(f" and {len(known_versions()) - 5} more: sglang-hydra release list")
    (slip,) = refused(*H200, "engine.version=latest")
    assert slip.id == "ENG012"
    assert "sglang-hydra release list shows all" in (slip.hint or "")
    assert refused(*H200, "engine.version=v0.5.10")[0].fix == "engine.version=0.5.10"


def test_an_installed_release_that_is_not_in_the_table_is_told_as_the_one_before_it() -> None:
    told = translate({"model_path": "m", "cuda_graph_max_bs": 8}, "9.0")
    assert told.flags() == ["--model-path", "m", "--cuda-graph-max-bs-decode", "8"]
    assert [finding.id for finding in told.findings if finding.level == "warning"] == ["VER002"]
    older = translate({"model_path": "m"}, "0.4.9")
    assert [finding.id for finding in older.findings] == ["VER002"]
    assert older.known.version == "0.5.2"


def test_a_later_value_or_argument_is_offered_where_it_was_typed_for_0_5_2() -> None:
    (choice,) = refused(*H200, "attention_backend=dsa")
    assert "engine.version=0.5.13 attention_backend=dsa" in (choice.hint or "")
    (argument,) = planned(*H200, "dcp_size=2").errors
    assert (argument.id, argument.hint) == ("VER008", "engine.version=0.5.15 has it")


def test_a_rule_of_0_5_2_is_a_warning_about_a_release_that_was_not_asked() -> None:
    overrides = (*H200, "tp_size=3", "dp_size=2", "enable_dp_attention=true")
    own, other = planned(*overrides), planned(*overrides, LATEST)
    assert not own.ok
    assert other.launchable
    assert verdict_on(other.findings, [other]).answer == "unknown"
    (finding,) = [item for item in other.findings if item.id == "DPA003"]
    assert finding.level == "warning"
    assert finding.message.endswith("(a rule of 0.5.2; 0.5.23 was not asked)")
    assert not planned("gpu=h200", LATEST).ok


def test_values_are_marked_as_0_5_2s(capsys: pytest.CaptureFixture[str]) -> None:
    from sglang_hydra.show.plan import plan_screen

    made = planned(*H200, LATEST, "extra.dcp_size=2")
    screen = "\n".join("".join(piece for piece, _ in line) for line in plan_screen(made))
    assert "by 0.5.2's rules, an estimate" in screen
    assert "dcp_size" in screen
    record = made.to_json()
    assert (record["rules"], record["engine"]["version"], record["extra"]) == ("0.5.2", "0.5.23", {"dcp_size": 2})
    assert ("VER007", "max_queued_requests") in said(made.findings, "info")


def test_extras_are_part_of_a_servers_identity() -> None:
    plain, one, two = (planned(*H200, LATEST, *more) for more in ((), ("extra.dcp_size=1",), ("extra.dcp_size=2",)))
    assert len({plain.server_id, one.server_id, two.server_id}) == 3


def test_a_name_that_was_set_itself_beats_an_old_one() -> None:
    told = translate({"model_path": "m", "enable_deepep_moe": True, "moe_a2a_backend": "mooncake"}, "0.5.23")
    assert told.arguments["moe_a2a_backend"] == "mooncake"
    assert [(item.level, item.id) for item in told.findings if item.level != "info"] == [("warning", "VER003")]


@pytest.mark.parametrize("version", known_versions())
def test_every_release_is_told_every_default_without_a_word(version: str) -> None:
    """An argument that is at its default says nothing, in whatever release."""
    intent = {name: value for name, value in fresh_defaults().items() if value is not None}
    told = translate({**intent, "model_path": "m"}, version)
    assert [finding for finding in told.findings if finding.level == "error"] == []
    assert told.arguments.keys() <= release(version).arguments.keys()
    told.flags()


def test_the_specified_release_is_told_the_intent_itself() -> None:
    intent: dict[str, Any] = {"model_path": "m", "enable_ep_moe": True}
    assert arguments_for(intent, "0.5.2") == intent
    assert arguments_for(intent, "0.5.2+cu126") == intent
    assert set(arguments_for(intent, "0.5.23")) == {"model_path", "ep_size"}
    assert len(FIELDS) == 210
