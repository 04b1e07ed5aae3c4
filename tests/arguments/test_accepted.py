"""What a release takes of what was asked for, under the names that were asked for, and what it says of the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from sglang_hydra.arguments.accepted import accepted
from sglang_hydra.arguments.fields import fresh_defaults
from sglang_hydra.arguments.tables.table import known_versions, release
from sglang_hydra.text.findings import Finding
from tests.commands import must_follow
from tests.plans import H200, planned, refused, without_engines

LATEST = "engine.version=0.5.23"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


def ids_and_fields(findings: Sequence[Finding], level: str = "error") -> list[tuple[str, str]]:
    return [(finding.id, finding.fields[0]) for finding in findings if finding.level == level]


def flags(*overrides: str) -> list[str]:
    """What stands on the command line after the model, the seed left out."""
    words = list(planned(*overrides, "random_seed=42").command)
    words = words[words.index("--model-path") + 2 :]
    at = words.index("--random-seed")
    return words[:at] + words[at + 2 :]


TAKEN: dict[tuple[str, ...], list[str]] = {
    (LATEST,): [],
    (LATEST, "tp_size=2", "chunked_prefill_size=-1"): ["--chunked-prefill-size", "-1", "--tp-size", "2"],
    (LATEST, "cuda_graph_max_bs_decode=64"): ["--cuda-graph-max-bs-decode", "64"],
    (LATEST, "cuda_graph_bs_decode=[1,2]"): ["--cuda-graph-bs-decode", "1", "2"],
    (LATEST, "disable_cuda_graph=true"): ["--disable-cuda-graph"],
    (LATEST, "torchao_config=''"): [],
    (LATEST, "enable_ep_moe=false"): [],
    (LATEST, "lora_paths=['a=/x']", "max_lora_rank=8", "lora_target_modules=[q_proj]"): [
        "--max-lora-rank", "8", "--lora-target-modules", "q_proj", "--lora-paths", "a=/x",
    ],
    ("engine.version=0.5.13", "cuda_graph_max_bs=64"): ["--cuda-graph-max-bs", "64"],
    ("engine.version=0.5.2", "cuda_graph_max_bs=64"): ["--cuda-graph-max-bs", "64"],
    (LATEST, "tp_size=2", "dcp_size=2"): ["--tp-size", "2", "--dcp-size", "2"],
    (LATEST, "tensor_parallel_size=2"): ["--tp-size", "2"],
    (LATEST, "tp_size=2", "extra.dcp_size=2"): ["--tp-size", "2", "--dcp-size", "2"],
    (LATEST, "tp_size=2", "extra={dcp_size: 2}"): ["--tp-size", "2", "--dcp-size", "2"],
    (LATEST, "gc_threshold=[700,10,10]"): ["--gc-threshold", "700", "10", "10"],
    (LATEST, "enable_tf32_matmul=false"): ["--no-enable-tf32-matmul"],
    (LATEST, "enable_tf32_matmul=true"): ["--enable-tf32-matmul"],
    (LATEST, "mm_process_config={image:{max_pixels:100}}"): ["--mm-process-config", '{"image": {"max_pixels": 100}}'],
    (LATEST, "cuda_graph_prefill_max_context=16k"): ["--cuda-graph-prefill-max-context", "16000"],
    (LATEST, "otlp_service_name=-odd"): ["--otlp-service-name=-odd"],
    (LATEST, "enable_mis=true"): ["--enable-mis"],
    (LATEST, "enable_mis=false"): [],
    (LATEST, "attention_backend=dsa"): ["--attention-backend", "dsa"],
}  # fmt: skip


@pytest.mark.parametrize("overrides", TAKEN, ids=str)
def test_a_release_is_given_what_it_has_in_its_own_words(overrides: tuple[str, ...]) -> None:
    made = planned(*H200, *overrides)
    assert ids_and_fields(made.findings) == []
    assert flags(*H200, *overrides) == TAKEN[overrides]
    must_follow(made.to_json(), "plan")


REFUSED: dict[tuple[str, ...], tuple[str, str, str, str]] = {
    (LATEST, "cuda_graph_max_bs=64"): (
        "VER004", "cuda_graph_max_bs", "no such argument", "cuda_graph_max_bs_decode=64",
    ),
    (LATEST, "cuda_graph_bs=[1,2]"): ("VER004", "cuda_graph_bs", "no such argument", "cuda_graph_bs_decode=[1"),
    (LATEST, "max_micro_batch_size=4"): (
        "VER004", "max_micro_batch_size", "takes its place", "pp_max_micro_batch_size=4",
    ),
    (LATEST, "stream_output=true"): (
        "VER004", "stream_output", "takes its place", "incremental_streaming_output=true",
    ),
    (LATEST, "torchao_config=int4wo-128"): (
        "VER004", "torchao_config", "has no such argument", "leave torchao_config out",
    ),
    (LATEST, "hybrid_kvcache_ratio=0.5"): ("VER004", "hybrid_kvcache_ratio", "swa_full_tokens_ratio", "leave"),
    (LATEST, "enable_nan_detection=true"): ("VER004", "enable_nan_detection", "SGLANG_SPEC_NAN_DETECTION=1", ""),
    (LATEST, "admin_api_key=hush"): ("VER008", "admin_api_key", "a secret would be on the server", "--config"),
    ("engine.version=0.5.2", "dcp_size=2"): (
        "VER004", "dcp_size", "SGLang 0.5.2 has no such argument; it came with", "",
    ),
    ("engine.version=0.5.14", "dcp_size=2"): ("VER004", "dcp_size", "SGLang 0.5.14 has no such argument", ""),
    (LATEST, "mamba_scheduler_strategy=extra_buffer"): (
        "VER004", "mamba_scheduler_strategy", "has no such argument", "mamba_radix_cache_strategy=extra_buffer",
    ),
    (LATEST, "disable_piecewise_cuda_graph=true"): (
        "VER004", "disable_piecewise_cuda_graph", "has no such argument", "cuda_graph_backend_prefill=disabled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("overrides", REFUSED, ids=str)
def test_what_a_release_does_not_take_is_refused_with_what_to_type(overrides: tuple[str, ...]) -> None:
    id, field, message, hint = REFUSED[overrides]
    made = planned(*H200, *overrides)
    (finding,) = [item for item in made.findings if item.id == id]
    assert finding.fields == (field,)
    assert message in finding.message
    assert hint in (finding.hint or "")
    assert not made.ok
    assert not finding.ours
    assert "hush" not in json.dumps(made.to_json())


WRONG: dict[tuple[str, ...], tuple[str, str, str]] = {
    (LATEST, "attention_backend=trtllm_ml"): ("attention_backend", "is not among its", "trtllm_mla"),
    (LATEST, "dcp_sise=2"): ("dcp_sise", "neither an argument of SGLang nor a config group", "dcp_size=2"),
    (LATEST, "dcp_size=two"): ("dcp_size", "is not int", "dcp_size"),
    (LATEST, "dcp_size=true"): ("dcp_size", "is not int", ""),
    (LATEST, "gc_threshold=5"): ("gc_threshold", "is not list[int]", ""),
    (LATEST, "retraction_policy=longest"): ("retraction_policy", "length, priority", None),
    (LATEST, "cuda_graph_config=5"): ("cuda_graph_config", "is not CudaGraphConfig", ""),
    (LATEST, "tool_call_parser=glm4.7"): ("tool_call_parser", "is not among its 45 values", "glm47"),
}


@pytest.mark.parametrize("overrides", WRONG, ids=str)
def test_a_value_that_the_named_release_cannot_take_is_refused_by_its_own_choices(overrides: tuple[str, ...]) -> None:
    field, message, hint = WRONG[overrides]
    (finding,) = refused(*H200, *overrides)
    assert finding.fields == (field,)
    assert message in finding.message
    assert finding.hint is None if hint is None else hint in (finding.hint or "")


def test_an_unknown_version_lists_the_known_ones() -> None:
    for version in ("0.6.0", "0.5.1", "0.5.99"):
        (finding,) = refused(*H200, f"engine.version={version}")
        assert finding.id == "VER001"
        near, listed, trust = map(str, finding.remedies)
        assert finding.remedies[0].choice, "a plan of another release is another server"
        assert near.removeprefix("engine.version=").partition(",")[0] in known_versions()
        assert listed.endswith(f" and {len(known_versions()) - 5} more: sglang-hydra release list")
        assert trust.startswith(f"sglang-hydra release fetch --trust {version} ")
    (slip,) = refused(*H200, "engine.version=novel")
    assert slip.id == "ENG012"
    assert "sglang-hydra release list shows all" in (slip.hint or "")


@pytest.mark.parametrize(("named", "meant"), [("v0.5.10", "0.5.10"), ("latest", known_versions()[-1])])
def test_a_release_may_be_named_as_its_tag_is(named: str, meant: str) -> None:
    made = planned(*H200, f"engine.version={named}")
    assert made.engine.version == made.resolution.release == meant


def test_an_installed_release_that_is_not_in_the_table_takes_what_the_one_before_it_takes() -> None:
    made = accepted({"model_path": "m", "cuda_graph_max_bs_decode": 8}, "9.0")
    assert made.flags() == ["--model-path", "m", "--cuda-graph-max-bs-decode", "8"]
    assert [finding.id for finding in made.findings if finding.level == "warning"] == ["VER002"]
    older = accepted({"model_path": "m"}, "0.4.9")
    assert [finding.id for finding in older.findings] == ["VER002"]
    assert older.known.version == "0.5.2"


def test_a_later_value_is_offered_with_the_releases_that_take_it() -> None:
    (choice,) = refused(*H200, "engine.version=0.5.2", "attention_backend=dsa")
    assert "engine.version=0.5.13 attention_backend=dsa" in (choice.hint or "")


def test_a_rule_of_0_5_2_is_a_warning_about_a_release_that_was_not_asked() -> None:
    overrides = (*H200, "tp_size=3", "dp_size=2", "enable_dp_attention=true")
    own, other = planned(*overrides, "engine.version=0.5.2"), planned(*overrides, LATEST)
    assert not own.ok
    assert other.launchable is None
    assert other.verdict.answer == "unknown"
    (finding,) = [item for item in other.findings if item.id == "DPA003"]
    assert finding.level == "warning"
    assert finding.message.endswith("(a rule of 0.5.2; 0.5.23 was not asked)")


def test_an_estimate_is_marked_and_its_guesses_are_null_in_the_record() -> None:
    from sglang_hydra.show.plan import plan_screen

    made = planned(*H200, LATEST, "dcp_size=2", "watchdog_timeout=77")
    screen = "\n".join("".join(piece for piece, _ in line) for line in plan_screen(made))
    assert "by 0.5.2's rules, an estimate" in screen
    assert "dcp_size" in screen
    record = made.to_json()
    assert (record["rules"], record["engine"]["version"], record["intent"]["dcp_size"]) == ("0.5.2", "0.5.23", 2)
    assert made.unknown
    assert all(record["values"][name] is None for name in made.unknown)


def test_every_argument_is_part_of_a_servers_identity() -> None:
    plain, one, two = (planned(*H200, LATEST, *more) for more in ((), ("dcp_size=1",), ("dcp_size=2",)))
    assert plain.server_id != two.server_id
    assert one.server_id != two.server_id


@pytest.mark.parametrize("version", known_versions())
def test_every_release_takes_every_default_without_a_finding(version: str) -> None:
    """An argument that is at its default asks for nothing, in whatever release."""
    intent = {name: value for name, value in fresh_defaults().items() if value is not None}
    made = accepted({**intent, "model_path": "m"}, version)
    assert [finding for finding in made.findings if finding.level == "error"] == []
    assert made.arguments.keys() <= release(version).arguments.keys()
    made.flags()
