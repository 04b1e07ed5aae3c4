"""Whether the GPUs that a plan names can hold the ranks that it asks for."""

from __future__ import annotations

from sglang_hydra.rules.checks.releases import Arguments
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.words import plural


@rule("GPU001", stage="plan")
def check_gpu_count(args: Arguments, facts: Facts) -> Outcome:
    """What: tp_size x pp_size ranks, times dp_size when data parallelism is not inside attention, need as many GPUs:
        gpu.count on each of nnodes nodes, from base_gpu_id on in steps of gpu_id_step.
    Why: a rank without a GPU fails with "invalid device ordinal" once the workers have started.
    Upstream: none; entrypoints/engine.py starts one process for each rank.
    Example: gpu=h100 tp_size=16 -> refused, nnodes=2 is missing
    """
    count = facts.gpu.count
    if count is None or not facts.gpu.device or facts.gpu.device == "cpu" or args.device == "cpu":
        return None
    layout = args.layout
    needed, nodes = layout.gpus, layout.nodes
    on_one_node = -(-needed // nodes)
    last = layout.first_gpu + (on_one_node - 1) * layout.gpu_step
    if last < count:
        return None
    fields = [name for name in ("tp_size", "pp_size", "dp_size", "base_gpu_id", "gpu_id_step") if _set(args, name)]
    more_nodes = -(-needed // count) if count > 0 else nodes
    ranks = f"{plural(needed, 'rank')} need{'s' if needed == 1 else ''} {plural(on_one_node, 'GPU')}"
    where = "one node" if nodes == 1 else f"each of {nodes} nodes"
    reach = f", up to number {last}" if last >= on_one_node else ""
    return Refusal(
        f"{ranks} on {where}{reach}; {facts.gpu.name} has {max(count, 0)}",
        *(fields or ("gpu.count",)),
        "nnodes",
        offers=(
            *((f"nnodes={more_nodes}",) if more_nodes > nodes else ()),
            Remedy.typed(f"gpu.count={last + 1}", when="if a node has as many"),
            *(f"tp_size={size}" for size in _fewer(layout.tp, count * nodes // (layout.stages * layout.copies))),
        ),
    )


def _fewer(asked: int, most: int) -> list[int]:
    """Powers of two below ``asked`` that the GPUs can hold, the largest first."""
    return [size for size in (64, 32, 16, 8, 4, 2, 1) if size < asked and size <= most][:3]


def _set(args: Arguments, name: str) -> bool:
    default = 0 if name == "base_gpu_id" else 1
    return bool(getattr(args, name) != default)
