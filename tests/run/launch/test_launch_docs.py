"""docs/launch.md says what is so: its keys, defaults, ids, states and commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sglang_hydra.cli.id_pages import known_ids
from sglang_hydra.cli.invocation import read_invocation
from sglang_hydra.planning.engines.sglang import ENGINE
from sglang_hydra.run.launch.log import FILE_LIMIT
from sglang_hydra.schemas import schema_of
from sglang_hydra.text.flags import VERBS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "launch.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_every_setting_of_a_server_here_is_in_the_table_with_its_default() -> None:
    settings = yaml.safe_load((ROOT / "conf" / "launch" / "local.yaml").read_text())
    del settings["name"]
    told = dict(re.findall(r"^\| `launch\.(\w+)` \| (\S+) \|", PAGE, re.MULTILINE))
    assert {name: yaml.safe_load(value) for name, value in told.items()} == settings


def test_every_id_has_a_page_and_every_id_of_the_preflight_is_named() -> None:
    from sglang_hydra.run.doctor.checks import CHECKS

    named = set(re.findall(r"\b[A-Z]{3}\d{3}\b", PAGE))
    assert named <= {*known_ids(), *(check.id for check in CHECKS)}
    assert {f"LCH00{number}" for number in range(1, 7)} <= named


def test_the_milestones_are_those_of_the_engine() -> None:
    for words in ENGINE.milestones.values():
        assert words in " ".join(PAGE.split())


def test_the_states_are_those_of_the_schema() -> None:
    (states,) = re.findall(r"\| state \| meaning \|\n\| --- \| --- \|\n((?:\|.*\n)+)", PAGE)
    conditions = schema_of("status")["properties"]["servers"]["items"]["properties"]["condition"]["enum"]
    assert [line.split("|")[1].strip() for line in states.splitlines()] == conditions_in_order(conditions)


def conditions_in_order(conditions: list[str]) -> list[str]:
    assert set(conditions) == {"starting", "ready", "busy", "taken", "failed", "gone", "elsewhere"}
    return conditions


def test_the_size_of_a_log_is_what_it_says() -> None:
    assert f"three files of {FILE_LIMIT >> 20} MiB" in PAGE


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_read(command: str) -> None:
    name, *words = command.split()
    assert name == "sglang-hydra"
    assert read_invocation(words).verb in VERBS


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists()
