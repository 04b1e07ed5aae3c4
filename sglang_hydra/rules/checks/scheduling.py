"""Checks prefill chunks against pages."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.json_types import Json


@rule("SCH002", (2283, 2288), stage="check")
def chunks_are_whole_pages(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a chunked_prefill_size above 0 must be a multiple of page_size; 0 and less switch chunks off.
    Why: a chunk fills pages. DP attention has already divided the chunk (DPA004), and backends have set the page.
    Example: page_size=64 chunked_prefill_size=1000 -> refused"""
    chunk: Json = args.chunked_prefill_size
    page: Json = args.page_size
    if not chunk > 0:
        return None
    if page == 0:
        return Refusal("page_size=0: a page holds at least one token", "page_size", offers="page_size=1")
    if chunk % page == 0:
        return None
    asked = facts.given.get("chunked_prefill_size")
    share = f" ({asked} // dp_size={args.dp_size})" if args.enable_dp_attention and asked is not None else ""
    return Refusal(
        f"chunked_prefill_size={chunk}{share} is not a multiple of page_size={page}",
        "chunked_prefill_size",
        "page_size",
        offers=(
            f"chunked_prefill_size={_nearest(args)}",
            Remedy.typed("chunked_prefill_size=-1", when="for no chunks"),
            "page_size=1",
        ),
    )


def _nearest(args: ServerArgs) -> int:
    """Returns the largest smaller chunk, at least one page, that is whole pages on every DP rank."""
    chunk: Json = args.chunked_prefill_size
    page: Json = args.page_size
    ranks = args.dp_size if args.enable_dp_attention else 1
    return int(max(chunk // page, 1) * page * ranks)
