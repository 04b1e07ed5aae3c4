"""What PyTorch's allocator takes beyond the tensors of a model's layers."""

from __future__ import annotations

import random

import pytest

from sglang_hydra.fit.weights import lost_bytes
from tests.fit.machines import GIB
from tests.fit.test_releases import served

MIB = 1 << 20


@pytest.mark.parametrize(
    ("tensors", "lost"),
    [
        ([(12.5 * MIB, 64)], 64 * 1.5),  # each rounded up to 2 MiB
        ([(12.5 * MIB, 64), (1.25 * MIB, 64)], 64 * 0.25),  # what is left of one holds another tensor
        ([(8 * MIB, 28), (4 * MIB, 28), (6 * MIB, 28)], 28 * 2),  # Qwen3-0.6B: a segment of 20 MiB for a layer
        ([(9 * MIB, 10)], 5 * 2),
        ([(3 * MIB, 12)], 2 * 2),  # six in a segment
        ([(0.5 * MIB, 100), (16 * MIB, 4)], 0),
        ([], 0),
    ],
)
def test_tensors_lose_what_their_segments_hold_beyond_them(tensors: list[tuple[float, int]], lost: float) -> None:
    assert lost_bytes(tensors) == lost * MIB


def test_layers_that_repeat_themselves_are_counted_as_they_would_be_one_by_one() -> None:
    choose = random.Random(7)
    for _ in range(200):
        sizes = [choose.randrange(1, 30 * MIB) for _ in range(choose.randrange(1, 7))]
        layers = choose.randrange(1, 90)
        alike = [(size, layers) for size in sizes]
        # A tensor of whole segments loses nothing and, in one layer alone, keeps the layers from being alike.
        one_by_one = lost_bytes([*alike, (40 * MIB, layers + 1)])
        assert lost_bytes(alike) == pytest.approx(one_by_one)


def test_a_small_model_takes_what_a_server_logged() -> None:
    """Qwen3-Reranker-0.6B, of the same shapes, logged 1.18 GB of 1.15 of weights (ghfile-65732309288)."""
    weights = served("Qwen--Qwen3-0.6B", "h100", "0.5.17", {"tp_size": 1}).weights
    assert weights.total is not None
    assert weights.total / GIB == pytest.approx(1.18, abs=0.006)
    assert weights.parts["other"] / MIB == pytest.approx(28 * 2)
