"""Releases that nobody recorded: their tables are read from their wheels, and what is new is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sglang_hydra.arguments.accepted import accepted
from sglang_hydra.arguments.tables.table import known_versions, nearest_known, pinned_rows, release
from sglang_hydra.releases import wheels
from sglang_hydra.releases.adopting import adopt, keep_table, said_of
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import record_of
from sglang_hydra.releases.release import ask_release
from sglang_hydra.releases.trusted import pin, trust
from tests.releases.fake import FILES, make_wheel
from tests.releases.test_trusted import build  # noqa: F401 - a fixture
from tests.releases.test_wheels import _case
from tools import hidden_releases

NEXT = "9.9.9"
HOME = "sglang/srt/server_args.py"


def adopted(folder: Path, server_args: str, **files: str) -> dict[str, list[str]]:
    """What is said of a wheel with this argument code, once it is adopted."""
    make_wheel(folder / "registry", "sglang", NEXT, {**FILES, HOME: server_args, **files})
    made, row = adopt(trust(str(folder / "registry" / f"sglang-{NEXT}-py3-none-any.whl")))
    pin(made)
    keep_table(NEXT, row)
    end_children()
    return dict(said_of(row))


def test_new_arguments_are_typed_and_those_that_are_gone_are_refused(build: Path, tmp_path: Path) -> None:  # noqa: F811
    assert nearest_known(NEXT) == known_versions()[-1]
    new = "    my_limit: \"A[int, 'how many']\" = 3\n    my_mode: \"Optional[Literal['a', 'b']]\" = None\n"
    code = FILES[HOME].replace("    random_seed: int = 0\n", f"    random_seed: int = 0\n{new}")
    code = code.replace(
        'parser.add_argument("--ask"', 'parser.add_argument("--my-limit", type=int); parser.add_argument("--ask"'
    )
    assert code.count("my_limit") == 1
    said = adopted(tmp_path, code)
    assert "my_limit" in said["new arguments"]
    assert "tp_size" in said["arguments that are gone"]
    assert nearest_known(NEXT) == NEXT
    mine = release(NEXT).arguments["my_limit"]
    assert (mine.type, mine.default) == ("int", 3)
    assert release(NEXT).arguments["my_mode"].type == "str | None"
    assert "tp_size" not in release(NEXT).arguments
    made = accepted({"model_path": "m", "tp_size": 2}, NEXT)
    assert [finding.id for finding in made.findings if finding.level == "error"]
    (finding,) = [each for each in made.findings if each.id == "VER002"]
    assert "is not recorded" in finding.message
    keep_table(NEXT, None)
    assert nearest_known(NEXT) == known_versions()[-1]


def test_a_question_that_nothing_answers_is_named_once(build: Path, tmp_path: Path) -> None:  # noqa: F811
    asks = 'self.found = QUESTIONS["serial"](self)'
    code = FILES[HOME].replace("self.found = QUESTIONS[self.ask](self) if self.ask else None", asks)
    assert code != FILES[HOME]
    questions = adopted(tmp_path, code)["new questions"]
    assert len(questions) == 1
    assert "nvidia-smi" in questions[0]


def test_a_module_that_moved_is_made_real(build: Path, tmp_path: Path) -> None:  # noqa: F811
    code = FILES[HOME].replace(
        "self.found =", "from sglang.srt.layers.elsewhere import number; self.found = number() + 1; self.found ="
    )
    said = adopted(tmp_path, code, **{"sglang/srt/layers/elsewhere.py": "def number():\n    return 4\n"})
    assert said["new questions"] == []
    record = record_of(NEXT)
    assert record is not None
    assert "sglang.srt.layers.elsewhere" in record.real_parts
    assert ask_release(NEXT, [_case()])[0].ok


def test_tables_that_others_can_write_are_not_read(build: Path, tmp_path: Path) -> None:  # noqa: F811
    adopted(tmp_path, FILES[HOME])
    assert NEXT in pinned_rows()
    file = tmp_path / "settings" / "sglang_hydra" / "trusted_tables.json"
    file.chmod(0o666)
    assert pinned_rows() == {}
    file.chmod(0o600)
    file.write_text("{")
    os.utime(file, (1, 1))
    assert pinned_rows() == {}


@pytest.mark.registry
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["0.5.23", "0.5.9"])
def test_a_hidden_release_is_adopted_from_its_wheel(version: str) -> None:
    """What it reads and answers then is what the tables that another reader made give."""
    record = record_of(version)
    assert record is not None
    wheels.fetch(record)
    assert hidden_releases.main([version, "--every", "7"]) == 0
