"""The checks that are ours alone, in one visible order: what SGLang accepts and the server then fails on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_hydra.rules.checks import (
    api,
    attention_at_load,
    deprecated,
    ineffective,
    kernels_at_load,
    machine,
    model_config,
    nodes,
    ranges,
    weights_at_load,
)
from sglang_hydra.rules.rule import Rule

if TYPE_CHECKING:
    from sglang_hydra.rules.resolution import Resolution

OUT_OF_RANGE = ("ARG020", "ARG022", "CFG005")
"""After one of these nothing more is computed from the values: they are not sizes of anything."""


def checks_for(resolution: Resolution) -> tuple[Rule, ...]:
    """The checks that hold for a plan's release. With context parallelism, which later releases have, the heads are
    divided otherwise than CFG004 knows."""
    if resolution.is_0_5_2:
        return PLAN_CHECKS
    unheld = {"CFG004"} if resolution.view.get("attn_cp_size") not in (None, 1) else ()
    return tuple(check for check in PLAN_CHECKS if check.every_release and check.id not in unheld)


PLAN_CHECKS: tuple[Rule, ...] = (
    model_config.check_context_length,
    model_config.check_quantization,
    model_config.check_quantization_runs_here,
    model_config.check_dtype,
    model_config.check_heads,
    model_config.check_mem_fraction,
    ranges.check_sizes,
    ranges.check_ports,
    ranges.check_host,
    ranges.check_words,
    ranges.check_model_path,
    machine.check_gpu_count,
    nodes.check_node_rank,
    nodes.check_nodes_start_all_ranks,
    nodes.check_each_rank_has_a_gpu,
    nodes.check_head_address,
    kernels_at_load.check_quantization_kernels,
    kernels_at_load.check_latent_attention,
    kernels_at_load.check_flash_attention_3,
    kernels_at_load.check_draft_model,
    kernels_at_load.check_lowest_gpu,
    attention_at_load.check_delta_net_gpu,
    attention_at_load.check_latent_kernels,
    attention_at_load.check_fa3_cache_type,
    attention_at_load.check_cross_attention,
    attention_at_load.check_dual_chunks,
    attention_at_load.check_delta_net_backend,
    attention_at_load.check_latent_backend,
    attention_at_load.check_graph_sizes,
    attention_at_load.check_sparse_attention_kernels,
    weights_at_load.check_draft_context,
    weights_at_load.check_quantized_shapes,
    weights_at_load.check_fp8_on_ampere,
    weights_at_load.check_eagle3_target,
    weights_at_load.check_class,
    weights_at_load.check_compressed_format,
    weights_at_load.check_experts,
    deprecated.check_deprecated_flags,
    ineffective.check_ineffective,
    api.check_key_with_tokenizer_workers,
)
