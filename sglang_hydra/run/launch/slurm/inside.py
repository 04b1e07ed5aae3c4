"""Runs inside the job: finds the head's address, starts one rank per node with srun, and watches them.

The batch process runs on the job's first node, where rank 0 serves. It treats srun as the server's process, so the rest
is the same as on one machine (``launch.local``): milestones, /health, stop, diagnosis."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from sglang_hydra.arguments.secrets import HIDDEN
from sglang_hydra.planning.engines.base import Command, EngineRequest
from sglang_hydra.planning.engines.planned import engines
from sglang_hydra.planning.passing.nodes import Head, node_intents
from sglang_hydra.run.launch.display import Display
from sglang_hydra.run.launch.head import free_port_block, own_address
from sglang_hydra.run.launch.listening import Owner
from sglang_hydra.run.launch.local import Launch, LocalServer, Outcome
from sglang_hydra.run.launch.local import serve as run_server
from sglang_hydra.run.launch.slurm.record import ENDED, READY, Account, Record, Secrets, take_secrets
from sglang_hydra.run.launch.slurm.states import ask_slurm
from sglang_hydra.run.launch.slurm.submit import ORIGINAL_PYTHONPATH
from sglang_hydra.text.errors import MachineError, SglangHydraError
from sglang_hydra.text.exit_codes import INTERRUPTED
from sglang_hydra.text.findings import Finding

_LOOPBACK = ("127.", "::1")


class Node(NamedTuple):
    """A node of Slurm: its name, the address that Slurm uses, and the machine's own name."""

    name: str
    address: str
    machine: str


def nodes_of_job(environ: Mapping[str, str] = os.environ, needed: int = 1) -> list[Node]:
    """Returns this job's nodes in rank order. Raises MachineError outside a job, and for fewer nodes than
    ``needed``."""
    listed = environ.get("SLURM_JOB_NODELIST")
    answer = ask_slurm("scontrol", "show", "hostnames", listed) if listed else None
    if answer is None:
        message = "this is not a Slurm job: it has no list of nodes"
        raise MachineError(Finding("error", "SLM005", message, ("launch",), "launch=slurm starts it inside of one"))
    names = answer.split()
    if len(names) < needed:
        message = f"{needed} nodes are needed, and this job has {len(names)}"
        raise MachineError(Finding("error", "SLM005", message, ("nnodes",), f"sbatch --nodes={needed}"))
    rows = ask_slurm("scontrol", "--oneliner", "show", "node", str(listed)) or ""
    nodes = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in rows.splitlines()]
    known = {node.get("NodeName"): node for node in nodes}
    found = ((name, known.get(name, {})) for name in names)
    return [Node(name, node.get("NodeAddr", name), node.get("NodeHostName", name)) for name, node in found]


def head_on(nodes: Sequence[Node], ports: int, http_port: int, wanted: int | None = None) -> Head:
    """Returns this node's address for the others: the one on its route to the second node, with free ports here or the
    port ``wanted``. Raises MachineError if only the loopback address exists and the others are other machines."""
    host = own_address(nodes[1].address)
    others = {node.machine for node in nodes[1:]} - {nodes[0].machine}
    if host.startswith(_LOOPBACK) and others:
        host = own_address()
    if host.startswith(_LOOPBACK) and others:
        message = f"node {nodes[0].name} has no address that {nodes[1].name} ({nodes[1].address}) could reach"
        hint = "dist_init_addr=HOST:PORT with launch.slurm.sbatch.nodelist=..., or ask who runs the cluster"
        raise MachineError(Finding("error", "SLM006", message, ("dist_init_addr",), hint))
    return Head(host, wanted or free_port_block(ports, [http_port] if http_port else []))


def addresses_of(nodes: Sequence[Node]) -> list[str]:
    """Returns an address of each node by which the others reach it; this machine is the first. Raises MachineError for
    a name that does not resolve."""
    if len(nodes) == 1:
        return ["127.0.0.1"]
    own = own_address(nodes[1].address)
    try:
        return [own, *(socket.gethostbyname(node.address) for node in nodes[1:])]
    except OSError as failure:
        message = f"the nodes {', '.join(node.name for node in nodes)} have names without an address: {failure}"
        raise MachineError(Finding("error", "SLM006", message, ("launch.slurm",), "ask who runs the cluster")) from None


def follower_ports(nodes: Sequence[Node], port: int) -> list[int]:
    """Returns the HTTP port of every rank except the first. It answers only health checks, and differs from other
    ranks' ports on the same machine."""
    taken: dict[str, list[int]] = {nodes[0].machine: [port]}
    ports = []
    for node in nodes[1:]:
        here = taken.setdefault(node.machine, [])
        ports.append(free_port_block(1, here) if here else port)
        here.append(ports[-1])
    return ports


