"""Checks attention backends against model and GPU: failures and changes while the server makes its backend."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.facts.config_view import text_config, view_of
from sglang_hydra.rules.checks.kernels_at_load import ATTENTION_FIELDS, is_latent, unset_backend
from sglang_hydra.rules.checks.releases import Arguments
from sglang_hydra.rules.rule import Facts, Notice, Outcome, Refusal, rule
from sglang_hydra.text.findings import Remedy

# The backends that model_specific_adjustment accepts for latent attention; those of the second line came with 0.5.3.
_FOR_LATENT = (
    *("aiter", "flashinfer", "fa3", "triton", "flashmla", "cutlass_mla", "trtllm_mla", "ascend"),
    *("fa4", "nsa", "dsa", "tokenspeed_mla", "cutedsl_mla", "intel_xpu"),
)
_ENCODER_DECODER = "MllamaForConditionalGeneration"
_DELTA_NETS = ("Qwen3NextForCausalLM", "Qwen3NextForCausalLMMTP")
_SPARSE_GLM = "GlmMoeDsaForCausalLM"
_SPARSE = ("DeepseekV32ForCausalLM", _SPARSE_GLM, "Glm5NextForConditionalGeneration")
_SPARSE_V4 = ("DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMNextN")


# The variable, and the most that SGLang accepts in it (layers/moe/token_dispatcher/deepep.py:281, 0.5.2; 0.5.23:407).
_DISPATCHED, _MOST_DISPATCHED = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 1024


@rule("RUN007", stage="plan")
def check_delta_net_gpu(args: ServerArgs, facts: Facts) -> Outcome:
    """What: models with gated delta nets (Qwen3-Next) run on Hopper or Ampere.
    Why: for these SGLang 0.5.2 sets its own backend, whatever is asked for, and that takes FlashAttention 3 for the
        layers with full attention. Inferred: later releases have others.
    Upstream: model_executor/model_runner.py:308-311 and 1696-1718, 0.5.2.
    Example: gpu=b200 model=qwen3_next_80b_a3b -> warned"""
    view, capability = view_of(facts.model, args.json_model_override_args), facts.gpu.compute_capability
    if view is None or view.architecture not in _DELTA_NETS:
        return None
    if facts.gpu.is_cuda and (capability is None or capability[0] in (8, 9)):
        return None
    if not (facts.gpu.is_cuda or facts.gpu.is_hip):
        return None
    return Notice(
        f"SGLang 0.5.2 runs {view.architecture} with FlashAttention 3, which {facts.gpu.name} does not have",
        "model_path",
        hint="use a later SGLang",
        offers="gpu=h200",
    )


@rule("RUN009", stage="plan")
def check_fa3_cache_type(args: ServerArgs, facts: Facts) -> Outcome:
    """What: attention_backend=fa3 with kv_cache_dtype=fp8_e5m2 becomes triton, also where SGLang has chosen fa3 itself:
        on Hopper, for latent attention and a list of classes.
    Why: FlashAttention 3 reads FP8 as e4m3 only; SGLang changes the backend when it loads the model.
    Upstream: model_executor/model_runner.py:453-498 and 520-528, utils.py:2323-2347, 0.5.2.
    Example: gpu=h100 model=qwen3_8b attention_backend=fa3 kv_cache_dtype=fp8_e5m2 -> warned"""
    if args.kv_cache_dtype != "fp8_e5m2" or not (args.attention_backend == "fa3" or _takes_fa3(args, facts)):
        return None
    return Notice(
        "fa3 has no fp8_e5m2 cache: triton is used instead",
        "kv_cache_dtype",
        "attention_backend",
        offers=("kv_cache_dtype=fp8_e4m3", "kv_cache_dtype=auto"),
    )


def _takes_fa3(args: ServerArgs, facts: Facts) -> bool:
    """Returns whether SGLang chooses FlashAttention 3 for unset backends."""
    view = view_of(facts.model, args.json_model_override_args)
    if any(getattr(args, field) is not None for field in ATTENTION_FIELDS) or view is None or not facts.gpu.is_sm90:
        return False
    if is_latent(view):
        return True
    from sglang_hydra.architecture.reading_layers import FA3_BY_DEFAULT

    topk, page = args.speculative_eagle_topk, args.page_size
    return view.architecture in FA3_BY_DEFAULT and (topk is None or (topk == 1 and page == 1))


@rule("RUN013", stage="plan")
def check_cross_attention(args: ServerArgs, facts: Facts) -> Outcome:
    """What: models with cross attention (Mllama) do not run on the triton backend.
    Why: it has none; SGLang asserts it when it makes the backend, after the weights are loaded.
    Upstream: model_executor/model_runner.py:1622-1626, 0.5.2.
    Example: model=meta-llama/Llama-3.2-11B-Vision-Instruct attention_backend=triton -> refused"""
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or _ENCODER_DECODER not in (view.architectures or ()):
        return None
    for field in ATTENTION_FIELDS:
        if getattr(args, field) == "triton":
            return Refusal(
                "the triton backend has no cross attention", field, offers=unset_backend(args, "triton", "flashinfer")
            )
    return None


@rule("RUN014", stage="plan")
def check_dual_chunks(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a model with dual_chunk_attention_config runs with attention_backend=dual_chunk_flash_attn, or with none
        set; no other model runs with that one.
    Why: SGLang refuses any other when it loads the model; the backend asserts that the config has its chunks.
    Upstream: model_executor/model_runner.py:437-450; layers/attention/dual_chunk_flashattention_backend.py:125-128,
        0.5.2.
    Example: model=Qwen/Qwen2.5-7B-Instruct-1M attention_backend=fa3 -> refused"""
    view = view_of(facts.model, args.json_model_override_args)
    if view is None:
        return None
    if view.get("dual_chunk_attention_config") is None:
        return _only_for(args, "dual_chunk_flash_attn", "models with dual_chunk_attention_config in their config.json")
    if args.attention_backend in (None, "dual_chunk_flash_attn"):
        return None
    return Refusal(
        f"this model's attention works on two chunks, which attention_backend={args.attention_backend} does not",
        "attention_backend",
        offers=("attention_backend=dual_chunk_flash_attn", "attention_backend=null"),
    )


