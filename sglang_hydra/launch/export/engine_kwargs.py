"""``export engine-kwargs``: the arguments of ``sglang.Engine`` as a JSON object, for programs that embed SGLang.

    engine = sglang.Engine(**json.load(open("kwargs.json")))

The engine takes what the server takes. It has no HTTP server: ``host`` and the API key mean nothing to it, and ``port``
only decides where its processes meet. It logs errors only unless ``log_level`` is set, and is to be made under
``if __name__ == "__main__":`` because its processes import the program again (SGLang 0.5.2: entrypoints/engine.py).
"""

from __future__ import annotations

from typing import Any

from sglang_hydra.findings import Finding
from sglang_hydra.launch.export.argv import as_json, unknown_head
from sglang_hydra.launch.export.job import Artifact, Job
from sglang_hydra.launch.nodes import node_intents
from sglang_hydra.plans import plain


def export(job: Job) -> Artifact:
    keywords = [plain(each) for each in keyword_arguments(job)]
    return Artifact(
        as_json(keywords[0] if job.nodes == 1 else keywords),
        (*unknown_head(job), *job.path_findings(), *_differences(job)),
    )


def keyword_arguments(job: Job) -> list[dict[str, Any]]:
    """The keyword arguments of each node, node 0 first, as the plan's release names them. ``host`` is left out: nothing
    listens there."""
    return [
        {name: value for name, value in _of_release(job, intent).items() if name != "host"}
        for intent in node_intents(job.intent, job.nodes)
    ]


def _of_release(job: Job, intent: dict[str, Any]) -> dict[str, Any]:
    from sglang_hydra.versions.translate import told_to

    return told_to(intent, job.plan.engine.version, job.plan.nodes["extra"])


def _differences(job: Job) -> list[Finding]:
    said = []
    if job.intent.get("log_level") is None:
        message = "sglang.Engine logs errors only, where a server logs at info"
        said.append(Finding("info", "EXP008", message, ("log_level",), "log_level=info"))
    if job.environment():
        names = ", ".join(job.environment())
        message = f"the plan also sets {names}, which must be set before sglang is imported"
        said.append(Finding("info", "EXP009", message, ("engine.env",), "export shell has the values"))
    if job.has_key:
        said.append(Finding("info", "EXP007", "sglang.Engine serves no HTTP and takes no API key", ("api_key",)))
    return said