PROGRAMS = Path(__file__).parents[1]
"""The folder of the programs that run on the nodes; a container must see it."""

PORT_OWNER = "sglang_hydra_port_owner"
"""The key in the server's report that holds the owner of its port."""
BESIDE_OTHERS = ("--overlap", "--mem=0")
"""Words for srun that let a step share its nodes and memory with the job's other steps."""
ORDERS_NAME, LOG_NAME, INFO_NAME = "ranks.json", "server.log", "server_info.json"
# Beyond their own deadline, for the ranks' guards to collect dead processes and for srun to notice.
_SRUN_EXTRA_S = 12.0
_WRITE_EVERY_S = 1.0
_MOST_NOTES = 100


@dataclass(frozen=True)
class ServerSpec:
    """One server of a job. It contains no secret and can be pickled.

    ``request`` goes to the engine of that name and version; its intent has neither key nor node_rank. ``head_ports`` is
    the number of consecutive ports that node 0 needs (``Layout.head_ports``), ``head_port`` the first one if set.
    ``srun`` are further words for srun, ``container`` the words before a rank's own, ``python`` the interpreter inside
    that container. ``folder`` is the run folder for the log, the orders and the job's account; ``secrets`` is the file
    with the secrets."""

    engine: str
    version: str
    request: EngineRequest
    folder: Path
    nnodes: int = 1
    head_ports: int = 1
    head_port: int | None = None
    ready_timeout_s: float = 1800.0
    stop_timeout_s: float = 12.0
    srun: Sequence[str] = ()
    container: Sequence[str] = ()
    python: str | None = None
    secrets: Path | None = None


def serve_in_job(spec: ServerSpec) -> None:
    """Runs the server until its end and keeps its account; ``launch=slurm`` submits this function. Exits with the
    server's code."""

    def run(record: Record) -> Outcome:
        def ready(server: LocalServer, seconds: float) -> None:
            leave_info(spec, server.launch, server.owner)
            mark_ready(record, seconds)

        return run_server(prepared(spec, record), JobDisplay(record), on_ready=ready)

    in_account(spec.folder, run)


def in_account(folder: Path, run: Callable[[Record], Outcome]) -> None:
    """Runs servers, records how they end, and exits with their code (130 at SIGTERM). Slurm then records FAILED;
    submitit would treat an exception as its own crash."""
    _leave_our_path()
    record = Record(folder, Account(os.environ.get("SLURM_JOB_ID", "")))
    code, findings = 1, tuple[Finding, ...]()
    try:
        with _ended_by_signals():
            code, findings, *_ = run(record)
    except SglangHydraError as failure:
        code, findings = failure.exit_code, tuple(failure.findings)
    except SystemExit:
        code = INTERRUPTED
    finally:
        record.update(phase=ENDED, exit_code=code, findings=findings)
    if code:
        sys.exit(code)


def prepared(spec: ServerSpec, record: Record) -> Launch:
    """Returns the launch of all ranks through one srun; builds their commands here, where the nodes are known.

    Raises MachineError if the head has no usable address."""
    secrets = take_secrets(spec.secrets)
    nodes = nodes_of_job(needed=spec.nnodes)
    address = spec.request.intent.get("dist_init_addr")
    head = None
    if spec.nnodes > 1 and not address:
        head = head_on(nodes, spec.head_ports, spec.request.port, spec.head_port)
        address = head.address
    port = spec.request.port or free_port_block(1)
    ports = [port, *follower_ports(nodes, port)] if spec.nnodes > 1 else [port]
    names, reached = [node.name for node in nodes], head.host if head else own_address()
    place = {"address": reached, "dist_init_addr": address, "host": spec.request.host, "port": port}
    record.update(nodes=names, node=names[0], **place)
    return launch_of_ranks(spec, ports, address, secrets)


def launch_of_ranks(spec: ServerSpec, ports: Sequence[int], head: str | None, secrets: Secrets) -> Launch:
    """Writes the orders of all ranks and returns their launch. ``ports`` holds the HTTP port of each, ``head`` the
    rendezvous address."""
    orders = spec.folder / ORDERS_NAME
    commands = rank_commands(spec, ports, head)
    orders.write_text(json.dumps(orders_of(spec, commands), indent=2) + "\n", encoding="utf-8")
    engine = engines()[spec.engine]
    return Launch(
        command=srun_command(spec, orders, secrets),
        host=spec.request.host,
        port=ports[0],
        health_path=engine.health_path,
        health_timeout_s=engine.health_timeout_s,
        ready_timeout_s=spec.ready_timeout_s,
        stop_timeout_s=spec.stop_timeout_s + _SRUN_EXTRA_S,
        milestones=engine.milestones,
        log_file=spec.folder / LOG_NAME,
        job=os.environ.get("SLURM_JOB_ID", ""),
    )


