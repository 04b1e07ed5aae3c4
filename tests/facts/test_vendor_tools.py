"""The texts of the vendors' tools, as recorded."""

from __future__ import annotations

import pytest

from sglang_hydra.facts.accelerators import (
    read_gfx,
    read_hl_smi,
    read_rocminfo,
    read_torch_answer,
)
from sglang_hydra.facts.visible_gpus import Device
from tests.facts.facts_fakes import recorded


def test_rocminfo_tells_the_gpus_and_the_pools_that_sglang_takes_the_smallest_of() -> None:
    devices, pools = read_rocminfo(recorded("rocminfo_mi300x_vf.txt"))
    assert devices == [Device("AMD Instinct MI300X VF", "GPU-43529fe3ce00c724", 196288.0, (9, 4))]
    assert pools == [196288.0]


def test_rocminfo_with_two_gpus_gives_two_pools_and_no_pool_of_the_processor() -> None:
    text = recorded("rocminfo_mi300x_vf.txt")
    agent = text[text.index("*******\nAgent 2") : text.index("*** Done ***")]
    smaller = agent.replace("Agent 2", "Agent 3").replace("200998912(", "100499456(")
    devices, pools = read_rocminfo(text.replace("*** Done ***", smaller + "*** Done ***"))
    assert [device.memory_mib for device in devices] == [196288.0, 98144.0]
    assert pools == [196288.0, 98144.0]


def test_a_pool_far_below_the_name_of_its_gpu_is_not_taken() -> None:
    text = recorded("rocminfo_mi300x_vf.txt")
    far = text.replace("  Pool Info:\n", "  Pool Info:\n" + "    filler\n" * 101)
    assert read_rocminfo(far)[1] == []
    assert read_rocminfo(far)[0][0].memory_mib == 196288.0


def test_rocminfo_without_a_gpu_is_empty() -> None:
    text = recorded("rocminfo_mi300x_vf.txt")
    assert read_rocminfo(text[: text.index("*******\nAgent 2")]) == ([], [])


def test_hl_smi_tells_every_card() -> None:
    assert read_hl_smi(recorded("hl_smi_gaudi2.txt")) == [Device("HL-225", None, 98304.0)] * 2


def test_hl_smi_totals_without_names_are_cards_too() -> None:
    assert read_hl_smi("  Total : 98304 MB\n  Total : 131072 MB\n") == [
        Device(None, None, 98304.0),
        Device(None, None, 131072.0),
    ]


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("gfx942", (9, 4)),
        ("gfx90a", (9, 0)),
        ("gfx950", (9, 5)),
        ("gfx1100", (11, 0)),
        ("gfx1036", (10, 3)),
        ("x", None),
    ],
)
def test_a_gfx_name_is_a_capability(text: str, capability: tuple[int, int] | None) -> None:
    assert read_gfx(text) == capability


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"device": "npu"}\n', {"device": "npu"}),
        ('Warning: something\n{"device": "xpu"}\n', {"device": "xpu"}),
        ("Segmentation fault\n", {}),
        ("[1]\n", {}),
        ("", {}),
    ],
)
def test_the_answer_of_torch_is_its_last_json_object(text: str, answer: dict[str, str]) -> None:
    assert read_torch_answer(text) == answer
