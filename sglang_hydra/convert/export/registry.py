"""Lists the formats: a name, the file that writes it, and a description."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sglang_hydra.compose.corrections import FORMATS_MEANT
from sglang_hydra.convert.export import compose, docker, engine_kwargs, framework, k8s, shell, slurm
from sglang_hydra.convert.export.job import Artifact, Job, job_of
from sglang_hydra.convert.export.several import export_topology, members_of
from sglang_hydra.convert.frameworks.adapters import ADAPTERS
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.topology.servers import Topology
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import nearest, program, short


class Format(NamedTuple):
    """One format: its description, the name of its file in docs/exports, and the function that writes it."""

    about: str
    file: str
    export: Callable[[Job], Artifact]


FORMATS: Mapping[str, Format] = {
    "shell": Format("a bash script that starts the server with SGLang's own interpreter", "serve.sh", shell.export),
    "argv": Format("SGLang's flags as a JSON list", "argv.json", engine_kwargs.export_argv),
    "engine-kwargs": Format(
        "the arguments of sglang.Engine as a JSON object", "engine_kwargs.json", engine_kwargs.export
    ),
    "docker": Format("a bash script with docker run", "docker.sh", docker.export),
    "compose": Format("a Compose file", "compose.yaml", compose.export),
    "slurm": Format("a script for sbatch", "slurm.sh", slurm.export),
    "k8s": Format(
        "Kubernetes: a Deployment, or a LeaderWorkerSet for several nodes, with a Service", "k8s.yaml", k8s.export
    ),
    **{
        name: Format(framework.about(one), framework.file(one), partial(framework.export, one))
        for name, one in ADAPTERS.items()
    },
}


def render(format: str, job: Job) -> Artifact:
    """Returns the artifact of a known format. Raises ConfigError for a plan that it cannot express."""
    return FORMATS[format].export(job)


def exported(format: str, made: Plan | Topology, remade: Sequence[str]) -> tuple[list[Job], Artifact]:
    """Returns the jobs of a server or of several, and the artifact that starts them. Raises ConfigError as ``render``
    does."""
    if isinstance(made, Plan):
        job = job_of(made, remade)
        return [job], render(format, job)
    return [member.job for member in members_of(made)], export_topology(format, made, remade)


def check_format(word: str | None) -> str:
    """Returns ``word`` if it names a format. Raises ConfigError (EXP012) for another word."""
    if word is not None and word in FORMATS:
        return word
    hint = f"formats: {', '.join(FORMATS)}"
    if word is None:
        example = f"{program()} export shell gpu=h200 model=deepseek_v3 tp_size=8"
        raise ConfigError(Finding("error", "EXP012", "export needs a format", hint=(example, hint)))
    near = FORMATS_MEANT.get(word.lower()) or nearest(word, FORMATS)
    message = f"{short(word)!r} is no format of export"
    raise ConfigError(Finding("error", "EXP012", message, hint=hint, typed=(word,), fix=near))