def _only_for(args: ServerArgs, backend: str, models: str) -> Refusal | None:
    fields = [field for field in ATTENTION_FIELDS if getattr(args, field) == backend]
    if not fields:
        return None
    return Refusal(f"{backend} is for {models}", *fields, offers=unset_backend(args, backend))


@rule("RUN020", stage="plan")
def check_delta_net_backend(args: ServerArgs, facts: Facts) -> Outcome:
    """What: hybrid_linear_attn is refused for models without gated delta nets (Qwen3-Next has them).
    Why: SGLang sets it itself for these models, and asserts that the model is one when it makes the backend.
    Upstream: model_executor/model_runner.py:308-311 and 1696-1699, 0.5.2.
    Example: model=qwen3_8b attention_backend=hybrid_linear_attn -> refused"""
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or view.architecture in _DELTA_NETS:
        return None
    return _only_for(args, "hybrid_linear_attn", "models with gated delta nets (Qwen3-Next)")


@rule("RUN021", stage="plan")
def check_sparse_attention_kernels(args: ServerArgs, facts: Facts) -> Outcome:
    """What: DeepSeek's sparse attention (V3.2, GLM-5) runs on Hopper and on Blackwell of compute capability 10; that of
        GLM-5 (not GLM-5.3-Flash), from 0.5.17 on, also on 12.x with kv_cache_dtype=fp8_e4m3. That of DeepSeek-V4 runs
        on 9, 10 and 12.
    Why: on NVIDIA its indexer calls DeepGEMM, whose kernels are built for 9.x and 10.x; elsewhere they stop with
        "Unsupported architecture" when the server starts. For GLM on 12.x there is flashinfer_sparse_mla, which takes
        an FP8 cache alone. DeepSeek-V4 calls FlashMLA, built for 9.x and 10.x, and kernels of its own on 12.x.
    Upstream: dsa_backend and dsa_indexer of layers/attention, up to 0.5.23; reported for 12.0 and 0.5.12 in
        sgl-project/sglang#26087, for GLM-5.3-Flash in #37105 and #40286. 0.5.23 arg_groups/overrides.py:635-641,
        kernels/ops/attention/flash_mla_sm120.py:678-713, flash_mla_interface.py:4-12,
        layers/attention/deepseek_v4_backend.py:4335.
    Example: gpu=a100_80gb model=glm_5_fp8 tp_size=16 nnodes=2 -> refused"""
    view, capability = view_of(facts.model, args.json_model_override_args), facts.gpu.compute_capability
    if view is None or not facts.gpu.is_cuda or capability is None:
        return None
    architecture, major = view.architecture, capability[0]
    is_v4 = architecture in _SPARSE_V4
    if not is_v4 and (architecture not in _SPARSE or text_config(view).get("index_topk") is None):
        return None
    if major in (9, 10) or (is_v4 and major == 12):
        return None
    fp8 = "kv_cache_dtype=fp8_e4m3"
    own_kernels = major == 12 and architecture == _SPARSE_GLM and at_least(facts.release, "0.5.17")
    if own_kernels and args.kv_cache_dtype == "fp8_e4m3":
        return None
    built_for = "9, 10 and 12" if is_v4 else "9 and 10"
    return Refusal(
        f"{architecture}: the kernels of its sparse attention are built for compute capability {built_for}, and "
        f"{facts.gpu.name} has {major}.{capability[1]}",
        "model_path",
        offers=(fp8, "gpu=h200", "gpu=b200") if own_kernels else ("gpu=h200", "gpu=b200"),
    )


