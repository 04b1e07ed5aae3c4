"""Sizes a trainer on the same GPUs: the memory that each keeps while the other works, and whether the server's memory
comes back (``resume_memory_occupation``).

With enable_memory_saver the server releases weights, KV cache and request table (managers/scheduler_components/
weight_updater.py:337-440 of 0.5.23, mem_cache/memory_pool.py); CUDA graphs stay (but see
SGLANG_MEMORY_SAVER_CUDA_GRAPH)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from sglang_hydra.architecture.formats import plain
from sglang_hydra.architecture.understanding import Understanding
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.fit.overheads import GIB, NOTHING, Range, exactly
from sglang_hydra.fit.result import Colocated, Fit
from sglang_hydra.fit.weights import stored_weights
from sglang_hydra.text.findings import Finding, Level, Remedy

_RELEASED_FROM = {"sliding": "0.5.22", "states": "0.5.6"}
"""The first releases that release each pool, read from the wheels: swa_memory_pool.py, MambaPool of memory_pool.py."""
_WINDOW_POOL, _STATE_POOL = "the KV cache of sliding windows", "the states of linear attention"
_ALL_POOLS = "weights and KV cache (enable_memory_saver is off)"
_WEIGHTS = {"fsdp": 4, "megatron": 2}
"""Bytes of a parameter: FSDP in float32 (verl's model_dtype), Megatron in bfloat16 with a float32 copy as a state."""
_GRADIENT = 4
_STATES = {"adamw": 8, "adamw_8bit": 2, "sgd": 0}
_CONTEXT = Range(0.7 * GIB, 0.9 * GIB, 1.3 * GIB)  # like a server on one GPU: overheads.before_loading
_NCCL = {
    "fsdp": Range(0.5 * GIB, 1.0 * GIB, 2.0 * GIB),
    "megatron": Range(1.0 * GIB, 6.5 * GIB, 9.3 * GIB),
    "megatron, experts": Range(6.5 * GIB, 8.8 * GIB, 9.3 * GIB),
}
"""Communicators of a trainer: one group takes 1 GiB (vllm#51485); those of Megatron with TP 2, PP 2, DP 2 on 8 H100
take 7 GB, with experts 9.5 GB (verl#6266, verl#6408). The first training step makes them."""
_CHOICES = {"keeps": ("nothing", "weights", "all"), "sharding": tuple(_WEIGHTS), "optimizer": tuple(_STATES)}


def wrong_settings(settings: Mapping[str, Any]) -> list[Finding]:
    """Returns the errors (CLI022) of a ``colocate`` node: an unknown word, a negative size, weights without shards."""
    found = []
    for name, choices in _CHOICES.items():
        if (value := settings[name]) not in (*choices, *([None] if name == "keeps" else [])):
            allowed = ", ".join(choices)
            found.append((name, f"colocate.{name}={value} is not one of {allowed}", f"colocate.{name}={choices[1]}"))
    for name in ("trainer_gib", "nccl_gib", "shards", "optimizer_shards"):
        value, least = settings[name], 1 if name.endswith("shards") else 0
        if value is not None and not (least <= value < math.inf):
            found.append((name, f"colocate.{name}={value} is less than {least}", f"colocate.{name}={least or 8}"))
    if settings["keeps"] in ("weights", "all") and settings["shards"] is None and settings["trainer_gib"] is None:
        why = f"colocate.keeps={settings['keeps']}: the number of GPUs that share the trainer's weights is not set"
        found.append(("shards", why, "colocate.shards=8"))
    return [Finding("error", "CLI022", message, (f"colocate.{name}",), hint) for name, message, hint in found]


def colocated(found: Fit, known: Understanding, values: Mapping[str, Any], settings: Mapping[str, Any]) -> Colocated:
    """Computes how a server shares its GPUs with the trainer of ``settings`` (the ``colocate`` node)."""
    parts = _trainer(known, settings)
    trainer = NOTHING
    for size in parts.values():
        trainer += size
    kv, memory = found.kv, found.memory
    held = []
    if known.decoder is not None and kv is not None:
        if kv.sliding_tokens is not None and not _releases("sliding", known.release):
            held.append((_WINDOW_POOL, kv.size or 0.0))
        if kv.state and not _releases("states", known.release):
            held.append((_STATE_POOL, kv.state))
    fixed = [found.before_loading, found.libraries, found.graphs, exactly(found.workspace or 0.0)]
    taken = None if found.left is None or memory is None else memory - found.left - found.reserved
    if not values.get("enable_memory_saver"):
        paused, held = taken, [(_ALL_POOLS, 0.0)]
    elif taken is None:
        paused = None
    else:
        paused = sum(part.mid for part in fixed if part is not None) + sum(size for _, size in held)
    weights = None if found.weights.total is None else found.weights.total + (found.lora or 0.0)
    room = None if paused is None or memory is None else memory - found.reserved - paused
    left = None if found.left is None else found.left - trainer.mid
    return Colocated(
        paused=paused,
        trainer=trainer.mid,
        parts=", ".join(f"{name} {size.mid / GIB:.1f}" for name, size in parts.items() if size.mid),
        train=room,
        sync=room - weights if room is not None and weights is not None and values.get("enable_memory_saver") else room,
        left=left,
        error=math.hypot(found.error or 0.0, (trainer.high - trainer.low) / 2),
        highest=_highest(found, values, left),
        held=tuple(name for name, _ in held),
    )


def findings(shared: Colocated, found: Fit, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields the problems of sharing: memory that cannot come back (FIT005), memory that is never released (FIT006)."""
    lowest = found.interval.low if found.interval is not None else 0.0
    if shared.left is not None and shared.left < 0 and found.asked is not None:
        message = (
            f"at resume {-shared.left / GIB:.1f} GiB are missing beside the trainer's {shared.trainer / GIB:.1f}: "
            f"mem_fraction_static={found.asked:g} is of the memory that was free when the server started"
        )
        fraction = math.floor((shared.highest or 0.0) * 100) / 100
        offer = Remedy.typed(f"mem_fraction_static={fraction:g}") if fraction > lowest else None
        message += "" if offer else "; no fraction comes back"
        level: Level = "error" if shared.left + shared.error < 0 else "warning"
        fields = ("mem_fraction_static", "colocate.trainer_gib")
        yield Finding(level, "FIT005", message, fields, offers=[offer] if offer else [])
    if shared.held:
        free = "unknown" if shared.train is None else f"{max(0.0, shared.train) / GIB:.1f} GiB"
        message = f"{', '.join(shared.held)}: not released, and the trainer gets {free}"
        word = "disable_hybrid_swa_memory=true" if values.get("enable_memory_saver") else "enable_memory_saver=true"
        offers = [] if shared.held == (_STATE_POOL,) else [Remedy.typed(word)]
        yield Finding("warning", "FIT006", message, ("enable_memory_saver",), offers=offers)


def _releases(pool: str, release: str) -> bool:
    return at_least(release, _RELEASED_FROM[pool])


def _trainer(known: Understanding, settings: Mapping[str, Any]) -> dict[str, Range]:
    """Returns the bytes that the trainer keeps on each GPU, by part: as typed, or by model, optimizer and sharding."""
    if settings["trainer_gib"] is not None:
        return {"colocate.trainer_gib": exactly(settings["trainer_gib"] * GIB)}
    keeps, sharding, shards = settings["keeps"], settings["sharding"], settings["shards"] or 1
    states = settings["optimizer_shards"] or shards
    parts = {}
    if keeps in ("weights", "all"):
        count = parameters_of(known)
        parts["weights"] = exactly(count * _WEIGHTS[sharding] / shards)
        if keeps == "all":
            parts["gradients"] = exactly(count * _GRADIENT / shards)
            copy = 4 if sharding == "megatron" else 0
            parts[settings["optimizer"]] = exactly(count * (_STATES[settings["optimizer"]] + copy) / states)
    parts["CUDA context"] = _CONTEXT
    experts = known.decoder is not None and known.decoder.experts is not None
    if settings["nccl_gib"] is not None:
        parts["NCCL"] = exactly(settings["nccl_gib"] * GIB)
    elif max(shards, states) > 1:
        parts["NCCL"] = _NCCL["megatron, experts" if experts and sharding == "megatron" else sharding]
    return parts


def parameters_of(known: Understanding) -> float:
    """Returns the number of the model's parameters by its config.json; 0 where that is unknown."""
    if known.decoder is None or known.scheme is None:
        return 0.0
    full = plain(2)
    scheme = known.scheme._replace(
        element=2, linear=full, experts=full, head=full, vision=full, online=False, groups=(), embedding=None
    )
    return stored_weights(known.decoder, scheme, known.tower, 2) / 2


def _highest(found: Fit, values: Mapping[str, Any], left: float | None) -> float | None:
    """Returns the largest fraction that can come back, or None: memory left or missing is a share of the free
    memory."""
    limit, profiled = values.get("max_total_tokens"), found.kv.profiled if found.kv is not None else None
    is_capped = bool(limit and profiled and profiled > limit)
    if left is None or found.free is None or found.asked is None or is_capped or not found.free.mid:
        return None
    highest = found.asked + left / found.free.mid * (found.asked / (found.fraction or found.asked))
    if found.interval is not None:
        highest = min(highest, found.interval.high)
    return max(0.0, math.floor(highest * 1000) / 1000)
