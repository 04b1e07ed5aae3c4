"""Checks attention backends against the GPU."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule

_SLOTS = ("attention_backend", "decode_attention_backend", "prefill_attention_backend")


@rule("KER008", (578, 585))
def trtllm_mla_runs_on_blackwell(args: ServerArgs, facts: Facts) -> Outcome:
    """What: trtllm_mla as attention_backend or decode_attention_backend is refused unless the GPU is SM100.
    Why: SGLang says that it is supported on SM100 only. Inferred: its kernels are compiled for B200 and GB200; an RTX
        5090 (SM120) is not one of them.
    Example: gpu=h100 attention_backend=trtllm_mla -> refused"""
    return _needs_blackwell("trtllm_mla", _SLOTS[:2], args, facts)


@rule("KER010", (598, 606))
def trtllm_mha_runs_on_blackwell(args: ServerArgs, facts: Facts) -> Outcome:
    """What: trtllm_mha as any of the three attention backends is refused unless the GPU is SM100.
    Why: SGLang says that it is supported on SM100 only. Inferred: its kernels are compiled for B200 and GB200; an RTX
        5090 (SM120) is not one of them.
    Example: gpu=h100 prefill_attention_backend=trtllm_mha -> refused"""
    return _needs_blackwell("trtllm_mha", _SLOTS, args, facts)


def _needs_blackwell(backend: str, read: Sequence[str], args: ServerArgs, facts: Facts) -> Outcome:
    gpu, slots = facts.gpu, [slot for slot in read if getattr(args, slot) == backend]
    if gpu.is_sm100 or not slots:
        return None
    capability = gpu.compute_capability
    kind = f"SM{capability[0]}{capability[1]}" if gpu.is_cuda and capability else f"no NVIDIA GPU ({gpu.vendor})"
    return Refusal(
        f"{backend} needs an SM100 GPU (B200, GB200), and {gpu.name} is {kind}",
        *slots,
        offers=(" ".join(f"{slot}=null" for slot in slots), "gpu=b200"),
    )
