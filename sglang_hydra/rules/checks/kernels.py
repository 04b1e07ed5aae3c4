"""Checks attention backends against the GPU and the KV cache."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.memory import TRTLLM_MHA, TRTLLM_MLA, PagedBackend
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule

MLA_CACHE_DTYPES = ("fp8_e4m3", "auto")


@rule("KER008", (578, 585))
def trtllm_mla_runs_on_blackwell(args: ServerArgs, facts: Facts) -> Outcome:
    """What: trtllm_mla as attention_backend or decode_attention_backend is refused unless the GPU is SM100.
    Why: SGLang says that it is supported on SM100 only. Inferred: its kernels are compiled for B200 and GB200; an RTX
        5090 (SM120) is not one of them.
    Example: gpu=h100 attention_backend=trtllm_mla -> refused"""
    if facts.gpu.is_sm100 or not TRTLLM_MLA.is_used(args):
        return None
    return _needs_blackwell(TRTLLM_MLA, args, facts)


@rule("KER009", (593, 596))
def trtllm_mla_reads_cache_dtype(args: ServerArgs, facts: Facts) -> Outcome:
    """What: trtllm_mla is refused with a kv_cache_dtype other than fp8_e4m3 and auto.
    Why: its kernels read the KV cache in these formats only.
    Example: gpu=b200 attention_backend=trtllm_mla kv_cache_dtype=fp8_e5m2 -> refused"""
    if args.kv_cache_dtype in MLA_CACHE_DTYPES or not TRTLLM_MLA.is_used(args):
        return None
    return Refusal(
        f"trtllm_mla does not read kv_cache_dtype={args.kv_cache_dtype}; it reads {' or '.join(MLA_CACHE_DTYPES)}",
        "kv_cache_dtype",
        offers=("kv_cache_dtype=auto", "kv_cache_dtype=fp8_e4m3"),
    )


@rule("KER010", (598, 606))
def trtllm_mha_runs_on_blackwell(args: ServerArgs, facts: Facts) -> Outcome:
    """What: trtllm_mha as any of the three attention backends is refused unless the GPU is SM100.
    Why: SGLang says that it is supported on SM100 only. Inferred: its kernels are compiled for B200 and GB200; an RTX
        5090 (SM120) is not one of them.
    Example: gpu=h100 prefill_attention_backend=trtllm_mha -> refused"""
    if facts.gpu.is_sm100 or not TRTLLM_MHA.is_used(args):
        return None
    return _needs_blackwell(TRTLLM_MHA, args, facts)


def _needs_blackwell(backend: PagedBackend, args: ServerArgs, facts: Facts) -> Refusal:
    gpu = facts.gpu
    slots = [slot for slot in backend.slots if getattr(args, slot) == backend.name]
    capability = gpu.compute_capability
    kind = f"SM{capability[0]}{capability[1]}" if gpu.is_cuda and capability else f"no NVIDIA GPU ({gpu.vendor})"
    return Refusal(
        f"{backend.name} needs an SM100 GPU (B200, GB200), and {gpu.name} is {kind}",
        *slots,
        offers=(" ".join(f"{slot}=null" for slot in slots), "gpu=b200"),
    )
