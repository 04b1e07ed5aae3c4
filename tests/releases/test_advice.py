"""What a release's refusal advises: read from its message, and offered where it helps."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_hydra.arguments.tables.table import release
from sglang_hydra.releases import asking, wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.records import Record
from sglang_hydra.releases.resolving import advised
from sglang_hydra.rules.answer import Answer
from tests.plans import planned

ARGUMENTS = release("0.5.23").arguments
LATER = ("engine.version=0.5.23", "gpu=b200", "model=deepseek_v3", "tp_size=8")


@pytest.mark.parametrize(
    ("message", "typed", "words"),
    [
        ("To use Marlin, set --moe-runner-backend marlin explicitly.", {}, ["moe_runner_backend=marlin"]),
        ("Please set --attention-backend flashinfer.", {}, ["attention_backend=flashinfer"]),
        ("Set --chunked-prefill-size=-1.", {}, ["chunked_prefill_size=-1"]),
        ("--page-size must be set", {}, []),
        ("Use --attention-backend with care", {}, []),
        ("--no-such-flag 5", {}, []),
        ("requires --disable-radix-cache", {}, ["disable_radix_cache=true"]),
        ("disable --enable-mis", {"enable_mis": True}, ["enable_mis=false"]),
        ("page_size must be positive", {"page_size": -1}, ["page_size=null"]),
        (
            "Only ['ascend', 'fa3', 'triton'] are supported, but you specified 'trtllm_mla'.",
            {"attention_backend": "trtllm_mla"},
            ["attention_backend=null", "attention_backend=fa3", "attention_backend=triton"],
        ),
        ("NVFP4 prefill needs FP8", {"kv_cache_dtype": "nvfp4"}, ["kv_cache_dtype=auto"]),
        ("something else", {"kv_cache_dtype": "nvfp4"}, []),
        (
            "Unknown speculative algorithm name: MTP",
            {"speculative_algorithm": "MTP"},
            ["speculative_algorithm=EAGLE", "speculative_algorithm=null"],
        ),
        (
            "Unknown speculative algorithm name: EAGEL",
            {"speculative_algorithm": "EAGEL"},
            ["speculative_algorithm=EAGLE", "speculative_algorithm=null"],
        ),
        ("a model_path is wrong", {"model_path": "m"}, []),
    ],
)  # fmt: skip
def test_the_words_of_a_message(message: str, typed: dict[str, Any], words: list[str]) -> None:
    assert advised(message, ARGUMENTS, typed, "nvidia") == words


def answers(monkeypatch: pytest.MonkeyPatch, *, has_wheels: bool) -> None:
    """A release that refuses the trtllm backends, whose recorded answer has no message, as all recorded ones."""
    message = "ValueError: use --attention-backend fa4 (hook.py:5)"

    def recorded(record: Record, case: Case, why: bool) -> Answer:
        return Answer(False, stage="post_init", error="ValueError (hook.py:5)")

    def kept(record: Record, case: Case, *, why: bool) -> Answer:
        if "fa4" in case.argv:
            return Answer(True, {**planned(*LATER[1:]).values, "attention_backend": "fa4"})
        return Answer(False, stage="post_init", error=message)

    monkeypatch.setattr(asking, "recorded_answer", recorded)
    monkeypatch.setattr(asking, "kept_answer_to", kept)
    monkeypatch.setattr(wheels, "missing", lambda record: () if has_wheels else record.wheels)


def test_a_refusal_has_its_message_where_the_wheel_is_here_and_what_it_advises(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, has_wheels=True)
    plan = planned(*LATER)
    (finding,) = [item for item in plan.findings if item.id == "REL010"]
    assert "use --attention-backend fa4" in finding.message
    assert finding.hint == "attention_backend=fa4"
    assert plan.basis == "exact"


def test_a_recorded_refusal_names_the_place_and_how_to_read_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, has_wheels=False)
    (finding,) = [item for item in planned(*LATER).findings if item.id == "REL010"]
    assert finding.message == "SGLang 0.5.23 refuses it (post_init): ValueError (hook.py:5)"
    assert finding.hint == "sglang-hydra release fetch 0.5.23: its message is then shown"


@pytest.mark.parametrize(
    ("overrides", "id"),
    [
        (("gpu=b200", "attention_backend=fa3"), "RUN003"),
        (("gpu=b200", "attention_backend=trtllm_mla"), "RUN002"),
        (("gpu=t4", "quantization=fp8"), "RUN001"),
        (("gpu=a100_80gb", "quantization=w8a8_fp8"), "RUN001"),
        (("gpu.compute_capability='7.0'",), "RUN005"),
        (("gpu=h200", "attention_backend=fa3"), None),
        (("gpu=h200", "quantization=modelopt_fp4"), None),
        (("gpu=b200", "model=kimi_k2_5", "tp_size=8", "attention_backend=trtllm_mla"), None),
    ],
)
def test_what_fails_when_it_loads_fails_in_later_releases_too(overrides: tuple[str, ...], id: str | None) -> None:
    plan = planned("model=qwen3_8b", "gpu=h200", "engine.version=0.5.23", *overrides)
    assert [item.id for item in plan.findings if item.id.startswith("RUN00")] == ([id] if id else [])
