"""Writes ``export argv``: SGLang's flags as a JSON list, for programs that start it themselves.

Uses JSON because any separator may occur inside an argument: spaces, and even line ends in names. Each argument still
has its own line."""

from __future__ import annotations

import json

from sglang_hydra.convert.export.job import Artifact, Job
from sglang_hydra.planning.passing import nodes
from sglang_hydra.planning.passing.passed import flags_of_nodes
from sglang_hydra.text.findings import Finding


def export(job: Job) -> Artifact:
    lists = flags_of_nodes(job.plan)
    return Artifact(
        as_json(lists[0] if job.nodes == 1 else lists), (*unknown_head(job), *job.path_findings(), *_without_key(job))
    )


def unknown_head(job: Job) -> list[Finding]:
    """Returns a warning if the data needs node 0's address: data cannot ask for it at run time."""
    if not job.needs_head:
        return []
    message = f"{nodes.unknown_head(job.plan)} is a placeholder for the address of node 0, which the plan does not name"
    return [Finding("warning", "EXP005", message, ("dist_init_addr",), "dist_init_addr=10.0.0.1:20000")]


def as_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _without_key(job: Job) -> list[Finding]:
    if not job.has_key:
        return []
    message = "the API key is not written down: whoever starts SGLang adds --api-key to these flags"
    return [Finding("info", "EXP007", message, ("api_key",))]
