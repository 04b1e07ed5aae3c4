"""Checks the ranks and GPUs of each node: all ranks start, each with its own GPU; and the store of their caches."""

from __future__ import annotations

import json
import math
import re
from collections import Counter

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import view_of
from sglang_hydra.rules.checks.kernels_at_load import is_latent
from sglang_hydra.rules.checks.releases import Arguments
from sglang_hydra.rules.rule import Facts, Notice, Outcome, Refusal, rule
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.json_types import JsonObject, json_beside
from sglang_hydra.text.words import plural

_STORAGE: JsonObject = json_beside(__file__)


@rule("NOD001", stage="plan")
def check_node_rank(args: ServerArgs, facts: Facts) -> Outcome:
    """What: node_rank must lie between 0 and nnodes - 1.
    Why: Inferred: SGLang takes any number, starts ranks that no group has, and waits for the others forever.
    Upstream: none.
    Example: nnodes=2 node_rank=2 -> refused"""
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


@rule("NOD002", stage="plan")
def check_nodes_start_all_ranks(args: Arguments, facts: Facts) -> Outcome:
    """What: the nodes together must start each of the tp_size x pp_size ranks once: nnodes is a multiple or a divisor
        of pp_size, and tp_size divides among the nodes of a stage.
    Why: SGLang only asks that tp_size x pp_size divides by nnodes (PAR001). With pp_size=3 on two nodes the third
        stage is started by nobody, and the others wait for it until they time out.
    Upstream: none; entrypoints/engine.py lines 753-765 have the arithmetic.
    Example: pp_size=3 tp_size=2 nnodes=2 -> refused"""
    if args.nnodes <= 1 or not args.layout.possible:
        return None
    ranks, of_node, nodes_per_stage = args.layout.node_share
    stages, rest = divmod(args.nnodes, nodes_per_stage)
    if rest == 0 and of_node * stages == args.pp_size and ranks * nodes_per_stage == args.tp_size:
        return None
    return Refusal(
        f"nnodes={args.nnodes} nodes cannot share pp_size={args.pp_size} stages of tp_size={args.tp_size} ranks: some "
        "would be started twice or not at all",
        "nnodes",
        "pp_size",
        "tp_size",
        offers=_shared_sizes(args),
    )


@rule("NOD003", stage="plan")
def check_each_rank_has_a_gpu(args: Arguments, facts: Facts) -> Outcome:
    """What: no two ranks of a node may be given the same GPU.
    Why: SGLang does not multiply the offset of a pipeline stage by gpu_id_step, and starts a data parallel replica
        tp_size x gpu_id_step GPUs after the one before, whatever pp_size is. Two ranks on one GPU run out of memory
        or fail in NCCL ("Duplicate GPU detected").
    Upstream: none; entrypoints/engine.py lines 770-774 and managers/data_parallel_controller.py have the arithmetic.
    Example: pp_size=2 tp_size=2 gpu_id_step=2 -> refused, GPU 2 would have two ranks"""
    if not facts.gpu.device or facts.gpu.device == "cpu" or args.device == "cpu" or not args.layout.possible:
        return None

    shared = sorted(number for number, ranks in Counter(args.layout.gpu_numbers()).items() if ranks > 1)
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
        offers=Remedy.typed("dp_size=1", ", and one server a replica behind a router"),
    )


@rule("NOD004", stage="plan")
def check_head_address(args: ServerArgs, facts: Facts) -> Outcome:
    """What: dist_init_addr must be HOST:PORT, an IPv6 address in brackets.
    Why: torch connects to tcp://<dist_init_addr>; without a port or with a wrong one it fails once the workers run.
    Upstream: none; with DP attention SGLang reads the address itself (server_args.py lines 2621-2634).
    Example: nnodes=2 dist_init_addr=10.0.0.1 -> refused, the port is missing"""
    if args.dist_init_addr is None:
        return None
    from sglang_hydra.arguments.ports import head_address
    from sglang_hydra.text.errors import ConfigError

    try:
        host, port = head_address({"dist_init_addr": args.dist_init_addr, "nnodes": args.nnodes})
    except ConfigError as failure:
        finding = failure.findings[0]
        return Refusal(finding.message, *finding.fields, hint=finding.remedies)
    if host and 0 < port <= 65535:
        return None
    return Refusal(
        f"dist_init_addr={args.dist_init_addr} needs a host and a port from 1 to 65535",
        "dist_init_addr",
        hint="node 0's own address as HOST:PORT, [HOST]:PORT for IPv6",
    )


