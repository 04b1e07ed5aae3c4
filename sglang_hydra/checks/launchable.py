"""The checks that are ours alone, in one visible order: what SGLang accepts and the server then fails on."""

from __future__ import annotations

from sglang_hydra.checks import machine, model_config
from sglang_hydra.rules.rule import Rule

PLAN_CHECKS: tuple[Rule, ...] = (
    model_config.check_context_length,
    model_config.check_quantization,
    model_config.check_quantization_runs_here,
    model_config.check_dtype,
    model_config.check_heads,
    model_config.check_mem_fraction,
    machine.check_gpu_count,
)