@rule("RUN017", stage="plan")
def check_latent_backend(args: ServerArgs, facts: Facts) -> Outcome:
    """What: latent attention (DeepSeek and kin) runs on aiter, flashinfer, fa3, triton, flashmla, cutlass_mla,
        trtllm_mla and ascend.
    Why: SGLang refuses any other when it loads the model.
    Upstream: model_executor/model_runner.py:499-518, 0.5.2; MLA_ATTENTION_BACKENDS of 0.5.3 to 0.5.15.
    Example: gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=torch_native -> refused"""
    view, backend = view_of(facts.model, args.json_model_override_args), args.attention_backend
    if view is None or backend is None or not is_latent(view) or backend == "trtllm_mha":  # RUN002 reports it
        return None
    if backend in _FOR_LATENT or facts.gpu.device in (None, "cpu"):
        return None
    return Refusal(f"{backend} does not serve latent attention", "attention_backend",
                   offers=Remedy.typed("attention_backend=null", when="lets SGLang choose"))  # fmt: skip


@rule("RUN019", stage="plan")
def check_graph_sizes(args: Arguments, facts: Facts) -> Outcome:
    """What: with DP attention or DeepEP, cuda_graph_max_bs must be at least the ranks that share an attention layer.
    Why: batches are captured in multiples of these; with none left the server fails when it captures, at the end of
        the start.
    Upstream: model_executor/cuda_graph_runner.py:197-215, 0.5.2.
    Example: gpu=h200 model=deepseek_v3 tp_size=8 dp_size=2 enable_dp_attention=true cuda_graph_max_bs=2 -> refused"""
    limit, layout = args.cuda_graph_max_bs, args.layout
    if not isinstance(limit, int) or limit < 1 or not layout.graphs.made or args.cuda_graph_bs:
        return None
    if args.speculative_algorithm is not None and at_least(facts.release, "0.5.3"):
        return None  # a draft's tokens count there too
    if layout.attention_groups == 1 and not layout.all_to_all:
        return None
    unit = layout.attention * (2 if args.enable_two_batch_overlap else 1)
    if limit >= unit:
        return None
    return Refusal(
        f"cuda_graph_max_bs={limit} leaves no batch to capture: they are multiples of {unit} here",
        "cuda_graph_max_bs",
        offers=(f"cuda_graph_max_bs={unit}", "cuda_graph_max_bs=null", "disable_cuda_graph=true"),
    )


@rule("RUN028", stage="plan")
def check_dispatched_tokens(args: Arguments, facts: Facts) -> Outcome:
    """What: with DeepEP in low latency mode, a rank sends at most SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK tokens
        (default 128) in one batch; the largest CUDA graph of decode must not have more.
    Why: DeepEP asserts it; the server ends while it captures the graph (deepseek-ai/DeepEP#165, sgl-project/sglang#6017
        and #29942). A request has speculative_num_draft_tokens tokens.
    Upstream: layers/moe/token_dispatcher/deepep.py:279, 0.5.2; 0.5.23:405; csrc/deep_ep.cpp of DeepEP.
    Example: gpu=h200 model=deepseek_v3 tp_size=8 dp_size=8 enable_dp_attention=true moe_a2a_backend=deepep
        cuda_graph_max_bs=256 -> warned"""
    layout = args.layout
    if args.moe_a2a_backend != "deepep" or args.deepep_mode == "normal" or not layout.graphs.made:
        return None
    requests = max(*layout.graphs.sizes, layout.graphs.largest, 0)
    if isinstance(args.max_running_requests, int):
        requests = min(requests, args.max_running_requests // layout.attention_groups)
    drafted = (args.speculative_num_draft_tokens or 1) if args.speculative_algorithm else 1
    shared = layout.attention * (2 if args.enable_two_batch_overlap else 1)
    sent, most = -(-requests * drafted // shared), facts.env.get(_DISPATCHED, "128")
    if not facts.gpu.is_cuda or not most.isdecimal() or sent <= int(most):
        return None
    return Notice(
        f"a rank sends {sent} tokens in the largest CUDA graph, and DeepEP takes {most} in low latency mode",
        "moe_a2a_backend",
        "cuda_graph_max_bs",
        offers=(
            *([f"engine.env.{_DISPATCHED}={sent}"] if sent <= _MOST_DISPATCHED else []),
            f"cuda_graph_max_bs={int(most) * shared // drafted}",
        ),
    )