@rule("NOD009", stage="plan")
def check_decode_contexts_divide(args: Arguments, facts: Facts) -> Outcome:
    """What: dcp_size must divide tp_size.
    Why: the groups that share a request's KV cache are equal parts of the tensor parallel group; the server stops once
        its workers have started.
    Upstream: distributed/parallel_state.py raises it in every release with dcp_size (0.5.23:2665); 0.5.2 has none.
    Example: engine.version=0.5.23 tp_size=4 dcp_size=3 -> refused"""
    size, ranks = args.dcp_size, args.tp_size
    if size < 1 or ranks % size == 0:
        return None
    return Refusal(
        f"dcp_size={size} does not divide tp_size={ranks}",
        "dcp_size",
        "tp_size",
        offers=(f"tp_size={math.lcm(size, ranks)}", f"dcp_size={math.gcd(size, ranks)}"),
    )


@rule("NOD010", stage="plan")
def check_fused_projection(args: Arguments, facts: Facts) -> Outcome:
    """What: MiMo-V2.5's attention runs on at most as many ranks as it has KV heads (4): more GPUs need DP attention.
    Why: the checkpoint stores queries, keys and values of each of these ranks together; the release refuses the start.
    Upstream: 0.5.23 arg_groups/model_hook.py:573-598, 0.5.23 configs/model_config.py:124-145.
    Example: engine.version=0.5.23 gpu=h200 model=mimo_v2_5 tp_size=8 -> refused"""
    view, layout = view_of(facts.model, args.json_model_override_args), args.layout
    if view is None or view.architecture != "MiMoV2ForCausalLM":
        return None
    heads = view.get("num_key_value_heads") if view.get("attention_projection_layout") == "fused_qkv" else None
    ranks = layout.tp // max(layout.attention_groups * layout.attention_contexts, 1)
    if not heads or heads % max(ranks, 1) == 0:
        return None
    return Refusal(
        f"{view.architecture}: its fused projection is stored for {heads} ranks of attention, and {ranks} are planned",
        "tp_size",
        "model_path",
        offers=(f"enable_dp_attention=true dp_size={layout.tp // heads}", f"tp_size={heads}"),
    )


def _shared_sizes(args: Arguments) -> list[str]:
    """Returns one stage on each node, or one stage over all: with tp_size, else the nearest fitting sizes."""
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


_OF_A_NODE, _OF_A_TRAY = 8, 4
"""The GPUs of a machine that is usually one of several (of GB200 and GB300, a tray); with fewer, the number of GPUs may
be the mistake."""


