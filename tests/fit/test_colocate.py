"""A trainer on the server's GPUs: which mem_fraction_static comes back, against what was published."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglang_hydra.fit.result import Colocated
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from tests.commands import Run, must_follow, runner
from tests.plans import planned

SAVED = "enable_memory_saver=true"
H20 = ("gpu=h20", "engine.version=0.5.5", "model=qwen3_32b", "tp_size=4", "mem_fraction_static=0.5", SAVED)
H100 = ("gpu=h100", "engine.version=0.5.8", "model=qwen3_30b_a3b", "tp_size=2", "mem_fraction_static=0.85", SAVED)
MEGATRON = ("colocate.keeps=nothing", "colocate.sharding=megatron", "colocate.shards=8")


@pytest.fixture(autouse=True)
def plans_are_for_0_5_2() -> None:
    """Here a plan is for the release that it names, as outside of the tests."""


def shared(plan: Plan) -> Colocated:
    assert plan.fit is not None
    assert plan.fit.colocated is not None
    return plan.fit.colocated


def findings(plan: Plan, id: str) -> list[tuple[str, list[str]]]:
    return [(each.level, [" ".join(it.words) for it in each.remedies]) for each in plan.findings if each.id == id]


def test_the_measured_steps_of_a_32b_model_on_h200() -> None:
    """sgl-project/sglang#7009, mem_fraction_static 0.9: 5.8 GiB while paused, 36.6 with the server's weights, 131.8
    with the KV cache. It does not name the layout: 30.8 GiB are the weights of two GPUs."""
    words = ("gpu=h200", "engine.version=0.5.8", "model=qwen3_32b", "tp_size=2", "mem_fraction_static=0.9", SAVED)
    plan = planned(*words, "colocate.keeps=nothing")
    found, fit = shared(plan), plan.fit
    assert fit is not None
    assert None not in (found.paused, found.sync, found.left, fit.memory, fit.activations)
    paused = (found.paused + found.trainer) / 2**30
    assert paused == pytest.approx(5.8, abs=1.0)
    assert (found.train - found.sync) / 2**30 == pytest.approx(36.6 - 5.8, rel=0.02)
    back = (fit.memory - found.left - fit.activations.mid) / 2**30
    assert back == pytest.approx(131.8, rel=0.02)


def test_more_machines_help_a_trainer_that_keeps_its_states_on_the_gpu() -> None:
    """sgl-project/sglang#14092: cuMemCreate is out of memory at resume on 8 H20 with 0.5.5, and somebody asks whether
    more machines would avoid it. The thread names no model: 32B stands for it."""
    eight = planned(*H20, "colocate.keeps=all", "colocate.shards=8")
    ((level, (offer,)),) = findings(eight, "FIT005")
    assert (level, float(offer.partition("=")[2])) == ("error", pytest.approx(0.29, abs=0.015))
    assert eight.launchable is False
    assert not findings(planned(*H20, "colocate.keeps=all", "colocate.shards=16"), "FIT005")
    assert not findings(planned(*H20, "colocate.keeps=weights", "colocate.shards=8"), "FIT005")


def test_suspended_communicators_give_their_memory_to_the_cache() -> None:
    """verl-project/verl#6266: idle communicators of Megatron with experts keep 7 to 10 GB of each of 8 H100."""
    kept, suspended = planned(*H100, *MEGATRON), planned(*H100, *MEGATRON, "colocate.nccl_gib=0")
    ((level, (offer,)),) = findings(kept, "FIT005")
    assert (level, float(offer.partition("=")[2])) == ("warning", pytest.approx(0.83, abs=0.015))
    assert not findings(suspended, "FIT005")
    gained = (shared(suspended).highest or 0) - (shared(kept).highest or 0)
    assert 7 / 79 < gained < 10 / 76


def test_the_fraction_of_the_remedy_comes_back() -> None:
    words = (*H20, "colocate.trainer_gib=60")
    ((_, (offer,)),) = findings(planned(*words), "FIT005")
    assert not findings(planned(*words, offer), "FIT005")
    larger = float(offer.partition("=")[2]) + 0.02
    assert findings(planned(*words, f"mem_fraction_static={larger:.2f}"), "FIT005")


