"""Writes ``export shell``: a bash script that starts the server here, or one rank on each of several machines."""

from __future__ import annotations

import re

from sglang_hydra.convert.export.job import Artifact, Job
from sglang_hydra.convert.export.quoting import Variable, Word, bash, bash_lines, commented
from sglang_hydra.convert.export.variables import KEY_PROGRAM, KEY_WHY
from sglang_hydra.planning.passing.passed import KEY_VARIABLE, PYTHON_VARIABLE
from sglang_hydra.planning.topology.servers import NODE
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

PYTHON = Variable("python")

# Variables of the scripts themselves, and variables that bash does not let anyone set.
_OWN = ("python", "program", "first", "address", "head", "nodes", "found", "router", "router_program")
_OF_NODES = ("NODE_RANK", "HEAD_ADDRESS", rf"{NODE}\d+")
_OF_BASH = ("UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO")
_TAKEN = re.compile("|".join((*_OWN, *_OF_NODES, *_OF_BASH)))


def export(job: Job) -> Artifact:
    version = job.plan.engine.version
    head = job.header(
        "shell", "", f"{PYTHON_VARIABLE} names the interpreter that has SGLang {version}.", *each_node(job)
    )
    parts = [
        "#!/usr/bin/env bash\n",
        commented(head),
        "set -euo pipefail\n",
        asked_nodes(job),
        "\n",
        environment(job),
        interpreter(job),
        key_program(job),
        "\nexec " + " ".join(map(bash, server_words(job, PYTHON))) + " \\\n",
        bash_lines(job.flags(contained=False)) + "\n",
    ]
    return Artifact("".join(parts), tuple(job.path_findings()), executable=True)


def server_words(job: Job, python: Word) -> list[Word]:
    """Returns the words that start the server outside a container, before its flags."""
    return [python, "-c", Variable("program")] if job.has_key else [python, "-m", "sglang.launch_server"]


def interpreter(job: Job) -> str:
    wanted = job.plan.nodes.engine.python or "python"
    default = bash(wanted)
    # Quotes inside ${...} are parsed again.
    if default != wanted:
        return f"python={default}\npython=${{{PYTHON_VARIABLE}:-$python}}\n"
    return f"python=${{{PYTHON_VARIABLE}:-{default}}}\n"


def environment(job: Job) -> str:
    """Returns the plan's variables with values, and checks that the secret ones are set.

    Raises ConfigError (EXP022) for names that the script itself needs."""
    taken = [name for name in job.environment() if _TAKEN.fullmatch(name)]
    if taken:
        message = f"engine.env.{taken[0]}: a script cannot set it, bash or the script has a variable of this name"
        raise ConfigError(Finding("error", "EXP022", message, (f"engine.env.{taken[0]}",), "export docker can"))
    lines = [f"export {name}={bash(value)}\n" for name, value in job.environment().items()]
    return "".join(lines) + required_secrets(job)


def required_secrets(job: Job) -> str:
    """Returns lines that end the script if a secret variable of the plan is unset."""
    lines = ""
    for name in job.secret_names:
        if name == KEY_VARIABLE:
            lines += f': "${{{name}:?the API key that clients of this server will send}}"\nexport {name}\n'
        elif name in job.plan.environment:
            lines += f': "${{{name}:?the plan sets it, and secrets are not written down}}"\nexport {name}\n'
    return lines


def key_program(job: Job, name: str = "program", program: str = KEY_PROGRAM) -> str:
    """Defines a variable with the program that starts SGLang, or another module, with its key."""
    if not job.has_key:
        return ""
    why = commented(KEY_WHY) if program == KEY_PROGRAM else ""
    return f"\n{why}IFS= read -r -d '' {name} <<'PYTHON' || true\n{program}PYTHON\n"


def each_node(job: Job) -> list[str]:
    """Returns the header's lines with the command for each node."""
    if job.nodes == 1:
        return []
    given = " HEAD_ADDRESS=ADDRESS" if job.needs_head else ""
    rows = [f"  on node {rank}: NODE_RANK={rank}{given} bash THIS_FILE" for rank in range(job.nodes)]
    asked = ["ADDRESS is node 0's, as the others reach it."] if job.needs_head else []
    return ["", f"Run it on each of {job.nodes} nodes; the server answers on node 0.", *rows, *asked]


def asked_nodes(job: Job) -> str:
    """Returns lines that end the script without this node's number."""
    if job.nodes == 1:
        return ""
    own = job.plan.intent.get("node_rank")
    lines = f"NODE_RANK=${{NODE_RANK:-{own}}}\n" if own is not None else ""
    if own is None:
        lines += f': "${{NODE_RANK:?the number of this node, from 0 to {job.nodes - 1}}}"\n'
    if job.needs_head:
        lines += ': "${HEAD_ADDRESS:?the address of node 0, as the other nodes reach it}"\n'
    return "\n" + lines
