"""Shows a topology: common settings once, then a line for each server, then the findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sglang_hydra.planning.passing.nodes import node_commands
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.checks import numbers
from sglang_hydra.planning.topology.plan import LAYER
from sglang_hydra.planning.topology.servers import Server, Topology
from sglang_hydra.planning.verdict import constant_fields
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.first_lines import (
    launch_lines,
    no_command,
    not_known,
    room_line,
    server_name,
    titled,
    verdict_span,
)
from sglang_hydra.show.plan import changed_rows, command_line, heading, section, set_rows
from sglang_hydra.text.screen import VERBATIM, Line, Span, folded, shown, text
from sglang_hydra.text.words import plural, shell_word


def topology_screen(topology: Topology, *, everything: bool = False, corrected: Sequence[Line] = ()) -> list[Line]:
    """Shows the whole topology, like ``plan`` shows one server."""
    servers = topology.servers
    lines: list[Line] = [*_first_lines(topology, bool(corrected)), [], *findings_of(topology)]
    lines += [*heading(servers[0].plan), *folded([text(f"  {_shape(topology)}", "dim")]), []]
    set_by_all, changed_in_all = _shared(servers)
    first = servers[0].plan
    constant = set() if everything else constant_fields(first)
    changed = [(key, row) for key, row in _changed(first) if key in changed_in_all]
    kept = [row for (_, field), row in changed if field not in constant]
    more = f"and {len(changed) - len(kept)} more that every plan has: --all" if len(kept) < len(changed) else ""
    lines += section("Set for all servers", [row for key, row in _set(first) if key in set_by_all])
    lines += section("Resolved for all by SGLang's rules", kept, more)
    for role in dict.fromkeys(server.role for server in servers):
        lines += _role_lines(role, servers, set_by_all, changed_in_all)
    lines += section("Servers", list(_server_rows(servers)))
    lines += _memory(servers)
    if topology.launchable is not False:
        lines += _commands(topology)
    lines.append([text(f"Topology {topology.topology_id}: {plural(len(servers), 'server')}")])
    return [*lines, [], *corrected] if corrected else lines


def _first_lines(topology: Topology, is_corrected: bool) -> list[Line]:
    """Returns the verdict, the GPUs, the capacity of the first server of each role, and the place of the commands."""
    servers = topology.servers
    lines = launch_lines(topology.verdict, server_name(servers[0].plan))
    gpu = topology.common.gpu
    used = len({(node, number) for server in servers for node in server.nodes for number in server.gpus})
    on = f"{used} of {topology.nodes * gpu.count} x {gpu.name}" if used and gpu.count else gpu.name
    on += f" on {topology.nodes} nodes" if topology.nodes > 1 else ""
    lines += titled("GPUs", f"{on}, for {plural(len(servers), 'server')}")
    for number, role in enumerate(dict.fromkeys(server.role for server in servers)):
        first = next(server for server in servers if server.role == role)
        lines += titled("" if number else "Capacity", f"{role}: {room_line(first.plan)}")
    command = "one for each server and the router, below"
    return [*lines, *titled("Command", no_command(is_corrected) if topology.launchable is False else command)]


def summary(topology: Topology) -> Line:
    """Returns the verdict on everything in one line."""
    levels = [finding.level for finding in topology.findings]
    head = f": topology {topology.topology_id}, {plural(len(topology.servers), 'server')}, "
    head += f"{plural(levels.count('error'), 'error')}, {plural(levels.count('warning'), 'warning')}"
    if topology.launchable is not False:
        return [verdict_span(topology.verdict), text(head), *not_known(topology.verdict)]
    why = "SGLang would accept it and then fail" if topology.ok else "SGLang would refuse it"
    return [text(why, "bold red"), text(head)]


def findings_of(topology: Topology, levels: Sequence[str] = ("error", "warning", "info")) -> list[Line]:
    """Returns every finding once, after the names of its servers."""
    lines: list[Line] = []
    found = topology.findings_with_servers
    for finding, servers in (item for level in levels for item in found if item[0].level == level):
        whose = f"{_named(servers)}: " if servers and len(servers) < len(topology.servers) else ""
        of_whom = replace(finding, message=whose + finding.message)
        lines += finding_lines([of_whom], servers[0].plan if servers else None)[1:-1]
    return [[text("Findings", "bold")], *lines, []] if lines else []


def _shape(topology: Topology) -> str:
    """Returns the number of servers of each role, and the router."""
    roles = [server.role for server in topology.servers]
    counts = ", ".join(f"{roles.count(role)} x {role}" for role in dict.fromkeys(roles))
    router = topology.router
    state = "" if router.installed else " (not installed here)"
    return f"topology: {counts}, behind sglang-router {router.release}{state} on {router.host}:{router.port}"


def _set(plan: Plan) -> list[tuple[tuple[str, str], list[Span]]]:
    """Returns the rows of set arguments, each under its name and value."""
    return [((name, repr(plan.intent[name])), row) for name, row in zip(plan.intent, set_rows(plan), strict=True)]


def _changed(plan: Plan) -> list[tuple[tuple[str, str], list[Span]]]:
    """Returns the rows of resolved arguments, each under its change and its argument."""
    entries = plan.resolution.ledger
    keys = [(repr((entry.rule, entry.before, entry.after, entry.reason)), entry.field) for entry in entries]
    return list(zip(keys, changed_rows(plan), strict=True))


def _shared(servers: Sequence[Server]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Returns the settings and changes that the plans of all servers share."""
    settings = [{key for key, _ in _set(server.plan)} for server in servers]
    changes = [{key for key, _ in _changed(server.plan)} for server in servers]
    return set.intersection(*settings), set.intersection(*changes)


