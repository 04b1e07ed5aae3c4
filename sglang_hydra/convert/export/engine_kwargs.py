"""Writes ``export argv``, SGLang's flags as a JSON list for programs that start it themselves, and ``export
engine-kwargs``, the arguments of ``sglang.Engine`` as a JSON object for programs that embed it.

A list is JSON because any separator may occur inside an argument: spaces, and even line ends in names.

    engine = sglang.Engine(**json.load(open("kwargs.json")))

The engine takes the server's arguments. It has no HTTP server: it ignores ``host`` and the API key, and ``port`` only
sets the ports of its processes. It logs only errors unless ``log_level`` is set. Create it under ``if __name__ ==
"__main__":``, because its processes import the program again (SGLang 0.5.2: entrypoints/engine.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sglang_hydra.convert.export.job import Artifact, Job
from sglang_hydra.planning.making.make import plan
from sglang_hydra.planning.passing import nodes
from sglang_hydra.planning.passing.passed import flags_of_nodes, keyword_arguments
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, plain


def export_argv(job: Job) -> Artifact:
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


def export(job: Job) -> Artifact:
    keywords = [plain(each) for each in keyword_arguments(job.plan)]
    return Artifact(
        as_json(keywords[0] if job.nodes == 1 else keywords),
        (*unknown_head(job), *job.path_findings(), *_logs(job), *left_out(job)),
    )


def _logs(job: Job) -> list[Finding]:
    if job.intent.get("log_level") is not None:
        return []
    message = "sglang.Engine logs errors only, where a server logs at info"
    return [Finding("info", "EXP008", message, ("log_level",), "log_level=info")]


def left_out(job: Job) -> list[Finding]:
    """Returns findings about variables and a key, which keyword arguments cannot express."""
    found = []
    if job.environment():
        names = ", ".join(job.environment())
        message = f"the plan also sets {names}, which must be set before sglang is imported"
        found.append(Finding("info", "EXP009", message, ("engine.env",), "export shell has the values"))
    if job.has_key:
        found.append(Finding("info", "EXP007", "sglang.Engine serves no HTTP and takes no API key", ("api_key",)))
    return found


def server_args(config: Plan | Sequence[str] | Mapping[str, object] = (), node: int = 0) -> JsonDict:
    """Returns the arguments of ``sglang.Engine(**arguments)`` on a node, named as in the plan's release of SGLang.

    ``config`` is what ``plan`` takes (words, a dict, or a DictConfig with our tree at its root or a node), or a plan.
    Plans for the installed SGLang unless ``engine.version`` names one. Leaves unset arguments to SGLang. Raises
    ConfigError with every error of a plan that cannot be launched."""
    made = config if isinstance(config, Plan) else plan(config)
    if made.errors:
        raise ConfigError(*made.errors)
    return made.as_engine_kwargs(node)
