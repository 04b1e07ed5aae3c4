"""The smallest changes with which a server fits, each proved by planning it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sglang_hydra.architecture.published_checkpoints import others
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.fit.result import Fit, gib

Verify = Callable[[Mapping[str, Any]], "Fit | None"]
"""Plans with these overrides on top: arguments by name, ``gpu`` for another class. None where that plan is refused."""

ARGUMENTS, CHECKPOINT, GPUS, CLASS, NODES = "arguments", "checkpoint", "gpus", "class", "nodes"
_MOST_GPUS, _MOST_NODES = 64, 8
_LARGE_TABLE = 4 * 2**30
_CONTEXTS = (1_000_000, 131_072)

# CUDA compute capability from which SGLang 0.5.2 takes a format (layers/quantization/*.get_min_capability).
_LEAST_CAPABILITY = {"fp8": (8, 0), "nvfp4": (10, 0), "awq": (7, 5), "gptq": (6, 0), "int8": (7, 5)}


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change: what to override, its kind, how it reads, and the fit that it leads to."""

    overrides: Mapping[str, Any]
    kind: str
    change: str
    fit: Fit


def remedies(
    values: Mapping[str, Any],
    gpu: GpuFacts,
    found: Fit,
    verify: Verify,
    *,
    classes: Iterable[GpuFacts] = (),
    limit: int = 6,
) -> tuple[Remedy, ...]:
    """The smallest changes with which the server of ``values`` fits: of one argument or, where none helps, of two;
    else a smaller checkpoint; else more GPUs of the node; else other machines, by the class of GPU or as more nodes.

    ``found`` is the fit that fails, ``classes`` are the GPUs to think of besides ``gpu``. Nothing is returned that
    ``verify`` did not find to fit, with the likeliest numbers and not only at the edge of the error bar.
    """
    proved: list[Remedy] = []
    cured = None
    for step, kind, most, candidates in _candidates(values, gpu, found, classes):
        if cured is not None and step > cured:
            break
        seen = 0
        for overrides in candidates:
            if seen >= most:
                break
            fitted = verify(overrides)
            if fitted is not None and fitted.fits is True and not fitted.tight:
                proved.append(Remedy(overrides, kind, _wording(overrides, fitted), fitted))
                seen += 1
                cured = step
    return tuple(proved[:limit])


def _candidates(
    values: Mapping[str, Any], gpu: GpuFacts, found: Fit, classes: Iterable[GpuFacts]
) -> Iterator[tuple[int, str, int, Iterator[Mapping[str, Any]]]]:
    """Each kind of change: the step at which it is thought of, how many of it are worth showing, and the changes, the
    smallest first."""
    yield 0, ARGUMENTS, 3, _single_arguments(values, found)
    yield 1, ARGUMENTS, 1, _two_arguments(values, found)
    yield 2, CHECKPOINT, 2, _checkpoints(values, gpu)
    yield 3, GPUS, 1, _more_gpus(values, gpu, nodes=False)
    yield 4, CLASS, 2, ({"gpu": other.name} for other in _larger(gpu, classes))
    yield 4, NODES, 1, _more_gpus(values, gpu, nodes=True)


def _single_arguments(values: Mapping[str, Any], found: Fit) -> Iterator[Mapping[str, Any]]:
    """Where the weights fit, the rest of the memory can be shared out otherwise."""
    interval, asked = found.interval, values.get("mem_fraction_static")
    if interval is None or interval.low >= 1:
        return
    if found.request_table is not None and found.request_table > _LARGE_TABLE:
        yield from _shorter(found)
    if not interval.empty and asked is not None:
        middle = (interval.low + interval.high) / 2
        fraction = round(max(interval.high - 0.01, middle) if asked > interval.high else middle, 2)
        if fraction in interval:
            yield {"mem_fraction_static": fraction}
    yield from _smaller(values, found)


