"""Writes a topology as a Compose file or Kubernetes manifests: a container per server, and the router; or as a script
for sbatch: each server is a step on its nodes, the router runs on the first node.

Each server is alone in its container: it counts its GPUs from 0 and has its own network. The GPU numbers and NCCL port
that separate servers on one machine are therefore omitted there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.compose.settings.topology import DECODE, PD, PREFILL
from sglang_hydra.convert.export import compose, k8s
from sglang_hydra.convert.export.docker import driver_lines, require_container_vendor
from sglang_hydra.convert.export.job import Artifact, Job, is_public, job_of
from sglang_hydra.convert.export.manifest import manifest
from sglang_hydra.convert.export.quoting import Variable, Word, bash, bash_lines, commented, kubernetes, typed
from sglang_hydra.convert.export.shell import key_program as define_program
from sglang_hydra.convert.export.slurm import SUBMIT, beginning, check_settings, handed_over, step
from sglang_hydra.convert.export.variables import KEY_WHY, key_program, without_secrets
from sglang_hydra.convert.made_for import TITLE, made_for_all
from sglang_hydra.planning.passing import fabric
from sglang_hydra.planning.passing.passed import KEY_VARIABLE
from sglang_hydra.planning.passing.slurm_options import sbatch_settings_of
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.router import FIRST_WITH_KEY, MODULE, PACKAGE, Router, flags
from sglang_hydra.planning.topology.servers import NODE, Server, Topology
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.version import VERSION
from sglang_hydra.text.yaml_text import Block, yaml_text

ROUTER_IMAGE = "python:3.12-slim"
"""Every release of the router has a wheel for Python 3.12 on x86-64 Linux (PyPI)."""

_PLACING = ("base_gpu_id", "nccl_port", "gpu_id_step")
_INSTALL = 'pip install --quiet --root-user-action=ignore {package}=={release} && exec "$@"'
_STARTUP = "worker_startup_timeout_secs"
_ROUTER_EACH_S = 10
_NODE_URL = re.compile(rf"http://({NODE}\d+)(:\d+)")


class Member(NamedTuple):
    """One server of a topology, with its job: one container, or one per node."""

    server: Server
    job: Job

    @property
    def name(self) -> str:
        return f"{self.server.role}-{self.server.index}"

    @property
    def bootstrap_port(self) -> int:
        return int(self.job.plan.values["disaggregation_bootstrap_port"])


def export_topology(format: str, topology: Topology, overrides: Sequence[str]) -> Artifact:
    """Exports all servers and the router. Raises ConfigError (EXP021) for formats of a single server."""
    writers: Mapping[str, Callable[[Topology, Sequence[str]], Artifact]] = {
        "compose": _compose,
        "k8s": _kubernetes,
        "slurm": _slurm,
    }
    if format not in writers:
        message = f"export {format} knows one server, and topology={topology.name} has {len(topology.servers)}"
        hint = "export compose, k8s or slurm", "one server at a time with topology=single and its own arguments"
        raise ConfigError(Finding("error", "EXP021", message, ("topology",), hint))
    return writers[format](topology, without_secrets(overrides, topology.common))


def members_of(topology: Topology) -> list[Member]:
    return [Member(server, job_of(_alone(server.plan), ())) for server in topology.servers]


def _alone(plan: Plan) -> Plan:
    """Returns the plan of a server that shares no machine with others."""
    intent = {name: value for name, value in plan.intent.items() if name not in _PLACING}
    values = {**plan.values, "base_gpu_id": 0, "gpu_id_step": 1, "nccl_port": None}
    return replace(plan, resolution=replace(plan.resolution, intent=intent, values=values))


def _compose(topology: Topology, overrides: Sequence[str]) -> Artifact:
    members = members_of(topology)
    require_container_vendor(members[0].job)
    several = topology.nodes > 1
    own_network = not fabric.is_rdma(members[0].job.fabric) and not several

    def host(member: Member) -> str:
        return f"{NODE}{member.server.nodes[0]}" if several else member.name if own_network else "127.0.0.1"

    job = members[0].job
    services: dict[str, object] = {}
    for member in members:
        own = _service_on_nodes(member) if several else compose.service(member.job, member.server.gpus, published=False)
        if not several and member.server.gpus and member.job.plan.gpu.vendor == "amd":
            # All servers get the devices; the runtime shows each one its own.
            own["environment"]["HIP_VISIBLE_DEVICES"] = ",".join(map(str, member.server.gpus))
        services[member.name] = own
    words = [located(word) for word in _router_words(topology, members, host)]
    services["router"] = _router_service(topology, [compose.in_command(job, word) for word in words], own_network)
    document = {"name": members[0].job.name, "services": services}
    reach = "The servers are reached by the router only." if own_network else "All share the host's network."
    lines = _header("compose", topology, job, overrides, reach, *_start_lines(topology))
    return Artifact(commented(lines) + yaml_text([document]), tuple(job.container_findings(alone=False)))


def _service_on_nodes(member: Member) -> JsonDict:
    """Returns the service of one server, or of a rank. Its profiles name the nodes that start it."""
    meeting = Variable(f"{NODE}{member.server.nodes[0]}", f":{member.server.head_port}")
    flags = member.job.flags(contained=True, meeting=meeting)
    own = compose.service(member.job, member.server.gpus, published=False, flags=flags, host_network=True)
    return {**own, "profiles": [f"node{node}" for node in member.server.nodes]}


def _start_lines(topology: Topology) -> list[str]:
    if topology.nodes == 1:
        return ["Start it with: docker compose -f THIS_FILE up"]
    ranks = {node: rank for server in topology.servers for rank, node in enumerate(server.nodes)}
    ranked = any(ranks.values())
    rows = [
        f"  on node {node}: {f'NODE_RANK={ranks[node]} ' * ranked}docker compose -f THIS_FILE --profile node{node} up"
        for node in sorted(ranks)
    ]
    given = " ".join(f"{NODE}{number}=ADDRESS" for number in sorted(ranks))
    first = "Compose knows one host. Start it on each node, with the addresses of all nodes in the environment:"
    return [first, f"  export {given}", *rows]


def located(word: str) -> Word:
    """Turns a URL with a node's address into a word with a variable."""
    found = _NODE_URL.fullmatch(word)
    return Variable(found[1], found[2], "http://") if found else word