def test_where_no_fraction_comes_back_none_is_offered() -> None:
    plan = planned(*H20, "colocate.trainer_gib=85")
    assert findings(plan, "FIT005") == [("error", [])]
    assert any("no fraction comes back" in finding.message for finding in plan.errors)


@pytest.mark.parametrize(
    ("words", "held", "offers"),
    [
        (("model=qwen3_8b", "engine.version=0.5.9"), "enable_memory_saver is off", ["enable_memory_saver=true"]),
        (("model=gpt_oss", "engine.version=0.5.21", SAVED), "sliding windows", ["disable_hybrid_swa_memory=true"]),
        (("model=gpt_oss", "engine.version=0.5.22", SAVED), "", []),
        (("model=qwen3_next_80b_a3b", "engine.version=0.5.5", SAVED), "states", []),
        (("model=qwen3_next_80b_a3b", "engine.version=0.5.6", SAVED), "", []),
    ],
)
def test_what_a_release_does_not_release(words: tuple[str, ...], held: str, offers: list[str]) -> None:
    """The pools of sliding windows: radixark/miles#860, and the wheels of 0.5.2 to 0.5.23."""
    plan = planned("gpu=h200", "tp_size=2", "mem_fraction_static=0.7", *words, "colocate.trainer_gib=10")
    found = shared(plan)
    assert held in " ".join(found.held)
    assert findings(plan, "FIT006") == ([("warning", offers)] if held else [])
    assert plan.fit is not None
    assert found.paused is not None
    assert (found.paused > 20 * 2**30) is (bool(held) and "states" not in held)


@pytest.mark.parametrize(
    ("sharding", "optimizer", "bytes_of_a_parameter"),
    [("fsdp", "adamw", 16), ("fsdp", "adamw_8bit", 10), ("fsdp", "sgd", 8), ("megatron", "adamw", 18)],
)
def test_bytes_of_a_parameter(sharding: str, optimizer: str, bytes_of_a_parameter: int) -> None:
    """Megatron's 18: docs/source/api-guide/dist_optimizer.md of NVIDIA/Megatron-LM."""
    words = ("gpu=h200", "model=qwen3_8b", SAVED, "colocate.keeps=all", "colocate.shards=1")
    found = shared(planned(*words, f"colocate.sharding={sharding}", f"colocate.optimizer={optimizer}"))
    parameters = 8_190_735_360  # Qwen/Qwen3-8B
    assert found.trainer - 0.9 * 2**30 == pytest.approx(parameters * bytes_of_a_parameter, rel=0.001)


@pytest.mark.parametrize(
    ("words", "named", "hint"),
    [
        (["colocate.keeps=some"], "one of nothing, weights, all", "colocate.keeps=weights"),
        (["colocate.trainer_gib=-1"], "less than 0", "colocate.trainer_gib=8"),
        (["colocate.keeps=all"], "the number of GPUs that share", "colocate.shards=8"),
        (["colocate.keeps=all", "colocate.shards=0"], "less than 1", "colocate.shards=1"),
        (["colocate.keeps=nothing", "colocate.optimizer=lion"], "one of adamw", "colocate.optimizer=adamw_8bit"),
    ],
)
def test_settings_that_mean_nothing(words: list[str], named: str, hint: str) -> None:
    with pytest.raises(ConfigError) as failure:
        planned("gpu=h200", "model=qwen3_8b", *words)
    (finding,) = failure.value.findings
    assert (finding.id, named in finding.message, finding.hint) == ("CLI022", True, hint)


def test_fit_shows_and_prints_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run: Run = runner(capsys, monkeypatch)
    code, screen, _ = run("fit", *H20, "colocate.trainer_gib=60")
    assert code == 2
    assert "Beside the trainer, GiB" in screen
    assert "comes back; 0.5 is used" in screen
    record: dict[str, Any] = json.loads(run("fit", "--json", *H20, "colocate.trainer_gib=60")[1])
    must_follow(record, "fit")
    assert record["results"][0]["fit"]["colocated"]["left_gib"] < 0
