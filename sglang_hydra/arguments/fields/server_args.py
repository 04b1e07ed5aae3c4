"""The arguments of SGLang 0.5.2's server as one class: names, types, defaults. arguments.json has the meanings."""

from __future__ import annotations

import dataclasses
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

MISSING = "???"
"""OmegaConf's mark for a required value, written out because this package may run without OmegaConf."""

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform()
    def argument_class(cls: type[T]) -> type[T]: ...

else:
    argument_class = dataclasses.dataclass(init=False, repr=False, eq=False)
    """Makes a dataclass with the initializer of ``ServerArgs``; type checkers see that of any dataclass."""


@dataclasses.dataclass(frozen=True)
class LoRARef:
    """One adapter by name, as SGLang stores it after reading ``lora_paths``. ``pinned`` keeps it in GPU memory."""

    lora_name: str
    lora_path: str
    pinned: bool = False

    def __str__(self) -> str:
        return f"{self.lora_name}={self.lora_path}{' (pinned)' if self.pinned else ''}"


class _Initializer:
    """A hand-written initializer that shows its class's arguments to ``inspect``, and so to hydra-zen; it makes the
    signature on demand."""

    def __init__(self, function: Any, owner: Any = None) -> None:
        self.function, self.owner = function, owner
        self.__globals__ = function.__globals__

    def __get__(self, instance: object, owner: type) -> Any:
        return _Initializer(self.function, owner) if instance is None else MethodType(self.function, instance)

    def __call__(self, *values: Any, **named: Any) -> None:
        self.function(*values, **named)

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {item.name: item.type for item in dataclasses.fields(self.owner)}

    @property
    def __signature__(self) -> Any:
        from inspect import Parameter, Signature

        def default(item: dataclasses.Field[Any]) -> Any:
            factory: Any = item.default_factory
            return item.default if factory is dataclasses.MISSING else factory()

        kind = Parameter.POSITIONAL_OR_KEYWORD
        items = dataclasses.fields(self.owner)
        named = [Parameter(item.name, kind, default=default(item), annotation=item.type) for item in items]
        return Signature([Parameter("self", kind), *named])


class _Signature:
    """The signature without ``self``: Python 3.14 reads a class's signature from the class alone."""

    def __get__(self, instance: object, owner: Any) -> Any:
        made = owner.__init__.__signature__
        return made.replace(parameters=list(made.parameters.values())[1:])


