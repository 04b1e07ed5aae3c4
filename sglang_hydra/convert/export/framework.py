"""Writes ``export verl``, ``nemo-rl``, ``slime``, ...: the node or options by which a framework starts the server.

Omits arguments that the framework sets, and ports, ranks and addresses, because it places its servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.arguments.tables.table import known_versions
from sglang_hydra.convert.export.engine_kwargs import left_out
from sglang_hydra.convert.export.job import Artifact, Job
from sglang_hydra.convert.export.quoting import bash, commented
from sglang_hydra.convert.frameworks.adapters import Adapter, keys_for
from sglang_hydra.planning.passing.passed import flags_of, keyword_arguments
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain, tree_of
from sglang_hydra.text.screen import shown
from sglang_hydra.text.yaml_text import yaml_text

_PLACED = ("port", "nnodes", "node_rank", "dist_init_addr", "nccl_port", "base_gpu_id", "gpu_id_step")


def about(adapter: Adapter) -> str:
    what = f"the options {adapter.flags}* of a script" if adapter.flags else f"the node {adapter.node}"
    return f"{adapter.title}: {what}"


def file(adapter: Adapter) -> str:
    return f"{adapter.name.replace('-', '_')}.{'sh' if adapter.flags else 'yaml'}"


def export(adapter: Adapter, job: Job) -> Artifact:
    arguments = {name: plain(value) for name, value in keyword_arguments(job.plan)[0].items() if name not in _PLACED}
    keys, lost = keys_for(adapter, arguments)
    body = _options(job, keys) if adapter.flags else yaml_text([tree_of(keys)])
    return Artifact(
        commented(job.header(adapter.name)) + body,
        (*_findings(adapter, job, lost), *job.path_findings(), *left_out(job)),
    )


def _findings(adapter: Adapter, job: Job, lost: Mapping[str, object]) -> Iterator[Finding]:
    for name, value in lost.items():
        why = f"sets {shown(adapter.sets[name])}" if name in adapter.sets else "does not pass it to SGLang"
        message = f"{name}={shown(value)} is left out: {adapter.title} {why}"
        yield Finding("warning", "EXP024", message, (name,), f"leave {name} out")
    given = {*job.plan.intent, *_PLACED}
    also = {name: value for name, value in {**adapter.defaults, **adapter.sets}.items() if name not in given}
    if also:
        message = f"{adapter.title} also passes {', '.join(f'{name}={shown(value)}' for name, value in also.items())}"
        yield Finding("info", "EXP024", message, tuple(also), "check FILE plans with them")
    if adapter.release in known_versions() and not same_release(adapter.release, job.plan.engine.version):
        message = f"{adapter.title} pins SGLang {adapter.release}, and the plan is for {job.plan.engine.version}"
        yield Finding("info", "EXP024", message, ("engine.version",), f"engine.version={adapter.release}")


def _options(job: Job, keys: Mapping[str, object]) -> str:
    """Returns the options as a bash array, and the command that uses it."""
    lines = []
    for name, value in keys.items():
        if name.startswith("--"):
            words = [name] if value is True else [] if value is False else [name, str(value)]
        else:
            words = [
                word if number else f"--sglang-{word[2:]}"
                for number, word in enumerate(flags_of(job.plan, {name: value}))
            ]
        lines += ["   " + " ".join(map(bash, words)) + "\n"] if words else []
    return f"SGLANG_ARGS=(\n{''.join(lines)})\n" + 'python3 train.py "${SGLANG_ARGS[@]}"\n'
