"""The formats: a name, the file that writes it, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sglang_hydra.convert.export.job import Artifact, Job
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import nearest, program, short


class Format(NamedTuple):
    """One format: what it is, the name of its file in docs/exports, and a function that imports its exporter."""

    about: str
    file: str
    exporter: Callable[[], Callable[[Job], Artifact]]


def _shell() -> Callable[[Job], Artifact]:
    from sglang_hydra.convert.export.shell import export

    return export


def _argv() -> Callable[[Job], Artifact]:
    from sglang_hydra.convert.export.argv import export

    return export


def _engine_kwargs() -> Callable[[Job], Artifact]:
    from sglang_hydra.convert.export.engine_kwargs import export

    return export


def _docker() -> Callable[[Job], Artifact]:
    from sglang_hydra.convert.export.docker import export

    return export


def _compose() -> Callable[[Job], Artifact]:
    from sglang_hydra.convert.export.compose import export

    return export


def _slurm() -> Callable[[Job], Artifact]:
    from sglang_hydra.convert.export.slurm import export

    return export


def _k8s() -> Callable[[Job], Artifact]:
    from sglang_hydra.convert.export.k8s import export

    return export


FORMATS: Mapping[str, Format] = {
    "shell": Format("a bash script that starts the server with SGLang's own interpreter", "serve.sh", _shell),
    "argv": Format("SGLang's flags as a JSON list", "argv.json", _argv),
    "engine-kwargs": Format("the arguments of sglang.Engine as a JSON object", "engine_kwargs.json", _engine_kwargs),
    "docker": Format("a bash script with docker run", "docker.sh", _docker),
    "compose": Format("a Compose file", "compose.yaml", _compose),
    "slurm": Format("a script for sbatch", "slurm.sh", _slurm),
    "k8s": Format("Kubernetes: a Deployment, or a LeaderWorkerSet for several nodes, with a Service", "k8s.yaml", _k8s),
}


def render(format: str, job: Job) -> Artifact:
    """The artifact of a known format. Raises ConfigError for what it cannot say."""
    return FORMATS[format].exporter()(job)


def check_format(word: str | None) -> str:
    """``word``, which names a format. Raises ConfigError (EXP012) otherwise."""
    if word is not None and word in FORMATS:
        return word
    hint = f"{program()} export shell gpu=h200 model=deepseek_v3 tp_size=8"
    said = "export needs a format" if word is None else f"{short(word)!r} is no format of export"
    near = nearest(word, FORMATS) if word else None
    message = f"{said}; the formats are {', '.join(FORMATS)}"
    raise ConfigError(Finding("error", "EXP012", message, hint=f"did you mean {near}? {hint}" if near else hint))
