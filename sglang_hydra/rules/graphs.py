"""Rules for the batch sizes of CUDA graphs, and for turning graphs off."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.arguments.memory_classes import class_of
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


@rule("GRA001", (520, 527))
def limit_graphs_on_small_gpus(args: ServerArgs, facts: Facts) -> Outcome:
    """What: cuda_graph_max_bs, if unset, is $cuda_graph_max_bs.
    Why: graphs for large batches cost memory that a small GPU lacks; with several GPUs they pay off again.
    Example: gpu=rtx_4090 tp_size=4 -> cuda_graph_max_bs=80"""
    if args.cuda_graph_max_bs is not None:
        return None
    memory = facts.gpu.capacity_mib(args.device)
    if memory is None:
        return None
    row = class_of(memory)
    if row.graph_max_bs is None:
        return None
    few, many = row.graph_max_bs
    if args.tp_size < 4:
        return Change(f"{row.name}, {args.tp_size} < 4 GPUs", cuda_graph_max_bs=few)
    return Change(f"{row.name}, {args.tp_size} GPUs", cuda_graph_max_bs=many)
