"""Writes and reads an export's line on what it was made for: the GPU class, the release, the plan, a drawn seed, and
for several servers their number and the router.

It is a comment, in Kubernetes an annotation. A reader takes the file's flags; this line adds facts that no flag holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from sglang_hydra.compose.settings.topology import REPLICA, RouterNode

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan
    from sglang_hydra.planning.topology.servers import Topology

TITLE = "Made for"
ANNOTATION = "sglang-hydra/made-for"
_OF_A_TOPOLOGY = r"topology|replicas|host|port|topology\.(?:nodes|(?:prefill|decode)\.\w+|router\.(?!python)[\w.]+)"
_KEYS = re.compile(rf"gpu|gpu\.\w+|engine\.version|plan|seed|{_OF_A_TOPOLOGY}")
_LINE = re.compile(rf"(?:{TITLE}|{ANNOTATION}):\s*[\"']?((?:[a-z_.]+=[\w.+-]+ ?)+)")
_WORD = re.compile(r"[\w.+-]+")


def made_for(plan: Plan) -> str:
    """Returns ``gpu=h200 engine.version=0.5.23 plan=0123456789abcdef seed=drawn``, without unknown parts."""
    words: dict[str, object] = {"gpu": plan.choices.get("gpu")}
    if plan.probed:
        words |= {"gpu.count": plan.gpu.count, "gpu.memory_mib": plan.gpu.memory_mib}
    for key in plan.settings:
        if key.startswith("gpu."):
            words[key] = getattr(plan.nodes.gpu, key.partition(".")[2], None)
    words |= {"engine.version": plan.engine.version, "plan": plan.server_id}
    words["seed"] = "drawn" if plan.seed_drawn else None
    return _line(words)


def made_for_all(topology: Topology) -> str:
    """Returns the words for several servers, with their number and the router's settings."""
    node, router = topology.common.nodes.topology, topology.common.nodes.topology.router
    words: dict[str, object] = {"topology": topology.name, "host": topology.router.host, "port": topology.router.port}
    words["replicas"] = topology.common.nodes.replicas
    for role in dict.fromkeys(server.role for server in topology.servers):
        above = "topology" if role == REPLICA else f"topology.{role}"
        nodes = {number for server in topology.servers if server.role == role for number in server.nodes}
        words |= {f"{above}.nodes": len(nodes)} if topology.nodes > 1 else {}
        words |= {} if role == REPLICA else {f"{above}.replicas": getattr(node, role).replicas}
    asked = {**vars(router), **{f"args.{name}": value for name, value in router.args.items()}}
    defaults = {field.name: field.default for field in fields(RouterNode)}
    left_out = ("args", "python", "host", "port")
    words |= {
        f"topology.router.{name}": value
        for name, value in asked.items()
        if name not in left_out and value != defaults.get(name)
    }
    return f"{made_for(topology.servers[0].plan)} {_line(words)}"


def _line(words: Mapping[str, object]) -> str:
    return " ".join(
        f"{key}={value}" for key, value in words.items() if _WORD.fullmatch(str(value)) and value is not None
    )


def words_in(text: str) -> Mapping[str, str]:
    """Reads the known keys of the first such line; empty without one."""
    found = _LINE.search(text)
    pairs = (word.partition("=")[::2] for word in found[1].split()) if found is not None else ()
    return {key: value for key, value in pairs if _KEYS.fullmatch(key)}
