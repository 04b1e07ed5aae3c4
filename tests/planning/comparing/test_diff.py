"""``diff``: two plans side by side, each difference with whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.show.comparison import _what_differs
from tests.commands import valid

H100 = "gpu=h100 model=deepseek_v3 tp_size=8"
B200 = "gpu=b200 model=deepseek_v3 tp_size=8"


def diff(capsys: pytest.CaptureFixture[str], left: str, right: str) -> dict[str, Any]:
    assert entry(["diff", "--json", left, right]) == 0
    record: dict[str, Any] = valid("diff", capsys.readouterr().out)
    return record


def by_key(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["key"]: item for item in record["differences"]}


def test_another_gpu_changes_what_the_rules_make_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = by_key(diff(capsys, H100, B200))
    assert (found["chunked_prefill_size"]["left"], found["chunked_prefill_size"]["right"]) == (8192, 16384)
    assert found["chunked_prefill_size"]["why"]["left"].startswith("SCH001: ")
    assert (found["gpu.name"]["left"], found["gpu.name"]["right"]) == ("h100", "b200")
    assert (found["fits"]["left"], found["fits"]["right"]) == (False, True)


def test_a_typed_value_names_the_side_and_the_word(capsys: pytest.CaptureFixture[str]) -> None:
    found = by_key(diff(capsys, "gpu=h200 model=qwen3_8b", "gpu=h200 model=qwen3_8b page_size=16"))
    assert found["page_size"]["why"]["right"] == "cli, right side, word 3"
    assert set(found) == {"page_size", "kv_tokens"}  # whole pages of 16 tokens


def test_equal_sides_are_the_same_server(capsys: pytest.CaptureFixture[str]) -> None:
    record = diff(capsys, H100, f"{H100} host=0.0.0.0 port=1234")
    assert record["left"]["server_id"] == record["right"]["server_id"]
    assert set(by_key(record)) == {"host", "port"}


def test_a_plan_and_a_yaml_are_sides_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["plan", "--json", *H100.split()]) == 2
    plan, yaml = tmp_path / "plan.json", tmp_path / "own.yaml"
    plan.write_text(capsys.readouterr().out)
    yaml.write_text("gpu: h100\nmodel: deepseek_v3\ntp_size: 8\nenable_dp_attention: true\ndp_size: 8\n")
    assert by_key(diff(capsys, str(plan), H100)) == {}  # each drew a seed: no difference
    assert set(by_key(diff(capsys, f"lock={plan}", f"lock={plan} host=0.0.0.0"))) == {"host"}
    assert "enable_dp_attention" in by_key(diff(capsys, str(plan), str(yaml)))


def test_the_screen_shows_values_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["diff", H100, B200]) == 0
    said = capsys.readouterr().out
    assert "8192" in said
    assert "9.0    ->  10.0" in said
    assert "SCH001: GPUs of 160 GiB and more" in said
    assert "left: FIT001" in said


@pytest.mark.parametrize(
    ("sides", "id"),
    [([H100], "DIF001"), ([H100, B200, H100], "DIF001"), ([H100, "gpu='h200"], "DIF001"), ([H100, "gpu=h999"], "CLI")],
)
def test_what_is_no_pair_of_plans_says_so(sides: list[str], id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["diff", *sides]) == 2
    assert id in capsys.readouterr().err


def test_no_secret_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["diff", "gpu=h200 model=qwen3_8b api_key=hunter22", "gpu=h200 model=qwen3_8b api_key=hunter23"]) == 0
    assert "hunter2" not in capsys.readouterr().out


def test_arguments_of_a_later_release_and_variables_name_who_set_them(capsys: pytest.CaptureFixture[str]) -> None:
    common = "gpu=h200 model=gpt_oss engine.version=0.5.23"
    left = f"{common} dcp_size=2 engine.env.NCCL_DEBUG=INFO"
    found = by_key(diff(capsys, left, f"{common} engine.env.NCCL_DEBUG=WARN engine.env.HF_TOKEN=hush"))
    assert (found["dcp_size"]["left"], found["dcp_size"]["right"]) == (2, 1)
    assert found["dcp_size"]["why"] == {"left": "cli, left side, word 4", "right": "default"}
    assert found["NCCL_DEBUG"]["why"] == {"left": "cli, left side, word 5", "right": "cli, right side, word 4"}
    assert found["HF_TOKEN"]["right"] == "***"


def test_several_servers_are_compared_by_their_roles(capsys: pytest.CaptureFixture[str]) -> None:
    one = "gpu=h200 model=qwen3_8b"
    two = f"{one} topology=replicas replicas=2"
    record = diff(capsys, two, f"{one} topology=replicas replicas=3 topology.router.policy=random tp_size=2")
    found = by_key(record)
    assert (found["servers"]["left"], found["servers"]["right"]) == (2, 3)
    assert found["router: policy"]["right"] == "random"
    assert found["replica: tp_size"]["why"]["right"] == "cli, right side, word 6"
    assert record["left"]["server_id"] != record["right"]["server_id"]
    found = by_key(diff(capsys, two, one))
    assert (found["topology"]["left"], found["topology"]["right"]) == ("replicas", "single")
    assert "replica: port" in found


def test_a_side_that_is_only_a_release_is_the_other_side_under_it(capsys: pytest.CaptureFixture[str]) -> None:
    record = diff(capsys, "engine.version=0.5.18 gpu=b200 model=qwen3_8b", "engine.version=0.5.23")
    found = by_key(record)
    assert (found["engine"]["left"], found["engine"]["right"]) == ("sglang 0.5.18", "sglang 0.5.23")
    assert not any(key.startswith("gpu.") for key in found)


def test_of_two_mappings_the_screen_has_what_differs() -> None:
    left, right = {"a": {"b": 1, "c": [2]}, "d": 3}, {"a": {"b": 1, "c": [4]}, "e": 5}
    assert _what_differs(left, right) == ({"a": {"c": [2]}, "d": 3}, {"a": {"c": [4]}, "e": 5})
