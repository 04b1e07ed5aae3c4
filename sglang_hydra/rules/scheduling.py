"""Rules for prefill chunks."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.arguments.memory_classes import CHUNK_WITHOUT_MEMORY, class_of
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


@rule("SCH001", (508, 518))
def choose_chunked_prefill_size(args: ServerArgs, facts: Facts) -> Outcome:
    """What: chunked_prefill_size in tokens, if unset, is chosen
        $chunked_prefill_size.
    Why: SGLang's comment on memory says that larger GPUs get larger chunks. Inferred: a longer chunk fills a larger GPU
        better; it needs more memory for activations.
    Example: gpu=h100 -> chunked_prefill_size=8192"""
    if args.chunked_prefill_size is not None:
        return None
    memory = facts.gpu.capacity_mib(args.device)
    if memory is None:
        return Change(
            f"the memory of device {args.device!r} is not asked for", chunked_prefill_size=CHUNK_WITHOUT_MEMORY
        )
    row = class_of(memory)
    return Change(row.name, chunked_prefill_size=row.chunked_prefill_size)
