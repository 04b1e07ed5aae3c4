"""conf/gpu: every class has the keys it must have, and its facts are the catalog's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.facts.facts_fakes import catalog
from tests.plans import composer

FOLDER = Path(__file__).parents[2] / "conf" / "gpu"
CATALOG = catalog("gpus.json")["gpus"]
CLASSES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "auto")
ASKED_FOR = (
    *("t4", "a10", "l4", "l40s", "rtx_4090", "rtx_5090", "a100_40gb", "a100_80gb", "h20", "h100", "h200"),
    *("b200", "gb200", "mi300x", "cpu", "none"),
)
TYPES: dict[str, Any] = {
    "name": str,
    "vendor": str,
    "device": (str, type(None)),
    "device_names": list,
    "memory_mib": (int, float, type(None)),
    "compute_capability": (str, type(None)),
    "count": (int, type(None)),
    "flashinfer": bool,
    "triton_kernels": bool,
    "memory_bandwidth_gbps": (int, float, type(None)),
    "dense_tflops": dict,
    "scale_up_gbps": (int, float, type(None)),
    "host_memory_gib": (int, float, type(None)),
    "unverified": list,
    "source": str,
    "args": dict,
}
DEVICES = {"nvidia": "cuda", "amd": "cuda", "habana": "hpu", "huawei": "npu", "intel": "xpu"}


def load(name: str) -> Mapping[str, Any]:
    return composer().preset("gpu", name).node


def test_the_classes_that_people_ask_for_are_there() -> None:
    assert set(ASKED_FOR) <= set(CLASSES)
    assert set(CATALOG) <= set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_every_key_with_its_type_and_no_other(name: str) -> None:
    preset = load(name)
    assert list(preset) == list(TYPES)
    assert {key for part in composer().preset("gpu", name).parts for key in part.tree} == set(TYPES)
    for key, kind in TYPES.items():
        assert isinstance(preset[key], kind), key
    assert preset["name"] == name
    assert list(preset["dense_tflops"]) == ["bf16", "fp8", "fp4"]
    assert preset["args"] == {}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_described_and_cites_its_source(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert not comments[0].startswith("# source:")
    assert any(line.startswith("# source: ") and "2026-" in line for line in comments)


@pytest.mark.parametrize("name", CLASSES)
def test_the_weak_fields_of_a_class_are_fields_of_it(name: str) -> None:
    preset = load(name)
    for field in preset["unverified"]:
        key, _, inner = field.partition(".")
        assert key in preset
        assert not inner or inner in preset[key]


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_class_states_what_the_catalog_states(name: str) -> None:
    preset, fact = load(name), CATALOG[name]
    assert preset["device_names"] == fact["device_names"]
    assert preset["memory_mib"] == fact["memory_mib"]
    assert preset["compute_capability"] == fact["compute_capability"]
    assert preset["count"] == fact["gpus_per_node"]
    assert preset["memory_bandwidth_gbps"] == fact["memory_bandwidth_gbps"]
    assert preset["dense_tflops"] == fact["dense_tflops"]
    assert preset["scale_up_gbps"] == fact["scale_up_gbps_bidirectional"]
    # The catalog files Gaudi under its maker; SGLang asks a Gaudi by Habana's own tool.
    assert preset["vendor"] == ("habana" if fact["vendor"] == "intel" else fact["vendor"])
    assert preset["device"] == DEVICES[preset["vendor"]]
    weak = {field.replace("scale_up_gbps_bidirectional", "scale_up_gbps") for field in fact.get("unverified", ())}
    assert set(preset["unverified"]) - {"triton_kernels"} == weak


@pytest.mark.parametrize("name", CLASSES)
def test_only_nvidia_classes_have_flashinfer_and_triton_kernels(name: str) -> None:
    preset = load(name)
    assert preset["flashinfer"] == preset["triton_kernels"] == (preset["vendor"] == "nvidia")


def test_the_cpu_engine_and_no_accelerator_have_no_memory_and_differ_in_the_device() -> None:
    cpu, none = load("cpu"), load("none")
    assert (cpu["vendor"], cpu["device"], cpu["count"]) == ("none", "cpu", None)
    assert (none["vendor"], none["device"], none["count"]) == ("none", None, 0)
    assert cpu["memory_mib"] is none["memory_mib"] is None


def test_auto_holds_no_facts() -> None:
    (part,) = composer().preset("gpu", "auto").parts
    assert part.tree == {"name": "auto"}
