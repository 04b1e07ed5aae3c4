"""Rules for attention, sampling and grammar backends."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


@rule("KER001", (529, 532))
def force_backends_on_gaudi(args: ServerArgs, facts: Facts) -> Outcome:
    """What: device=hpu sets attention_backend=torch_native and sampling_backend=pytorch, also over given values.
    Why: Inferred: no other kernels run on Intel Gaudi. It comes before the model's rules, so gpt-oss and Llama 4 fail
        there.
    Example: gpu=gaudi3 -> attention_backend=torch_native sampling_backend=pytorch"""
    if args.device != "hpu":
        return None
    return Change("the only kernels on hpu", attention_backend="torch_native", sampling_backend="pytorch")


@rule("KER002", (538, 540))
def attention_on_cpu(args: ServerArgs, facts: Facts) -> Outcome:
    """What: device=cpu makes intel_amx the attention_backend, if none was chosen.
    Why: Inferred: AMX kernels are the fast ones on CPU. It comes after the model's rules, so gpt-oss has chosen triton
        by then.
    Example: gpu=cpu -> attention_backend=intel_amx"""
    if args.device != "cpu" or args.attention_backend is not None:
        return None
    return Change("the default on cpu", attention_backend="intel_amx")


@rule("KER003", (538, 541))
def sampling_on_cpu(args: ServerArgs, facts: Facts) -> Outcome:
    """What: device=cpu sets sampling_backend=pytorch, also over a given one.
    Why: Inferred: FlashInfer's sampling kernels need CUDA.
    Example: gpu=cpu sampling_backend=flashinfer -> sampling_backend=pytorch"""
    if args.device != "cpu":
        return None
    return Change("the only one on cpu", sampling_backend="pytorch")


@rule("KER004", (543, 546))
def choose_sampling_backend(args: ServerArgs, facts: Facts) -> Outcome:
    """What: sampling_backend, if unset, is flashinfer where that package is installed on NVIDIA CUDA, else pytorch.
    Why: Inferred: its sampling kernels avoid sorting. SGLANG_IS_FLASHINFER_AVAILABLE=false makes SGLang do without
        (utils.py, is_flashinfer_available).
    Example: gpu=h100 -> sampling_backend=flashinfer"""
    if args.sampling_backend is not None:
        return None
    if not facts.gpu.is_cuda:
        return Change("flashinfer is for NVIDIA CUDA only", sampling_backend="pytorch")
    if not facts.gpu.flashinfer:
        return Change("flashinfer is not available", sampling_backend="pytorch")
    if facts.env.get("SGLANG_IS_FLASHINFER_AVAILABLE", "true").lower() not in ("true", "1"):
        return Change("SGLANG_IS_FLASHINFER_AVAILABLE says no", sampling_backend="pytorch")
    return Change("flashinfer is available", sampling_backend="flashinfer")


@rule("KER005", (614, 620))
def limits_of_dual_chunk_attention(args: ServerArgs, facts: Facts) -> Outcome:
    """What: attention_backend=dual_chunk_flash_attn switches mixed chunks, CUDA graphs and the radix cache off.
    Why: SGLang says that the backend is the reason. Inferred: its sparse chunks support none of them.
    Example: attention_backend=dual_chunk_flash_attn -> disable_cuda_graph=true disable_radix_cache=true"""
    if args.attention_backend != "dual_chunk_flash_attn":
        return None
    return Change(
        "dual_chunk_flash_attn supports neither",
        enable_mixed_chunk=False,
        disable_cuda_graph=True,
        disable_radix_cache=True,
    )


@rule("KER006", (626, 628))
def more_kv_splits_on_rocm(args: ServerArgs, facts: Facts) -> Outcome:
    """What: on AMD GPUs triton_attention_num_kv_splits becomes 16, also over a given value.
    Why: Inferred: their decode kernels need more splits to fill the GPU; the default elsewhere is 8.
    Example: gpu=mi300x triton_attention_num_kv_splits=4 -> triton_attention_num_kv_splits=16"""
    if not facts.gpu.is_hip:
        return None
    return Change("AMD ROCm", triton_attention_num_kv_splits=16)


@rule("KER007", (630, 632))
def choose_grammar_backend(args: ServerArgs, facts: Facts) -> Outcome:
    """What: grammar_backend, if unset, is xgrammar.
    Why: Inferred: a server can always be asked for structured output; grammar_backend=none switches it off.
    Example: gpu=h100 -> grammar_backend=xgrammar"""
    if args.grammar_backend is not None:
        return None
    return Change("the default", grammar_backend="xgrammar")
