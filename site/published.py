"""What may not stand in the catalog. ``broken`` looks at every pair before its page is written, and the build fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_STOPS = ("RUN007", "RUN008")
"""Warnings of what fails when the server starts, or at its first request; each error stops it anyway."""
_NEVER = {
    "amd": ("NVFP4",),
    "habana": ("NVFP4", "MXFP4", "FP8"),
    "huawei": ("NVFP4", "MXFP4", "FP8"),
}
"""Formats of weights that no release runs on the GPUs of a vendor, as the names of checkpoints and formats have them
(the planner's own rule is RUN022)."""
_OF_A_NODE = ("--nnodes", "--node-rank", "--dist-init-addr")

Pair = Mapping[str, Any]
Best = Mapping[str, Any]


def stops(level: str, id: str) -> bool:
    """Whether a finding says that the server does not come up."""
    return level == "error" or id in _STOPS


def broken(pair: Pair, vendor: str) -> list[str]:
    """What is wrong with the page of a pair: a sentence for each rule that one of its green cells breaks."""
    return [
        f"{pair['model']} on {pair['gpu']}, {load}: {wrong}"
        for load, best in pair["fewest"].items()
        if best is not None
        for rule in RULES
        for wrong in rule(pair, load, best, vendor)
    ]


def _starts(pair: Pair, load: str, best: Best, vendor: str) -> Iterator[str]:
    """No green cell has a finding that stops the start."""
    yield from (f"{id} stops it" for level, id in best["findings"] if stops(level, id))


def _runs(pair: Pair, load: str, best: Best, vendor: str) -> Iterator[str]:
    """No green cell has weights, or a cache, in a format that the vendor's GPUs cannot run."""
    named = " ".join(filter(None, [best["weights"] or pair["path"], best["format"], *best.get("changed", ())])).upper()
    words = re.findall(r"[A-Z0-9]+", named)
    yield from (f"{format} on {vendor}" for format in _NEVER.get(vendor, ()) if format in words)


def _names_weights(pair: Pair, load: str, best: Best, vendor: str) -> Iterator[str]:
    """The title names other weights than the model's own."""
    if best["weights"] and best["weights"] not in best["title"]:
        yield f"the title hides {best['weights']}"


def _is_whole(pair: Pair, load: str, best: Best, vendor: str) -> Iterator[str]:
    """Each command starts its node: of several, with the address of the first and the number of its own."""
    commands = [command for _, command in best["commands"] if command]
    if not commands:
        yield "no command"
    if best["nodes"] > 1:
        yield from (f"without {flag}: {line}" for line in commands for flag in _OF_A_NODE if f"{flag} " not in line)


def _agrees(pair: Pair, load: str, best: Best, vendor: str) -> Iterator[str]:
    """The title says the number of its own plan, its load and what was changed; a plain one is a row of the table."""
    if not re.search(rf": {best['gpus']} GPUs? ", best["title"]) or best["load"] not in best["title"]:
        yield f"the title does not say {best['gpus']} GPUs for {best['load']}: {best['title']}"
    rows = [row for row in pair["counts"] if load in row["holds"]]
    if "changed" not in best and (not rows or rows[0]["gpus"] != best["gpus"]):
        yield f"its table says {[row['gpus'] for row in rows]}, the title {best['gpus']}"
    if load not in best["holds"]:
        yield "it does not hold the load"


def _was_asked(pair: Pair, load: str, best: Best, vendor: str) -> Iterator[str]:
    """No estimate is green where the release itself refused the same weights on another number of GPUs."""
    if not best["exact"] and best["weights"] is None and refused_alike(pair["counts"]):
        yield "the release refused it on other numbers of GPUs, and was not asked for this one"


def refused_alike(counts: list[Any]) -> bool:
    """Whether the release's own code refused one of these plans (REL010)."""
    return any(["error", "REL010"] in count.get("findings", ()) for count in counts)


Rule = Callable[[Pair, str, Best, str], Iterator[str]]
RULES: tuple[Rule, ...] = (_starts, _runs, _names_weights, _is_whole, _agrees, _was_asked)
