"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

import pytest

from sglang_hydra.facts.visible_gpus import Device, Slice, visible_devices

A = Device("A", "GPU-aaaa-1111", 100.0)
B = Device("B", "GPU-aabb-2222", 200.0)
C = Device("C", "GPU-cccc-3333", 300.0)
FIRST, SECOND = Slice("MIG-1111-x", 10.0), Slice("MIG-2222-y", 20.0)
SPLIT = Device("S", "GPU-ssss-4444", 400.0, mig=True, slices=(FIRST, SECOND))
EMPTY = Device("E", "GPU-eeee-5555", 500.0, mig=True)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, "ABC"),
        ("", ""),
        ("0", "A"),
        ("2,0", "CA"),
        (" 1 , 2 ", "BC"),
        ("GPU-cccc-3333", "C"),
        ("gpu-CCCC", "C"),
        ("GPU-aab,GPU-c", "BC"),
        ("GPU-aa", ""),
        ("0,7,1", "A"),
        ("0,-1,1", "A"),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("1,1", ""),
        ("0,GPU-aaaa-1111", ""),
        ("0,,1", "A"),
        ("MIG-1111-x", ""),
    ],
)
def test_the_variable_selects_these_whole_gpus(value: str | None, names: str) -> None:
    seen = visible_devices(value, [A, B, C])
    assert "".join(device.name or "" for device in seen.devices) == names
    assert seen.slice is None


@pytest.mark.parametrize(
    ("value", "devices", "names", "piece"),
    [
        (None, [A, SPLIT], "S", FIRST),
        (None, [A, EMPTY], "A", None),
        (None, [EMPTY], "", None),
        ("1", [A, SPLIT], "S", FIRST),
        ("0", [A, SPLIT], "A", None),
        ("0", [EMPTY], "", None),
        ("MIG-2222", [A, SPLIT], "S", SECOND),
        ("MIG-1111-x,MIG-2222-y", [SPLIT], "S", FIRST),
        ("MIG-", [SPLIT], "", None),
    ],
)
def test_of_mig_slices_one_is_visible_and_alone(
    value: str | None, devices: list[Device], names: str, piece: Slice | None
) -> None:
    seen = visible_devices(value, devices)
    assert "".join(device.name or "" for device in seen.devices) == names
    assert seen.slice == piece


@pytest.mark.parametrize(
    ("value", "said"), [("0,9", "'9' names no GPU"), ("0,0", "names a GPU twice"), ("", "hides every GPU")]
)
def test_an_entry_that_hides_gpus_is_explained(value: str, said: str) -> None:
    assert said in str(visible_devices(value, [A, B]).note)
