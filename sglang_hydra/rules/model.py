"""Rules for single model families."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import ConfigView, view_of
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule

GPT_OSS = "GptOssForCausalLM"
GPT_OSS_BACKENDS = ("triton", "trtllm_mha", "fa3")
LLAMA_4_BACKENDS = ("fa3", "aiter", "triton")


def gpt_oss_view(args: ServerArgs, facts: Facts) -> ConfigView | None:
    """Returns the model's config if it is gpt-oss, else None."""
    view = view_of(facts.model, args.json_model_override_args)
    return view if view is not None and view.architecture == GPT_OSS else None


def is_mxfp4(view: ConfigView) -> bool:
    """Returns whether the checkpoint's own quantization is MXFP4."""
    quantization = view.get("quantization_config")
    return quantization is not None and bool(quantization.get("quant_method") == "mxfp4")


@rule("MDL004", (2442, 2448))
def attention_of_gpt_oss(args: ServerArgs, facts: Facts) -> Outcome:
    """What: gpt-oss gets an attention_backend, if none was chosen: trtllm_mha on SM100, fa3 on SM90, else triton.
    Why: only these three backends implement its attention sinks (flashattention_backend.py, triton_backend.py and
        trtllm_mha_backend.py in layers/attention).
    Example: gpu=h100 model=gpt_oss -> attention_backend=fa3"""
    if args.attention_backend is not None or gpt_oss_view(args, facts) is None:
        return None
    if facts.gpu.is_cuda and facts.gpu.is_sm100:
        return Change("gpt-oss on SM100", attention_backend="trtllm_mha")
    if facts.gpu.is_cuda and facts.gpu.is_sm90:
        return Change("gpt-oss on SM90", attention_backend="fa3")
    return Change("gpt-oss on neither SM90 nor SM100", attention_backend="triton")


@rule("MDL007", (2463, 2473))
def mxfp4_runner_of_gpt_oss(args: ServerArgs, facts: Facts) -> Outcome:
    """What: on SM100 an MXFP4 gpt-oss gets moe_runner_backend=flashinfer_mxfp4, also over a given one.
    Why: SGLang gives no reason. Inferred: FlashInfer's MXFP4 kernels (trtllm_fp4_block_scale_moe in
        layers/quantization/mxfp4.py) are faster there; the same file has code for Triton's kernels on SM100, too.
    Example: gpu=b200 model=gpt_oss moe_runner_backend=triton -> moe_runner_backend=flashinfer_mxfp4"""
    view = gpt_oss_view(args, facts)
    # The checkpoint is checked first, like upstream: a malformed quantization_config fails on any GPU.
    if view is None or not is_mxfp4(view) or not facts.gpu.is_sm100:
        return None
    return Change("MXFP4 gpt-oss on SM100", moe_runner_backend="flashinfer_mxfp4")


@rule("MDL011", (2489, 2491))
def dtype_of_mxfp4_gpt_oss(args: ServerArgs, facts: Facts) -> Outcome:
    """What: an MXFP4 gpt-oss gets dtype=bfloat16, also over a given one.
    Why: SGLang's comment says that the MXFP4 kernels of Triton take bfloat16; it is set for FlashInfer's as well.
    Example: gpu=h100 model=gpt_oss dtype=float16 -> dtype=bfloat16"""
    view = gpt_oss_view(args, facts)
    if view is None or not is_mxfp4(view):
        return None
    return Change("the MXFP4 kernels of gpt-oss take bfloat16", dtype="bfloat16")
