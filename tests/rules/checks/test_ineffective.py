"""Settings that another setting makes ineffective: each row of the table, set and with what would read it."""

from __future__ import annotations

import re

import pytest

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.rules.checks.ineffective import TABLE, check_ineffective
from tests.rules.cases import Row, unchanged, warned

MODEL = "gpu=h100 model=qwen3_8b"
# Each argument of the table as it is ineffective, and beside what reads it; None where nothing does.
CASES = (
    ("cuda_graph_max_bs=64", "disable_cuda_graph=true", ""),
    ("cuda_graph_bs=[1,2]", "disable_cuda_graph=true", ""),
    ("disable_cuda_graph_padding=true", "disable_cuda_graph=true", ""),
    ("enable_profile_cuda_graph=true", "disable_cuda_graph=true", ""),
    ("enable_cudagraph_gc=true", "disable_cuda_graph=true", ""),
    ("cuda_graph_max_bs=64", "attention_backend=torch_native", "attention_backend=triton"),
    ("torch_compile_max_bs=8", "", "enable_torch_compile=true"),
    ("hicache_ratio=3.0", "", "enable_hierarchical_cache=true"),
    ("hicache_size=8", "", "enable_hierarchical_cache=true"),
    ("hicache_write_policy=write_back", "", "enable_hierarchical_cache=true"),
    ("hicache_io_backend=direct", "", "enable_hierarchical_cache=true"),
    ("hicache_mem_layout=page_first", "", "enable_hierarchical_cache=true"),
    ("hicache_storage_prefetch_policy=timeout", "", "enable_hierarchical_cache=true"),
    ("hicache_storage_backend_extra_config='{}'", "", "enable_hierarchical_cache=true"),
    ("enable_lmcache=true", "disable_radix_cache=true", ""),
    ("enable_lmcache=true", "enable_hierarchical_cache=true", ""),
    ("schedule_policy=lpm", "disable_radix_cache=true", ""),
    ("schedule_policy=dfs-weight", "disable_radix_cache=true", ""),
    ("enable_mixed_chunk=true", "chunked_prefill_size=-1", ""),
    ("speculative_draft_model_path=org/d", "", "speculative_algorithm=EAGLE"),
    ("speculative_draft_model_revision=main", "", "speculative_algorithm=EAGLE"),
    ("speculative_num_steps=3", "", "speculative_algorithm=EAGLE"),
    (
        "speculative_num_draft_tokens=4",
        "",
        "speculative_algorithm=EAGLE speculative_num_steps=3 speculative_eagle_topk=1",
    ),
    ("speculative_accept_threshold_single=0.5", "", "speculative_algorithm=EAGLE"),
    ("speculative_accept_threshold_acc=0.5", "", "speculative_algorithm=EAGLE"),
    ("speculative_attention_mode=decode", "", "speculative_algorithm=EAGLE"),
    ("speculative_token_map=org/map", "speculative_algorithm=EAGLE3", "speculative_algorithm=EAGLE"),
    ("eplb_rebalance_layers_per_chunk=2", "", "enable_eplb=true"),
    ("eplb_min_rebalancing_utilization_threshold=0.5", "", "enable_eplb=true"),
    ("eplb_rebalance_num_iterations=50", "", "enable_eplb=true"),
    ("eplb_algorithm=deepseek", "", "enable_eplb=true"),
    ("expert_distribution_recorder_buffer_size=50", "", "expert_distribution_recorder_mode=stat"),
    ("deepep_mode=normal", "", "moe_a2a_backend=deepep"),
    ("deepep_config=c.json", "", "moe_a2a_backend=deepep"),
    ("disable_flashinfer_cutlass_moe_fp4_allgather=true", "", None),
    ("tbo_token_distribution_threshold=0.3", "", "enable_two_batch_overlap=true"),
    ("load_balance_method=shortest_queue", "", "dp_size=2"),
    ("max_lora_rank=16", "", "enable_lora=true"),
    ("lora_target_modules=[q_proj]", "", "enable_lora=true"),
    ("max_loras_per_batch=4", "", "enable_lora=true"),
    ("max_loaded_loras=16", "", "enable_lora=true"),
    ("disaggregation_transfer_backend=nixl", "", "disaggregation_mode=decode"),
    ("disaggregation_ib_device=mlx5_0", "", "disaggregation_mode=decode"),
    ("disaggregation_bootstrap_port=9000", "", "disaggregation_mode=decode"),
    ("disaggregation_decode_tp=1", "", "disaggregation_mode=prefill"),
    ("disaggregation_decode_dp=2", "", "disaggregation_mode=prefill"),
    ("num_reserved_decode_tokens=64", "", "disaggregation_mode=decode"),
    ("offload_num_in_group=2", "", "offload_group_size=4"),
    ("offload_prefetch_step=2", "", "offload_group_size=4"),
    ("offload_mode=meta", "", "offload_group_size=4"),
    ("ds_channel_config_path=c.json", "", "enable_double_sparsity=true"),
    ("ds_heavy_channel_num=16", "", "enable_double_sparsity=true"),
    ("ds_heavy_token_num=16", "", "enable_double_sparsity=true"),
    ("ds_heavy_channel_type=k", "", "enable_double_sparsity=true"),
    ("ds_sparse_decode_threshold=16", "", "enable_double_sparsity=true"),
    ("bucket_time_to_first_token=[0.1]", "", "enable_metrics=true"),
    ("bucket_inter_token_latency=[0.1]", "", "enable_metrics=true"),
    ("bucket_e2e_request_latency=[0.1]", "", "enable_metrics=true"),
    ("collect_tokens_histogram=true", "", "enable_metrics=true"),
    ("prompt_tokens_buckets=[default]", "", "enable_metrics=true collect_tokens_histogram=true"),
    ("generation_tokens_buckets=[default]", "", "enable_metrics=true collect_tokens_histogram=true"),
    ("quantization_param_path=s.json", "", "kv_cache_dtype=fp8_e4m3"),
    ("constrained_json_whitespace_pattern=x", "", "grammar_backend=outlines"),
    ("num_continuous_decode_steps=4", "", None),
    ("sm_group_num=4", "", None),
    ("file_storage_path=/x", "", None),
    ("disable_outlines_disk_cache=true", "", "grammar_backend=outlines"),
)


ROWS = (
    *(warned(check_ineffective, f"{setting.partition('=')[0]}=", overrides=f"{MODEL} {setting} {off}".strip())
      for setting, off, _ in CASES),
    *(unchanged(check_ineffective, overrides=f"{MODEL} {setting} {on}".strip())
      for setting, _, on in CASES if on is not None),
    # defaults, and what SGLang's rules set
    unchanged(check_ineffective, overrides=f"{MODEL} hicache_ratio=2.0"),
    unchanged(check_ineffective, overrides="gpu=h200 model=deepseek_v3 tp_size=8 disable_cuda_graph=true"),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.overrides)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()


def test_every_argument_of_the_table_has_a_case_and_its_lines() -> None:
    cased = {case[0].partition("=")[0] for case in CASES} | {"lora_backend"}  # which has one value
    named = {name for row in TABLE for name in row.fields.split()}
    assert named & set(FIELDS) == cased
    assert all(re.search(r"\.py(:\d| alone)", row.source) for row in TABLE)