def rank_commands(spec: ServerSpec, ports: Sequence[int], head: str | None) -> list[list[str]]:
    """Returns each rank's command line, rank 0 first, without secrets. ``ports`` holds the HTTP port of each."""
    intents = zip(node_intents(spec.request.intent, spec.nnodes, head), ports, strict=True)
    asked = (replace(spec.request, intent={**intent, "port": port}, port=port) for intent, port in intents)
    commands = [list(engines()[spec.engine].command(request).argv) for request in asked]
    return [[spec.python or argv[0], *argv[1:]] for argv in commands]


def orders_of(spec: ServerSpec, commands: Sequence[Sequence[str]]) -> dict[str, object]:
    """Returns the orders of ``child_rank.py`` on every node, without the secrets that ``child_srun.py`` adds."""
    environment = {"PYTHONUNBUFFERED": "1", **spec.request.env}
    own = os.path.dirname(commands[0][0])
    if own and not spec.python:
        # Lets the engine find the tools of its environment (such as ninja).
        environment.setdefault("PATH", f"{own}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    return {"commands": [list(command) for command in commands], "env": environment, "stop_s": spec.stop_timeout_s}


def srun_command(spec: ServerSpec, orders: Path, secrets: Secrets) -> Command:
    """Returns the command that runs the whole server in this process: srun with every rank and its orders."""
    count = spec.nnodes
    srun = ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--input=all", "--export=ALL"]
    # A rank without the others serves nobody and holds their GPUs.
    srun += ["--mpi=none", "--kill-on-bad-exit=1", f"--wait={int(spec.stop_timeout_s + _SRUN_EXTRA_S)}"]
    srun += [*(["--label"] if count > 1 else []), *spec.srun]
    rank = [*spec.container, spec.python or sys.executable, str(PROGRAMS / "child_rank.py")]
    relay = [sys.executable, "-I", "-S", str(PROGRAMS / "child_srun.py"), str(orders), ",".join(sorted(secrets.env))]
    return Command(argv=[*relay, *srun, *rank], shown=[*srun, *rank], env=dict(secrets.env), secret=secrets.key)


class JobDisplay(Display):
    """A launcher's display inside a job: writes the progress to the job's account, which the terminal reads. Lines go
    to the log."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._written_at = 0.0

    def waiting(self, elapsed_s: float, milestone: str) -> None:
        if time.monotonic() - self._written_at >= _WRITE_EVERY_S:
            self._written_at = time.monotonic()
            self._record.update(elapsed_s=round(elapsed_s, 1), milestone=milestone)

    def note(self, text: str) -> None:
        self._record.update(notes=[*self._record.account.notes, text][-_MOST_NOTES:])


def mark_ready(record: Record, seconds: float) -> None:
    record.update(phase=READY, elapsed_s=round(seconds, 1), milestone="answering")


def leave_info(spec: ServerSpec, launch: Launch, owner: Owner | None) -> None:
    """Writes the server's report of its arguments and the owner of its port, to compare them with the plan. Asks here,
    because only the job reaches the server."""
    from sglang_hydra.run.launch.server_info import NoServerInfo, read_server_info

    if spec.engine != "sglang":
        return
    key = launch.command.secret
    try:
        info = dict(read_server_info(launch.host, launch.port, key, spec.version))
    except (NoServerInfo, OSError, ValueError) as failure:
        info = {"problem": str(failure)}
    content = json.dumps({**info, PORT_OWNER: list(owner or ())})
    if key:
        content = content.replace(json.dumps(key)[1:-1], HIDDEN)
    (spec.folder / INFO_NAME).write_text(content + "\n", encoding="utf-8")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Lets SIGTERM, which submitit ignores, end us while the server's own handlers are not installed."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(INTERRUPTED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave_our_path() -> None:
    """Removes this package's folder from PYTHONPATH for the server, which has its own environment."""
    original = os.environ.pop(ORIGINAL_PYTHONPATH, None)
    if original:
        os.environ["PYTHONPATH"] = original
    elif original is not None:
        os.environ.pop("PYTHONPATH", None)