@rule("GPU001", stage="plan")
def check_gpu_count(args: Arguments, facts: Facts) -> Outcome:
    """What: tp_size x pp_size ranks, times dp_size when data parallelism is not inside attention, need as many GPUs:
        gpu.count on each of nnodes nodes, from base_gpu_id on in steps of gpu_id_step.
    Why: a rank without a GPU fails with "invalid device ordinal" once the workers have started.
    Upstream: none; entrypoints/engine.py starts one process for each rank.
    Example: gpu=h100 tp_size=16 -> refused, nnodes=2 is missing"""
    variable, shown = _shown_devices(facts)
    count = facts.gpu.count if shown is None or facts.gpu.count is None else min(shown, facts.gpu.count)
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
    is_small = count < (_OF_A_TRAY if facts.gpu.name.startswith("gb") else _OF_A_NODE)
    there = "on the GPUs that are there" if is_small else ""
    machines = Remedy.typed(f"nnodes={more_nodes}", when="on as many machines" if is_small else "")
    gpus = Remedy.typed(f"gpu.count={last + 1}", when="if a node has as many")
    places: tuple[Remedy, ...] = (gpus, machines) if is_small else (machines, gpus)
    if count == shown:  # the machine may have more
        several = ",".join(map(str, range(last + 1)))
        places = (Remedy.typed(f"engine.env.{variable}={several}", when="if they are free"),)
    ranks = f"{plural(needed, 'rank')} need{'s' if needed == 1 else ''} {plural(on_one_node, 'GPU')}"
    where = "one node" if nodes == 1 else f"each of {nodes} nodes"
    reach = f", up to number {last}" if last >= on_one_node else ""
    has = f"the node has {max(count, 0)} x {facts.gpu.name}" if is_small else f"{facts.gpu.name} has {count}"
    return Refusal(
        f"{ranks} on {where}{reach}; {f'{variable} shows {shown}' if count == shown else has}",
        *(fields or ("gpu.count",)),
        "nnodes",
        offers=(
            *(place for place in places if place is not machines or more_nodes > nodes),
            *(
                Remedy.typed(f"tp_size={size}", when=there)
                for size in _fewer(layout.tp, count * nodes // (layout.stages * layout.copies))
            ),
        ),
    )


def _shown_devices(facts: Facts) -> tuple[str, int | None]:
    """Returns the variable that chooses GPUs for the server, and how many it shows; None where the plan sets none."""
    variable = "HIP_VISIBLE_DEVICES" if facts.gpu.is_hip else "CUDA_VISIBLE_DEVICES"
    listed = facts.env.get(variable, "").replace(" ", "")
    is_list = re.fullmatch(r"(?:\d+|GPU-[\w-]+)(?:,(?:\d+|GPU-[\w-]+))*", listed)
    return variable, len(listed.split(",")) if is_list else None


def _fewer(asked: int, most: int) -> list[int]:
    """Returns up to three powers of two below ``asked`` that the GPUs can hold, the largest first."""
    return [size for size in (64, 32, 16, 8, 4, 2, 1) if size < asked and size <= most][:3]


def _set(args: Arguments, name: str) -> bool:
    default = 0 if name == "base_gpu_id" else 1
    return bool(getattr(args, name) != default)


@rule("HIC003", stage="plan")
def check_storage_needs(args: ServerArgs, facts: Facts) -> Outcome:
    """What: warns of a hicache_storage_backend without its address or its configuration file: one of its environment
        variables, or keys of hicache_storage_backend_extra_config.
    Why: SGLang makes the backend after it loads the weights, and the backend then refuses. file, nixl on files, aibrix,
        mori, shm, seaweedfs and npu_memcache start with defaults of their own.
    Upstream: none; sglang_hydra/rules/checks/nodes.json names the lines for each.
    Example: gpu=h200 model=qwen3_8b enable_hierarchical_cache=true hicache_storage_backend=mooncake -> warned"""
    backend, text = args.hicache_storage_backend, args.hicache_storage_backend_extra_config
    need = _STORAGE.get(str(backend)) if args.enable_hierarchical_cache else None
    if need is None or any(facts.env.get(name) for name in need["variables"]):
        return None
    view = view_of(facts.model, args.json_model_override_args)
    if need.get("is_latent") and (view is None or not is_latent(view)):
        return None
    try:
        stated = json.loads(text or "{}")
    except ValueError:  # @FILE, whose keys are not known here
        return None
    if stated and any(key in ("*", *stated) for key in need["keys"]):
        return None
    ways = [*(f"engine.env.{name}" for name in need["variables"]), *(["the extra config"] if need["keys"] else [])]
    return Notice(
        f"hicache_storage_backend={backend} needs {need['needs']} ({need['source']}), and nothing names it",
        "hicache_storage_backend",
        "hicache_storage_backend_extra_config",
        hint=" or ".join(ways),
    )
