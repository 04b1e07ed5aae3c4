"""Which ranks each node starts, and on which of its GPUs: whether they make up the whole, each with its own GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.findings import Offer

# More ranks than any machine has GPUs: they are not listed one by one.
_MOST_RANKS = 4096


class Share(NamedTuple):
    """One node's part of the model: ``pp`` stages of ``tp`` ranks, ``nodes_per_stage`` nodes to a stage.

    SGLang 0.5.2 computes this in entrypoints/engine.py, lines 753-765, for each node from its rank.
    """

    tp: int
    pp: int
    nodes_per_stage: int


def share_of_node(args: Any) -> Share:
    """What every node starts. The sizes must be 1 or more."""
    nodes_per_stage = max(args.nnodes // args.pp_size, 1)
    return Share(args.tp_size // nodes_per_stage, max(args.pp_size // args.nnodes, 1), nodes_per_stage)


def gpu_numbers(args: Any) -> list[int]:
    """The GPU that each rank of a node takes, in the order in which they are started; a number that comes twice is
    a GPU that two ranks share. Empty for more ranks than a node can have.

    The arithmetic is SGLang 0.5.2's: entrypoints/engine.py, lines 770-774, and for data parallel replicas
    managers/data_parallel_controller.py (a replica begins tp_size x gpu_id_step GPUs after the one before).
    """
    share = share_of_node(args)
    replicas = 1 if args.enable_dp_attention else args.dp_size
    if replicas * share.pp * share.tp > _MOST_RANKS:
        return []
    return [
        args.base_gpu_id + replica * args.tp_size * args.gpu_id_step + stage * share.tp + rank * args.gpu_id_step
        for replica in range(replicas)
        for stage in range(share.pp)
        for rank in range(share.tp)
    ]


@rule("NOD001", stage="plan", every_release=True)
def check_node_rank(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: node_rank must lie between 0 and nnodes - 1.
    Why: Inferred: SGLang takes any number, starts ranks that no group has, and waits for the others without end.
    Upstream: none.
    Example: nnodes=2 node_rank=2 -> refused
    """
    if 0 <= args.node_rank < max(args.nnodes, 1):
        return None
    last = max(args.nnodes, 1) - 1
    if last == 0:
        return Refusal(
            f"node_rank={args.node_rank} with one node",
            "node_rank",
            "nnodes",
            offers=("node_rank=0", f"nnodes={args.node_rank + 1}"),
        )
    return Refusal(
        f"node_rank={args.node_rank}: the nodes are counted from 0 to {last}",
        "node_rank",
        "nnodes",
        offers="node_rank=0",
    )


@rule("NOD002", stage="plan", every_release=True)
def check_nodes_start_all_ranks(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: the nodes together must start each of the tp_size x pp_size ranks once: nnodes is a multiple or a divisor
        of pp_size, and tp_size divides among the nodes of a stage.
    Why: SGLang only asks that tp_size x pp_size divides by nnodes (PAR001). With pp_size=3 on two nodes the third
        stage is started by nobody, and the others wait for it until they time out.
    Upstream: none; entrypoints/engine.py lines 753-765 have the arithmetic.
    Example: pp_size=3 tp_size=2 nnodes=2 -> refused
    """
    if args.nnodes <= 1 or min(_sizes(args)) < 1:
        return None
    share = share_of_node(args)
    stages, rest = divmod(args.nnodes, share.nodes_per_stage)
    if rest == 0 and share.pp * stages == args.pp_size and share.tp * share.nodes_per_stage == args.tp_size:
        return None
    return Refusal(
        f"nnodes={args.nnodes} nodes cannot share pp_size={args.pp_size} stages of tp_size={args.tp_size} ranks: some "
        "would be started twice or not at all",
        "nnodes",
        "pp_size",
        "tp_size",
        offers=_shared_sizes(args),
    )


@rule("NOD003", stage="plan", every_release=True)
def check_each_rank_has_a_gpu(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: no two ranks of a node may be given the same GPU.
    Why: SGLang does not multiply the offset of a pipeline stage by gpu_id_step, and starts a data parallel replica
        tp_size x gpu_id_step GPUs after the one before, whatever pp_size is. Two ranks on one GPU run out of memory
        or fail in NCCL ("Duplicate GPU detected").
    Upstream: none; entrypoints/engine.py lines 770-774 and managers/data_parallel_controller.py have the arithmetic.
    Example: pp_size=2 tp_size=2 gpu_id_step=2 -> refused, GPU 2 would have two ranks
    """
    if not facts.gpu.device or facts.gpu.device == "cpu" or args.device == "cpu" or min(_sizes(args)) < 1:
        return None

    shared = sorted(number for number, ranks in Counter(gpu_numbers(args)).items() if ranks > 1)
    if not shared:
        return None
    named = ", ".join(map(str, shared[:4])) + (", ..." if len(shared) > 4 else "")
    whose = "GPU" if len(shared) == 1 else "GPUs"
    if args.gpu_id_step > 1:
        return Refusal(
            f"pp_size={args.pp_size} with gpu_id_step={args.gpu_id_step} puts two ranks on {whose} {named}",
            "gpu_id_step",
            "pp_size",
            offers="gpu_id_step=1",
        )
    return Refusal(
        f"dp_size={args.dp_size} with pp_size={args.pp_size} puts two ranks on {whose} {named}",
        "dp_size",
        "pp_size",
        offers=Offer("dp_size=1", ", and one server a replica behind a router"),
    )


@rule("NOD004", stage="plan", every_release=True)
def check_head_address(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: dist_init_addr must be HOST:PORT, an IPv6 address in brackets.
    Why: torch connects to tcp://<dist_init_addr>; without a port or with a wrong one it fails once the workers run.
    Upstream: none; with DP attention SGLang reads the address itself (server_args.py lines 2621-2634).
    Example: nnodes=2 dist_init_addr=10.0.0.1 -> refused, the port is missing
    """
    if args.dist_init_addr is None:
        return None
    from sglang_hydra.arguments.ports import head_address
    from sglang_hydra.text.errors import ConfigError

    try:
        host, port = head_address({"dist_init_addr": args.dist_init_addr, "nnodes": args.nnodes})
    except ConfigError as failure:
        finding = failure.findings[0]
        return Refusal(finding.message, *finding.fields, hint=finding.hint, offers=finding.offers)
    if host and 0 < port <= 65535:
        return None
    return Refusal(
        f"dist_init_addr={args.dist_init_addr} needs a host and a port from 1 to 65535",
        "dist_init_addr",
        hint="node 0's own address as HOST:PORT, [HOST]:PORT for IPv6",
    )


def _shared_sizes(args: ServerArgs) -> list[str]:
    """A stage on each node, or one stage over all: with tp_size as it is, else with the nearest sizes that divide."""
    ranks, nodes = args.tp_size, args.nnodes
    powers = sorted((1, 2, 4, 8, 16), key=lambda size: (abs(size - ranks), -size))
    whole = [size * nodes for size in powers]
    whole.sort(key=lambda size: abs(size - ranks))
    nearest_whole = -(-ranks // nodes) * nodes
    return [
        f"pp_size={nodes}",
        f"pp_size=1 tp_size={nearest_whole}",
        *(f"pp_size={nodes} tp_size={size}" for size in powers[:4] if size != ranks),
        *(f"pp_size=1 tp_size={size}" for size in whole[:4] if size != nearest_whole),
    ]


def _sizes(args: ServerArgs) -> tuple[int, ...]:
    return args.tp_size, args.pp_size, args.dp_size, args.nnodes, args.gpu_id_step