def _router_service(topology: Topology, words: Sequence[str], own_network: bool) -> JsonDict:
    router = topology.router
    published = f"{router.port}:{router.port}"
    network = {"ports": [published if is_public(router.host) else f"127.0.0.1:{published}"]}
    names = [f"{server.role}-{server.index}" for server in topology.servers if server.nodes == (0,)]
    key = {KEY_VARIABLE: f"${{{KEY_VARIABLE}:?a secret, which is not written down here}}"}
    return manifest(
        "compose_router",
        image=ROUTER_IMAGE,
        command=list(words),
        network=network if own_network else {"network_mode": "host"},
        environment=key if is_keyed(topology) else None,
        servers={name: {"condition": "service_healthy"} for name in names} or None,
        profiles=["node0"] if topology.nodes > 1 else None,
    )


def _kubernetes(topology: Topology, overrides: Sequence[str]) -> Artifact:
    members = members_of(topology)
    first = members[0].job
    require_container_vendor(first)
    k8s.check_settings(first)
    roles: dict[str, list[Member]] = {}
    for member in members:
        roles.setdefault(member.server.role, []).append(member)
    documents = k8s.claim(first, shared=len(members) > 1)
    for role, servers in roles.items():
        documents += _stateful_set(role, servers)
    # All pods of a StatefulSet have the command of the role's first server.
    alike = [member._replace(job=roles[member.server.role][0].job) for member in members]
    documents += _router_deployment(topology, first, _router_words(topology, alike, _pod_host))
    reach = "The router is reached through the Service of the same name, its servers by the router."
    needs = [k8s.NEEDS_GROUPS + "."] if any(member.job.nodes > 1 for member in members) else []
    needs += [] if first.is_local_model else ["Needs a storage class that several nodes can write to."]
    lines = _header("k8s", topology, first, overrides, reach, *k8s.nodes_line(first), k8s.secret_line(first), *needs)
    return Artifact(commented(lines) + k8s.documents_text(first, documents), tuple(k8s.findings(first, alone=False)))


