"""Changes that make a server fit: each is planned, the smallest come first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sglang_hydra import resolve
from sglang_hydra.fit.remedy import Remedy, remedies
from sglang_hydra.fit.result import Fit
from sglang_hydra.fit.sizing import fit
from tests.fit.machines import gpu, model, sized

CLASSES = ("a100_80gb", "b200", "h100", "h200", "l4", "mi300x")


def found(
    path: str, on: str, arguments: Mapping[str, Any], asked: list[Mapping[str, Any]] | None = None
) -> tuple[Remedy, ...]:
    def verify(overrides: Mapping[str, Any]) -> Fit | None:
        if asked is not None:
            asked.append(overrides)
        changed = {"model_path": path, **arguments, **overrides}
        where = gpu(str(changed.pop("gpu", on)))
        facts = model(str(changed["model_path"]))
        resolution = resolve(changed, gpu=where, model=facts, seed=1)
        return fit(resolution.values, where, facts) if resolution.ok else None

    values = resolve({"model_path": path, **arguments}, gpu=gpu(on), model=model(path), seed=1).values
    failing = sized(on, path, arguments)
    assert failing.fits is False
    return remedies(values, gpu(on), failing, verify, classes=[gpu(name) for name in CLASSES])


@pytest.mark.parametrize(
    ("path", "on", "arguments", "first"),
    [
        ("deepseek-ai/DeepSeek-V3", "h100", {"tp_size": 8}, {"gpu": "h200"}),
        ("lmsys/gpt-oss-120b-bf16", "h100", {"tp_size": 2}, {"tp_size": 4}),
        ("Qwen/Qwen3-32B", "rtx_4090", {}, {"model_path": "Qwen/Qwen3-32B-AWQ"}),
        ("Qwen/Qwen3-8B", "h100", {"mem_fraction_static": 0.1}, {"mem_fraction_static": 0.56}),
        ("Qwen/Qwen3-8B", "h100", {"mem_fraction_static": 0.99}, {"mem_fraction_static": 0.93}),
    ],
)
def test_the_first_remedy_is_the_smallest_change(
    path: str, on: str, arguments: dict[str, Any], first: dict[str, Any]
) -> None:
    remedy = found(path, on, arguments)[0]
    assert set(remedy.overrides) == set(first)
    for name, value in first.items():
        near = pytest.approx(value, abs=0.03) if isinstance(value, float) else value
        assert remedy.overrides[name] == near


def test_every_remedy_fits_and_says_how() -> None:
    shown = found("deepseek-ai/DeepSeek-V3", "h100", {"tp_size": 8})
    assert [remedy.kind for remedy in shown] == ["class", "class", "nodes"]
    for remedy in shown:
        assert (remedy.fit.fits, remedy.fit.tight) == (True, False)
        assert str(remedy.fit.kv_tokens) in remedy.change
    assert shown[-1].overrides == {"tp_size": 16, "nnodes": 2}


def test_formats_that_the_gpu_cannot_compute_are_not_offered() -> None:
    asked: list[Mapping[str, Any]] = []
    found("deepseek-ai/DeepSeek-R1-0528", "h100", {"tp_size": 8}, asked)
    assert not [overrides for overrides in asked if "FP4" in str(overrides.get("model_path"))]


def test_a_refused_plan_is_no_remedy() -> None:
    values = resolve({"model_path": "x", "tp_size": 8}, gpu=gpu("h100"), model=model("deepseek_v3"), seed=1).values
    failing = sized("h100", "deepseek_v3", {"tp_size": 8})
    assert remedies(values, gpu("h100"), failing, lambda overrides: None, classes=[gpu("h200")]) == ()


def test_more_nodes_are_not_needed_where_the_node_has_enough_gpus() -> None:
    kinds = [remedy.kind for remedy in found("lmsys/gpt-oss-120b-bf16", "h100", {"tp_size": 2})]
    assert "gpus" in kinds
    assert "nodes" not in kinds


def test_other_gpus_are_not_thought_of_where_an_argument_helps() -> None:
    asked: list[Mapping[str, Any]] = []
    shown = found("Qwen/Qwen3-8B", "h100", {"mem_fraction_static": 0.1}, asked)
    assert {remedy.kind for remedy in shown} == {"arguments"}
    assert not any({"gpu", "model_path", "tp_size"} & set(overrides) for overrides in asked)


def test_a_model_is_not_spread_over_very_many_nodes() -> None:
    one = replace(gpu("l4"), count=1)
    values = resolve({"model_path": "x"}, gpu=one, model=model("deepseek_v3"), seed=1).values
    asked: list[Mapping[str, Any]] = []
    remedies(values, one, sized("l4", "deepseek_v3"), lambda overrides: asked.append(overrides))
    assert [overrides["nnodes"] for overrides in asked if "nnodes" in overrides] == [2, 4, 8]


def test_a_smaller_table_of_requests_helps_a_very_long_context() -> None:
    arguments = {"tp_size": 8, "attention_backend": "fa3", "context_length": 2500000}
    changes = [dict(remedy.overrides) for remedy in found("llama_4_scout", "h200", arguments)]
    assert {"max_running_requests": 256} in changes
