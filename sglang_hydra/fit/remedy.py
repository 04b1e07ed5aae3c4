"""Finds changes with which a server fits and has the wanted capacity, and proves each by planning it.

They are ranked by what they keep: idle GPUs of the node change no number that the model computes, arguments may, a
checkpoint in another format does, more GPUs have to be there, and another class is no longer what was named."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sglang_hydra.architecture.published_checkpoints import others
from sglang_hydra.architecture.tensors import ROUTED
from sglang_hydra.arguments.layout import Layout, arguments_saying
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.fit.result import NOTHING_STATED, Fit, Wanted, gib, requests_of
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.words import typed

Verify = Callable[[Mapping[str, object]], "Fit | None"]
"""Plans with these overrides added: arguments by name, ``gpu`` for another class. None where that plan is refused."""
Change = Mapping[str, object]

GPUS, ARGUMENTS, CHECKPOINT, CLASS, NODES = "gpus", "arguments", "checkpoint", "class", "nodes"
_MOST_GPUS, _MOST_NODES, _NODE = 64, 8, 8
_LARGE_TABLE = 4 * 2**30
_CONTEXTS = (1_000_000, 131_072)
_LEAST_CONTEXT = 4096  # a shorter one is of little use to anybody who named none
_NARROW = 0.1  # an interval of fractions: its upper end leaves more than a few tokens
_MOST_WEIGHTS = 0.66  # of the memory: above it, smaller weights come before a smaller cache
_LAST_AT_HAND = 3  # the last step that needs no other machine

# The least CUDA compute capability for a format in SGLang 0.5.2 (layers/quantization/*.get_min_capability).
_LEAST_CAPABILITY = {"fp8": (8, 0), "nvfp4": (10, 0), "awq": (7, 5), "gptq": (6, 0), "int8": (7, 5)}
# Formats of other vendors (0.5.23 configs/model_config.py:2002-2016, layers/quantization/__init__.py).
_TAKEN = {"amd": ("fp8", "awq"), "huawei": ("awq", "gptq")}


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change: its overrides, its kind, its wording, and the resulting fit."""

    overrides: Change
    kind: str
    change: str
    fit: Fit


class Misfit(NamedTuple):
    """The server for which changes are sought: resolved arguments by name, their layout, the release of the offered
    arguments, the names of the typed ones, and whether the GPUs of a node are only the usual number of its class."""

    values: JsonObject
    layout: Layout
    release: str
    typed: Collection[str] = ()
    usual_count: bool = False

    def saying(self, **meanings: object) -> dict[str, object]:
        """Returns the release's arguments that set these fields of the layout."""
        return arguments_saying(self.release, self.typed, **meanings)


def remedies(
    server: Misfit,
    gpu: GpuFacts,
    found: Fit,
    verify: Verify,
    *,
    wanted: Wanted = NOTHING_STATED,
    classes: Iterable[GpuFacts] = (),
    limit: int = 4,
) -> tuple[Remedy, ...]:
    """Returns the changes with which ``server`` fits and has the ``wanted`` capacity, those that keep most first; where
    none has that capacity, those with which it fits. Other machines come last, only where nothing else helps.

    ``found`` is the fit that fails or is short, ``classes`` are other GPUs to consider besides ``gpu``. Every returned
    change fits by ``verify`` with the likeliest numbers, not only within the error bar."""
    proved: list[Remedy] = []
    fitting: list[Remedy] = []
    last = _LAST_AT_HAND
    corrects_fraction = "mem_fraction_static" in server.typed and wanted == NOTHING_STATED
    for step, kind, most, candidates in _candidates(server, gpu, found, wanted, classes, fitting):
        if len(proved) >= limit or (proved and step > last):
            break
        seen = 0
        for overrides, fitted in _tried(candidates, verify, kind):
            if seen >= most:
                break
            remedy = Remedy(overrides, kind, _wording(overrides, fitted, wanted), fitted)
            least = 2 * _LEAST_CONTEXT if corrects_fraction and [*overrides] == ["mem_fraction_static"] else math.inf
            least = _CONTEXTS[1] if kind == NODES and wanted == NOTHING_STATED else least
            if fitted.shortage(wanted) is None or (fitted.kv_tokens or 0) >= least:
                proved.append(remedy)
                seen, last = seen + 1, max(step, _LAST_AT_HAND) if step else 0
            else:
                fitting.append(remedy)
    return tuple((proved or ([] if found.fits else fitting))[:limit])


