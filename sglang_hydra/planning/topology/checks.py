"""Checks what the servers of a topology must agree on and must not share. Each check is one small function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sglang_hydra.arguments.layout import Layout
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.compose.settings.topology import DECODE, PD, PREFILL
from sglang_hydra.planning.topology.placement import LAST_PORT, PortUse, gpu_offsets
from sglang_hydra.planning.topology.roles import role_key
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import plural

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan
    from sglang_hydra.planning.topology.router import Router
    from sglang_hydra.planning.topology.servers import Server

ROUND_ROBIN = "round_robin"


def together(name: str, servers: Sequence[Server], router: Router, common: Plan) -> list[Finding]:
    """Returns the errors of the servers as a whole."""
    findings = [
        *_enough_gpus(servers, common),
        *_disjoint_gpus(servers),
        *_disjoint_ports(servers, router),
        *_events_apart(servers),
        *_two_to_draw_from(servers, router),
    ]
    if common.engine.name != "sglang":
        message = f"engine={common.engine.name}: a topology is made of SGLang servers"
        hint = "engine=sglang engine.python=<an interpreter that has it>"
        findings.insert(0, Finding("error", "TOP019", message, ("engine",), hint))
    if name == PD:
        kinds = {server.role: server.plan for server in reversed(servers)}
        prefill, decode = kinds[PREFILL], kinds[DECODE]
        findings += _tp(prefill.layout, decode.layout)
        findings += _equal_values(prefill.values, decode.values)
        if not at_least(common.engine.version, _FIRST_TO_FOLLOW):
            findings += _round_robin(prefill, decode)
        findings += _decode_pipeline(prefill.layout, decode.layout, common.engine.version)
        findings += _windows(servers, common)
    return findings


def _enough_gpus(servers: Sequence[Server], common: Plan) -> Iterator[Finding]:
    count = common.gpu.count
    used = {gpu for server in servers for gpu in server.gpus}
    if count is None or not used or max(used) < count:
        return
    beyond = [f"{server.name} takes {numbers(server.gpus)}" for server in servers if max(server.gpus) >= count]
    needed = ", ".join(beyond[:3]) + (f" and {len(beyond) - 3} more" if len(beyond) > 3 else "")
    total = sum(len(server.gpus) for server in servers)
    roles = dict.fromkeys(server.role for server in servers)
    fields = [f"topology.{role}.replicas" if role != "replica" else "replicas" for role in roles]
    each = len(gpu_offsets(common))
    hints = [f"gpu.count={max(used) + 1} if the node has as many"]
    if servers[0].role == "replica" and each and count // each:
        hints.insert(0, f"replicas={count // each}")
    hints += _enough_nodes(servers, count)
    need = f"{plural(len(servers), 'server')} need {plural(total, 'GPU')}"
    message = f"{need}, and {common.gpu.name} has {count}: {needed}"
    yield Finding("error", "TOP004", message, (*fields, "tp_size"), hints)


def _enough_nodes(servers: Sequence[Server], count: int) -> Iterator[str]:
    """Yields the numbers of nodes on which the one-node servers of each role fit."""
    sizes = {server.role: len(server.gpus) for server in servers}
    if any(server.nodes != (0,) for server in servers) or max(sizes.values()) > count:
        return
    counted = Counter(server.role for server in servers)
    nodes = {role: -(-counted[role] // (count // size)) for role, size in sizes.items() if size}
    keys = {"replica": "topology.nodes"}
    yield " ".join(f"{keys.get(role, f'topology.{role}.nodes')}={number}" for role, number in nodes.items())


def _disjoint_gpus(servers: Sequence[Server]) -> Iterator[Finding]:
    for position, server in enumerate(servers):
        for other in servers[:position]:
            shared = sorted(set(server.gpus) & set(other.gpus)) if set(server.nodes) & set(other.nodes) else []
            if shared:
                message = f"{other.name} and {server.name} both take GPU {numbers(shared)}"
                hint = f"leave {_key(server, 'base_gpu_id')} out: each server then gets GPUs of its own"
                yield Finding("error", "TOP005", message, (_key(server, "base_gpu_id"),), hint)


def _disjoint_ports(servers: Sequence[Server], router: Router) -> Iterator[Finding]:
    """Yields a port that is used twice, and an invalid port of the router."""
    takers: list[tuple[str, PortUse, str]] = []
    own = [("HTTP", router.port, "topology.router.port")]
    if router.prometheus_port is not None:
        own.append(("metrics", router.prometheus_port, "topology.router.prometheus_port"))
    for what, port, key in own:
        if not (0 if what == "HTTP" else 1) <= port <= LAST_PORT:
            message = f"the router cannot listen on port {port}: ports go up to {LAST_PORT}"
            yield Finding("error", "TOP006", message, (key,), f"{key}=30000")
        else:
            takers.append(("router", PortUse(what, range(port, port + 1)), key))
    keys = {"bootstrap": "disaggregation_bootstrap_port", "NCCL": "nccl_port", "rendezvous": "dist_init_addr"}
    for server in servers:
        takers += [(server.name, use, _key(server, keys.get(use.what, "port"))) for use in server.ports]
    for position, (name, use, key) in enumerate(takers):
        for other, theirs, _ in takers[:position]:
            shared = range(max(use.ports[0], theirs.ports[0]), min(use.ports[-1], theirs.ports[-1]) + 1)
            if shared:
                message = f"port {shared[0]} is taken twice: {other} ({theirs.what}) and {name} ({use.what})"
                hint = f"leave {key} out: each server then gets ports of its own"
                yield Finding("error", "TOP006", message, (key,), hint)


def _events_apart(servers: Sequence[Server]) -> Iterator[Finding]:
    """Yields the finding on servers with the same address for KV events, which is in the argument itself."""
    first: dict[str, str] = {}
    for server in servers:
        config = server.plan.values["kv_events_config"]
        if isinstance(config, str) and "tcp://" in config:
            other = first.setdefault(config, server.name)
            if other != server.name:
                message = f"{other} and {server.name} publish their KV events at the same address: {config}"
                yield Finding(
                    "error", "TOP006", message, ("kv_events_config",), "name an address for each role, or none"
                )
                return


def _two_to_draw_from(servers: Sequence[Server], router: Router) -> Iterator[Finding]:
    """Yields the finding on power_of_two, which the router refuses for fewer than two servers (0.1.9 to 0.3.2)."""
    roles = [server.role for server in servers]
    for role in dict.fromkeys(roles):
        name = "policy" if role == "replica" else f"{role}_policy"
        if router.settings.get(name) == "power_of_two" and roles.count(role) < 2:
            key = f"topology.router.{name}"
            message = f"{key}=power_of_two chooses between two servers, and there is one"
            yield Finding("error", "TOP013", message, (key,), f"{key}=round_robin")


def _tp(prefill: Layout, decode: Layout) -> Iterator[Finding]:
    """Yields the finding on attention ranks: those of one side must be a multiple of the other's
    (disaggregation/mooncake/conn.py, 0.5.2, lines 1264-1325); tp_size alone is DIS008."""
    shares = [prefill.attention, decode.attention]
    if not (prefill.possible and decode.possible) or max(prefill.tp, decode.tp) % min(prefill.tp, decode.tp):
        return
    if max(shares) % min(shares):
        message = (
            f"attention is split over {plural(shares[0], 'rank')} of a prefill server and {shares[1]} of a decode "
            "server (tp_size / dp_size): one must be a multiple of the other"
        )
        fields = ("topology.decode.args.dp_size", "topology.prefill.args.dp_size")
        yield Finding("error", "TOP007", message, fields, "set the same tp_size and dp_size for both")


# disaggregation/nixl/conn.py and mooncake/conn.py of 0.5.9 to 0.5.23: the first and the last release whose transfer of
# a sliding window's pool fails for different numbers of ranks (llm-d issue 2433: 0.5.16).
_EQUAL_RANKS_FOR_WINDOWS = {"nixl": ("0.5.9", "0.5.23"), "mooncake": ("0.5.9", "0.5.21")}


def _windows(servers: Sequence[Server], common: Plan) -> Iterator[Finding]:
    """Yields the finding on windows: a sliding window's KV pool is not sent between servers with another split of
    attention, and requests then wait forever."""
    plans = {server.role: server.plan for server in reversed(servers)}
    prefill, decode = plans[PREFILL], plans[DECODE]
    backend, release = prefill.values["disaggregation_transfer_backend"], common.engine.version
    first, last = _EQUAL_RANKS_FOR_WINDOWS.get(str(backend), ("", ""))
    cache = prefill.fit.kv if prefill.fit is not None else None
    kinds = {kind.kind for kind in cache.kinds} if cache is not None else set()
    held = prefill.values if prefill.is_exact else prefill.intent  # an estimate has 0.5.2's value
    pooled = "sliding window" in kinds and "latent" not in kinds and not held.get("disable_hybrid_swa_memory")
    shares = [plan.layout.attention for plan in (prefill, decode)]
    if not (first and pooled and at_least(release, first) and at_least(last, release)) or shares[0] == shares[1]:
        return
    message = (
        f"attention is split over {plural(shares[0], 'rank')} of a prefill server and {shares[1]} of a decode server, "
        f"and {backend} of SGLang {release} sends the KV cache of a sliding window between equal splits only"
    )
    fields = ("topology.decode.args.tp_size", "topology.prefill.args.tp_size")
    yield Finding("error", "TOP023", message, fields, "set the same tp_size and dp_size for both")


# The first release whose decode servers may have the stages of the prefill servers (disaggregation/common/conn.py of
# 0.5.7: lines 166 and 182; 0.5.10 and later assert it, line 312 there). Before: disaggregation/decode.py of 0.5.2,
# lines 194-195.
_FIRST_WITH_DECODE_STAGES = "0.5.7"


def _decode_pipeline(prefill: Layout, decode: Layout, release: str) -> Iterator[Finding]:
    """Yields the finding on pipeline stages: decode servers receive the KV cache in one stage, or in as many as the
    prefill servers have."""
    equal = at_least(release, _FIRST_WITH_DECODE_STAGES)
    if decode.stages <= 1 or (equal and decode.stages == prefill.stages):
        return
    key = "topology.decode.args.pp_size"
    allowed = f"in one stage or in the {prefill.stages} of a prefill server" if equal else "in one stage"
    message = f"decode servers with pp_size={decode.stages}: SGLang {release} receives the KV cache {allowed}"
    sizes = (1, prefill.stages) if equal and prefill.stages > 1 else (1,)
    yield Finding("error", "TOP008", message, (key,), [f"{key}={size}" for size in sizes])


def _equal_values(prefill: Mapping[str, object], decode: Mapping[str, object]) -> Iterator[Finding]:
    """Yields findings on values that both roles must share. Pages are copied unchanged, so their size in tokens and
    bytes must be equal; a KV cache belongs to one model with one draft."""
    name = "disaggregation_transfer_backend"
    if prefill[name] != decode[name]:
        message = f"prefill servers send with {prefill[name]}, and decode servers receive with {decode[name]}"
        yield Finding("error", "TOP009", message, (role_key(DECODE, name),), f"{name}={prefill[name]} for both")
    of_model = ["dtype"] if prefill["kv_cache_dtype"] == decode["kv_cache_dtype"] == "auto" else []
    pages = ("page_size", "kv_cache_dtype", *of_model)
    for name in (*pages, "model_path", "speculative_algorithm", "speculative_draft_model_path"):
        if prefill[name] == decode[name]:
            continue
        key, message = role_key(DECODE, name), f"{name} is {prefill[name]} on prefill servers and {decode[name]} on"
        if name in pages:
            message += " decode servers: the KV cache of one cannot be read by the other"
            yield Finding("error", "TOP010", message, (key, role_key(PREFILL, name)), f"{key}={prefill[name]}")
        else:
            yield Finding("warning", "TOP012", f"{message} decode servers", (key,), f"the same {name} for both")


# From this release on a prefill server's "auto" pairs the ranks, and decode servers ask for the rank of a request.
_FIRST_TO_FOLLOW = "0.5.8"


def _round_robin(prefill: Plan, decode: Plan) -> Iterator[Finding]:
    """Yields the finding on load balancing: both sides derive a request's data parallel rank from its number, which
    only round_robin supports (data_parallel_controller.py, 0.5.2, lines 282-293; server_args.py, lines 821-826)."""
    method, name = prefill.values["load_balance_method"], "load_balance_method"
    size = max(prefill.layout.replicas, decode.layout.replicas)
    if method == ROUND_ROBIN or size <= 1:
        return
    whose = "prefill" if prefill.layout.replicas > 1 else "decode"
    message = (
        f"{whose} servers have {size} data parallel ranks, and the prefill servers share requests out by {method}: "
        f"their ranks find each other only with {ROUND_ROBIN}"
    )
    key = role_key(PREFILL, name)
    yield Finding("error", "TOP011", message, (key,), f"{key}={ROUND_ROBIN}")


def _key(server: Server, name: str) -> str:
    return name if server.role == "replica" else role_key(server.role, name)


def numbers(gpus: Sequence[int]) -> str:
    """Formats GPU numbers: ``0-3`` or ``0,2,4``."""
    if len(gpus) > 2 and gpus[-1] - gpus[0] == len(gpus) - 1:
        return f"{gpus[0]}-{gpus[-1]}"
    return ",".join(map(str, gpus))