def _pod_host(member: Member) -> str:
    """Returns the DNS name of a pod in a StatefulSet: its own name, then its Service's."""
    name = _set_name(member.job, member.server.role)
    return f"{name}-{member.server.index}.{name}"


def _set_name(job: Job, role: str) -> str:
    return f"{job.name}-{role}"


def _stateful_set(role: str, servers: Sequence[Member]) -> list[JsonDict]:
    """Returns the equal servers of one role, each with a stable name."""
    job = servers[0].job
    name, labels = _set_name(job, role), {**k8s.labels(job), "role": role}
    metadata = {**k8s.metadata(job), "name": name, "labels": labels}
    if job.nodes > 1:
        return [k8s.leader_worker_set(job, k8s.pod_of(job), metadata, labels, labels, len(servers))]
    pod, ports = k8s.serving(job, k8s.pod_of(job)), [{"name": "bootstrap", "port": servers[0].bootstrap_port}]
    named = {"name": name, "labels": labels}
    return [
        manifest("stateful_set", **named, metadata=metadata, servers=len(servers), pod=pod),
        manifest("headless_service", **named, port=job.port, more_ports=ports if role == PREFILL else []),
    ]


def _router_deployment(topology: Topology, job: Job, words: Sequence[str]) -> list[JsonDict]:
    labels, port = {**k8s.labels(job), "role": "router"}, topology.router.port
    secret = [entry for entry in k8s.secret_env(job) if entry["name"] == KEY_VARIABLE]
    deployment = manifest(
        "router_deployment",
        name=f"{job.name}-router",
        labels=labels,
        image=ROUTER_IMAGE,
        command=[Block(kubernetes(word)) if "\n" in word else kubernetes(word) for word in words],
        env=secret if is_keyed(topology) else None,
        port=port,
        budget=max(math.ceil(topology.common.nodes.launch.ready_timeout / _ROUTER_EACH_S), 1),
    )
    return [deployment, manifest("service", name=job.name, labels=labels, selector=labels, port=port)]


def _router_words(topology: Topology, members: Sequence[Member], host: Callable[[Member], str]) -> list[str]:
    """Returns the command that installs the router's release and runs it with the servers' addresses."""
    release = release_of(topology)
    install = _INSTALL.format(package=PACKAGE, release=release)
    start = ["-c", key_program(MODULE)] if is_keyed(topology) else ["-m", MODULE]
    return ["sh", "-c", install, "router", "python3", *start, *router_flags(topology, members, host)]


def router_flags(topology: Topology, members: Sequence[Member], host: Callable[[Member], str]) -> list[str]:
    router = patient_router(topology)
    own = list(router.flags)
    own[own.index("--host") + 1] = "0.0.0.0"
    router = replace(router, flags=tuple(own))
    urls = [(member, f"http://{host(member)}:{member.job.port}") for member in members]
    if topology.name != PD:
        return router.argv([url for _, url in urls])
    prefill = [(url, member.bootstrap_port) for member, url in urls if member.server.role == PREFILL]
    return router.argv([url for member, url in urls if member.server.role == DECODE], prefill)


def patient_router(topology: Topology) -> Router:
    """Returns the router with a startup timeout as long as its servers may take."""
    router = topology.router
    if _STARTUP in router.settings or not flags()[_STARTUP].is_in(release_of(topology)):
        return router
    waits = (f"--{_STARTUP.replace('_', '-')}", str(math.ceil(topology.common.nodes.launch.ready_timeout)))
    return replace(router, flags=(*router.flags, *waits))


def release_of(topology: Topology) -> str:
    """Returns the router release that belongs to this SGLang, or the installed one if a setting needs it."""
    belongs = topology.router.belongs
    if belongs is not None and all(flags()[name].is_in(belongs) for name in topology.router.settings):
        return belongs
    return topology.router.release


def is_keyed(topology: Topology) -> bool:
    return bool(topology.common.secrets) and at_least(release_of(topology), FIRST_WITH_KEY)


