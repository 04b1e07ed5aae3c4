"""The ports that a server here would take."""

from __future__ import annotations

from sglang_hydra.run.doctor.examination import Verdict, check
from sglang_hydra.run.doctor.machine_state import World
from sglang_hydra.run.doctor.phrases import numbers


@check("DOC014", "ports")
def check_ports(world: World) -> Verdict:
    """
    What: whether the server's port is free, and those above it that DP attention uses between its processes.
    Why: SGLang listens on its port only once the weights are loaded, and a taken one fails it then. With
        enable_dp_attention five ports from port + 234 on are taken, and one more for each data parallel rank (8 are
        looked at). Any other port is searched for until one is free.
    Source: SGLang 0.5.2, server_args.py:2594-2653.
    Example: port 30000 in use by process 4242 (python) -> error, port=30001
    """
    taken = [port for port in world.ports if port.obstacle is not None]
    values = {"port": world.request.port, "taken": [port.number for port in taken]}
    details = tuple(port.obstacle.message for port in taken if port.obstacle is not None)
    for port in taken:
        if port.purpose == "http" and port.obstacle is not None:
            return Verdict("error", port.obstacle.message, port.obstacle.hint, details, values)
    inner = [port.number for port in world.ports if port.purpose != "http"]
    if taken:
        found = (
            f"{world.request.port} is free; {numbers(port.number for port in taken)} is not, which DP attention needs"
        )
        return Verdict("warning", found, f"port={_elsewhere(world)} with enable_dp_attention=true", details, values)
    rest = f", and {numbers(inner)} for DP attention" if inner else ""
    return Verdict("ok", f"{world.request.host}:{world.request.port} is free{rest}", values=values)


def _elsewhere(world: World) -> int:
    return world.request.port + 100 if world.request.port < 60000 else 30000
