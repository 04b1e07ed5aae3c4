"""GPUs of a machine: each server has its own, and finds them empty."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sglang_hydra.measure.sweep import server_points
from sglang_hydra.measure.sweep.claims import Claims
from sglang_hydra.measure.sweep.points import Sweep
from sglang_hydra.measure.sweep.runner import run
from sglang_hydra.measure.sweep.server_points import GpuSets, used_mib, visible_gpus, wait_for_memory
from tests.measure.sweep.place import Place


def test_servers_get_sets_that_nobody_else_has(tmp_path: Path) -> None:
    with Claims(tmp_path) as one, Claims(tmp_path) as two:
        mine, theirs = GpuSets(one, range(4)), GpuSets(two, range(4))
        first, second = mine.take(2), theirs.take(2)
        assert first is not None
        assert second is not None
        assert (first[0], second[0]) == ((0, 1), (2, 3))
        assert mine.take(1) is None
        assert theirs.take(0) == ((), [])
        theirs.give_back(second[1])
        again = mine.take(1)
        assert again is not None
        assert again[0] == (2,)
        assert theirs.take(2) is None, "of a set that is half free nothing is kept"
        other = theirs.take(1)
        assert other is not None
        assert other[0] == (3,)


def test_jobs_of_slurm_may_both_count_their_gpus_from_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Claims(tmp_path) as one, Claims(tmp_path) as two:
        taken = []
        for claims, job in ((one, "7"), (two, "8")):
            monkeypatch.setenv("SLURM_JOB_ID", job)
            taken.append(GpuSets(claims, range(1)).take(1))
        assert all(taken)


@pytest.mark.parametrize(
    ("named", "count", "seen"),
    [
        (None, 4, (0, 1, 2, 3)),
        ("", 2, (0, 1)),
        ("3,5", 8, (3, 5)),
        ("GPU-aa,GPU-bb", 8, (0, 1)),
    ],
)
def test_only_visible_gpus_are_used(
    monkeypatch: pytest.MonkeyPatch, named: str | None, count: int, seen: tuple[int, ...]
) -> None:
    if named is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus(count) == seen


class Driver:
    """Gives memory back some looks after a server's end."""

    def __init__(self, used: Sequence[float]) -> None:
        self.used, self.looks, self.waited = list(used), 0, 0

    def __call__(self, gpus: Sequence[int]) -> dict[int, float]:
        self.looks += 1
        return dict.fromkeys(gpus, self.used.pop(0) if len(self.used) > 1 else self.used[0])

    def sleep(self, seconds: float) -> None:
        self.waited += 1


def test_the_next_server_waits_for_the_memory_of_the_last() -> None:
    driver = Driver([70_000, 30_000, 700, 650])
    assert wait_for_memory({0: 500.0, 1: 500.0}, 60, used=driver, sleep=driver.sleep) == {}
    assert driver.waited == 2


def test_memory_that_somebody_keeps_is_said_in_the_end() -> None:
    driver = Driver([9_500])
    assert wait_for_memory({0: 500.0}, 0, used=driver, sleep=driver.sleep) == {0: 9_000.0}
    assert wait_for_memory({}, 0) == {}


def test_an_interrupted_wait_ends() -> None:
    driver = Driver([9_500])
    assert wait_for_memory({0: 500.0}, 3600, over=lambda: driver.looks > 2, used=driver, sleep=driver.sleep)
    assert driver.looks == 3


class Nvml:
    """NVIDIA's library with two GPUs."""

    class NVMLError(Exception):
        pass

    known = ("GPU-aaaa-1", "GPU-aabb-2")

    def nvmlInit(self) -> None:
        """It is there."""

    def nvmlShutdown(self) -> None:
        """It is gone."""

    def nvmlDeviceGetCount(self) -> int:
        return len(self.known)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return self.known[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        if handle:
            raise self.NVMLError
        return SimpleNamespace(used=3 << 20)


@pytest.mark.parametrize(
    ("named", "seen"),
    [
        ("GPU-aabb-2", (1,)),
        ("GPU-aabb,GPU-aaaa", (1, 0)),
        ("GPU-aa", (0,)),  # of which there are two: counted
        ("GPU-cc,GPU-aabb", (0, 1)),
        ("MIG-1/2/3", (0,)),
    ],
)
def test_gpus_that_are_named_by_uuid_have_the_numbers_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, named: str, seen: tuple[int, ...]
) -> None:
    """Watched and waited for are the GPUs that the server has."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus(8) == seen


def test_memory_is_known_of_gpus_that_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    assert used_mib((0, 1)) == {0: 3.0}
    assert used_mib(()) == {}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert used_mib((0, 1)) == {}


def on_one_gpu(sweep: Sweep) -> Sweep:
    return replace(sweep, groups=tuple(replace(group, gpus=1, gpus_of_node=1) for group in sweep.groups))


def test_a_server_starts_on_a_gpu_of_its_own(
    here: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of the GPUs 3 and 5 another runner has the first. Between the servers memory is waited for."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    asked = []

    def waited(baseline: dict[int, float], seconds: float, over: Callable[[], bool]) -> dict[int, float]:
        assert not over()
        if baseline:
            asked.append(baseline)
        return {5: 300.0} if baseline and len(asked) == 1 else {}

    monkeypatch.setattr(server_points, "used_mib", lambda gpus: dict.fromkeys(gpus, 100.0))
    monkeypatch.setattr(server_points, "wait_for_memory", waited)
    sweep = on_one_gpu(here.plan("chunked_prefill_size=512,1024"))
    here.store.begin(sweep)
    with Claims(here.sweep_folder / "claims") as other:
        held = GpuSets(other, (3,)).take(1)
        assert held is not None
        assert run(sweep) == 0
        assert other.holds(held[1][0])
    assert [" --base-gpu-id 1" in line for line in here.starts()] == [True, True]
    assert asked == [{5: 100.0}, {5: 100.0}]
    assert "memory that was not released, in MiB by GPU: {5: 300.0}" in capfd.readouterr().err
    records = list(here.results().values())
    assert all("output_throughput_per_gpu" in record["measures"] for record in records)


def test_a_server_that_takes_more_gpus_than_there_are_is_not_waited_for(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    sweep = here.plan("bench.concurrency=1")
    assert run(replace(sweep, groups=tuple(replace(group, gpus=2, gpus_of_node=2) for group in sweep.groups))) == 4
    (failure,) = here.store.failures(next(sweep.points()).point_id)
    assert failure["findings"][0]["id"] == "RNR004"
