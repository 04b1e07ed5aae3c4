"""Checks kernels against GPU and model: failures while the server loads weights or builds its attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.arguments.tables.order import at_least, holds_between
from sglang_hydra.facts.config_view import ConfigView, text_config, view_of
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.rules.checks.model_config import experts_of, stored_config
from sglang_hydra.rules.checks.releases import Arguments, arguments_of
from sglang_hydra.rules.rule import Facts, Notice, Outcome, Refusal, rule
from sglang_hydra.text.json_types import JsonObject, json_beside
from sglang_hydra.text.words import typed

_TABLE: JsonObject = json_beside(__file__)
# The lowest compute capability, times ten, of each method, by the first release that requires it
# (layers/quantization/*, get_min_capability, of SGLang 0.5.2 to 0.5.23).
_MIN_CAPABILITY: Mapping[str, Mapping[str, int]] = _TABLE["min_capability"]
# Architectures with multi-head latent attention (SGLang 0.5.2, configs/model_config.py).
_MLA: Sequence[str] = _TABLE["latent_attention"]
ATTENTION_FIELDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
# Classes whose experts multiply their input (models/*.py, apply_router_weight_on_input=True, 0.5.2 to 0.5.23).
_WEIGHTS_ON_INPUT = ("Llama4ForConditionalGeneration", "Llama4ForCausalLM")
_MLA_BACKENDS = ("flashmla", "cutlass_mla", "trtllm_mla", "cutedsl_mla")
_NOT_LATENT = ("trtllm_mha", "hpc_ops")
_LOWEST_CAPABILITY = 75
# Architectures that draft on their own, without a draft model.
_OWN_DRAFT: Sequence[str] = _TABLE["own_draft"]
_OWN_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")
# The algorithms that draft with a model. Later releases: NGRAM has none, DFLASH and DSPARK refuse to start without.
_DRAFTED = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")


@rule("RUN001", stage="plan")
def check_quantization_kernels(args: ServerArgs, facts: Facts) -> Outcome:
    """What: the GPU must have the compute capability that the quantization's kernels require.
    Why: SGLang checks it when it builds the model, just before it reads the weights. FP8 requires 8.0; NVFP4 10.0, from
        0.5.13 on 8.0.
    Upstream: model_loader/loader.py; get_min_capability in layers/quantization/, of each release.
    Example: gpu=h200 quantization=modelopt_fp4 -> refused, Hopper has 9.0"""
    capability = facts.gpu.compute_capability
    method = _quantization(args, facts)
    if not facts.gpu.is_cuda or capability is None or method is None:
        return None
    lowest = _lowest_capability(method, facts.release)
    if lowest is None or capability[0] * 10 + capability[1] >= lowest:
        return None
    return Refusal(
        f"{method} needs compute capability {lowest // 10}.{lowest % 10}, and {facts.gpu.name} has "
        f"{capability[0]}.{capability[1]}",
        "quantization",
        "model_path",
        hint="use a checkpoint in another format, or a newer GPU",
        offers=_newer(lowest),
    )


@rule("RUN022", stage="plan")
def check_formats_beside_cuda(args: ServerArgs, facts: Facts) -> Outcome:
    """What: weights in NVFP4 run on CUDA; on ROCm a whole checkpoint of ModelOpt's by Petit before 0.5.4, others never;
        on no other kind of accelerator. FP8 and MXFP4 do not run on Ascend before 950, and Gaudi (HPU) runs weights of
        16 bits alone.
    Why: inferred: the kernels of NVFP4 are CUTLASS's, FlashInfer's and Marlin's; those of FP8 and MXFP4 for Ascend ask
        for architecture 35; no module of layers/quantization names HPU. The first call of one fails elsewhere.
        From 0.5.4 on ModelOpt's format is found before Petit's, and is none of those that ROCm takes.
    Upstream: layers/quantization/modelopt_quant.py, petit.py 0.5.2; 0.5.23 configs/model_config.py:775-793 and
        2002-2016, layers/quantization/modelopt_quant.py, fp8.py:794-812 and npu_mxfp4_w4a4.py:12.
    Example: gpu=ascend_910b model=gemma_4_31b_nvfp4 tp_size=2 -> refused"""
    if facts.gpu.is_cuda:
        return None
    view = view_of(facts.model, args.json_model_override_args)
    stored = stored_config(view)
    if "NVFP4" in (words := str(stored).upper()):
        experts = "NVFP4" in str(stored.get("moe_quant_algo")).upper()
        by_petit = not experts and stored.get("quant_method") == "modelopt" and not at_least(facts.release, "0.5.4")
        missing = None if facts.gpu.is_hip and by_petit else f"{'experts' if experts else 'layers'} in NVFP4"
    else:
        missing = _not_run(facts.gpu, _quantization(args, facts), words)
    if missing is None:
        return None
    kind = f"{facts.gpu.name} ({'ROCm' if facts.gpu.is_hip else facts.gpu.device or 'no accelerator'})"
    return Refusal(
        f"SGLang {facts.release} has no kernels for {missing} on {kind}",
        "model_path",
        "quantization",
        hint="name a checkpoint in another format as model_path",
    )


def _not_run(gpu: GpuFacts, method: str | None, stored: str) -> str | None:
    """Returns the format, except NVFP4, without kernels there; None if none. ``stored`` is in capitals."""
    if method is None:
        return None
    if gpu.device == "hpu":
        return f"weights in {method}"
    in_fp8 = "fp8" in method or "FP8" in stored or "'FLOAT'" in stored
    if gpu.device != "npu" or (gpu.extra.get("dense_tflops") or {}).get("fp8") or not (in_fp8 or method == "mxfp4"):
        return None
    return f"weights in {'FP8' if in_fp8 else 'MXFP4'}"


@rule("RUN002", stage="plan")
def check_latent_attention(args: ServerArgs, facts: Facts) -> Outcome:
    """What: the MLA backends (flashmla, cutlass_mla, cutedsl_mla, trtllm_mla) serve latent-attention models only, and
        trtllm_mha and hpc_ops none of these.
    Why: the trtllm backends, cutedsl_mla and hpc_ops refuse it by name; flashmla and cutlass_mla read kv_lora_rank,
        which SGLang sets for latent attention only. The checks run when the attention is built, after the weights.
    Upstream: model_executor/model_runner.py, _get_attention_backend_from_str; layers/attention/flashmla_backend.py and
        cutlass_mla_backend.py; configs/model_config.py:217-247, 0.5.2. Later releases have it in attention_registry,
        and know latent attention of more classes, whose config has kv_lora_rank.
    Example: model=llama_3_1_8b attention_backend=flashmla -> refused"""
    view = view_of(facts.model, args.json_model_override_args)
    if view is None:
        return None
    latent = is_latent(view)
    for field in ATTENTION_FIELDS:
        backend = getattr(args, field)
        if backend in _MLA_BACKENDS and not latent and not text_config(view).get("kv_lora_rank"):
            return Refusal(
                f"{backend} is for latent attention (DeepSeek and kin)", field, offers=unset_backend(args, backend)
            )
        if backend in _NOT_LATENT and latent:
            return Refusal(
                f"{backend} cannot read a latent KV cache", field, offers=unset_backend(args, backend, "trtllm_mla")
            )
    return None


@rule("RUN003", stage="plan")
def check_flash_attention_3(args: ServerArgs, facts: Facts) -> Outcome:
    """What: attention_backend=fa3 needs Hopper, or Ampere and Ada where the model has no latent attention.
    Why: an assertion fails elsewhere, after the weights are loaded; on ROCm the import of sgl_kernel.flash_attn.
        Inferred: FlashAttention 3 has no kernels there (Dao-AILab/flash-attention#1653).
    Upstream: model_executor/model_runner.py 0.5.2, _get_attention_backend_from_str,
        layers/attention/flashattention_backend.py:22; attention_registry of 0.5.3 to 0.5.23.
    Example: gpu=b200 attention_backend=fa3 -> refused"""
    capability = facts.gpu.compute_capability
    if not (facts.gpu.is_cuda or facts.gpu.is_hip) or capability is None:
        return None
    view = view_of(facts.model, args.json_model_override_args)
    latent = view is not None and is_latent(view)
    if facts.gpu.is_cuda and (capability[0] == 9 or (capability[0] == 8 and not latent)):
        return None
    missing = f"compute capability {capability[0]}.{capability[1]}" if facts.gpu.is_cuda else "ROCm"
    for field in ATTENTION_FIELDS:
        replaced = field == "attention_backend" and args.kv_cache_dtype == "fp8_e5m2"  # RUN009: by triton
        if getattr(args, field) == "fa3" and not replaced:
            return Refusal(
                f"fa3 has no kernels for {missing}",
                field,
                offers=unset_backend(args, "fa3"),
            )
    return None


@rule("RUN008", stage="plan")
def check_kernels_of_gpu(args: Arguments, facts: Facts) -> Outcome:
    """What: kernels for attention, experts, all-to-all and all-reduce that are not built for the NVIDIA GPU: flashmla
        runs on Hopper, trtllm_mla and flashinfer_trtllm on Blackwell (SM100), deepep, megamoe and FlashInfer's fused
        all-reduce on both, none of them on 12.x (RTX PRO 6000, RTX 5090, GB10).
    Why: the server stops while it loads or captures graphs ("Unsupported architecture", "No supported CUDA
        architectures found"), or leaves the setting out; only later releases refuse megamoe themselves
        (sgl-project/sglang#12320, #15650, #17880, #24633, #34827; flashinfer-ai/flashinfer#3263).
    Upstream: sglang_hydra/rules/checks/kernels_at_load.json names the lines for each of them.
    Example: gpu=h200 model=deepseek_v3 tp_size=8 attention_backend=cutlass_mla -> warned"""
    capability, values = facts.gpu.compute_capability, args.everything
    if not facts.gpu.is_cuda or capability is None:
        return None
    for row in _TABLE["built_for"]:
        for field in row["fields"].split():
            value = values.get(field)
            if value is None or value not in row["values"] or capability[0] in row["majors"]:
                continue
            if values["tp_size"] < row.get("ranks", 1):
                continue
            if not holds_between(facts.release, row.get("since"), row.get("until")):
                continue
            default = typed(arguments_of(facts.release)[field].default)
            offers = unset_backend(args, value) if field in ATTENTION_FIELDS else [f"{field}={default}"]
            return (Refusal if row.get("refused") else Notice)(
                f"{field}={typed(value)} is built for {row['name']}, and {facts.gpu.name} has compute capability "
                f"{capability[0]}.{capability[1]}{row.get('then', '')}",
                field,
                offers=[*row.get("offers", ()), *offers],
            )
    return None


@rule("RUN029", stage="plan")
def check_nvfp4_runner(args: ServerArgs, facts: Facts) -> Outcome:
    """What: experts in ModelOpt's NVFP4 need quantization=modelopt_fp4 on a GPU of compute capability 11 or 12.
    Why: with it SGLang takes flashinfer_cutlass there. Without it moe_runner_backend stays auto, and the layer takes
        FlashInfer's trtllm-gen kernels, which SGLang's own message calls SM100-only (sgl-project/sglang#39807).
    Upstream: layers/quantization/modelopt_quant.py, create_moe_runner, of 0.5.11 to 0.5.23 (3117-3123); 0.5.23
        arg_groups/overrides.py:1513-1522.
    Example: gpu=rtx_pro_6000 model=qwen3_5_397b_nvfp4 tp_size=8 -> warned"""
    capability = facts.gpu.compute_capability
    if capability is None or capability[0] not in (11, 12) or not facts.gpu.is_cuda:
        return None
    if args.quantization is not None or args.moe_runner_backend != "auto":
        return None
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or experts_of(text_config(view)) <= 1 or _method_of(stored_config(view)) != "modelopt_fp4":
        return None
    return Notice(
        f"moe_runner_backend=auto runs experts in NVFP4 with kernels for SM100, and {facts.gpu.name} has compute "
        f"capability {capability[0]}.{capability[1]}",
        "quantization",
        "moe_runner_backend",
        offers=("quantization=modelopt_fp4", "moe_runner_backend=flashinfer_cutlass"),
    )


@rule("RUN030", stage="plan")
def check_weights_on_input(args: ServerArgs, facts: Facts) -> Outcome:
    """What: Llama 4 in ModelOpt's NVFP4 does not run with moe_runner_backend flashinfer_cutlass or flashinfer_cutedsl;
        marlin, which auto takes below compute capability 10 from 0.5.13 on, gives wrong answers.
    Why: its experts multiply their input by the router's weight. FlashInfer's kernels refuse that in the warm-up
        ("apply_router_weight_on_input is not supported for Flashinfer"), Marlin's multiply the output instead
        (sgl-project/sglang#34192). flashinfer_cutlass is SGLang's own choice on compute capability 12.
    Upstream: models/llama4.py:120, layers/quantization/modelopt_quant.py:1326, 0.5.2; 0.5.23 models/llama4.py:127,
        layers/quantization/modelopt_quant.py:3339, layers/moe/moe_runner/flashinfer_cutedsl.py:641,
        layers/moe/fused_moe_triton/fused_marlin_moe.py:332 and 396.
    Example: gpu=rtx_pro_6000 model=llama_4_scout quantization=modelopt_fp4 tp_size=2 -> refused"""
    runner = args.moe_runner_backend
    is_refused = runner in ("flashinfer_cutlass", "flashinfer_cutedsl")
    if runner == "auto" and (facts.gpu.compute_capability or (10,)) < (10,) and at_least(facts.release, "0.5.13"):
        runner = "marlin"
    if runner != "marlin" and not is_refused:
        return None
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or view.architecture not in _WEIGHTS_ON_INPUT or _quantization(args, facts) != "modelopt_fp4":
        return None
    return (Refusal if is_refused else Notice)(
        f"{runner} multiplies no expert's input by the router's weight, as Llama 4 needs it"
        + ("" if is_refused else ": the answers are wrong"),
        "moe_runner_backend",
        "model_path",
        hint="use a checkpoint in another format, or a build with sgl-project/sglang#35504",
    )


@rule("RUN025", stage="plan")
def check_torch_native_drafts(args: ServerArgs, facts: Facts) -> Outcome:
    """What: attention_backend=torch_native does not verify drafts: with a speculative algorithm the server ends in its
        warm-up.
    Why: it reads the lengths of prefixes, which a batch of drafts does not have (sgl-project/sglang#36352).
    Upstream: layers/attention/torch_native_backend.py, 0.5.2; 0.5.21:101-113.
    Example: model=qwen3_8b speculative_algorithm=NGRAM attention_backend=torch_native -> refused"""
    if args.speculative_algorithm is None:
        return None
    for field in ATTENTION_FIELDS:
        if getattr(args, field) == "torch_native":
            return Refusal("torch_native does not verify drafts", field, offers=unset_backend(args, "torch_native"))
    return None


@rule("RUN027", stage="plan")
def check_outlines_drafts(args: ServerArgs, facts: Facts) -> Outcome:
    """What: with a speculative algorithm, grammar_backend=outlines cannot serve structured output.
    Why: the check of drafts takes tokens back, and outlines has no rollback: such a request ends the server
        (sgl-project/sglang#24413). Other requests are served.
    Upstream: constrained/outlines_backend.py and base_grammar_backend.py:40, 0.5.2; 0.5.23:73.
    Example: model=qwen3_8b speculative_algorithm=NGRAM grammar_backend=outlines -> warned"""
    if args.speculative_algorithm is None or args.grammar_backend != "outlines":
        return None
    return Notice(
        "outlines cannot take back drafted tokens: a request with structured output ends the server",
        "grammar_backend",
        "speculative_algorithm",
        offers="grammar_backend=xgrammar",
    )


@rule("RUN004", stage="plan")
def check_draft_model(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a speculative algorithm needs speculative_draft_model_path, unless the model brings its own draft layers.
    Why: without it the draft worker loads the target's own checkpoint a second time. Inferred: that cannot draft.
    Upstream: managers/tp_worker.py and configs/model_config.py 0.5.2.
    Example: model=llama_3_1_8b speculative_algorithm=EAGLE -> warned"""
    if args.speculative_algorithm not in _DRAFTED or args.speculative_draft_model_path is not None:
        return None
    view = view_of(facts.model, args.json_model_override_args)
    if view is None or view.architecture in _OWN_DRAFT or any(text_config(view).get(name) for name in _OWN_LAYERS):
        return None
    return Notice(
        f"speculative_algorithm={args.speculative_algorithm} has no draft model",
        "speculative_draft_model_path",
        "speculative_algorithm",
        hint="speculative_draft_model_path takes a draft that was trained for this model",
    )


@rule("RUN005", stage="plan")
def check_lowest_gpu(args: ServerArgs, facts: Facts) -> Outcome:
    """What: NVIDIA GPUs older than Turing (7.5) are refused.
    Why: SGLang raises an error that names sm75 as the lowest, before it reads the weights. Inferred: its kernels start
        there.
    Upstream: model_executor/model_runner.py 0.5.2, load_model; the same in each release up to 0.5.23.
    Example: gpu.compute_capability='7.0' -> refused"""
    capability = facts.gpu.compute_capability
    if not facts.gpu.is_cuda or capability is None or capability[0] * 10 + capability[1] >= _LOWEST_CAPABILITY:
        return None
    return Refusal(f"{facts.gpu.name} has compute capability {capability[0]}.{capability[1]}, 7.5 is the lowest", "gpu")


def _lowest_capability(method: str, version: str) -> int | None:
    """Returns the capability that a release requires; None where it is not known to have the method."""
    since = [value for first, value in _MIN_CAPABILITY.get(method, {}).items() if at_least(version, first)]
    return since[-1] if since else None


def unset_backend(args: ServerArgs | Arguments, backend: str, better: str | None = None) -> list[str]:
    """Returns every argument that names ``backend``, set to a ``better`` one, then to null."""
    named = [field for field in ATTENTION_FIELDS if getattr(args, field) == backend]
    values = [better, "null"] if better else ["null"]
    return [" ".join(f"{field}={value}" for field in named) for value in values]


def _newer(capability: int) -> list[str]:
    """Returns classes with at least this compute capability."""
    classes = ((75, "t4"), (80, "a100_80gb"), (89, "l40s"), (90, "h100"), (90, "h200"), (100, "b200"))
    return [f"gpu={name}" for has, name in classes if has >= capability]


def is_latent(view: ConfigView) -> bool:
    """Returns whether a model has latent attention, by its class like SGLang."""
    return any(name in _MLA for name in view.architectures or ())


def _quantization(args: ServerArgs, facts: Facts) -> str | None:
    """Returns the method in effect: the requested one, else the checkpoint's."""
    if args.quantization is not None:
        return args.quantization.lower()
    view = view_of(facts.model, args.json_model_override_args)
    return _method_of(stored) if (stored := stored_config(view)) else None


def _method_of(stored: Mapping[str, object]) -> str:
    method, algorithm = str(stored.get("quant_method", "")).lower(), str(stored.get("quant_algo"))
    if method == "modelopt" and algorithm == "MIXED_PRECISION":
        return "modelopt_mixed"
    return "modelopt_fp4" if method == "modelopt" and "FP4" in algorithm else method
