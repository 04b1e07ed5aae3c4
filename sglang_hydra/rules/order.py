"""Lists every rule and check of SGLang, in the order in which SGLang applies them."""

from __future__ import annotations

from sglang_hydra.rules import (
    api,
    cache,
    deprecated,
    disaggregation,
    experts,
    graphs,
    kernels,
    loading,
    lora,
    memory,
    model,
    parallel,
    runtime,
    scheduling,
    speculative,
    tokenizer,
)
from sglang_hydra.rules.checks import cache as check_cache
from sglang_hydra.rules.checks import disaggregation as check_disaggregation
from sglang_hydra.rules.checks import experts as check_experts
from sglang_hydra.rules.checks import kernels as check_kernels
from sglang_hydra.rules.checks import loading as check_loading
from sglang_hydra.rules.checks import logs as check_logs
from sglang_hydra.rules.checks import lora as check_lora
from sglang_hydra.rules.checks import memory as check_memory
from sglang_hydra.rules.checks import model as check_model
from sglang_hydra.rules.checks import model_sizes as check_model_sizes
from sglang_hydra.rules.checks import parallel as check_parallel
from sglang_hydra.rules.checks import runtime as check_runtime
from sglang_hydra.rules.checks import scheduling as check_scheduling
from sglang_hydra.rules.checks import speculative as check_speculative
from sglang_hydra.rules.checks import tokenizer as check_tokenizer
from sglang_hydra.rules.rule import Rule

