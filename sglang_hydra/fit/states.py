"""States of linear attention: bytes of each, how many a server keeps, what that leaves for the KV cache.

Sources: SGLang 0.5.2 configs/qwen3_next.py (mamba_cache_per_req); 0.5.4 to 0.5.23 as allocation.json has them, with the
bytes of a state in 0.5.23 configs/mamba_utils.py:56-126.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sglang_hydra.architecture.decoder import BOTH, LINEAR, Decoder
from sglang_hydra.architecture.ranks import Ranks, stage_layers
from sglang_hydra.fit.allocation import Allocation, states_of_a_request

DEFAULT_STATES = 512  # requests with linear attention, where neither argument that limits them is set
_SHARE = 0.9  # mamba_full_memory_ratio, where nobody sets it


class States(NamedTuple):
    """``slots`` for states (None: the model keeps none), ``requests`` that can run with them, and bytes: of the slots
    and of the states after each drafted token. Below 1 slot a server that shares the memory out refuses to start."""

    slots: int | None
    requests: int | None
    bytes: float
    drafted: float


NO_STATES = States(None, None, 0.0, 0.0)


def state_bytes(decoder: Decoder, ranks: Ranks, values: Mapping[str, Any]) -> int:
    """Returns the bytes of one request's state in the stage with most such layers: the last inputs of the convolution
    in 16 bits, and its matrices in mamba_ssm_dtype."""
    linear = decoder.linear
    if linear is None:
        return 0
    wide = 2 if (values.get("mamba_ssm_dtype") or decoder.state_dtype) in ("bfloat16", "float16") else 4
    each = linear.window(ranks.attention) * 2 + linear.matrices(ranks.attention) * wide
    stages = stage_layers(len(decoder.layers), ranks.stages)
    return each * max(sum(decoder.layers[i].mixer in (LINEAR, BOTH) for i in layers) for layers in stages)


def states_of(
    decoder: Decoder, ranks: Ranks, values: Mapping[str, Any], rules: Allocation, room: float | None
) -> States:
    """Returns the states that share ``room`` bytes with the KV cache (None: unknown). DP attention's replicas share out
    what is limited by number."""
    each = state_bytes(decoder, ranks, values)
    if decoder.linear is None or each == 0:
        return NO_STATES if decoder.linear is None else States(0, None, 0.0, 0.0)
    running = int(values.get("max_running_requests") or 0) // ranks.groups
    asked = int(values.get("max_mamba_cache_size") or 0) // ranks.groups
    cached = not values.get("disable_radix_cache")
    drafted = int(values.get("speculative_num_draft_tokens") or 0) if values.get("speculative_algorithm") else 0
    per_request = states_of_a_request(values) if rules.states_by_share else 1
    padding = int(rules.states_padded)

    def of(slots: int, requests: int) -> States:
        room_for = (requests + padding) * drafted * each if rules.states_typed else slots * drafted * each
        return States(slots, max(0, slots // per_request), float((slots + padding) * each), float(room_for))

    def limited(slots: int) -> int:
        return min(running or slots, slots // per_request) if rules.states_jointly else running

    if not rules.states_by_share or (asked and (rules.states_typed or not cached)):
        slots = asked or (running if not cached or not rules.states_by_share else 0) or DEFAULT_STATES // ranks.groups
        return of(slots, limited(slots) if asked else slots)
    if not cached and (running or not rules.states_typed):
        slots = running or DEFAULT_STATES
        return of(slots, slots)
    if room is None:
        return of(DEFAULT_STATES // ranks.groups, running)
    part = float(values.get("mamba_full_memory_ratio") or _SHARE)
    part /= 1 + part
    if not rules.states_typed:
        slots = int(room * part // each // (1 + drafted))
    elif not rules.states_jointly:
        slots = int((room - running * drafted * each) * part // each)
    else:
        slots = int((room * part - padding * each * (1 + drafted)) // (each * (1 + drafted / per_request)))
    slots = max(0, slots)
    return of(slots, limited(slots))
