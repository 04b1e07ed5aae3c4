"""Which memory pools a release of SGLang makes, and by which of its rules it sizes them.

allocation.json has a row for each rule: the first release that has it, and where it is there. The releases were
read up to 0.5.23 (``architecture.understanding.LATEST``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.text.json_types import json_beside

_TABLE: Mapping[str, Mapping[str, str]] = json_beside(__file__)


class Allocation(NamedTuple):
    """The rules of one release, each true where it holds.

    States of linear attention: ``states_by_share`` sizes them by a share of the memory, ``states_typed`` lets
    max_mamba_cache_size go before that, ``states_jointly`` shares the memory between states and those of drafted tokens
    (earlier the latter came first), ``states_padded`` counts a padding slot, ``states_by_stage`` profiles the attention
    of a pipeline stage and not of all. Drafts: ``draft_counted`` counts their weights and cache before the pool is
    sized, ``no_headroom`` adds no tokens for them. Sparse attention: ``index_counted`` counts the index keys in the
    profile, ``index_shared`` keeps none where a layer has no indexer. Windows: ``window_pools`` for named classes,
    shared out ``windows_by_bytes``, refused below a ``window_floor``, or sized ``windows_by_requests``. DeepSeek-V4:
    ``ratios_by_stage`` counts the layers of a pipeline stage (earlier all that config.json lists, the draft's too),
    ``ratio_128_by_request``, ``compressed_by_page``. ``media_reserved`` keeps 100 MiB free for multimodal inputs,
    ``fraction_resolved`` takes aiter's share off mem_fraction_static when it is resolved and not when memory is given
    out, ``requests_by_tokens`` limits requests by the pool's tokens.
    """

    states_by_share: bool
    index_counted: bool
    fraction_resolved: bool
    no_headroom: bool
    states_typed: bool
    states_by_stage: bool
    window_pools: bool
    windows_by_bytes: bool
    requests_by_tokens: bool
    states_jointly: bool
    ratios_by_stage: bool
    draft_counted: bool
    ratio_128_by_request: bool
    states_padded: bool
    index_shared: bool
    media_reserved: bool
    window_floor: bool
    compressed_by_page: bool
    windows_by_requests: bool


@lru_cache(maxsize=32)
def allocation_of(release: str) -> Allocation:
    """Returns the rules that hold in ``release``."""
    reached = {since for since in {row["since"] for row in _TABLE.values()} if at_least(release, since)}
    return Allocation(**{name: row["since"] in reached for name, row in _TABLE.items()})


def source_of(rule: str) -> str:
    """Returns the file and lines that a rule was read from. Raises KeyError for an unknown rule."""
    return _TABLE[rule]["source"]


def states_of_a_request(values: Mapping[str, object]) -> int:
    """Slots of states that one running request takes (0.5.23 kv_cache_configurator.py:3062-3088 and
    mem_cache/allocation_sizing.py, get_mamba_tracking_slots)."""
    if values.get("disable_radix_cache"):
        return 1
    strategy = str(values.get("mamba_radix_cache_strategy") or values.get("mamba_scheduler_strategy") or "")
    if not strategy.startswith("extra_buffer"):
        return 3
    return 3 + (1 if values.get("disable_overlap_schedule") or strategy.endswith("lazy") else 2)
