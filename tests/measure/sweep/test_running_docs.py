"""What docs/sweeps.md says of how a sweep runs names what is there: settings, files, schemas, ids, launchers."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

from sglang_hydra.cli.invocation import read_invocation
from sglang_hydra.compose.settings.bench import BenchNode, SloNode
from sglang_hydra.compose.settings.sweep import SweepNode
from sglang_hydra.measure.sweep.runner import run
from sglang_hydra.planning.finding_meanings import MEANINGS
from sglang_hydra.schemas import schema_of
from sglang_hydra.text.flags import VERBS
from tests.measure.sweep.place import Place

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "sweeps.md").read_text(encoding="utf-8").partition("\n## How it runs\n")[2]


def test_every_setting_that_it_names_is_one() -> None:
    named = set(re.findall(r"\b(?:sweep|bench|bench\.slo)\.([a-z_]+)\b(?!\.(?:json|md|py))", PAGE)) - {"json", "slo"}
    known = {field.name for node in (SweepNode, BenchNode, SloNode) for field in fields(node)}
    assert named - known == set()


def test_every_command_of_it_is_one() -> None:
    text = PAGE.replace("\\\n", " ")
    commands = re.findall(r"^sglang-hydra (.*)$", text, re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        invocation = read_invocation(shlex.split(command, comments=True))
        assert invocation.verb in VERBS
        assert invocation.has("multirun") == (invocation.verb == "bench")


def test_the_ids_and_the_schemas_are_known() -> None:
    assert set(re.findall(r"\b[A-Z]{3}\d{3}\b", PAGE)) <= set(MEANINGS)
    for name in ("sweep", "result", "failure", "search", "sweep_status"):
        assert f"`{name}`" in PAGE
        assert schema_of(name)["$id"] == f"sglang_hydra.{name}/1"


def test_the_folder_is_as_it_is_drawn(here: Place) -> None:
    assert run(here.plan("bench.concurrency=1")) == 0
    for path in here.sweep_folder.rglob("*"):
        top = path.relative_to(here.sweep_folder).parts[0]
        assert re.search(rf"^  {re.escape(top)}\b", PAGE, re.MULTILINE), path