def _tried(candidates: Iterable[Change], verify: Verify, kind: str) -> Iterator[tuple[Change, Fit]]:
    """Yields the changes that fit; another checkpoint also with a fraction that works."""
    for overrides in candidates:
        fitted, tries = verify(overrides), 2 if kind == CHECKPOINT else 0  # a larger pool has a smaller interval
        while fitted is not None and tries and (not fitted.fits or fitted.tight):
            fraction = next(_working_fraction({"mem_fraction_static": fitted.asked}, fitted), None)
            if fraction and fitted.interval and fitted.interval.high - fitted.interval.low < _NARROW:
                fraction = {"mem_fraction_static": math.floor(fitted.interval.high * 100) / 100}
            overrides, tries = {**overrides, **(fraction or {})}, tries - 1 if fraction else 0
            fitted = verify(overrides) if fraction else fitted
        if fitted is not None and fitted.fits and not fitted.tight:
            yield overrides, fitted


def _candidates(
    server: Misfit,
    gpu: GpuFacts,
    found: Fit,
    wanted: Wanted,
    classes: Iterable[GpuFacts],
    fitting: Sequence[Remedy],
) -> Iterator[tuple[int, str, int, Iterator[Change]]]:
    """Yields each kind of change: its step in the order of trials, the number worth showing, and the changes, the
    smallest first. Arguments come first where the weights fit and an argument fails."""
    values = server.values
    fails, stated = found.fits is False or found.tight, wanted != NOTHING_STATED
    by_argument = fails and found.interval is not None and not found.interval.empty and found.interval.low < 1
    if by_argument:
        yield 0, ARGUMENTS, 1, _working_fraction(values, found)
        free = found.free.mid if found.free else math.inf
        if not gpu.extra.get("scale_up_gbps") and (found.weights.total or 0) > _MOST_WEIGHTS * free:
            yield 0, CHECKPOINT, 2, _checkpoints(values, gpu)
        yield 0, ARGUMENTS, 3, _single_arguments(server, gpu, found)
    is_slow = fails and not gpu.extra.get("scale_up_gbps")  # over PCIe, fewer bytes on as many GPUs come first
    if is_slow:
        yield 1, CHECKPOINT, 2, _checkpoints(values, gpu)
    yield 1, GPUS, 2, _idle_gpus(server, gpu, found)
    if fails and not by_argument:
        yield 2, ARGUMENTS, 3, _single_arguments(server, gpu, found)
    if fails:
        yield 2, ARGUMENTS, 1, _two_arguments(server, gpu, found)
    else:
        yield 2, ARGUMENTS, 2, _more_room(server, gpu, found, wanted)
    if not is_slow:
        yield 3, CHECKPOINT, 2, _checkpoints(values, gpu)
    yield 4, ARGUMENTS, 1, _two_changes(server, gpu, found)
    if not stated:
        yield 5, ARGUMENTS, 2, _shorter_context(found, fitting)
    if fails or stated:
        yield 6, NODES, 1, _more_gpus(server, gpu, found)
        yield 6, CLASS, 1, _larger(server, gpu, found, classes)
    if fails and not stated:
        yield 7, NODES, 1, _shorter_context(found, [one for one in fitting if one.kind != CLASS])


def takes(gpu: GpuFacts, format: str) -> bool:
    """Returns whether SGLang has kernels for weights in ``format`` on this kind of GPU."""
    if not gpu.is_cuda:
        return format in _TAKEN.get(gpu.vendor, ())
    return (gpu.compute_capability or (0, 0)) >= _LEAST_CAPABILITY.get(format, (0, 0))


def has_free_cache(values: JsonObject, gpu: GpuFacts) -> bool:
    """Returns whether no argument fixes the cache's type and the GPU supports an FP8 cache. An estimate does not know
    the type: None counts as not fixed."""
    return values.get("kv_cache_dtype") in ("auto", None) and (gpu.is_cuda or gpu.is_hip)


def _working_fraction(values: JsonObject, found: Fit) -> Iterator[Change]:
    """Yields a working fraction where the requested one fails."""
    interval, asked = found.interval, values.get("mem_fraction_static")
    if interval is None or interval.low >= 1 or interval.empty or asked is None:
        return
    middle = (interval.low + interval.high) / 2
    fraction = round(max(interval.high - 0.01, middle) if asked > interval.high else middle, 2)
    if fraction in interval:
        yield {"mem_fraction_static": fraction}


