"""The first cause over ranks: 21 causes, each with what other ranks, watchdogs, probes and Slurm make of it, in six
orders in which logs of several ranks arrive."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sglang_hydra.run.diagnose.diagnosis import diagnose
from tests.run.diagnose.recent import SITE

# The exception that ended rank TP1, its class, and where it was raised.
CAUSES = [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB.",
     "oom_load", "model_loader/loader.py load_model"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB.",
     "oom_runtime", "managers/scheduler.py run_batch"),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
     "cuda_fault", "managers/scheduler.py run_batch"),
    ("torch.AcceleratorError: CUDA error: device-side assert triggered", "cuda_fault", "layers/sampler.py forward"),
    ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
     "gpu_hardware", "managers/scheduler.py run_batch"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device",
     "unsupported_gpu", "layers/norm.py forward"),
    ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 163840",
     "kernel_resources", "layers/moe.py run"),
    ("KeyError: 'language_model.model.layers.0.self_attn.qkv_proj.k_scale'",
     "weights_mismatch", "models/gemma3.py load_weights"),
    ("safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata",
     "corrupt_weights", "model_loader/utils.py load"),
    ("OSError: [Errno 28] No space left on device: '/cache/x'", "disk_full", "utils/cache.py write"),
    ("ModuleNotFoundError: No module named 'outlines'", "missing_package", "constrained/outlines_backend.py load"),
    ("ImportError: cannot import name 'silu' from 'sgl_kernel' (/x/__init__.py)",
     "version_mismatch", "layers/activation.py load"),
    ("AssertionError: 129280 is not divisible by 24", "parallel_size", "layers/vocab.py __init__"),
    ("ValueError: HiRadixCache only supports MHA, MLA, and NSA (DSA) models",
     "unsupported_backend", "mem_cache/hiradix_cache.py __init__"),
    ("AssertionError: Can not alloc mamba cache", "oom_runtime", "mem_cache/mamba_radix_cache.py cache_unfinished_req"),
    ("ValueError: token_to_kv_pool_allocator memory leak detected! self.max_total_num_tokens=270331",
     "pool_leak", "managers/scheduler.py check"),
    ("TypeError: 'NoneType' object is not iterable", "release_fault", "managers/scheduler.py run_batch"),
    ("KeyError: 'weight_version'", "release_fault", "managers/schedule_batch.py f"),
    ("IndexError: list index out of range", "release_fault", "speculative/eagle_worker.py draft"),
    ("AttributeError: 'NoneType' object has no attribute 'shape'", "release_fault", "layers/attention/x.py forward"),
    ("UnboundLocalError: cannot access local variable 'x' where it is not associated with a value",
     "release_fault", "models/x.py forward"),
]  # fmt: skip


def ranks(line: str, place: str) -> dict[str, list[str]]:
    """What each writer wrote, in its order: the rank that failed, two that lost it, the first process, and Slurm."""
    file, function = place.split()
    failed = [
        "[2026-06-11 08:14:09 TP1] Load weight begin. avail mem=78.58 GB",
        "[2026-06-11 08:15:11 TP1] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{SITE}/sglang/srt/managers/scheduler.py", line 3750, in run_scheduler_process',
        f'  File "{SITE}/sglang/srt/{file}", line 71, in {function}',
        line,
        "",
    ]
    waiting = [
        "[2026-06-11 08:14:08 TP0] Load weight begin. avail mem=78.58 GB",
        "[rank0]:[E611 08:25:12.745 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds "
        "before timing out.",
        "[2026-06-11 08:25:13 TP0] Watchdog timeout (self.watchdog_timeout=300)",
    ]
    lost = [
        "[2026-06-11 08:15:13 TP2] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{SITE}/sglang/srt/managers/scheduler.py", line 3750, in run_scheduler_process',
        f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 71, in broadcast',
        "RuntimeError: [/pytorch/third_party/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]",
        "",
    ]
    first = [
        "[2026-06-11 08:15:12] Received sigquit from a child process. It usually means the child failed.",
        "[2026-06-11 08:16:40] Health check failed. Server couldn't get a response from detokenizer for last 20 s.",
    ]
    slurm = ["slurmstepd: error: *** JOB 418990 ON gpu-b03 CANCELLED AT 2026-06-11T09:00:02 DUE TO TIME LIMIT ***"]
    return {"1": failed, "0": waiting, "2": lost, "3": first, "4": slurm}


def chained(order: str) -> Callable[[dict[str, list[str]]], list[str]]:
    return lambda logs: [line for name in order for line in logs[name]]


def as_it_happened(logs: dict[str, list[str]]) -> list[str]:
    waiting, first = logs["0"], logs["3"]
    return [waiting[0], *logs["1"], first[0], *logs["2"], first[1], *waiting[1:], *logs["4"]]


def interleaved(logs: dict[str, list[str]]) -> list[str]:
    """One line of each writer in turn, each with the number of its task, as srun -l writes it."""
    longest = max(map(len, logs.values()))
    return [f"{name}: {log[at]}" for at in range(longest) for name, log in logs.items() if at < len(log)]


ORDERS: dict[str, Callable[[dict[str, list[str]]], list[str]]] = {
    "as it happened": as_it_happened,
    "a file a rank, the cause last": chained("03241"),
    "a file a rank, the cause between": chained("02134"),
    "what followed before its cause": chained("40312"),
    "newest first": lambda logs: as_it_happened(logs)[::-1],
    "interleaved": interleaved,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("line", "kind", "place"), CAUSES)
def test_the_first_cause_decides_in_every_order(line: str, kind: str, place: str, order: str) -> None:
    found = diagnose(ORDERS[order](ranks(line, place)))
    assert (found.kind, (found.line or "")[:60]) == (kind, line[:60])
