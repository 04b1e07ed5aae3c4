"""Settings that change nothing, because another setting switches off what would read them.

Recorded from SGLang 0.5.2 (``sglang/srt``) for each of its arguments. Left out on purpose: what a running server can
switch on later (``log_requests_level``), what is read beside its switch too (``enable_torch_compile`` by single layers,
``speculative_eagle_topk`` in the choice of a backend, ``chunked_prefill_size`` in the memory of a decode server), and
what depends on the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.rules.rule import Facts, Notice, Outcome, rule
from sglang_hydra.text.words import typed

if TYPE_CHECKING:
    from sglang_hydra.arguments.fields import ServerArgs


class Ineffective(NamedTuple):
    """Arguments that change nothing unless ``read`` is true; ``why`` names what switches them off, ``source`` the
    lines of SGLang 0.5.2 that show it."""

    fields: str
    read: Callable[[Any], bool]
    why: str
    source: str


NEVER = "SGLang 0.5.2 has no code that reads it"

TABLE: tuple[Ineffective, ...] = (
    Ineffective(
        "cuda_graph_max_bs cuda_graph_bs disable_cuda_graph_padding enable_profile_cuda_graph enable_cudagraph_gc",
        lambda args: not args.disable_cuda_graph or args.device == "cpu",
        "disable_cuda_graph=true",
        "model_executor/model_runner.py:1743, speculative/eagle_worker.py:380, cuda_graph_runner.py:165-221 and 306",
    ),
    Ineffective(
        "torch_compile_max_bs",
        lambda args: args.enable_torch_compile,
        "enable_torch_compile=false",
        "model_executor/cuda_graph_runner.py:217-221, cpu_graph_runner.py:98, model_runner.py:1746",
    ),
    Ineffective(
        "hicache_ratio hicache_size hicache_write_policy hicache_io_backend hicache_mem_layout "
        "hicache_storage_prefetch_policy hicache_storage_backend_extra_config",
        lambda args: args.enable_hierarchical_cache,
        "enable_hierarchical_cache=false",
        "managers/scheduler.py:606-643, model_executor/model_runner.py:572-590",
    ),
    Ineffective(
        "enable_lmcache",
        lambda args: not (args.disable_radix_cache or args.enable_hierarchical_cache or args.enable_lora),
        "disable_radix_cache, enable_hierarchical_cache and enable_lora choose another cache",
        "managers/scheduler.py:593-671",
    ),
    Ineffective(
        "schedule_policy",
        lambda args: args.schedule_policy not in ("lpm", "dfs-weight") or not args.disable_radix_cache,
        "disable_radix_cache=true makes it fcfs",
        "managers/schedule_policy.py:137-148",
    ),
    Ineffective(
        "enable_mixed_chunk",
        lambda args: args.chunked_prefill_size is not None and args.chunked_prefill_size > 0,
        "chunked_prefill_size leaves no chunks to mix",
        "managers/scheduler.py:449-455",
    ),
    Ineffective(
        "speculative_draft_model_path speculative_draft_model_revision speculative_num_steps "
        "speculative_accept_threshold_single speculative_accept_threshold_acc speculative_token_map "
        "speculative_attention_mode",
        lambda args: args.speculative_algorithm is not None,
        "speculative_algorithm=null",
        "managers/scheduler.py:240-243, model_executor/model_runner.py:206 and 1268-1279, "
        "speculative/eagle_utils.py:497, layers/attention/hybrid_attn_backend.py:45-59",
    ),
    Ineffective(
        "speculative_token_map",
        lambda args: args.speculative_algorithm != "EAGLE3",
        "an EAGLE-3 draft brings its own",
        "speculative/eagle_worker.py:111-116",
    ),
    Ineffective(
        "eplb_rebalance_layers_per_chunk eplb_min_rebalancing_utilization_threshold",
        lambda args: args.enable_eplb or args.enable_expert_distribution_metrics,
        "enable_eplb=false",
        "model_executor/model_runner.py:286-291, eplb/eplb_manager.py:20-30 and 99, expert_distribution.py:817",
    ),
    Ineffective(
        "eplb_rebalance_num_iterations",
        lambda args: args.enable_eplb or args.expert_distribution_recorder_mode is not None,
        "enable_eplb=false",
        "eplb/eplb_manager.py:24-30, server_args.py:699-703",
    ),
    Ineffective(
        "eplb_algorithm",
        lambda args: args.enable_eplb or args.init_expert_location != "trivial",
        "enable_eplb=false and init_expert_location=trivial",
        "eplb/expert_location.py:156-167 and 436-467",
    ),
    Ineffective(
        "expert_distribution_recorder_buffer_size",
        lambda args: args.enable_eplb or args.expert_distribution_recorder_mode is not None,
        "expert_distribution_recorder_mode=null",
        "eplb/expert_distribution.py:50-69 and 763",
    ),
    Ineffective(
        "deepep_config",
        lambda args: args.moe_a2a_backend == "deepep",
        "moe_a2a_backend is not deepep",
        "layers/moe/token_dispatcher/deepep.py:225",
    ),
    Ineffective(
        "deepep_mode",
        lambda args: args.moe_a2a_backend == "deepep",
        "moe_a2a_backend is not deepep",
        "layers/moe/token_dispatcher/deepep.py:121-193, two_batch_overlap.py:387-394, "
        "eplb/expert_distribution.py:300-311",
    ),
    Ineffective(
        "disable_flashinfer_cutlass_moe_fp4_allgather",
        lambda args: args.moe_runner_backend == "flashinfer_cutlass" and args.enable_dp_attention,
        "only flashinfer_cutlass with DP attention gathers so",
        "layers/moe/utils.py:192-201",
    ),
    Ineffective(
        "tbo_token_distribution_threshold",
        lambda args: args.enable_two_batch_overlap,
        "enable_two_batch_overlap=false",
        "two_batch_overlap.py:91, model_executor/model_runner.py:1539",
    ),
    Ineffective(
        "load_balance_method",
        lambda args: args.dp_size > 1,
        "dp_size=1",
        "entrypoints/engine.py:747, managers/data_parallel_controller.py:87-105",
    ),
    Ineffective(
        "max_lora_rank lora_target_modules lora_backend max_loras_per_batch max_loaded_loras",
        lambda args: args.enable_lora,
        "LoRA is off",
        "model_executor/model_runner.py:366, managers/scheduler.py:658 and 1649",
    ),
    Ineffective(
        "disaggregation_transfer_backend disaggregation_ib_device disaggregation_bootstrap_port",
        lambda args: args.disaggregation_mode != "null",
        "disaggregation_mode=null",
        "managers/scheduler.py:710-800, disaggregation/prefill.py:140, disaggregation/decode.py:219",
    ),
    Ineffective(
        "disaggregation_decode_tp disaggregation_decode_dp",
        lambda args: args.disaggregation_mode != "null",
        "disaggregation_mode=null",
        "managers/scheduler.py:766-794",
    ),
    Ineffective(
        "num_reserved_decode_tokens",
        lambda args: args.disaggregation_mode == "decode",
        "disaggregation_mode is not decode",
        "managers/scheduler.py:715-761",
    ),
    Ineffective(
        "offload_num_in_group offload_prefetch_step offload_mode",
        lambda args: args.offload_group_size > 0,
        "offload_group_size is not above 0",
        "offloader.py:61-75",
    ),
    Ineffective(
        "ds_channel_config_path ds_heavy_channel_num ds_heavy_token_num ds_heavy_channel_type "
        "ds_sparse_decode_threshold",
        lambda args: args.enable_double_sparsity,
        "enable_double_sparsity=false",
        "model_executor/model_runner.py:370-375 and 1417-1427, layers/attention/double_sparsity_backend.py:32-36",
    ),
    Ineffective(
        "bucket_time_to_first_token bucket_inter_token_latency bucket_e2e_request_latency collect_tokens_histogram",
        lambda args: args.enable_metrics,
        "enable_metrics=false",
        "managers/tokenizer_manager.py:286-297",
    ),
    Ineffective(
        "prompt_tokens_buckets generation_tokens_buckets",
        lambda args: args.enable_metrics and args.collect_tokens_histogram,
        "enable_metrics and collect_tokens_histogram are not both true",
        "managers/tokenizer_manager.py:286-297, metrics/collector.py:635-681",
    ),
    Ineffective(
        "quantization_param_path",
        lambda args: args.kv_cache_dtype == "fp8_e4m3",
        "kv_cache_dtype is not fp8_e4m3",
        "model_executor/model_runner.py:745-750",
    ),
    Ineffective(
        "constrained_json_whitespace_pattern",
        lambda args: args.grammar_backend in ("outlines", "llguidance"),
        "grammar_backend is neither outlines nor llguidance",
        "constrained/base_grammar_backend.py:176-202",
    ),
    Ineffective(
        "disable_outlines_disk_cache",
        lambda args: args.grammar_backend == "outlines",
        "grammar_backend is not outlines",
        "constrained/outlines_jump_forward.py:41, base_grammar_backend.py:176, server_args.py:845-848",
    ),
    Ineffective(
        "num_continuous_decode_steps sm_group_num file_storage_path",
        lambda args: False,
        NEVER,
        "server_args.py alone names them",
    ),
)


@rule("NOP001", stage="plan")
def check_ineffective(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: warns of settings that change nothing, because another one switches off what reads them.
    Why: SGLang reads each of them in one place only, which it does not reach then, mostly without a word.
    Upstream: none; sglang_hydra/rules/checks/ineffective.py names the lines of 0.5.2 for each of them.
    Example: gpu=h100 cuda_graph_max_bs=64 disable_cuda_graph=true -> warned
    """
    found = {
        name: row.why for row in TABLE if not row.read(args) for name in row.fields.split() if _is_set(name, facts)
    }
    if not found:
        return None
    from sglang_hydra.arguments.fields import FIELDS

    settings = "; ".join(f"{name}={typed(facts.given[name])}: {why}" for name, why in found.items())
    offers = " ".join(f"{name}={typed(FIELDS[name].default)}" for name in found)
    return Notice(f"without effect: {settings}", *found, offers=offers, hint="leave it out")


def _is_set(name: str, facts: Facts) -> bool:
    """Whether somebody set it, and not to SGLang's default."""
    from sglang_hydra.arguments.fields import FIELDS

    return name in facts.given and facts.given[name] != FIELDS[name].default
