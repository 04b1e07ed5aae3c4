"""Rules for attention, sampling and grammar backends."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


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