@argument_class
class ServerArgs:
    """All arguments of the server, flat, under SGLang's own names. Equality is by value, sealed or not."""

    # model
    model_path: str = MISSING
    revision: str | None = None
    trust_remote_code: bool = False
    context_length: int | None = None
    is_embedding: bool = False
    enable_multimodal: bool | None = None
    model_impl: str = "auto"
    json_model_override_args: str = "{}"

    # tokenizer
    tokenizer_path: str | None = None
    tokenizer_mode: str = "auto"
    tokenizer_worker_num: int = 1
    skip_tokenizer_init: bool = False
    enable_tokenizer_batch_encode: bool = False
    disable_fast_image_processor: bool = False

    # loading
    load_format: str = "auto"
    model_loader_extra_config: str = "{}"
    download_dir: str | None = None
    delete_ckpt_after_loading: bool = False
    custom_weight_loader: list[str] | None = None
    weight_loader_disable_mmap: bool = False

    # server
    host: str = "127.0.0.1"
    port: int = 30000
    skip_server_warmup: bool = False
    warmups: str | None = None
    watchdog_timeout: float = 300

    # quantization
    dtype: str = "auto"
    quantization: str | None = None
    quantization_param_path: str | None = None
    kv_cache_dtype: str = "auto"
    torchao_config: str = ""

    # memory
    mem_fraction_static: float | None = None
    max_total_tokens: int | None = None
    page_size: int | None = None
    hybrid_kvcache_ratio: float | None = None
    swa_full_tokens_ratio: float = 0.8
    disable_hybrid_swa_memory: bool = False
    disable_radix_cache: bool = False
    max_mamba_cache_size: int | None = None
    mamba_ssm_dtype: str = "float32"
    enable_memory_saver: bool = False

    # scheduling
    max_running_requests: int | None = None
    max_queued_requests: int | None = (1 << 63) - 1
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = 16384
    schedule_policy: str = "fcfs"
    schedule_conservativeness: float = 1.0
    disable_overlap_schedule: bool = False
    enable_mixed_chunk: bool = False
    num_continuous_decode_steps: int = 1
    scheduler_recv_interval: int = 1

    # runtime
    device: str | None = None
    base_gpu_id: int = 0
    gpu_id_step: int = 1
    numa_node: list[int] | None = None
    random_seed: int | None = None
    sleep_on_idle: bool = False
    enable_torch_compile: bool = False
    torch_compile_max_bs: int = 32

    # parallel
    tp_size: int = 1
    pp_size: int = 1
    max_micro_batch_size: int | None = None
    dp_size: int = 1
    load_balance_method: str = "round_robin"
    enable_dp_attention: bool = False
    enable_dp_lm_head: bool = False
    moe_dense_tp_size: int | None = None
    dist_init_addr: str | None = None
    nnodes: int = 1
    node_rank: int = 0
    nccl_port: int | None = None
    dist_timeout: int | None = None
    enable_nccl_nvls: bool = False
    enable_symm_mem: bool = False
    enable_mscclpp: bool = False
    disable_custom_all_reduce: bool = False
    enable_p2p_check: bool = False

    # logs
    log_level: str = "info"
    log_level_http: str | None = None
    log_requests: bool = False
    log_requests_level: int = 2
    crash_dump_folder: str | None = None
    show_time_cost: bool = False
    enable_metrics: bool = False
    enable_metrics_for_all_schedulers: bool = False
    bucket_time_to_first_token: list[float] | None = None
    bucket_inter_token_latency: list[float] | None = None
    bucket_e2e_request_latency: list[float] | None = None
    collect_tokens_histogram: bool = False
    prompt_tokens_buckets: list[str] | None = None
    generation_tokens_buckets: list[str] | None = None
    decode_log_interval: int = 40
    enable_request_time_stats_logging: bool = False
    kv_events_config: str | None = None
    gc_warning_threshold_secs: float = 0.0

    # api
    api_key: str | None = None
    served_model_name: str | None = None
    weight_version: str = "default"
    chat_template: str | None = None
    completion_template: str | None = None
    file_storage_path: str = "sglang_storage"
    enable_cache_report: bool = False
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    tool_server: str | None = None
    preferred_sampling_params: str | None = None
    constrained_json_whitespace_pattern: str | None = None
    stream_interval: int = 1
    stream_output: bool = False
    allow_auto_truncate: bool = False
    enable_custom_logit_processor: bool = False
    enable_return_hidden_states: bool = False

    # lora
    enable_lora: bool | None = None
    max_lora_rank: int | None = None
    lora_target_modules: Any = None
    lora_paths: Any = None
    max_loaded_loras: int | None = None
    max_loras_per_batch: int = 8
    lora_backend: str = "triton"

    # kernels
    attention_backend: str | None = None
    decode_attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    sampling_backend: str | None = None
    grammar_backend: str | None = None
    mm_attention_backend: str | None = None
    disable_outlines_disk_cache: bool = False
    triton_attention_reduce_in_fp32: bool = False
    triton_attention_num_kv_splits: int = 8
    flashinfer_mla_disable_ragged: bool = False
    disable_chunked_prefix_cache: bool = False

    # speculative
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_draft_model_revision: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_accept_threshold_single: float = 1.0
    speculative_accept_threshold_acc: float = 1.0
    speculative_token_map: str | None = None
    speculative_attention_mode: str = "prefill"

    # experts
    ep_size: int = 1
    moe_a2a_backend: str = "none"
    moe_runner_backend: str = "auto"
    flashinfer_mxfp4_moe_precision: str = "default"
    enable_flashinfer_allreduce_fusion: bool = False
    deepep_mode: str = "auto"
    ep_num_redundant_experts: int = 0
    ep_dispatch_algorithm: str | None = None
    init_expert_location: str = "trivial"
    enable_eplb: bool = False
    eplb_algorithm: str = "auto"
    eplb_rebalance_num_iterations: int = 1000
    eplb_rebalance_layers_per_chunk: int | None = None
    eplb_min_rebalancing_utilization_threshold: float = 1.0
    expert_distribution_recorder_mode: str | None = None
    expert_distribution_recorder_buffer_size: int | None = None
    enable_expert_distribution_metrics: bool = False
    deepep_config: str | None = None
    disable_flashinfer_cutlass_moe_fp4_allgather: bool = False
    disable_shared_experts_fusion: bool = False
    enable_two_batch_overlap: bool = False
    tbo_token_distribution_threshold: float = 0.48

    # cache
    enable_hierarchical_cache: bool = False
    hicache_ratio: float = 2.0
    hicache_size: int = 0
    hicache_write_policy: str = "write_through"
    hicache_io_backend: str = "kernel"
    hicache_mem_layout: str = "layer_first"
    hicache_storage_backend: str | None = None
    hicache_storage_prefetch_policy: str = "best_effort"
    hicache_storage_backend_extra_config: str | None = None
    enable_lmcache: bool = False

    # sparsity
    enable_double_sparsity: bool = False
    ds_channel_config_path: str | None = None
    ds_heavy_channel_num: int = 32
    ds_heavy_token_num: int = 256
    ds_heavy_channel_type: str = "qk"
    ds_sparse_decode_threshold: int = 4096

    # offload
    cpu_offload_gb: int = 0
    offload_group_size: int = -1
    offload_num_in_group: int = 1
    offload_prefetch_step: int = 1
    offload_mode: str = "cpu"

    # graphs
    cuda_graph_max_bs: int | None = None
    cuda_graph_bs: list[int] | None = None
    disable_cuda_graph: bool = False
    disable_cuda_graph_padding: bool = False
    enable_profile_cuda_graph: bool = False
    enable_cudagraph_gc: bool = False

    # disaggregation
    disaggregation_mode: str = "null"
    disaggregation_transfer_backend: str = "mooncake"
    disaggregation_bootstrap_port: int = 8998
    disaggregation_decode_tp: int | None = None
    disaggregation_decode_dp: int | None = None
    disaggregation_prefill_pp: int | None = 1
    disaggregation_ib_device: str | None = None
    num_reserved_decode_tokens: int = 512
    prefill_round_robin_balance: bool = False
    enable_pdmux: bool = False
    sm_group_num: int = 3

    # debug
    enable_nan_detection: bool = False
    debug_tensor_dump_output_folder: str | None = None
    debug_tensor_dump_input_file: str | None = None
    debug_tensor_dump_inject: bool = False
    debug_tensor_dump_prefill_only: bool = False

    # deprecated
    enable_ep_moe: bool = False
    enable_deepep_moe: bool = False
    enable_flashinfer_cutlass_moe: bool = False
    enable_flashinfer_trtllm_moe: bool = False
    enable_triton_kernel_moe: bool = False
    enable_flashinfer_mxfp4_moe: bool = False

    __signature__ = _Signature()

    if not TYPE_CHECKING:  # type checkers see an initializer with every argument

        @_Initializer
        def __init__(self, *values: Any, **named: Any) -> None:
            """Sets the arguments like any dataclass; a generated initializer of 210 arguments compiles longer than a
            plan resolves. Raises TypeError for an unknown name, a second value, or too many."""
            fields = dataclasses.fields(self)
            given = dict(zip((field.name for field in fields), values, strict=False))
            unknown = [name for name in named if name in given or name not in type(self).__dataclass_fields__]
            if unknown or len(values) > len(fields):
                from sglang_hydra.text.json_types import json_beside
                from sglang_hydra.text.words import nearest

                rows = [
                    row
                    for part in json_beside(f"{__file__[: -len('server_args.py')]}arguments").values()
                    for row in part["arguments"].items()
                ]
                by_flag = {flag: name for name, row in rows for flag in row.get("flags", ())}
                names = [field.name for field in fields]
                flags = {name: f"--{name.replace('_', '-')}" for name in unknown}
                near = {name: by_flag.get(flags[name]) or nearest(name, names) for name in unknown}
                shown = (f"{name} (did you mean {meant}?)" if meant else name for name, meant in near.items())
                raise TypeError(f"{type(self).__name__} takes no such argument: {', '.join(shown) or values[-1]}")
            given |= named
            for field in fields:
                value = given.get(field.name, field.default)
                factory: Any = field.default_factory
                setattr(self, field.name, factory() if value is dataclasses.MISSING else value)

    def url(self) -> str:
        """Returns the server's URL, with an IPv6 address in brackets."""
        from sglang_hydra.arguments.ports import server_url

        return server_url(vars(self))

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, ServerArgs) else NotImplemented

    def __repr__(self) -> str:
        """Shows the values that differ from their defaults; masks the API key."""
        shown = (
            f"{name}={'***' if name == 'api_key' else repr(value)}"
            for name, value in vars(self).items()
            if value != getattr(ServerArgs, name, dataclasses.MISSING)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class SealedServerArgs(ServerArgs):
    """Read-only arguments: every write raises ``dataclasses.FrozenInstanceError``."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to {name!r}: these arguments are sealed")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete {name!r}: these arguments are sealed")
