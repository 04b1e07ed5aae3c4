"""Checks the sizes that the memory rules read: those of the vision tower, and the Mamba state's type."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.memory import vision_tower
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule


@rule("MEM005", (2513, 2537))
def vision_tower_has_a_size(args: ServerArgs, facts: Facts) -> Outcome:
    """What: a multimodal model is refused whose vision_config gives num_hidden_layers or hidden_size as no number, if
        mem_fraction_static is unset.
    Why: memory is left for the tower by its size. A size that is not there counts as 24 x 1024; null is refused.
    Example: model=qwen2_5_vl_7b model.config.vision_config.hidden_size=null -> refused"""
    tower = vision_tower(args, facts)
    if tower is None or all(isinstance(size, (int, float)) for size in tower):
        return None
    layers, hidden_size = tower
    return Refusal(
        f"the vision tower has {layers!r} layers of hidden size {hidden_size!r}: these must be numbers",
        "json_model_override_args",
        "mem_fraction_static",
        offers="mem_fraction_static=0.8",
    )


@rule("MEM004", (843, 843))
def mamba_dtype_is_text(args: ServerArgs, facts: Facts) -> Outcome:
    """What: mamba_ssm_dtype must be text; it is handed to the server in SGLANG_MAMBA_SSM_DTYPE.
    Why: an environment variable holds nothing else.
    Example: mamba_ssm_dtype=null -> refused"""
    dtype = args.mamba_ssm_dtype
    if isinstance(dtype, str) and "\0" not in dtype:
        return None
    return Refusal(
        f"mamba_ssm_dtype is {dtype!r}; it must be the name of a data type",
        "mamba_ssm_dtype",
        offers="mamba_ssm_dtype=float32",
    )
