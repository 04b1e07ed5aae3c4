"""The ports that SGLang 0.5.2's processes choose among themselves, for the comparison with recorded cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sglang_hydra.arguments.ports import head_address
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

_FIRST_STEP, _LAST_STEP = 100, 1000  # the NCCL port is drawn this far above the HTTP port
_TURN = 60000  # a search for a free port goes up by 42 below this and down by 43 from it on
_FAR_BELOW, _FAR_ABOVE = -10_000, 100_000  # beyond these lies no number that a real port and a step lead to


@dataclass(frozen=True, slots=True)
class PortPlan:
    """Who listens where: ZeroMQ addresses (``ipc://`` on one node, ``tcp://`` with DP attention) and NCCL's port."""

    tokenizer_ipc_name: str
    scheduler_input_ipc_name: str
    detokenizer_ipc_name: str
    nccl_port: int
    rpc_ipc_name: str
    metrics_ipc_name: str
    tokenizer_worker_ipc_name: str | None


def plan_ports(
    values: Mapping[str, Any],
    *,
    dp_rank: int | None = None,
    randint: Callable[[int, int], int],
    is_available: Callable[[int], bool],
    temp_name: Callable[[], str],
) -> PortPlan:
    """The ports that SGLang 0.5.2 would choose for these arguments (server_args.py, lines 2594-2653).

    ``dp_rank`` is the data parallel rank that asks, None for the main process. ``randint(a, b)`` draws from a to b
    inclusive, ``is_available(port)`` says whether a port can be bound, ``temp_name()`` makes a path for a socket.
    Raises ConfigError where SGLang fails, and where its search for a free port would never end.
    """
    nccl_port = values["nccl_port"]
    if nccl_port is None:
        nccl_port = _search_nccl_port(values["port"], randint, is_available)
    if not values["enable_dp_attention"]:
        names = [f"ipc://{temp_name()}" for _ in range(5)]
        return PortPlan(names[0], names[1], names[2], nccl_port, names[3], names[4], None)
    host, port = head_address(values)
    first = port + 1
    scheduler = first + 4 if dp_rank is None else first + 5 + dp_rank
    return PortPlan(
        tokenizer_ipc_name=f"tcp://{host}:{first}",
        scheduler_input_ipc_name=f"tcp://{host}:{scheduler}",
        detokenizer_ipc_name=f"tcp://{host}:{first + 1}",
        nccl_port=nccl_port,
        rpc_ipc_name=f"tcp://{host}:{first + 2}",
        metrics_ipc_name=f"tcp://{host}:{first + 3}",
        tokenizer_worker_ipc_name=None,
    )


def _search_nccl_port(port: Any, randint: Callable[[int, int], int], is_available: Callable[[int], bool]) -> int:
    if not isinstance(port, int):
        raise _refusal("PRT001", f"port is {port!r}; it must be a whole number", "port", "port=30000", (2596, 2597))
    candidate = port + randint(_FIRST_STEP, _LAST_STEP)
    seen: set[int] = set()
    while candidate not in seen:
        if is_available(candidate):
            return candidate
        seen.add(candidate)
        candidate = _within_reach(candidate + 42 if candidate < _TURN else candidate - 43)
    raise _refusal(
        "PRT002",
        f"no port is free for NCCL: SGLang would try the same {len(seen)}, from port={port} on, forever",
        "nccl_port",
        "nccl_port=PORT, or port=PORT elsewhere",
        (2598, 2604),
    )


def _within_reach(candidate: int) -> int:
    """Skips candidates far from all port numbers, in steps of the search: none of them can ever be bound."""
    if candidate > _FAR_ABOVE:
        return candidate - (candidate - _FAR_ABOVE) // 43 * 43
    return candidate + (_FAR_BELOW - candidate) // 42 * 42 if candidate < _FAR_BELOW else candidate


def _refusal(id: str, message: str, field: str, hint: str, lines: tuple[int, int]) -> ConfigError:
    return ConfigError(Finding("error", id, message, fields=(field,), hint=hint, upstream=lines))
