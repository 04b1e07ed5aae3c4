"""The GPUs of this machine, divided between the servers of a sweep: each server has a set of its own."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from sglang_hydra.facts.nvml import MIB, NoNvml, nvml_library, text_of
from sglang_hydra.measure.sweep.claims import Claim, Claims
from sglang_hydra.text.words import is_digits

_MOST = 64
_POLL_S = 0.5
_SLACK_MIB = 256.0
"""Memory that a driver keeps for itself moves by less than this from one look to the next."""


class GpuSets:
    """Hands out sets of the ``visible`` GPUs, as claims in the sweep's folder: runners of one machine share them."""

    def __init__(self, claims: Claims, visible: Sequence[int]) -> None:
        self._claims, self._visible = claims, tuple(visible)

    def __len__(self) -> int:
        return len(self._visible)

    def take(self, count: int) -> tuple[tuple[int, ...], list[Claim]] | None:
        """``count`` neighbouring GPUs that nobody has; None while there are none. For 0 the empty set, always."""
        for first in range(0, len(self._visible) - count + 1, max(1, count)):
            wanted = self._visible[first : first + count]
            held = self._take_all(wanted)
            if held is not None:
                return wanted, held
        return None

    def give_back(self, held: Sequence[Claim]) -> None:
        """Lets others have them."""
        for claim in held:
            self._claims.release(claim)

    def _take_all(self, wanted: Sequence[int]) -> list[Claim] | None:
        held: list[Claim] = []
        for gpu in wanted:
            claim = self._claims.take(f"gpus/{_place()}/{gpu}")
            if claim is None:
                self.give_back(held)
                return None
            held.append(claim)
        return held


def visible_gpus(count: int | None) -> tuple[int, ...]:
    """The numbers of the GPUs that a server started here sees, in its order: those of CUDA_VISIBLE_DEVICES, else the
    first ``count`` (None: all there could be). What is named by its UUID has the number that the driver gives it;
    names that the driver does not know (MIG-...) count from 0."""
    named = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    if not named:
        return tuple(range(_MOST if count is None else count))
    if all(is_digits(word) for word in named):
        return tuple(int(word) for word in named)
    return _numbers_of(named) or tuple(range(len(named)))


def _numbers_of(uuids: Sequence[str]) -> tuple[int, ...] | None:
    """The driver's numbers of GPUs that are named by their UUIDs, or by as much of them as tells one; None where it
    does not know one of them."""
    try:
        with nvml_library() as nvml:
            known = [
                text_of(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(number))) or ""
                for number in range(nvml.nvmlDeviceGetCount())
            ]
    except NoNvml:
        return None
    found = [[number for number, uuid in enumerate(known) if uuid.startswith(word)] for word in uuids]
    return tuple(numbers[0] for numbers in found) if all(len(numbers) == 1 for numbers in found) else None


def _place() -> str:
    """Where numbers mean the same GPUs. Slurm gives each job its own, and may number them from 0 in each."""
    job = os.environ.get("SLURM_JOB_ID")
    return socket.gethostname() + (f"-job-{job}" if job else "")


def used_mib(gpus: Sequence[int]) -> dict[int, float]:
    """Memory in use on each of these GPUs, in MiB; empty where NVIDIA's library is not to be had."""
    found: dict[int, float] = {}
    if not gpus:
        return found
    with suppress(NoNvml), nvml_library() as nvml:
        for gpu in gpus:
            with suppress(nvml.NVMLError):
                found[gpu] = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(gpu)).used / MIB
    return found


def wait_for_memory(
    baseline: dict[int, float],
    timeout_s: float,
    *,
    over: Callable[[], bool] = lambda: False,
    used: Callable[[Sequence[int]], dict[int, float]] = used_mib,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[int, float]:
    """Waits until every GPU uses no more memory than in ``baseline``, at most ``timeout_s`` seconds, or until ``over``.

    Returns the MiB that are still too much on each GPU, empty once all is given back. A driver frees the memory of a
    process some time after it has ended, and the next server would size its KV cache by what it finds.
    """
    end = time.monotonic() + timeout_s
    while True:
        now = used(tuple(baseline))
        left = {gpu: now[gpu] - before for gpu, before in baseline.items() if now.get(gpu, 0.0) > before + _SLACK_MIB}
        if not left or over() or time.monotonic() >= end:
            return left
        sleep(_POLL_S)
