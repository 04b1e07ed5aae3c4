"""Shows imported servers to people and programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sglang_hydra.arguments.secrets import masked
from sglang_hydra.convert.importing.experiment import command_line, experiment_yaml
from sglang_hydra.convert.importing.importer import Imported
from sglang_hydra.convert.importing.launches import without_marks
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, json_beside, plain
from sglang_hydra.text.screen import Line, shown, text
from sglang_hydra.text.words import plural

SCHEMA = "sglang_hydra.import/1"
_KINDS = json_beside(__file__)
"""The kinds of sources, in words."""


def yaml_of(server: Imported) -> str:
    """Returns the experiment, with the fate of the source's arguments as remarks."""
    remarks = {
        state.name: f"{state.state}: {state.note}" if state.note else state.state
        for state in server.states
        if state.state in ("overridden", "deprecated", "undone") or (state.state == "kept" and state.note)
    }
    return experiment_yaml(
        server.choices, server.overrides, server.nodes, remarks=remarks, heading=list(_heading(server))
    )


def _heading(server: Imported) -> Iterator[str]:
    name = f" {server.name}" if server.name else ""
    where = f" ({server.place})" if server.place else ""
    yield f"Imported{name} from {_KINDS.get(server.kind, server.kind)}{where}"
    yield f"As a command: {command_line(server.choices, server.overrides, server.nodes)}"
    if states := [state for state in server.states if state.state == "open"]:
        yield "Left out, not known:"
        yield from (f"  {state.name}={shown(masked(state.name, state.value))}" for state in states)
    unknown = [state.name for state in server.states if state.state == "unknown"]
    if unknown:
        yield f"Left out, SGLang would not read it: {', '.join(unknown)}"


def summary(server: Imported) -> Line:
    """Returns one line: the number of overrides and arguments, and whether the server is the same."""
    name = f"{server.name}: " if server.name else ""
    total = len(server.arguments) + len(server.extra)
    kept = len(server.overrides) + len(server.extra)
    lost = [item.name for item in server.differences if not item.harmless]
    if lost or not server.taken_over:
        named = f": {', '.join(lost[:4])}{', ...' if len(lost) > 4 else ''}" if lost else ""
        same = f"not complete{named}"
    elif server.refused:
        same = "complete, and not launchable"
    elif server.kind == "vllm":
        same = "translated from vLLM's command"
    elif server.server_id is not None and server.equal:
        same = f"the same server, {server.server_id}"
    elif server.equal:
        same = "the same server on every GPU class"
    else:
        same = "not the same server"
    chosen = " ".join(f"{group}={option}" for group, option in server.choices.items()) or "no preset"
    message = f"{chosen}, {plural(kept, 'override')} of {plural(total, 'argument')}: {same}"
    return [text(name, "bold"), text(message, "" if server.complete else "yellow")]


def record(source: str, servers: Sequence[Imported]) -> JsonDict:
    """Returns the record of ``--json``."""
    servers_found = [_server_record(server) for server in servers]
    made = json.loads(without_marks(json.dumps(servers_found, ensure_ascii=False)))
    return {"schema": SCHEMA, "source": source, "servers": made}


def _server_record(server: Imported) -> JsonDict:
    return {
        "name": server.name,
        "kind": server.kind,
        "place": server.place,
        "complete": server.complete,
        "equal": server.equal,
        "comparison": {"held": server.held, "differences": [plain(item._asdict()) for item in server.differences]},
        "server_id": server.server_id,
        "version": server.version,
        "fits": None if server.fits is None else list(server.fits),
        "choices": dict(server.choices),
        "overrides": plain(server.overrides),
        "nodes": plain(server.nodes),
        "arguments": [{**plain(state), "value": plain(masked(state.name, state.value))} for state in server.states],
        "argv": None if server.argv is None else list(server.argv),
        "command": command_line(server.choices, server.overrides, server.nodes),
        "yaml": yaml_of(server),
        "findings": [finding.to_json() for finding in server.findings],
    }


def shown_findings(servers: Sequence[Imported]) -> list[Finding]:
    """Returns all findings, each with the server's name if there are several."""
    return [
        replace(finding, message=f"{server.name}: {finding.message}") if len(servers) > 1 else finding
        for server in servers
        for finding in server.findings
    ]
