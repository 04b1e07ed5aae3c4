"""Numbers that SGLang takes as they are and that no server can run with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.words import short

if TYPE_CHECKING:
    from sglang_hydra.fields import ServerArgs

# The largest value that makes sense of each: above it a digit too many was typed.
_MOST = {
    "tp_size": 2**16,
    "pp_size": 2**16,
    "dp_size": 2**16,
    "ep_size": 2**16,
    "nnodes": 2**16,
    "context_length": 2**31,
    "max_running_requests": 2**31,
    "max_total_tokens": 2**40,
    "max_prefill_tokens": 2**31,
    "cuda_graph_max_bs": 2**20,
    "page_size": 2**20,
    "stream_interval": 2**31,
    "tokenizer_worker_num": 2**16,
}
_PORTS = ("port", "nccl_port", "disaggregation_bootstrap_port")
_LAST_PORT = 65535


@rule("ARG020", stage="plan")
def check_sizes(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: sizes and counts must be 1 or more and no absurd number: tp_size, dp_size, context_length, ...
    Why: SGLang computes with whatever is given and fails later: no rank is started, a division by zero, no memory.
    Upstream: none.
    Example: tp_size=0 -> refused
    """
    given = {name: getattr(args, name) for name in _MOST if getattr(args, name) is not None}
    wrong = [name for name, value in given.items() if not 1 <= value <= _MOST[name]]
    if not wrong:
        return None
    said = ", ".join(f"{name}={short(str(given[name]), 20)}" for name in wrong)
    message = f"{said}: it must lie between 1 and {_MOST[wrong[0]]}"
    return Refusal(message, *wrong, hint=f"{wrong[0]}=8, or leave it out")


@rule("ARG021", stage="plan")
def check_ports(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: ports must lie between 1 and 65535. port=0 is allowed: a free one is taken when the server starts.
    Why: SGLang's command line takes any number, and the server fails when it listens.
    Upstream: none.
    Example: port=70000 -> refused
    """
    wrong = [name for name in _PORTS if not _is_port(getattr(args, name), lowest=int(name != "port"))]
    if not wrong:
        return None
    said = ", ".join(f"{name}={short(str(getattr(args, name)), 20)}" for name in wrong)
    return Refusal(f"{said}: a port lies between 1 and {_LAST_PORT}", *wrong, hint=f"{wrong[0]}=30000")


@rule("ARG022", stage="plan")
def check_model_path(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: model_path must name a model: it is neither empty nor Hydra's sign for a missing value.
    Why: an unset shell variable (model_path=$MODEL) would start a server that then looks for a model without a name.
    Upstream: none.
    Example: model_path='' -> refused
    """
    if not isinstance(args.model_path, str) or args.model_path.strip() not in ("", "???"):
        return None
    return Refusal(
        f"model_path={args.model_path!r} names no model", "model_path", hint="model=llama_3_1_8b, model=org/name"
    )


def _is_port(value: Any, lowest: int) -> bool:
    return value is None or lowest <= value <= _LAST_PORT
