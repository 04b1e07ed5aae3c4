"""What import makes of a command line, read by SGLang's own parser: the same arguments as the source's."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.rendering import render
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.planning.making.make import make_plan
from tests.convert.importing.importing import composer, imported, the_one
from tests.convert.importing.published import PUBLISHED
from tests.convert.importing.test_import_flags import OFFLINE, line_of, recorded_argv
from tests.plans import requests


def read_by(python: str, lines: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    run = subprocess.run(
        [python, str(Path(__file__).with_name("ask_parser.py"))],
        input=json.dumps([list(line) for line in lines]),
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **OFFLINE},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_every_recorded_command_line_is_read_alike_behind_import(sglang_python: str) -> None:
    cases = recorded_argv()
    servers = [the_one(line_of(argv), "gpu=h200") for _, argv in cases]
    before = read_by(sglang_python, [argv for _, argv in cases])
    behind = read_by(sglang_python, [server.argv or () for server in servers])
    different = {}
    for (id, _), server, wanted, made in zip(cases, servers, before, behind, strict=True):
        if "refused" in wanted:
            later = "engine.version" in server.nodes  # a release that has it
            different |= {} if later or not server.complete else {id: wanted}
        elif "refused" in made or wanted != made:
            different[id] = {name: (wanted[name], made.get(name)) for name in wanted if wanted[name] != made.get(name)}
    assert different == {}
    assert sum("refused" not in wanted for wanted in before) >= 100


def test_every_recipe_is_read_alike_behind_import(sglang_python: str) -> None:
    plans = {
        id: make_plan(composer(), requests(f"recipe={id}", "engine.version=0.5.2"), seed=42, env=OFFLINE)
        for id in sorted(recipes())
    }
    newer = {"RUN015", "VER004", "VER005"}  # a model, an argument or a value that 0.5.2 does not have
    plans = {id: plan for id, plan in plans.items() if newer.isdisjoint(finding.id for finding in plan.errors)}
    assert len(plans) > 100
    known = [{name: value for name, value in plan.intent.items() if name in FIELDS} for plan in plans.values()]
    sources = [render(intent) for intent in known]
    servers = [
        the_one(line_of(argv), f"gpu={plan.nodes.gpu.name}") for argv, plan in zip(sources, plans.values(), strict=True)
    ]
    before = read_by(sglang_python, sources)
    assert not any("refused" in wanted for wanted in before)
    assert dict(zip(plans, read_by(sglang_python, [server.argv or () for server in servers]), strict=True)) == dict(
        zip(plans, before, strict=True)
    )


def test_every_published_launch_is_read_alike_behind_import(sglang_python: str) -> None:
    flags = [(case.name, shlex.split(flags)) for case in PUBLISHED for flags in case.flags]
    made = [server.argv or () for case in PUBLISHED for server in imported(case.text)]
    wanted = read_by(sglang_python, [argv for _, argv in flags])
    named = [name for name, _ in flags]
    assert list(zip(named, read_by(sglang_python, made), strict=True)) == list(zip(named, wanted, strict=True))
