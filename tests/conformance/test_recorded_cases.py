"""The recorded behaviour of the real SGLang 0.5.2, and whether the tool that compares with it can be trusted."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools import conformance

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "conformance"


@pytest.mark.parametrize(
    ("name", "cases"), [("public.jsonl.gz", 660), ("targeted.jsonl.gz", 5318), ("ports.jsonl", 55)]
)
def test_nothing_differs_from_the_real_sglang(name: str, cases: int) -> None:
    count, mismatches = conformance.check_file(DATA / name)
    assert count == cases
    assert mismatches == []


def test_package_reads_no_recorded_case() -> None:
    words = ("tests/data", "data/conformance", "public.jsonl", "targeted.jsonl", "ports.jsonl")
    for path in ROOT.joinpath("sglang_hydra").rglob("*.py"):
        text = path.read_text()
        assert not [word for word in words if word in text], path


Spoil = Callable[[dict[str, Any]], None]


def _accept_a_refusal(expected: dict[str, Any]) -> None:
    expected.update(ok=False, stage="check", error="none", line=2300)


def _swap_type(expected: dict[str, Any]) -> None:
    expected["resolved"]["page_size"] = True


def _nudge_float(expected: dict[str, Any]) -> None:
    expected["resolved"]["mem_fraction_static"] += 1e-16 * 2


def _add_field(expected: dict[str, Any]) -> None:
    expected["resolved"]["tp_size"] = 2


def _drop_field(expected: dict[str, Any]) -> None:
    del expected["resolved"]["page_size"]


def _change_env(expected: dict[str, Any]) -> None:
    expected["env"]["SGLANG_ENABLE_TORCH_COMPILE"] = "1"


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (_accept_a_refusal, "verdict"),
        (_swap_type, "field"),
        (_nudge_float, "field"),
        (_add_field, "field"),
        (_drop_field, "field"),
        (_change_env, "env"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_injected_difference_is_found(spoil: Spoil, kind: str) -> None:
    record = _record("targeted.jsonl.gz", "t/base/0")
    expected = copy.deepcopy(record["expected"])
    assert conformance.compare(expected, conformance.produce(record["case"])) == []
    spoil(expected)
    assert [found.kind for found in conformance.compare(expected, conformance.produce(record["case"]))] == [kind]


@pytest.mark.parametrize(("field", "value", "kind"), [("stage", "check", "stage"), ("line", 1, "line")])
def test_an_injected_difference_of_a_refusal_is_found(field: str, value: object, kind: str) -> None:
    record = _record("targeted.jsonl.gz", "t/vlm-edge/4")
    expected = {**record["expected"], field: value}
    assert [found.kind for found in conformance.compare(expected, conformance.produce(record["case"]))] == [kind]


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, True), (1, 1.0), (0.1 + 0.2, 0.3), ([1], [True]), ({"a": 1}, {"a": 1.0}), (None, False), ([], None), ("", [])],
)
def test_values_of_different_types_are_not_the_same(left: object, right: object) -> None:
    assert not conformance.same(left, right)
    assert conformance.same(left, left)


def test_what_json_cannot_say_goes_there_and_back() -> None:
    recorded = [
        {"__type__": "set", "items": ["b", "a"]},
        {"__type__": "tuple", "items": [1, 2]},
        {"__type__": "LoRARef", "lora_name": "a", "lora_path": "/l/a", "pinned": True},
    ]
    decoded = conformance.decode(recorded)
    assert decoded[0] == {"a", "b"}
    assert decoded[1] == (1, 2)
    assert conformance.encode(decoded) == [
        ["a", "b"],
        [1, 2],
        {"lora_name": "a", "lora_path": "/l/a", "pinned": True},
    ]


def test_command_line_counts_shows_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = _record("targeted.jsonl.gz", "t/base/0")
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(json.dumps(record) + "\n")
    record["expected"]["resolved"]["port"] = 1
    bad.write_text(json.dumps(record) + "\n")

    assert conformance.main([str(good)]) == 0
    assert "1 cases; mismatches: 0 verdict, 0 stage, 0 field, 0 env, 0 line" in capsys.readouterr().out
    assert conformance.main([str(good), str(bad)]) == 1
    assert "port is 30000, and with SGLang 1" in capsys.readouterr().out


@pytest.mark.parametrize("full", [False, True])
def test_emitted_cases_have_the_form_of_the_expected_ones(tmp_path: Path, full: bool) -> None:
    out = tmp_path / "out.jsonl"
    options = ["--full"] if full else []
    assert conformance.main([str(DATA / "public.jsonl.gz"), "--emit", str(out), *options]) == 0
    emitted = {line["id"]: line for line in map(json.loads, out.read_text().splitlines())}
    for record in conformance.read_cases(DATA / "public.jsonl.gz"):
        expected, got = record["expected"], emitted[record["case"]["id"]]
        assert got["ok"] == expected["ok"]
        if not expected["ok"]:
            assert got["stage"] == expected["stage"]
        elif full:
            assert len(got["resolved"]) == 210
        else:
            assert got["resolved"] == expected["resolved"]
            assert got["env"] == expected["env"]


def _record(name: str, case: str) -> dict[str, Any]:
    return next(record for record in conformance.read_cases(DATA / name) if record["case"]["id"] == case)


def test_what_holds_no_cases_does_not_pass(tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty.jsonl", tmp_path / "broken.jsonl"
    empty.write_text("")
    broken.write_text('{"case": 1')
    assert conformance.main([str(empty)]) == 1
    assert conformance.main([str(broken)]) == 2
    assert conformance.main([str(tmp_path / "absent.jsonl")]) == 2
