"""The layouts that ``suggest`` chooses from: where an all-to-all backend is one, and what it has to promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglang_hydra.arguments.tables.table import Release, release
from sglang_hydra.fit.forecast import ALL_TO_ALL, Forecast
from sglang_hydra.fit.result import Wanted
from sglang_hydra.planning.choosing.layouts import Layout, layouts_of
from sglang_hydra.planning.choosing.suggest import GOALS, _measure
from tests.plans import planned

LOAD = ("bench.concurrency=64", "bench.input_len=4096")


def layouts(*words: str) -> tuple[list[Layout], list[Layout]]:
    """Those with an all-to-all backend, and all others."""
    found = list(layouts_of(planned(*words, *LOAD), Wanted(64, 9_000)))
    sending = [layout for layout in found if "moe_a2a_backend" in layout.change]
    return sending, [layout for layout in found if layout not in sending]


def test_experts_of_a_whole_node_and_of_more_are_reached_by_all_to_all() -> None:
    sending, others = layouts("model=deepseek_v3", "gpu=h200")
    assert {8, 16} <= {layout.gpus for layout in sending}
    wide = [layout.change for layout in sending if layout.gpus > 8]
    assert all((change["moe_dense_tp_size"], change["mem_fraction_static"]) == (1, 0.8) for change in wide)
    for layout in sending:
        plain = {
            name: value
            for name, value in layout.change.items()
            if name not in ("moe_a2a_backend", "moe_dense_tp_size", "mem_fraction_static")
        }
        twin = next((other for other in others if other.change == plain), None)
        assert layout.found is not None
        assert ALL_TO_ALL in layout.found.reasons
        if twin is not None and twin.found is not None:
            assert layout.found.tpot.high / layout.found.tpot.low > twin.found.tpot.high / twin.found.tpot.low


@pytest.mark.parametrize(
    "words",
    [
        ("model=deepseek_v3", "gpu=mi300x"),
        ("model=deepseek_v3", "gpu=a100_80gb"),
        ("model=deepseek_v3", "gpu=h200", "ep_size=2"),
        ("model=gpt_oss_120b", "gpu=h200"),
        ("model=llama_3_1_70b", "gpu=h200", "quantization=fp8"),
    ],
    ids=["another_vendor", "an_older_gpu", "typed", "experts_of_4_bits", "no_experts"],
)
def test_where_the_backend_cannot_run_it_is_not_offered(words: tuple[str, ...]) -> None:
    sending, others = layouts(*words)
    assert others
    assert not sending


def test_a_release_without_the_backend_does_not_offer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(version: str) -> Release:
        known = release(version)
        backend = known.arguments["moe_a2a_backend"]._replace(choices=("none", "mooncake"))
        return replace(known, arguments={**known.arguments, "moe_a2a_backend": backend})

    assert layouts("model=deepseek_v3", "gpu=h200")[0]
    monkeypatch.setattr("sglang_hydra.planning.choosing.layouts.release", lacking)
    sending, others = layouts("model=deepseek_v3", "gpu=h200")
    assert others
    assert not sending


@pytest.mark.parametrize("goal", GOALS)
def test_what_nobody_measured_has_to_promise_more_than_its_error(goal: str) -> None:
    sending, others = layouts("model=deepseek_v3", "gpu=h200")
    measured = next(layout.found for layout in others if layout.found is not None)
    assert measured is not None

    def measure(found: Forecast) -> float:
        return _measure(goal, found, found, found.tpot.value) or 0.0

    same = measured._replace(reasons=(ALL_TO_ALL,))
    half = same.tpot._replace(value=same.tpot.value / 2)
    twice = same.tokens_per_gpu._replace(value=2 * same.tokens_per_gpu.value)
    assert sending
    assert measure(same) > 1.2 * measure(measured)
    assert measure(same._replace(tpot=half, tokens_per_gpu=twice)) < measure(measured)
