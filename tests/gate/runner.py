"""Runs a composite action's steps as GitHub's runner does: its expressions, its files, bash as it calls it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_TOKEN = re.compile(r"'[^']*'|always\(\)|[A-Za-z_][\w.-]*|\|\||&&|==|!=")


class Ran(NamedTuple):
    """What the steps did: whether all ended with 0, what they printed, their outputs, and the actions used, by name."""

    ok: bool
    printed: str
    outputs: Mapping[str, Any]
    used: Mapping[str, Mapping[str, str]]


class Action:
    def __init__(self, file: Path, github: Mapping[str, Any], env: Mapping[str, str], **inputs: str) -> None:
        self.spec = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
        self.env = dict(env)
        self.context: dict[str, Any] = {"github": github, "runner": {"os": "Linux"}, "steps": {}, "inputs": {}}
        unknown = inputs.keys() - {name.replace("-", "_") for name in self.spec["inputs"]}
        assert not unknown, unknown
        for name, about in self.spec["inputs"].items():
            self.context["inputs"][name] = inputs.get(name.replace("-", "_"), self.filled(about.get("default", "")))

    def evaluated(self, expression: str) -> Any:
        def put(found: re.Match[str]) -> str:
            token = found[0]
            plain = {"||": " or ", "&&": " and ", "always()": "True", "==": "==", "!=": "!="}
            if token in plain or token.startswith("'"):
                return plain.get(token, token)
            value: Any = self.context
            for part in token.split("."):
                value = value.get(part, "") if isinstance(value, Mapping) else ""
            return repr(value)

        return eval(_TOKEN.sub(put, " ".join(expression.split())))

    def filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: str(self.evaluated(found[1]) or ""), text)

    def run(self, workspace: Path, folder: Path) -> Ran:
        ok, printed, used = True, [], {}
        for number, step in enumerate(self.spec["runs"]["steps"]):
            condition = step.get("if", "")
            if (not ok and "always()" not in condition) or (condition and not self.evaluated(condition)):
                continue
            if "uses" in step:
                used[step["uses"].partition("@")[0]] = {key: self.filled(text) for key, text in step["with"].items()}
                continue
            assert step["shell"] == "bash"
            script, output = folder / f"step{number}.sh", folder / f"output{number}"
            script.write_text(step["run"], encoding="utf-8")
            output.touch()
            env = {**self.env, **{name: self.filled(text) for name, text in step.get("env", {}).items()}}
            env |= {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
            env |= {"RUNNER_TEMP": str(folder)}
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
            done = subprocess.run(
                command, cwd=workspace, env=env, capture_output=True, encoding="utf-8", timeout=250, check=False
            )
            ok = ok and done.returncode == 0
            printed.append(done.stdout + done.stderr)
            pairs = dict(line.partition("=")[::2] for line in output.read_text(encoding="utf-8").splitlines())
            if "id" in step:
                self.context["steps"][step["id"]] = {"outputs": pairs}
        outputs = {name: self.filled(about["value"]) for name, about in self.spec["outputs"].items()}
        return Ran(ok, "".join(printed), outputs, used)


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *own, *words], cwd=folder, check=True, timeout=60, capture_output=True, encoding="utf-8", env=env
    )
    return done.stdout.strip()
