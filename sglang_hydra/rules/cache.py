"""Rules for the hierarchical cache."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


@rule("HIC001", (712, 716))
def layout_for_mooncake_storage(args: ServerArgs, facts: Facts) -> Outcome:
    """What: hicache_storage_backend=mooncake sets hicache_io_backend=kernel and hicache_mem_layout=page_first.
    Why: SGLang's comment says that mooncake needs these. Inferred: it sends whole pages without copying, so each page
        must lie in one piece. It does so with HiCache off too.
    Example: hicache_storage_backend=mooncake hicache_io_backend=direct -> hicache_mem_layout=page_first"""
    if args.hicache_storage_backend != "mooncake":
        return None
    return Change("mooncake sends whole pages", hicache_io_backend="kernel", hicache_mem_layout="page_first")