def _role_lines(
    role: str, servers: Sequence[Server], set_by_all: set[tuple[str, str]], changed_in_all: set[tuple[str, str]]
) -> list[Line]:
    """Shows the common settings of one role that other roles lack."""
    own = [server for server in servers if server.role == role]
    if len(own) == len(servers):
        return []
    settings, changes = _shared(own)
    plan = own[0].plan
    rows = [row for key, row in _set(plan) if key in settings - set_by_all and key[0] not in _placed(plan)]
    rows += [row for key, row in _changed(plan) if key in changes - changed_in_all]
    return section(f"Only for {role}", rows)


def _placed(plan: Plan) -> set[str]:
    """Returns the arguments that the topology set for this server alone, not for its role."""
    chains = plan.origins.items()
    return {name for name, chain in chains if chain[-1].layer == LAYER and name in _OF_ONE_SERVER}


_OF_ONE_SERVER = ("host", "port", "base_gpu_id", "nccl_port", "disaggregation_bootstrap_port")


def _server_rows(servers: Sequence[Server]) -> Iterator[list[Span]]:
    on_gpus, on_nodes = any(server.gpus for server in servers), any(server.address for server in servers)
    titles = ["", *["nodes"] * on_nodes, *["GPUs"] * on_gpus, "URL", "plan", "set for this server"]
    yield [text(title, "bold") for title in titles]
    for server in servers:
        given = [name for name in _OF_ONE_SERVER if name in _placed(server.plan)]
        differs = " ".join(f"{name}={shown(server.plan.intent[name])}" for name in given)
        where = [text(numbers(server.nodes))] * on_nodes + [text(numbers(server.gpus))] * on_gpus
        yield [text(server.name), *where, text(server.url), text(server.plan.server_id), text(differs, "dim")]


def _memory(servers: Sequence[Server]) -> Iterator[Line]:
    """Yields the memory of one GPU for each role; servers of one role are equal."""
    from sglang_hydra.show.memory import memory_lines

    roles = list(dict.fromkeys(server.role for server in servers))
    for role in roles:
        plan = next(server.plan for server in servers if server.role == role)
        if plan.fit is not None:
            yield from memory_lines(plan.fit, plan.gpu.name if len(roles) == 1 else f"{role} {plan.gpu.name}")


def _commands(topology: Topology) -> Iterator[Line]:
    yield [text("Commands, the last one when all servers are healthy", "bold")]
    for server in topology.servers:
        of = f" on {plural(len(server.nodes), 'node')}, each with its own --node-rank" if len(server.nodes) > 1 else ""
        yield [text(f"  {server.name}{of}", "dim")]
        yield [text("    "), text(_server_line(server), VERBATIM)]
    if topology.nodes > 1:
        yield [text(f"  NODE0 to NODE{topology.nodes - 1} are the nodes' addresses; the router is on NODE0", "dim")]
    yield [text("  router", "dim")]
    yield [text("    "), text(" ".join(map(shell_word, topology.router.command(topology.router_argv))), VERBATIM)]
    if topology.common.secrets:
        hidden = ", ".join(topology.common.secrets)
        yield [text(f"  without {hidden}, which is handed to each of them unseen", "dim")]
    yield []


def _server_line(server: Server) -> str:
    if server.head_port is None:
        return command_line(server.plan)
    first = node_commands(server.plan, f"{server.address}:{server.head_port}")[0]
    return " ".join(map(shell_word, first))


def _named(servers: Sequence[Server]) -> str:
    return ", ".join(server.name for server in servers)
