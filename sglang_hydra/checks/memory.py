"""The data type of the Mamba state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule

if TYPE_CHECKING:
    from sglang_hydra.fields import ServerArgs


@rule("MEM004", (843, 843))
def mamba_dtype_is_text(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: mamba_ssm_dtype must be text; it is handed to the server in SGLANG_MAMBA_SSM_DTYPE.
    Why: an environment variable holds nothing else.
    Upstream: server_args.py 0.5.2 lines 843-843.
    Example: mamba_ssm_dtype=null -> refused
    """
    dtype = args.mamba_ssm_dtype
    if isinstance(dtype, str) and "\0" not in dtype:
        return None
    return Refusal(
        f"mamba_ssm_dtype is {dtype!r}; it must be the name of a data type",
        "mamba_ssm_dtype",
        hint="mamba_ssm_dtype=float32",
    )
