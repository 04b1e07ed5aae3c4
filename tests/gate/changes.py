"""Writes the files of broken_changes.yaml: one word of the command on each line, so that a line names a word."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.convert.review.places import placed
from sglang_hydra.show.verdicts import verdicts_on

SUFFIXES = {"shell": "serve.sh", "docker": "run.sh", "dockerfile": "Dockerfile", "compose": "compose.yaml"}
PRODUCTS = {"h100": "NVIDIA-H100-80GB-HBM3", "h200": "NVIDIA-H200", "b200": "NVIDIA-B200", "l40s": "NVIDIA-L40S"}
_LAUNCH = ["python3", "-m", "sglang.launch_server"]


def sides(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The two versions of a row: everything given twice, and the arguments before and after their change."""
    args, (old, new) = row["args"], row.get("change", ("", ""))
    words = [args, args.replace(old, new) if old else f"{args} {new}"]
    pairs = {key: row[key] for key in ("image", "gpu", "gpus", "env") if isinstance(row.get(key), list)}
    made = [{**row, **{key: pair[min(at, len(pair) - 1)] for key, pair in pairs.items()}} for at in (0, 1)]
    return [{**one, "args": text} for one, text in zip(made, words, strict=True)]


def write(side: Mapping[str, Any], folder: Path) -> Path:
    kind, groups = side["file"], by_flag(shlex.split(side["args"]))
    file = folder / SUFFIXES.get(kind, f"{kind}.yaml")
    file.write_text(_TEXTS[kind](side, groups, f"lmsysorg/sglang:v{side.get('image', '')}"), encoding="utf-8")
    return file


def by_flag(words: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for word in words:
        groups.append([word]) if word.startswith("--") else groups[-1].append(word)
    return groups


@cache
def _composer() -> Composer:
    composer = Composer()
    composer.only_judges = True
    return composer


class Found(NamedTuple):
    level: str
    id: str
    line: int | None
    message: str


def findings(file: Path, gpu: str, base: str = "") -> list[Found]:
    """The findings of ``check FILE gpu=GPU``. ``base`` is the file before the change."""
    composer, typed = _composer(), [Request(f"gpu={gpu}", "argument 2")]
    others = native_reader(composer, typed)
    verdicts = verdicts_on(composer, [Request(str(file), "argument 1"), *typed], seed=42, others=others)
    return [
        Found(finding.level, finding.id, place and place.line, finding.message)
        for each in placed(verdicts, lambda _: base)
        for finding, place in each
    ]


def lines_of(row: Mapping[str, Any], file: Path) -> set[int]:
    """The lines on which the error of a row may be: that of its word and of the value below it."""
    word = row.get("at") or row["change"][1]
    text = file.read_text(encoding="utf-8").splitlines()
    found = {number for number, line in enumerate(text, 1) if word in line}
    return found | {number + 1 for number in found if number < len(text) and "--" not in text[number]}


def _continued(groups: Sequence[Sequence[str]], start: str) -> str:
    return " \\\n  ".join([start, *map(shlex.join, groups)]) + "\n"


def _docker(side: Mapping[str, Any], groups: Sequence[Sequence[str]], image: str) -> str:
    env = "".join(f"-e {name}={value} " for name, value in side.get("env", {}).items())
    return _continued(groups, f"docker run --gpus all {env}{image} {shlex.join(_LAUNCH)}")


def _dockerfile(side: Mapping[str, Any], groups: Sequence[Sequence[str]], image: str) -> str:
    words = [", ".join(map(json.dumps, group)) for group in groups]
    return f"FROM {image}\nENTRYPOINT {json.dumps(_LAUNCH)}\nCMD [" + ", \\\n  ".join(words) + "]\n"


def _compose(side: Mapping[str, Any], groups: Sequence[Sequence[str]], image: str) -> str:
    words = [word for group in groups for word in group]
    return _yaml({"services": {"chat": {"image": image, "entrypoint": _LAUNCH, "command": words}}})


def _container(side: Mapping[str, Any], groups: Sequence[Sequence[str]], image: str) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(side["gpus"])} if "gpus" in side else {}
    env = [{"name": name, "value": value} for name, value in side.get("env", {}).items()]
    words = [word for group in groups for word in group]
    about = {"name": "server", "image": image, "command": _LAUNCH, "args": words}
    pod = {"containers": [{**about, "env": env, "resources": {"limits": limits}}]}
    product = PRODUCTS.get(side["gpu"])
    return {**pod, "nodeSelector": {"nvidia.com/gpu.product": product}} if product else pod


def _k8s(side: Mapping[str, Any], groups: Sequence[Sequence[str]], image: str) -> str:
    spec = {"template": {"spec": _container(side, groups, image)}}
    return _yaml({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"}, "spec": spec})


def _lws(side: Mapping[str, Any], groups: Sequence[Sequence[str]], image: str) -> str:
    spec = {"leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": _container(side, groups, image)}}}
    about = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "chat"}}
    return _yaml({**about, "spec": spec})


def _srt(side: Mapping[str, Any], groups: Sequence[Sequence[str]], image: str) -> str:
    config: dict[str, Any] = {group[0][2:]: yaml.safe_load(" ".join(group[1:]) or "true") for group in groups}
    model = {"path": config.pop("model-path"), "container": image, "precision": "fp8"}
    count = {
        "gpu_type": side["gpu"],
        "gpus_per_node": 4 if "gb" in side["gpu"] else 8,
        "agg_nodes": 1,
        "agg_workers": 1,
    }
    return _yaml(
        {"name": "x", "model": model, "resources": count, "backend": {"sglang_config": {"aggregated": config}}}
    )


def _yaml(content: object) -> str:
    return yaml.safe_dump(content, sort_keys=False)


_TEXTS = {
    "shell": lambda side, groups, image: _continued(groups, shlex.join(_LAUNCH)),
    "docker": _docker,
    "dockerfile": _dockerfile,
    "compose": _compose,
    "k8s": _k8s,
    "lws": _lws,
    "srt": _srt,
}