def _header(format: str, topology: Topology, job: Job, overrides: Sequence[str], *more: str) -> list[str]:
    return [
        *first_lines(topology, job, format, overrides),
        "In their containers the servers and the router listen on every address (0.0.0.0).",
        f"The router is installed from the package index when its container ({ROUTER_IMAGE}) starts.",
        *more,
        *driver_lines(job.image),
        *(KEY_WHY if is_keyed(topology) else ()),
    ]


def first_lines(topology: Topology, job: Job, format: str, overrides: Sequence[str]) -> list[str]:
    """Returns the first lines of an artifact: its servers, its source, and the command that makes it again."""
    roles = [server.role for server in topology.servers]
    counted = " and ".join(f"{roles.count(role)} x {role}" for role in dict.fromkeys(roles))
    nodes = f" on {topology.nodes} nodes" if topology.nodes > 1 else ""
    remade = " ".join(map(typed, ["sglang-hydra", "export", format, *overrides]))
    return [
        f"SGLang {job.plan.engine.version} serving {job.plan.values['model_path']}: {counted} behind {PACKAGE} "
        f"{release_of(topology)}{nodes}, topology {topology.topology_id}",
        f"Written by sglang-hydra {VERSION}; once more: {remade}",
        f"{TITLE}: {made_for_all(topology)}",
        "",
    ]


_NODES = """
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address_of() {
  local found
  found=$(scontrol --oneliner show node "$1" | sed -n 's/.* NodeAddr=\\([^ ]*\\) .*/\\1/p' || true)
  echo "${found:-$1}"
}
"""
_END = """
# The first that ends, ends the job.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
"""


def _slurm(topology: Topology, overrides: Sequence[str]) -> Artifact:
    """Writes the script. Raises ConfigError for settings that Slurm would misread."""
    jobs = [job_of(server.plan, ()) for server in topology.servers]
    first = jobs[0]
    for job in jobs:
        check_settings(job)
    several = topology.nodes > 1
    needed = f"ROUTER_PYTHON names the interpreter that has {PACKAGE} {release_of(topology)}."
    steps = [_step(server, job, several) for server, job in zip(topology.servers, jobs, strict=True)]
    started = "".join([*steps, _router(topology, first)])
    parts = [
        beginning(
            first,
            sbatch_settings_of(topology),
            [*first_lines(topology, first, "slurm", overrides), SUBMIT, needed, *handed_over(first)],
        ),
        _NODES if several else "",
        "".join(
            f'{NODE}{number}=$(address_of "${{nodes[{number}]}}")\n'
            for number in range(topology.nodes * several)
            if re.search(rf"{NODE}{number}\b", started)
        ),
        _END,
        started,
        f'echo "the router is on $(hostname), port {topology.router.port}"\nwait -n\n',
    ]
    findings = {finding: None for job in jobs for finding in job.path_findings()}
    return Artifact("".join(parts), tuple(findings), executable=True)


def _step(server: Server, job: Job, several: bool) -> str:
    """Returns the step of one server, in the background. It shares its nodes with other steps."""
    count = len(server.nodes)
    words = ["--overlap", "--mem=0", f"--nodes={count}", f"--ntasks={count}"]
    if several:
        words.append('--nodelist="' + ",".join(f"${{nodes[{number}]}}" for number in server.nodes) + '"')
    meeting = Variable(str(server.address), f":{server.head_port}") if server.head_port is not None else None
    return f"\n# {server.name}\n{step(job, meeting, words)} &\n"


def _router(topology: Topology, job: Job) -> str:
    """Returns the router, in the background of the batch script; it waits for its servers itself."""
    own = topology.common.nodes.topology.router.python or job.plan.nodes.engine.python or "python3"
    keyed = is_keyed(topology)
    argv = replace(topology, router=patient_router(topology)).router_argv
    start: list[Word] = [Variable("router")]
    start += ["-c", Variable("router_program")] if keyed else ["-m", MODULE]
    return (
        "\n# The router, which waits for its servers\n"
        f"router=${{ROUTER_PYTHON:-{bash(own)}}}\n"
        + (define_program(job, "router_program", key_program(MODULE)) if keyed else "")
        + f"{' '.join(map(bash, start))} \\\n{bash_lines([located(word) for word in argv], '    ')} &\n"
    )
