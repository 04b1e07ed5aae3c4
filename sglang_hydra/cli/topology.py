"""Runs the verbs for several servers (``topology=``)."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.cli.corrected import corrected_lines
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import code_of
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import DECODE, PREFILL, REPLICA
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.plan import plan_topology
from sglang_hydra.planning.topology.servers import Server, Topology
from sglang_hydra.show.argument import field_record, field_screen
from sglang_hydra.show.topology import topology_screen
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.screen import print_json, text, write
from sglang_hydra.text.words import program


def show(composer: Composer, invocation: Invocation, common: Plan) -> int:
    """Shows every server and the router, for ``plan``. Returns 2 if one has an error."""
    topology = plan_topology(composer, invocation.requests, common=common)
    if invocation.has("json"):
        print_json(topology.to_json())
    else:
        corrected = corrected_lines(invocation, topology.findings, composer) if topology.launchable is False else []
        write(topology_screen(topology, everything=invocation.has("all"), corrected=corrected))
    return code_of(invocation, topology)


def is_addressed(word: str) -> bool:
    """Returns whether a word of ``explain`` names one server's argument: ``decode.tp_size``, ``replica.1.port``."""
    role, _, rest = word.partition(".")
    return role in (REPLICA, PREFILL, DECODE) and rest.rpartition(".")[2] in EVERY


def explain(
    composer: Composer, invocation: Invocation, word: str, requests: Sequence[Request], common: Plan | None = None
) -> int:
    """Runs ``explain FIELD`` for a topology: for the server in ``word``, else for the first server of each role."""
    topology = plan_topology(composer, requests, common=common)
    servers, name = _addressed(topology, word)
    if invocation.has("json"):
        if len(servers) > 1:
            hint = " or ".join(f"explain {server.role}.{name}" for server in servers)
            raise ConfigError.of("TOP020", f"{name} of which server?", name, hint=hint)
        print_json({**field_record(name, servers[0].plan), "server": servers[0].name})
    else:
        for server in servers:
            write([[text(server.name, "bold")], *field_screen(name, server.plan), []])
    return 0


def _addressed(topology: Topology, word: str) -> tuple[list[Server], str]:
    """Returns the servers that a word names, and the argument. Raises ConfigError for an unknown server."""
    address, _, name = word.rpartition(".")
    role, _, number = address.partition(".")
    firsts = {server.role: server for server in reversed(topology.servers)}
    if not role:
        return list(reversed(firsts.values())), name
    wanted = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 0 if not number else -1
    found = [server for server in topology.servers if (server.role, server.index) == (role, wanted)]
    if not found:
        there = ", ".join(server.name for server in topology.servers)
        hint = f"{program()} explain {topology.servers[-1].role}.{topology.servers[-1].index}.{name} ..."
        message = f"there is no server {address.replace('.', ' ')}; there are {there}"
        raise ConfigError.of("TOP020", message, name, hint=hint)
    return found, name
