"""How the model is spread over GPUs and nodes, and how they talk."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Parallel:
    """How the model is spread over GPUs and nodes, and how they talk."""

    tp_size: int = arg(
        1,
        "Tensor parallel size: GPUs that share every layer. The first thing to raise when a model does not fit.",
        unit="GPUs",
        flags=("--tensor-parallel-size", "--tp-size"),
    )
    pp_size: int = arg(
        1,
        "Pipeline parallel size: stages of consecutive layers. For models spread over nodes with a slow network.",
        unit="stages",
        flags=("--pipeline-parallel-size", "--pp-size"),
    )
    max_micro_batch_size: int | None = arg(
        None,
        "Most requests in one micro-batch of a pipeline.",
        unit="requests",
        none="max_running_requests / pp_size",
    )
    dp_size: int = arg(
        1,
        "Data parallel size: whole replicas behind one port or, with enable_dp_attention, parts of one tensor parallel "
        "group.",
        unit="replicas",
        flags=("--data-parallel-size", "--dp-size"),
    )
    load_balance_method: str = arg(
        "round_robin",
        "How requests are dealt to the data parallel replicas; minimum_tokens needs DP attention.",
        choices=("round_robin", "shortest_queue", "minimum_tokens"),
    )
    enable_dp_attention: bool = arg(
        False,
        "Attention data parallel, experts tensor parallel: each replica keeps the KV cache of its own requests. For "
        "DeepSeek-like models at high throughput; tp_size must be a multiple of dp_size.",
    )
    enable_dp_lm_head: bool = arg(
        False, "Compute the output head within each attention group, without a gather over all; needs DP attention."
    )
    moe_dense_tp_size: int | None = arg(
        None,
        "Tensor parallel size of the dense MLP layers of MoE models; only 1 is supported. For a large tp_size, where "
        "their slices become too narrow.",
        unit="GPUs",
        none="the same as tp_size",
    )
    dist_init_addr: str | None = arg(
        None,
        "host:port of the node with rank 0, the same on every node.",
        none="a port on this machine; several nodes need it set",
        flags=("--dist-init-addr", "--nccl-init-addr"),
    )
    nnodes: int = arg(
        1, "Nodes that serve the model together; tp_size * pp_size must divide evenly among them.", unit="nodes"
    )
    node_rank: int = arg(0, "Rank of this node, from 0; only rank 0 answers HTTP requests.")
    nccl_port: int | None = arg(
        None,
        "TCP port of the process group on this machine; set it where only certain ports are open.",
        none="a free port, 100 to 1000 above port",
    )
    dist_timeout: int | None = arg(
        None,
        "Time allowed for one collective; raise it when slow loading makes ranks time out at start.",
        unit="seconds",
        none="torch's own (10 minutes with NCCL)",
    )
    enable_nccl_nvls: bool = arg(
        False, "Let NCCL reduce inside the NVLink switch; for prefill-heavy loads on NVSwitch machines."
    )
    enable_symm_mem: bool = arg(
        False, "Share communication buffers among GPUs as symmetric memory, so that NCCL needs fewer copies."
    )
    enable_mscclpp: bool = arg(False, "Use MSCCL++ for the all-reduce of small messages, NCCL for the rest.")
    disable_custom_all_reduce: bool = arg(
        False, "Use NCCL for every all-reduce; the first thing to try when multi-GPU servers hang or give wrong text."
    )
    enable_p2p_check: bool = arg(
        False, "Test whether GPUs reach each other's memory before relying on it; otherwise it is assumed."
    )
