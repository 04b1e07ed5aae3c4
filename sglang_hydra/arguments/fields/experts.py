"""Mixture-of-experts models: where experts live, how tokens reach them, how their load is balanced."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Experts:
    """Mixture-of-experts models: where experts live, how tokens reach them, how their load is balanced."""

    ep_size: int = arg(
        1,
        "Expert parallel size: GPUs that whole experts are dealt to. DeepEP makes it equal to tp_size.",
        unit="GPUs",
        flags=("--expert-parallel-size", "--ep-size", "--ep"),
    )
    moe_a2a_backend: str = arg(
        "none",
        "How tokens travel to the GPUs of their experts: deepep sends each to its own, none gathers all everywhere.",
        choices=("none", "deepep"),
    )
    moe_runner_backend: str = arg(
        "auto",
        "Kernels of the expert layers; the flashinfer ones want Blackwell and a matching quantization.",
        choices=("auto", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_mxfp4"),
    )
    flashinfer_mxfp4_moe_precision: str = arg(
        "default",
        "Activations of the flashinfer_mxfp4 kernels: default quantizes them to mxfp8, bf16 keeps them.",
        choices=("default", "bf16"),
    )
    enable_flashinfer_allreduce_fusion: bool = arg(
        False, "Fuse the all-reduce after a layer with the residual and norm that follow; for Blackwell."
    )
    deepep_mode: str = arg(
        "auto",
        "DeepEP's kernels: normal for prefill, low_latency for decoding, auto switches. normal turns CUDA graphs off.",
        choices=("normal", "low_latency", "auto"),
    )
    ep_num_redundant_experts: int = arg(
        0,
        "Extra copies of busy experts; tp_size must divide experts and copies together.",
        unit="experts",
    )
    ep_dispatch_algorithm: str | None = arg(
        None,
        "How a token picks among the copies of its expert: static by its rank, dynamic at random, fake for tests.",
        none="static (SGLang 0.5.2 sets it in every case, as init_expert_location is never None)",
        choices=("static", "dynamic", "fake"),
        cli_choices=False,
    )
    init_expert_location: str = arg(
        "trivial",
        "Where experts start out: trivial (in order), or recorded statistics as a .pt or .json file or JSON text.",
    )
    enable_eplb: bool = arg(
        False, "Move and copy experts while serving so that GPUs are equally busy; needs ep_size above 1."
    )
    eplb_algorithm: str = arg(
        "auto",
        "How the balancer places experts: auto, deepseek, deepseek_hierarchical, deepseek_vec or "
        "deepseek_vec_hierarchical.",
    )
    eplb_rebalance_num_iterations: int = arg(1000, "Forward passes between two rebalancings.", unit="forward passes")
    eplb_rebalance_layers_per_chunk: int | None = arg(
        None,
        "Layers that one rebalancing pass moves at a time; a smaller number makes shorter pauses.",
        unit="layers",
        none="all layers at once",
    )
    eplb_min_rebalancing_utilization_threshold: float = arg(
        1.0,
        "Rebalance only while the mean GPU utilization is at most this; 1 always rebalances.",
        unit="fraction",
    )
    expert_distribution_recorder_mode: str | None = arg(
        None,
        "What is recorded of expert choices: sums (stat, stat_approx) or every pass or token (per_pass, per_token).",
        none="nothing; stat where the balancer or its metrics are on",
        choices=("stat", "stat_approx", "per_pass", "per_token"),
        cli_choices=False,
    )
    expert_distribution_recorder_buffer_size: int | None = arg(
        None,
        "Forward passes that the recorder keeps; -1 keeps all.",
        unit="forward passes",
        none="the same as eplb_rebalance_num_iterations",
    )
    enable_expert_distribution_metrics: bool = arg(False, "Log how evenly the experts are used.")
    deepep_config: str | None = arg(
        None,
        "DeepEP settings tuned for a cluster: JSON text or the path of a JSON file.",
        none="DeepEP's defaults",
    )
    disable_flashinfer_cutlass_moe_fp4_allgather: bool = arg(
        False, "Do not quantize to fp4 before the gather of the flashinfer_cutlass kernels."
    )
    disable_shared_experts_fusion: bool = arg(
        False, "DeepSeek: compute shared experts on their own and not as one more routed expert."
    )
    enable_two_batch_overlap: bool = arg(
        False,
        "Split a batch in two so that one half computes while the other communicates; for large expert parallelism.",
    )
    tbo_token_distribution_threshold: float = arg(
        0.48,
        "Cut a prompt in two where the smaller half of a prefill batch would hold less than this share of its tokens; "
        "0 never cuts, at most 0.5.",
        unit="fraction",
    )
