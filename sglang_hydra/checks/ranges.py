"""Numbers that SGLang takes as they are and that no server can run with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule

if TYPE_CHECKING:
    from sglang_hydra.fields import ServerArgs

_AT_LEAST_ONE = (
    "tp_size",
    "pp_size",
    "dp_size",
    "ep_size",
    "context_length",
    "max_running_requests",
    "max_total_tokens",
    "max_prefill_tokens",
    "stream_interval",
    "tokenizer_worker_num",
)
_PORTS = ("port", "nccl_port", "disaggregation_bootstrap_port")
_LAST_PORT = 65535


@rule("ARG020", stage="plan")
def check_sizes(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: sizes and counts must be 1 or more: tp_size, dp_size, context_length, max_running_requests, ...
    Why: SGLang computes with whatever is given and fails later: no rank is started, or a division by zero.
    Upstream: none.
    Example: tp_size=0 -> refused
    """
    wrong = [name for name in _AT_LEAST_ONE if (value := getattr(args, name)) is not None and value < 1]
    if not wrong:
        return None
    said = ", ".join(f"{name}={getattr(args, name)}" for name in wrong)
    return Refusal(f"{said}: it must be 1 or more", *wrong, hint=f"{wrong[0]}=1 or more, or leave it out")


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
    said = ", ".join(f"{name}={getattr(args, name)}" for name in wrong)
    return Refusal(f"{said}: a port lies between 1 and {_LAST_PORT}", *wrong, hint=f"{wrong[0]}=30000")


def _is_port(value: Any, lowest: int) -> bool:
    return value is None or lowest <= value <= _LAST_PORT