def _idle_gpus(server: Misfit, gpu: GpuFacts, found: Fit) -> Iterator[Change]:
    """Yields two, four, ... times the GPUs, up to those of the nodes: for tensor parallelism; with DP attention where
    every GPU would hold the whole cache; with whole experts on each GPU; as copies of a server that fits."""
    stages, copies = server.layout.stages, server.layout.copies
    there = (gpu.count or 8) * server.layout.nodes
    latent = found.kv is not None and any(kind.kind == "latent" for kind in found.kv.kinds)
    size = server.layout.tp * 2
    while size * stages * copies <= there:
        yield server.saying(tp=size)
        if latent and found.fits and copies == 1:
            yield server.saying(tp=size, attention_groups=size)
        if found.weights.parts.get(ROUTED):
            yield server.saying(tp=size, experts=size)
        size *= 2
    if not found.fits or server.layout.attention_groups > 1:
        return
    size = server.layout.tp
    more = copies * 2
    while more * size * stages <= there:
        yield server.saying(copies=more)
        more *= 2
    while copies == 1 and size * stages * 4 <= there:
        size *= 2
        yield server.saying(tp=size, copies=there // (size * stages))


def _two_changes(server: Misfit, gpu: GpuFacts, found: Fit) -> Iterator[Change]:
    """Yields a larger fraction with a smaller cache; more of the node's GPUs with a smaller cache or checkpoint."""
    values = server.values
    if has_free_cache(values, gpu):
        yield from ({**change, "kv_cache_dtype": cache_type(gpu)} for change in _largest_fraction(found))
    for change in _idle_gpus(server, gpu, found):
        if has_free_cache(values, gpu):
            yield {**change, "kv_cache_dtype": cache_type(gpu)}
        yield from ({**change, **smaller} for smaller in _checkpoints(values, gpu))


def cache_type(gpu: GpuFacts) -> str:
    """Returns the FP8 type for the cache: e4m3 is more precise; its kernels need capability 8.9."""
    return "fp8_e5m2" if gpu.is_cuda and (gpu.compute_capability or (0, 0)) < (8, 9) else "fp8_e4m3"


def _largest_fraction(found: Fit) -> Iterator[Change]:
    """Yields the largest fraction that likely works, where it is above the current one."""
    interval = found.interval
    if interval is not None and not interval.empty and found.asked is not None:
        fraction = int(interval.high * 100 - 1) / 100
        if fraction > found.asked:
            yield {"mem_fraction_static": fraction}


def _more_room(server: Misfit, gpu: GpuFacts, found: Fit, wanted: Wanted) -> Iterator[Change]:
    """Yields changes for more tokens on the same GPUs: no limit on the pool, a larger fraction, DP attention, FP8."""
    values, tp = server.values, server.layout.tp
    if wanted.context and found.kv is not None and wanted.context > found.kv.context:
        yield {"context_length": wanted.context}
    if values.get("max_total_tokens"):
        yield {"max_total_tokens": None}
    if wanted.users and (values.get("max_running_requests") or wanted.users) < wanted.users:
        yield {"max_running_requests": wanted.users}
    yield from _largest_fraction(found)
    if tp > 1 and found.kv is not None and any(kind.kind == "latent" for kind in found.kv.kinds):
        yield server.saying(attention_groups=tp)
    if has_free_cache(values, gpu):
        yield {"kv_cache_dtype": cache_type(gpu)}


def _shorter_context(found: Fit, fitting: Sequence[Remedy]) -> Iterator[Change]:
    """Yields the longest request that the pool holds, where the user asked for no longer ones: of this plan where it
    fits, else of the changes with which it does."""
    tried = [(found, {})] if found.fits and not found.tight else [(other.fit, other.overrides) for other in fitting]
    for fits, change in tried:
        tokens = (fits.kv_tokens or 0) // 1024 * 1024
        yield from ({**change, "context_length": length} for length in (tokens,) if length >= _LEAST_CONTEXT)


def _single_arguments(server: Misfit, gpu: GpuFacts, found: Fit) -> Iterator[JsonObject]:
    """Yields single arguments that divide the memory otherwise, where the weights fit."""
    if found.interval is None or found.interval.low >= 1:
        return
    if found.request_table is not None and found.request_table > _LARGE_TABLE:
        yield from _shorter(found)
    if found.kv is not None and found.kv.is_taken_by_requests:
        most = found.running or math.inf
        yield from ({"max_running_requests": number} for number in (256, 64, 16) if number < most)
    yield from _smaller(server, gpu, found)


def _shorter(found: Fit) -> Iterator[Mapping[str, object]]:
    """Yields a shorter longest context or fewer requests, where the request table takes the memory."""
    context, slots = (found.kv.context, found.kv.slots or 0) if found.kv is not None else (0, 0)
    yield from ({"context_length": length} for length in _CONTEXTS[:1] if context > length)
    yield from ({"max_running_requests": number} for number in (256,) if slots > number)
    yield from ({"context_length": length} for length in _CONTEXTS[1:] if context > length)


def _two_arguments(server: Misfit, gpu: GpuFacts, found: Fit) -> Iterator[JsonObject]:
    """Yields changes to memory outside the static part, with a fraction just above the weights' need."""
    interval = found.interval
    if interval is not None and interval.low < 1:
        fraction = round(min(interval.low + 0.02, 0.97), 2)
        yield from ({**change, "mem_fraction_static": fraction} for change in _smaller(server, gpu, found))


def _smaller(server: Misfit, gpu: GpuFacts, found: Fit) -> Iterator[JsonObject]:
    """Yields changes that allocate less outside the static part, and smaller types for the KV cache."""
    values, made = server.values, server.layout.graphs
    chunk = values.get("chunked_prefill_size") or 0
    graphs = (made.largest or 160) if made.made else 0
    slots = found.kv.slots if found.kv is not None and found.kv.slots else 0
    yield from ({"chunked_prefill_size": size} for size in (4096, 2048) if chunk > size)
    yield from (server.saying(largest_graph=size) for size in (64, 16) if graphs > size)
    yield from ({"max_running_requests": number} for number in (256, 64) if slots > number)
    if has_free_cache(values, gpu):
        yield from ({"kv_cache_dtype": kind} for kind in ("fp8_e5m2", "fp8_e4m3"))


def _checkpoints(values: Mapping[str, object], gpu: GpuFacts) -> Iterator[Mapping[str, object]]:
    """Yields checkpoints of the same weights in formats that this GPU supports, those of 8 bits first, then
    quantization while loading."""
    for checkpoint in sorted(others(str(values.get("model_path"))), key=lambda one: one.format not in ("fp8", "int8")):
        if takes(gpu, checkpoint.format):
            yield {"model_path": checkpoint.path}
    if values.get("quantization") is None and takes(gpu, "fp8"):
        yield {"quantization": "fp8"}


def _more_gpus(server: Misfit, gpu: GpuFacts, found: Fit) -> Iterator[Change]:
    """Yields twice as many GPUs of the class and so on: on this node where their number is only the usual one, with
    each checkpoint too; else on more nodes than there are."""
    stages, copies = server.layout.stages, server.layout.copies
    size, here, nodes = server.layout.tp, gpu.count or _NODE, server.layout.nodes
    if server.usual_count and here < _NODE and nodes == 1:
        sizes = [size * 2**power for power in range(1, 4)]
        more = [{"gpu.count": one * stages * copies, **server.saying(tp=one)} for one in sizes]
        more = [change for change in more if here < change["gpu.count"] <= _NODE]
        yield from more
        yield from ({**change, **smaller} for change in more for smaller in _checkpoints(server.values, gpu))
        return
    while size * stages * copies * 2 <= _MOST_GPUS:
        size *= 2
        gpus = size * stages * copies
        needed = -(-gpus // here)
        if nodes < needed <= _MOST_NODES and gpus % needed == 0:
            wider = server.saying(tp=size, nodes=needed)
            has_windows = found.kv is not None and any(kind.kind.startswith("compressed") for kind in found.kv.kinds)
            slots = server.values.get("max_running_requests") or (256 if has_windows else 0)  # DeepSeek-V4's number
            yield wider
            yield from ({**wider, "max_running_requests": one} for one in (64, 16) if slots > one)


def _larger(server: Misfit, gpu: GpuFacts, found: Fit, classes: Iterable[GpuFacts]) -> Iterator[Change]:
    """Yields classes with more memory, the least first, those of the same vendor before the others: with as many GPUs,
    then with twice as many of their node and so on. What cannot hold the weights is left out."""
    memory, layout = gpu.memory_mib or 0, server.layout
    more = [other for other in classes if other.name != gpu.name and (other.memory_mib or 0) > memory]
    more.sort(key=lambda other: (other.vendor != gpu.vendor, other.memory_mib or 0, other.name))
    whole, size = (found.weights.total or 0) / 2**20 * layout.tp, layout.tp
    while size * layout.stages * layout.copies <= _NODE * layout.nodes:
        for other in more:
            there = (other.count or _NODE) * layout.nodes
            if whole <= size * (other.memory_mib or 0) and size * layout.stages * layout.copies <= there:
                yield {"gpu": other.name, **(server.saying(tp=size) if size > layout.tp else {})}
        size *= 2


def _wording(overrides: Change, fitted: Fit, wanted: Wanted) -> str:
    """Formats ``tp_size=16 nnodes=2: 40.5 GiB of weights on each GPU, 412,345 KV tokens, 3 requests of 131,072
    tokens``."""
    change = " ".join(f"{name}={typed(value)}" for name, value in overrides.items())
    weights, context = gib(fitted.weights.total), wanted.context or (fitted.kv.context if fitted.kv else 0)
    size = "" if weights is None else f"{weights:.1f} GiB of weights on each GPU, "
    requests = fitted.concurrent_requests(context)
    held = "" if requests is None else f", {requests_of(requests, context)}"
    return f"{change}: {size}{fitted.kv_tokens or 0:,} KV tokens{held}"
