"""Writes a topology as a script for sbatch: each server is a step on its nodes, the router runs on the first node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sglang_hydra.convert.export.job import Artifact, Job, job_of
from sglang_hydra.convert.export.quoting import Variable, Word, bash, bash_lines
from sglang_hydra.convert.export.several import first_lines, is_keyed, located, patient_router, release_of
from sglang_hydra.convert.export.shell import key_program
from sglang_hydra.convert.export.slurm import SUBMIT, beginning, check_settings, handed_over, step
from sglang_hydra.convert.export.variables import key_program as program_with_key
from sglang_hydra.convert.export.variables import without_secrets
from sglang_hydra.planning.passing.slurm_options import sbatch_settings_of
from sglang_hydra.planning.topology.router import MODULE, PACKAGE
from sglang_hydra.planning.topology.servers import NODE, Server, Topology

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


def export(topology: Topology, overrides: Sequence[str]) -> Artifact:
    """Writes the script. Raises ConfigError for settings that Slurm would misread."""
    overrides = without_secrets(overrides, topology.common)
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
        + (key_program(job, "router_program", program_with_key(MODULE)) if keyed else "")
        + f"{' '.join(map(bash, start))} \\\n{bash_lines([located(word) for word in argv], '    ')} &\n"
    )
