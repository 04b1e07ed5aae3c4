"""``${probe:...}`` in a YAML file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from sglang_hydra.facts import probe
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.facts.resolvers import register_resolvers

H200 = GpuProbe("nvidia", "cuda", ("NVIDIA H200",) * 2, 143771.0, 143771.0, (9, 0), count=2, total=2)


@pytest.fixture(autouse=True)
def no_probe_is_remembered() -> Iterator[None]:
    probe.machine.cache_clear()
    register_resolvers()
    yield
    probe.machine.cache_clear()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory_mib", 143771.0),
        ("count", 2),
        ("name", "NVIDIA H200"),
        ("compute_capability", "9.0"),
        ("device", "cuda"),
        ("vendor", "nvidia"),
    ],
)
def test_a_key_is_the_value_of_this_machine(monkeypatch: pytest.MonkeyPatch, key: str, value: object) -> None:
    monkeypatch.setattr(probe, "probe_gpu", lambda: H200)
    assert OmegaConf.create({"x": f"${{probe:{key}}}"}).x == value


@pytest.mark.parametrize("key", ["memory_mib", "name", "compute_capability", "device"])
def test_what_is_not_there_is_null(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(probe, "probe_gpu", GpuProbe)
    assert OmegaConf.create({"x": f"${{probe:{key}}}"}).x is None


def test_the_machine_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(probe, "probe_gpu", lambda: asked.append(1) or H200)
    register_resolvers()
    config = OmegaConf.create({"x": "${probe:count}", "y": "${probe:vendor}"})
    assert (config.x, config.y, config.x) == (2, "nvidia", 2)
    assert len(asked) == 1


def test_an_unknown_key_names_the_known_ones_and_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe_gpu", lambda: pytest.fail("the machine was asked"))
    config = OmegaConf.create({"x": "${probe:memory}"})
    with pytest.raises(
        InterpolationResolutionError, match=r"the probe knows memory_mib, count.*did you mean memory_mib"
    ):
        _ = config.x
