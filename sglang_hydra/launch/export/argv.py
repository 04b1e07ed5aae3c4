"""``export argv``: SGLang's own flags as a JSON list, for programs that start it themselves.

JSON, because every other way to separate arguments is an argument's own content somewhere: spaces, and also line ends
can be in a name. Each argument still has a line of its own.
"""

from __future__ import annotations

import json
from typing import Any

from sglang_hydra.findings import Finding
from sglang_hydra.launch.export.job import Artifact, Job, flags_of
from sglang_hydra.launch.nodes import UNKNOWN_HEAD, node_intents


def export(job: Job) -> Artifact:
    lists = argument_lists(job)
    return Artifact(
        as_json(lists[0] if job.nodes == 1 else lists), (*unknown_head(job), *job.path_findings(), *_without_key(job))
    )


def argument_lists(job: Job) -> list[list[str]]:
    """The flags of each node, node 0 first."""
    return [flags_of(job.plan, intent) for intent in node_intents(job.intent, job.nodes)]


def unknown_head(job: Job) -> list[Finding]:
    """What is said of data that needs the address of node 0: it cannot ask for it when it is used."""
    if not job.needs_head:
        return []
    message = f"{UNKNOWN_HEAD} stands for the address of node 0, which the plan does not name"
    return [Finding("warning", "EXP005", message, ("dist_init_addr",), "dist_init_addr=10.0.0.1:20000")]


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _without_key(job: Job) -> list[Finding]:
    if not job.has_key:
        return []
    message = "the API key is not written down: whoever starts SGLang adds --api-key to these flags"
    return [Finding("info", "EXP007", message, ("api_key",))]
