"""The subjects of findings: what control flow asks for in place of ids."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import sglang_hydra
from sglang_hydra.planning.finding_meanings import plan_ids
from sglang_hydra.text.findings import Finding, Subject
from sglang_hydra.text.json_types import json_beside

ROOT = Path(sglang_hydra.__file__).parent
_ASKED = re.compile(r"(?<!node)\.id (?:==|!=|in|not in) (?:\(?\"[A-Z]{3}\d|_?[A-Z][A-Z_]+\b)")


def test_each_subject_is_typed_and_has_ids_that_exist() -> None:
    table = json_beside(str(ROOT / "text" / "findings.py"))
    assert {"", *table} == set(get_args(Subject))
    ids = [id for listed in table.values() for id in listed]
    assert len(ids) == len(set(ids))
    assert plan_ids().issuperset(ids)
    assert Finding("error", "DEV002", "no GPU").about == "no_device"
    assert Finding("error", "MEM001", "more memory").about == ""


def test_no_control_flow_asks_for_an_id() -> None:
    assert _ASKED.search('if finding.id == "HUB004"')
    assert _ASKED.search("if finding.id not in _NOT_HAD:")
    lines = (line for file in ROOT.rglob("*.py") for line in file.read_text(encoding="utf-8").splitlines())
    assert [line.strip() for line in lines if _ASKED.search(line)] == []
