"""Which class a GPU is: name and memory decide together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.facts.recognise import recognise
from sglang_hydra.planning.making.gpu_class import gpu_nodes
from tests.plans import composer, written

PRESETS = gpu_nodes(composer())


def seen(name: str | None, mib: float | None, vendor: str = "nvidia", **more: Any) -> GpuProbe:
    names = (name,) if name else ()
    return GpuProbe(vendor=vendor, device="cuda", names=names, memory_mib=mib, visible_memory_mib=mib, count=1, **more)


@pytest.mark.parametrize(
    ("option", "name"),
    [(option, name) for option, preset in PRESETS.items() for name in preset.get("device_names", ())],
)
def test_every_class_recognises_itself_by_each_of_its_names(option: str, name: str) -> None:
    preset = PRESETS[option]
    probe = seen(name, preset["memory_mib"], preset["vendor"])
    assert recognise(probe, PRESETS) == option


@pytest.mark.parametrize(
    ("name", "mib", "option"),
    [
        ("NVIDIA H20", 97871, "h20"),
        ("NVIDIA H20", 143771, "h20_3e"),
        ("NVIDIA H20-3e", 143771, "h20_3e"),
        ("NVIDIA L20", 46068, "l20"),
        ("NVIDIA GB10", 124610, "gb10"),
        ("NVIDIA H200", 97871, None),
        ("NVIDIA H200 NVL", 143771, "h200"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, "rtx_pro_6000"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, None),
        ("NVIDIA A100 80GB PCIe", 81920, "a100_pcie"),
        ("NVIDIA A100-PCIE-40GB", 40536, "a100_40gb"),
        ("A100-SXM4-40GB", 40960, "a100_40gb"),
        ("NVIDIA A800-SXM4-80GB", 81920, None),
        ("NVIDIA H100 NVL", 95830, None),
        ("NVIDIA H100 PCIe", 81559, "h100_pcie"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, None),
        ("NVIDIA A10G", 22731, "a10"),
        ("NVIDIA GH200 480GB", 97871, "gh200"),
        ("NVIDIA GH200 144G HBM3e", 146831, None),
        ("NVIDIA GeForce RTX 3090", 24576, "rtx_3090"),
        ("NVIDIA GB200", 189471, "gb200"),
        ("NVIDIA B200", 189471, "b200"),
        ("NVIDIA Graphics Device", 81559, None),
        ("NVIDIA H200", None, None),
        (None, 143771, None),
    ],
)
def test_a_gpu_is_this_class(name: str | None, mib: float | None, option: str | None) -> None:
    probe = seen(name, mib)
    assert recognise(probe, PRESETS) == option


@pytest.mark.parametrize(
    ("name", "vendor", "mib", "option"),
    [
        ("AMD Instinct MI300X VF", "amd", 196288, "mi300x"),
        ("AMD Instinct MI300X VF", "nvidia", 196288, None),
        ("AMD Instinct MI350X", "amd", 294896, "mi350x"),
        ("AMD Instinct MI355X", "amd", 294896, "mi355x"),
        ("Ascend910B3", "huawei", 65536, "ascend_910b"),
        ("HL-225", "habana", 98304, "gaudi2"),
    ],
)
def test_the_vendor_must_agree(name: str, vendor: str, mib: float, option: str | None) -> None:
    assert recognise(seen(name, mib, vendor), PRESETS) == option


def test_the_compute_capability_must_agree_where_it_is_known() -> None:
    assert recognise(seen("NVIDIA H200", 143771, compute_capability=(9, 0)), PRESETS) == "h200"
    assert recognise(seen("NVIDIA H200", 143771, compute_capability=(8, 0)), PRESETS) is None


def test_a_mig_slice_is_no_class() -> None:
    assert recognise(seen("NVIDIA A100-SXM4-80GB", 81920, mig=True), PRESETS) is None


def test_gpus_of_two_kinds_are_no_class() -> None:
    probe = GpuProbe(vendor="nvidia", names=("NVIDIA H200", "NVIDIA L4"), visible_memory_mib=143771, count=2)
    assert recognise(probe, PRESETS) is None


def test_a_class_of_a_folder_is_recognised_beside_a_broken_one(tmp_path: Path) -> None:
    mine = "device_names:\n  - NVIDIA X900\nmemory_mib: 1000\nvendor: nvidia\n"
    broken = "device_names: [NVIDIA Y100]\nmemory_mib: [\n"
    nodes = gpu_nodes(Composer([written(tmp_path, {"gpu/mine.yaml": mine, "gpu/broken.yaml": broken})]))
    assert "broken" not in nodes
    assert recognise(seen("NVIDIA X900", 1010), nodes) == "mine"


def test_a_variant_that_inherits_its_device_names_is_not_taken_for_the_class(tmp_path: Path) -> None:
    variant = "defaults: [h200]\nname: dgx\ncount: 4\n"
    nodes = gpu_nodes(Composer([written(tmp_path, {"gpu/dgx.yaml": variant})]))
    assert nodes["dgx"]["device_names"] == ["NVIDIA H200"]
    assert recognise(seen("NVIDIA H200", 143771), nodes) == "h200"
