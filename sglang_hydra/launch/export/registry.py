"""The formats: a name, the file that writes it, and what it is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sglang_hydra.errors import ConfigError
from sglang_hydra.findings import Finding
from sglang_hydra.launch.export.job import Artifact, Job
from sglang_hydra.words import nearest, program, short


class Format(NamedTuple):
    module: str
    about: str


FORMATS: Mapping[str, Format] = {
    "shell": Format("shell", "a bash script that starts the server with SGLang's own interpreter"),
    "argv": Format("argv", "SGLang's flags as a JSON list"),
    "engine-kwargs": Format("engine_kwargs", "the arguments of sglang.Engine as a JSON object"),
    "docker": Format("docker", "a bash script with docker run"),
    "compose": Format("compose", "a Compose file"),
    "slurm": Format("slurm", "a script for sbatch"),
    "k8s": Format("k8s", "Kubernetes: a Deployment, or a LeaderWorkerSet for several nodes, with a Service"),
}


def render(format: str, job: Job) -> Artifact:
    """The artifact of a known format. Raises ConfigError for what it cannot say."""
    module = importlib.import_module(f"{__package__}.{FORMATS[format].module}")
    export: Callable[[Job], Artifact] = module.export
    return export(job)


def check_format(word: str | None) -> str:
    """``word``, which names a format. Raises ConfigError (EXP012) otherwise."""
    if word is not None and word in FORMATS:
        return word
    hint = f"{program()} export shell gpu=h200 model=deepseek_v3 tp_size=8"
    said = "export needs a format" if word is None else f"{short(word)!r} is no format of export"
    near = nearest(word, FORMATS) if word else None
    message = f"{said}; the formats are {', '.join(FORMATS)}"
    raise ConfigError(Finding("error", "EXP012", message, hint=f"did you mean {near}? {hint}" if near else hint))
