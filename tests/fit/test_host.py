"""What a server keeps in the memory of its node, against what was reported of real ones."""

from __future__ import annotations

import json

import pytest

from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.fit.host import host_memory
from sglang_hydra.planning.making.memory import node_memory
from sglang_hydra.planning.plan import Plan
from tests.commands import Run, runner
from tests.plans import planned

HICACHE = "enable_hierarchical_cache=true"
PROBED = GpuProbe("nvidia", "cuda", ("NVIDIA H200",), 143771.0, 143771.0, (9, 0), count=1, total=1)
LLAMA_ON_3060 = (
    *("engine.version=0.5.3", "gpu=rtx_4090", "gpu.count=4", "gpu.memory_mib=12288", "gpu.host_memory_gib=256"),
    *("model=llama_3_1_8b", "tp_size=4", HICACHE),
)


@pytest.fixture(autouse=True)
def plans_are_for_0_5_2() -> None:
    """Here a plan is for the newest, as outside of the tests."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def _host(plan: Plan) -> tuple[int, float, float]:
    """Ranks, GiB of the hierarchical cache, GiB of offloaded weights."""
    assert plan.fit is not None
    host = node_memory(plan.resolution, plan.fit)
    assert host.cache is not None
    return host.ranks, round(host.cache / 2**30, 2), host.offloaded / 2**30


def _level(plan: Plan) -> str | None:
    return next((finding.level for finding in plan.findings if finding.id == "FIT004"), None)


def test_pinned_pools_of_old_releases_take_a_power_of_two() -> None:
    """sgl-project/sglang#14282: 40 GB a rank filled 256 GB and failed, 30 GB did not."""
    failed = planned(*LLAMA_ON_3060, "hicache_size=40")
    assert (_host(failed)[:2], _level(failed)) == ((4, 256.0), "error")
    worked = planned(*LLAMA_ON_3060, "hicache_size=30")
    assert (_host(worked)[:2], _level(worked)) == ((4, 128.0), None)
    later = planned("engine.version=0.5.9", *LLAMA_ON_3060[1:], "hicache_size=40")
    assert (_host(later)[1], _level(later)) == (pytest.approx(4 * 40e9 / 2**30, abs=0.1), None)


def test_the_remedy_fits() -> None:
    plan = planned(*LLAMA_ON_3060, "hicache_size=40")
    (finding,) = (finding for finding in plan.findings if finding.id == "FIT004")
    assert finding.remedies[0].words == ("hicache_size=34",)
    assert _level(planned(*LLAMA_ON_3060, "hicache_size=34")) is None
    assert _host(planned(*LLAMA_ON_3060, "hicache_size=35"))[1] == 256.0, "35 GB are 32.6 GiB"


def test_index_keys_come_on_top_of_a_size() -> None:
    """sgl-project/sglang#29263: 150 GB for the tokens of each rank of GLM-5.2, and pools of index keys beside them."""
    ranks, cache, _ = _host(planned("gpu=b200", "model=glm_5_2_nvfp4", "tp_size=4", HICACHE, "hicache_size=150"))
    assert ranks == 4
    assert cache > 4 * 150e9 / 2**30 * 1.05


@pytest.mark.parametrize(
    ("words", "level"),
    [
        (("gpu=h200", "model=deepseek_v3", "tp_size=8", "hicache_size=300"), "warning"),
        (("gpu=h200", "model=deepseek_v3", "tp_size=8", "hicache_size=300", "gpu.host_memory_gib=1436"), "error"),
        (("gpu=h200", "model=deepseek_v3", "tp_size=8", "hicache_size=150"), None),
        (("gpu=h200", "model=deepseek_v3", "tp_size=16", "nnodes=2", "hicache_size=150"), None),
        (("gpu=h200", "model=qwen3_8b", "hicache_ratio=40"), "warning"),
        (("gpu=h200", "model=qwen3_8b", "gpu.host_memory_gib=64"), None),  # its release takes the ratio that fits
        (("gpu=l4", "model=qwen3_8b", "hicache_size=9000"), None),  # no memory of its node is known
    ],
)
def test_a_node_with_too_little_memory(words: tuple[str, ...], level: str | None) -> None:
    plan = planned(*words, HICACHE)
    assert _level(plan) == level
    assert plan.launchable is not (level == "error")


def test_offloaded_weights_are_named_alone_where_the_cache_takes_what_fits() -> None:
    words = ("gpu=h200", "model=llama_3_1_8b", HICACHE, "cpu_offload_gb=12", "gpu.host_memory_gib=16")
    (finding,) = (finding for finding in planned(*words).findings if finding.id == "FIT004")
    assert finding.message.startswith("offloaded weights of a node")
    assert finding.remedies[0].words == ("cpu_offload_gb=0",)


def test_a_build_of_ones_own_rounds_nothing_up() -> None:
    model = planned("gpu=h200", "model=qwen3_8b")
    assert model.fit is not None
    sizes = {"enable_hierarchical_cache": True, "hicache_size": 40}
    for release, gib in (("0.0.0.dev1", 37.25), ("main", 37.25), ("0.5.6.post2", 64.0), ("0.5.23+mine", 37.25)):
        found = host_memory(sizes, sizes, model.fit.kv, 1, release)
        assert round((found.cache or 0) / 2**30, 2) == gib, release


def test_the_memory_of_this_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang_hydra.facts.probe.probe_gpu", lambda *_, **__: PROBED)
    monkeypatch.setattr("sglang_hydra.planning.making.gpu_class.host_facts", lambda: {"memory_mib": 65536.0})
    plan = planned("gpu=auto", "model=qwen3_8b", HICACHE, "hicache_size=80")
    assert plan.gpu.extra["host_memory_gib"] == 64
    assert _level(plan) == "error"


def test_offloaded_weights_are_those_of_each_gpu() -> None:
    words = ("gpu=h200", "model=llama_3_1_8b", "tp_size=2", "engine.version=0.5.2")
    assert _host(planned(*words, "cpu_offload_gb=4"))[2] == 8.0
    assert _level(planned(*words, "cpu_offload_gb=4", "gpu.host_memory_gib=16")) == "error"


def test_a_pod_requests_what_its_server_keeps(run: Run) -> None:
    words = ("gpu=h200", "model=deepseek_v3", "tp_size=8", "engine.version=0.5.20")
    plain = run("export", "k8s", *words).out
    assert 'memory: "144Gi"' in plain, "8 x 18 GiB"
    cached = run("export", "k8s", *words, HICACHE, "hicache_size=100").out
    assert 'memory: "890Gi"' in cached
    assert "746 GiB of hierarchical cache" in cached
    assert 'memory: "900Gi"' in run("export", "k8s", *words, "launch.k8s.memory_gib=900").out
    refused = run("export", "k8s", "--json", *words, "launch.k8s.memory_gib=0")
    assert json.loads(refused.out)["findings"][0]["id"] == "EXP015"
