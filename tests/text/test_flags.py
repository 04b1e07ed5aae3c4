"""The table of verbs and flags drives parsing, the help, completion and the page on the command line."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

import sglang_hydra.cli
from sglang_hydra.cli.help import flags
from sglang_hydra.cli.invocation import Invocation, read_invocation
from sglang_hydra.text.flags import FLAGS, VERBS, Flag

CLI = Path(sglang_hydra.cli.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_parsed_completed_documented_and_has_its_file(verb: str) -> None:
    assert read_invocation([verb]).verb == verb
    assert verb in json.loads((CLI / "completion_index.json").read_text(encoding="utf-8"))["verbs"]
    assert f"| `{verb}` |" in PAGE
    import_module(f"sglang_hydra.cli.{verb}_" if verb == "import" else f"sglang_hydra.cli.{verb}")


def test_every_flag_sets_a_value_and_is_documented() -> None:
    assert not any(Invocation().has(flag.sets) for flag in FLAGS)
    assert all(f"`{shown}`" in PAGE or "|" in shown for shown, _ in flags())


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if not flag.value], ids=lambda flag: flag.sets)
def test_a_switch_is_parsed_under_each_of_its_names(flag: Flag) -> None:
    for name in flag.names:
        assert read_invocation([name]).has(flag.sets)
