"""Writes ``export slurm``: a script for sbatch that finds the head's address and starts one rank on each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sglang_hydra.convert.export.images import LAUNCH_SERVER
from sglang_hydra.convert.export.job import HEAD_PORT, Artifact, Job
from sglang_hydra.convert.export.quoting import Variable, Word, bash, bash_lines, commented
from sglang_hydra.convert.export.shell import PYTHON, environment, interpreter, key_program, server_words
from sglang_hydra.planning.passing import slurm_options
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

# The ports of two jobs on one node differ by the jobs' numbers.
_PORTS = 9000
SUBMIT = "Submit it with: sbatch THIS_FILE"
_HEAD = """
# Node 0 is the first node of the job; its address is the one by which Slurm reaches it.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
address=$(scontrol --oneliner show node "$first" | sed -n 's/.* NodeAddr=\\([^ ]*\\) .*/\\1/p' || true)
head=${{address:-$first}}:{port}
echo "node 0 is $first; the nodes meet at $head, the server answers on port {http}"
"""
_RANK = """'exec "$@" --node-rank "$SLURM_PROCID"' rank"""


def export(job: Job) -> Artifact:
    check_settings(job)
    port = job.head_port or f"$(({HEAD_PORT} + SLURM_JOB_ID % {_PORTS}))"
    parts = [
        beginning(job, slurm_options.sbatch_settings(job.plan), job.header("slurm", "", SUBMIT, *handed_over(job))),
        _HEAD.format(port=port, http=job.port) if job.nodes > 1 else "",
        f"\n{step(job, Variable('head'))}\n",
    ]
    findings = job.path_findings()
    if not job.is_public:
        message = f"host={job.plan.values['host']} is reached from node 0 of the job only"
        findings += [Finding("info", "EXP013", message, ("host",), "host=0.0.0.0 is reached from everywhere")]
    return Artifact("".join(parts), (*findings,), executable=True)


def beginning(job: Job, options: Mapping[str, str | bool], header: Sequence[str]) -> str:
    """Returns the script up to its first step: the requests to Slurm, the header, the set-up, the environment."""
    settings = job.plan.nodes.launch.slurm
    return "".join(
        (
            "#!/usr/bin/env bash\n",
            "".join(f"#SBATCH {_directive(name, value)}\n" for name, value in options.items()),
            commented(header),
            "set -euo pipefail\n",
            "".join(f"{line}\n" for line in settings.setup),
            "\n",
            environment(job),
            "" if settings.container != "none" else interpreter(job),
            key_program(job),
        )
    )


def step(job: Job, meeting: Variable | None, words: Sequence[str] = ()) -> str:
    """Returns the server as one step, without the last line end. ``meeting`` is the rendezvous of its nodes; ``words``
    are further words for srun."""
    # Each rank expands its variables itself, not this script.
    quoted = "# shellcheck disable=SC2016\n" if job.nodes > 1 else ""
    return (
        f"{quoted}srun {' '.join([*words, *_srun_words(job)])} \\\n"
        f"  {' '.join(map(bash, _start_words(job)))} \\\n"
        f"{bash_lines(job.flags(contained=False, meeting=meeting, rank=None), '    ')}"
    )


def check_settings(job: Job) -> None:
    """Raises ConfigError for settings that Slurm would misread."""
    errors = list(slurm_options.slurm_findings(job.plan.nodes.launch, str(job.plan.values["model_path"])))
    if errors:
        raise ConfigError(*errors)


def _srun_words(job: Job) -> list[str]:
    """Returns srun's own words; for several nodes also the shell that adds the rank."""
    mounts = [mount.path for mount in job.mounts]
    words = ["--ntasks-per-node=1", "--kill-on-bad-exit=1", *map(bash, slurm_options.srun_settings(job.plan, mounts))]
    return [*words, "bash -c", _RANK] if job.nodes > 1 else words


def _start_words(job: Job) -> Sequence[Word]:
    if job.plan.nodes.launch.slurm.container == "none":
        return server_words(job, PYTHON)
    outside = slurm_options.container_command(job.plan, [mount.path for mount in job.mounts])
    if job.has_key:
        return [*outside, "python3", "-c", Variable("program")]
    return [*outside, *(job.image.entry if job.image else LAUNCH_SERVER)]


def _directive(name: str, value: str | bool) -> str:
    """Returns a line for sbatch, which interprets double quotes and backslashes in it."""
    if value is True:
        return f"--{name}"
    text = str(value)
    if bash(text) == text:
        return f"--{name}={text}"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'--{name}="{escaped}"'


def handed_over(job: Job) -> list[str]:
    if not job.has_key and not job.plan.environment:
        return []
    names = ", ".join(name for name in job.secret_names)
    return [f"sbatch hands its environment over ({names}), and Slurm keeps it until the job is over."]
