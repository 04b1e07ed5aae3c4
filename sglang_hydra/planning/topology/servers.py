"""Describes a planned topology: its servers with their plans, and the router in front of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from sglang_hydra.arguments.ports import server_url
from sglang_hydra.compose.settings.topology import DECODE, PD, PREFILL
from sglang_hydra.planning.plan import Plan, digest
from sglang_hydra.planning.topology.placement import PortUse, ports_of
from sglang_hydra.planning.topology.roles import remedies_for
from sglang_hydra.planning.topology.router import Router
from sglang_hydra.planning.verdict import Verdict, verdict_on
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain

SCHEMA = "sglang_hydra.topology/1"
NODE = "NODE"
"""NODE0, NODE1 represent the addresses of the nodes, which are known only when allocated."""


@dataclass(frozen=True)
class Server:
    """One server of a topology: its role (``replica``, ``prefill``, ``decode``), its number within that role, its plan,
    and the numbers of its GPUs on each of its ``nodes`` (none on a CPU). ``head_port`` is the rendezvous port of a
    server on several nodes. ``address`` is that of its first node, None where that is the router's."""

    role: str
    index: int
    plan: Plan
    gpus: tuple[int, ...]
    nodes: tuple[int, ...] = (0,)
    head_port: int | None = None
    address: str | None = None

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}"

    @property
    def url(self) -> str:
        values = self.plan.values
        return server_url(values if self.address is None else {"host": self.address, "port": values["port"]})

    @property
    def bootstrap_port(self) -> int:
        """Returns the port where decode servers find a prefill server."""
        return int(self.plan.values["disaggregation_bootstrap_port"])

    @property
    def ports(self) -> list[PortUse]:
        values = self.plan.values
        if self.head_port is not None:
            values = {**values, "dist_init_addr": f"{self.address}:{self.head_port}"}
        return ports_of(values, self.plan.layout)


@dataclass(frozen=True)
class Topology:
    """A planned ``topology=``: servers in the order in which they start, and the router after them.

    ``common`` is the plan of the common settings, as if for one server; it gives the settings and is not judged.
    ``together`` are the findings on the servers as a whole; each plan has its own. ``ok`` is SGLang's verdict on every
    server, ``launchable`` adds ours and is None where unknown. ``nodes`` is the number of nodes; the router is on the
    first."""

    name: str
    common: Plan
    servers: tuple[Server, ...]
    router: Router
    nodes: int = 1
    together: tuple[Finding, ...] = ()
    ignored: tuple[Finding, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return all(server.plan.ok for server in self.servers)

    @cached_property
    def verdict(self) -> Verdict:
        """Returns whether everything can be launched, and why."""
        return verdict_on(self.findings, [server.plan for server in self.servers])

    @property
    def launchable(self) -> bool | None:
        return self.verdict.launchable

    @property
    def findings_with_servers(self) -> list[tuple[Finding, tuple[Server, ...]]]:
        """Returns every finding once, with the servers that have it; findings on the whole have none."""
        found: dict[Finding, list[Server]] = {}
        remedies: dict[Finding, Finding] = {}
        enough = all(finding.about != "too_few_gpus" for finding in self.together)
        for server in self.servers:
            for finding in server.plan.findings:
                if not enough and finding.about == "too_few_gpus":
                    continue  # reported once, for all servers
                same = replace(finding, remedies=())
                remedies.setdefault(same, finding)
                found.setdefault(same, []).append(server)
        whole: list[tuple[Finding, tuple[Server, ...]]] = [(finding, ()) for finding in self.together]
        return whole + [
            (one.said(remedies_for(remedies[one], {server.role for server in having})), tuple(having))
            for one, having in found.items()
        ]

    @property
    def findings(self) -> list[Finding]:
        return [finding for finding, _ in self.findings_with_servers]

    @property
    def router_argv(self) -> list[str]:
        """Returns the router's flags, with the addresses of the servers."""
        if self.name != PD:
            return self.router.argv([server.url for server in self.servers])
        prefill = [(server.url, server.bootstrap_port) for server in self.servers if server.role == PREFILL]
        return self.router.argv([server.url for server in self.servers if server.role == DECODE], prefill)

    @cached_property
    def topology_id(self) -> str:
        """Returns 16 hex digits: equal for topologies whose servers and router behave the same."""
        where = ("host", "port", "prometheus_host", "prometheus_port", "log_level", "log_dir")
        routing = {name: value for name, value in self.router.settings.items() if name not in where}
        servers = [[server.role, server.plan.server_id] for server in self.servers]
        return digest({"topology": self.name, "servers": servers, "router": [self.router.release, routing]})

    def to_json(self) -> dict[str, object]:
        """Returns the artifact, without secrets. Its schema is committed as schemas/topology.schema.json."""
        router = self.router
        return {
            "schema": SCHEMA,
            "topology_id": self.topology_id,
            "name": self.name,
            "ok": self.ok,
            "launchable": self.launchable,
            "why": self.verdict.why,
            "nodes": self.nodes,
            "servers": [
                {
                    "role": server.role,
                    "index": server.index,
                    "nodes": list(server.nodes),
                    "gpus": list(server.gpus),
                    "url": server.url,
                    "ports": [{"use": use.what, "first": use.ports[0], "last": use.ports[-1]} for use in server.ports],
                    "plan": server.plan.to_json(),
                }
                for server in self.servers
            ],
            "router": {
                "release": router.release,
                "belongs": router.belongs,
                "installed": router.installed,
                "python": router.python,
                "host": router.host,
                "port": router.port,
                "settings": plain(router.settings),
                "command": router.command(self.router_argv),
            },
            "on_worker_exit": self.common.nodes.topology.on_worker_exit,
            "together": [finding.to_json() for finding in self.together],
            "ignored": [finding.to_json() for finding in self.ignored],
        }
