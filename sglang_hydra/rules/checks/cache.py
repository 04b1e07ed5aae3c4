"""Checks the hierarchical cache against the radix cache that it extends."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule


@rule("HIC002", (850, 854))
def hicache_extends_radix_cache(args: ServerArgs, facts: Facts) -> Outcome:
    """What: enable_hierarchical_cache is refused with disable_radix_cache.
    Why: SGLang says that the two exclude each other. Inferred: host memory keeps the entries that the radix cache
        evicts. Decode servers and dual_chunk_flash_attn turn the radix cache off.
    Example: enable_hierarchical_cache=true disable_radix_cache=true -> refused"""
    if not args.enable_hierarchical_cache or not args.disable_radix_cache:
        return None
    return Refusal(
        "enable_hierarchical_cache=true needs the radix cache, which is off",
        "enable_hierarchical_cache",
        "disable_radix_cache",
        offers=("disable_radix_cache=false", "enable_hierarchical_cache=false"),
    )