# The order is upstream's and part of the meaning of the rules. Comments say where it matters.
ORDER: tuple[Rule, ...] = (
    # Old flags first: the rules below see only their new arguments.
    deprecated.translate_enable_ep_moe,
    deprecated.translate_enable_deepep_moe,
    deprecated.translate_runner_flags,
    # Names, device, seed.
    tokenizer.take_tokenizer_from_model,
    api.name_the_served_model,
    runtime.find_device,
    check_runtime.device_exists,
    runtime.draw_random_seed,
    check_runtime.device_memory_is_readable,
    # Memory, before DP attention is reset and before NEXTN is renamed: their reserves stay.
    memory.choose_mem_fraction,
    memory.assume_mem_fraction,
    check_model.config_has_a_class,
    check_model.config_is_readable_for_memory,
    check_model_sizes.config_states_its_sizes,
    check_memory.vision_tower_has_a_size,
    memory.make_room_for_vision,  # after the rounding of choose_mem_fraction
    scheduling.choose_chunked_prefill_size,
    graphs.limit_graphs_on_small_gpus,
    # Gaudi's backends before the model's rules, the CPU's after them.
    kernels.force_backends_on_gaudi,
    check_model.overrides_are_an_object,
    check_model.config_names_an_architecture,
    model.attention_of_gpt_oss,
    check_model.gpt_oss_runs_on_backend,
    check_model.gpt_oss_runs_on_cuda,
    model.fuse_allreduce_of_gpt_oss,  # before DP attention is reset
    model.mxfp4_runner_of_gpt_oss,  # before the two about triton_kernel, which it rules out
    check_model.triton_kernel_runs_without_ep,  # before DeepEP raises ep_size
    model.triton_runner_of_gpt_oss,
    model.no_hybrid_swa_for_gpt_oss,
    model.dtype_of_mxfp4_gpt_oss,
    check_model.llama_4_runs_on_backend,
    model.no_hybrid_swa_for_gemma,
    kernels.attention_on_cpu,
    kernels.sampling_on_cpu,
    kernels.choose_sampling_backend,
    graphs.no_graphs_with_torch_native,
    # Page sizes: the last backend that insists on one wins.
    memory.page_size_of_ascend,
    memory.page_size_of_flashmla,
    memory.page_size_of_cutlass_mla,
    check_kernels.trtllm_mla_runs_on_blackwell,
    memory.page_size_of_trtllm_mla,
    check_kernels.trtllm_mla_reads_cache_dtype,
    check_kernels.trtllm_mha_runs_on_blackwell,
    memory.page_size_of_trtllm_mha,
    kernels.limits_of_dual_chunk_attention,
    memory.page_size_of_one,
    kernels.more_kv_splits_on_rocm,
    kernels.choose_grammar_backend,
    # DP attention.
    parallel.no_dp_attention_with_one_rank,
    parallel.schedule_boldly_with_dp_attention,
    check_parallel.dp_ranks_divide_tp,
    parallel.share_chunks_among_dp_ranks,
    check_parallel.dp_lm_head_has_dp_attention,
    # Experts: cutlass compares ep_size before DeepEP sets it, EPLB after.
    check_experts.cutlass_runs_nvfp4,
    check_experts.cutlass_splits_all_or_nothing,
    check_experts.trtllm_runs_fp4_and_fp8,
    experts.no_shared_fusion_with_trtllm,
    experts.no_graphs_with_normal_deepep,
    experts.spread_experts_with_deepep,
    experts.record_experts_for_eplb,
    experts.choose_ep_dispatch,
    check_experts.eplb_has_experts_to_move,
    experts.record_experts_for_metrics,
    experts.size_expert_record,
    parallel.no_overlap_with_pipeline,
    cache.layout_for_mooncake_storage,
    # Speculative decoding.
    speculative.nextn_is_eagle,  # first: all below know EAGLE only
    check_speculative.standalone_draft_without_dp_attention,
    speculative.limit_requests_when_drafting,
    speculative.no_overlap_when_drafting,
    speculative.no_mixed_chunks_when_drafting,
    speculative.draft_with_own_layers,
    check_speculative.own_layers_beat_another_draft,
    check_speculative.draft_shape_starts_with_steps,
    speculative.choose_draft_shape,  # before the checks of the shape: a default can be refused too
    check_speculative.draft_shape_has_topk,
    check_speculative.trtllm_mha_verifies_chains,
    speculative.verify_a_whole_chain,
    check_speculative.trees_need_pages_of_one,
    # Loading: a remote path wins over a GGUF file.
    check_loading.model_path_is_text,
    loading.recognise_gguf,
    loading.load_from_remote,
    loading.no_custom_weight_loader,
    # Disaggregation.
    check_disaggregation.decode_server_has_no_decode_tp,
    check_disaggregation.decode_server_has_no_decode_dp,
    disaggregation.no_radix_cache_when_decoding,
    check_disaggregation.decode_replicas_are_served_in_turn,
    disaggregation.assume_tp_of_decode_servers,
    disaggregation.assume_dp_of_decode_servers,
    disaggregation.pipeline_of_prefill_servers,
    check_disaggregation.one_tp_divides_the_other,
    disaggregation.no_graphs_when_prefilling,
    check_memory.mamba_dtype_is_text,
    check_cache.hicache_extends_radix_cache,  # last: several rules above switch the radix cache off
    # The check stage starts here and sees the results of the rules above.
    check_parallel.nodes_divide_gpus,
    check_parallel.pipeline_runs_alone,
    check_parallel.replicas_stay_on_one_node,
    check_parallel.first_gpu_is_counted_from_zero,
    check_parallel.gpu_step_goes_up,
    check_parallel.dense_layers_split_or_not,
    check_lora.batch_holds_adapters,
    lora.paths_switch_lora_on,
    check_lora.adapters_are_not_ignored,
    check_lora.adapters_are_readable,
    lora.name_every_adapter,
    check_lora.all_modules_stands_alone,
    lora.expand_target_modules,
    check_lora.adapter_shape_is_known,
    check_lora.loaded_adapters_fill_a_batch,
    check_lora.adapters_can_be_loaded,
    check_speculative.drafts_without_mixed_chunks,
    check_scheduling.chunks_are_whole_pages,
    check_tokenizer.someone_tokenizes,
    check_logs.prompt_buckets_are_a_rule,
    check_logs.generation_buckets_are_a_rule,
)