def _shorter(found: Fit) -> Iterator[Mapping[str, Any]]:
    """A shorter longest context or fewer requests, where the table of token locations is what takes the memory."""
    context, slots = (found.kv.context, found.kv.slots or 0) if found.kv is not None else (0, 0)
    yield from ({"context_length": length} for length in _CONTEXTS[:1] if context > length)
    yield from ({"max_running_requests": number} for number in (256,) if slots > number)
    yield from ({"context_length": length} for length in _CONTEXTS[1:] if context > length)


def _two_arguments(values: Mapping[str, Any], found: Fit) -> Iterator[Mapping[str, Any]]:
    """Less outside the static part, and a fraction just above what the weights need."""
    interval = found.interval
    if interval is not None and interval.low < 1:
        fraction = round(min(interval.low + 0.02, 0.97), 2)
        yield from ({**change, "mem_fraction_static": fraction} for change in _smaller(values, found))


def _smaller(values: Mapping[str, Any], found: Fit) -> Iterator[Mapping[str, Any]]:
    """Less of what is allocated outside the static part, and smaller numbers in the KV cache."""
    chunk = values.get("chunked_prefill_size") or 0
    graphs = 0 if values.get("disable_cuda_graph") else values.get("cuda_graph_max_bs") or 160
    slots = found.kv.slots if found.kv is not None and found.kv.slots else 0
    yield from ({"chunked_prefill_size": size} for size in (4096, 2048) if chunk > size)
    yield from ({"cuda_graph_max_bs": size} for size in (64, 16) if graphs > size)
    yield from ({"max_running_requests": number} for number in (256, 64) if slots > number)
    if values.get("kv_cache_dtype") == "auto":
        yield from ({"kv_cache_dtype": kind} for kind in ("fp8_e5m2", "fp8_e4m3"))


def _checkpoints(values: Mapping[str, Any], gpu: GpuFacts) -> Iterator[Mapping[str, Any]]:
    """Checkpoints of the same weights in formats that this GPU computes, then quantizing while loading."""
    capability = gpu.compute_capability or (0, 0)
    for checkpoint in others(str(values.get("model_path"))):
        if not gpu.is_cuda or capability >= _LEAST_CAPABILITY.get(checkpoint.format, (0, 0)):
            yield {"model_path": checkpoint.path}
    if values.get("quantization") is None and (not gpu.is_cuda or capability >= _LEAST_CAPABILITY["fp8"]):
        yield {"quantization": "fp8"}


def _more_gpus(values: Mapping[str, Any], gpu: GpuFacts, *, nodes: bool) -> Iterator[Mapping[str, Any]]:
    """Twice as many GPUs and so on; on more nodes, where the node has no more."""
    stages, copies = values.get("pp_size") or 1, 1 if values.get("enable_dp_attention") else values.get("dp_size") or 1
    size, here = values.get("tp_size") or 1, gpu.count or 8
    while size * stages * copies * 2 <= _MOST_GPUS:
        size *= 2
        gpus = size * stages * copies
        needed = -(-gpus // here)
        if (needed > 1) is nodes and needed <= _MOST_NODES and gpus % needed == 0:
            yield {"tp_size": size, "nnodes": needed} if nodes else {"tp_size": size}


def _larger(gpu: GpuFacts, classes: Iterable[GpuFacts]) -> list[GpuFacts]:
    """Classes with more memory, the least first; those of the same vendor before the others."""
    memory = gpu.memory_mib or 0
    more = [other for other in classes if other.name != gpu.name and (other.memory_mib or 0) > memory]
    return sorted(more, key=lambda other: (other.vendor != gpu.vendor, other.memory_mib or 0, other.name))


def _wording(overrides: Mapping[str, Any], fitted: Fit) -> str:
    """``tp_size=16 nnodes=2: 40.5 GiB of weights on each GPU, 412345 KV tokens``"""
    typed = " ".join(f"{name}={value}" for name, value in overrides.items())
    weights = gib(fitted.weights.total)
    size = "" if weights is None else f"{weights:.1f} GiB of weights on each GPU, "
    return f"{typed}: {size}{fitted.kv_tokens} KV tokens"
