"""The server_args line of a log, and the release that wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.run.diagnose import diagnosis
from sglang_hydra.run.diagnose.diagnosis import diagnose
from sglang_hydra.run.diagnose.log_facts import _releases, stated_version, version_of
from sglang_hydra.run.diagnose.server_args import CUT, named, parse_server_args

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "arguments_0_5_23.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("None", None),
        ("True", True),
        ("0.88", 0.88),
        ("-1", -1),
        ("'a, b=c (d'", "a, b=c (d"),
        ('"it\'s"', "it's"),
        (r"'a\'b'", "a'b"),
        (r"'a\\'", "a\\"),
        ('\'{"rope_scaling": {"factor": 4.0}}\'', '{"rope_scaling": {"factor": 4.0}}'),
        ("[1, 2, [3, 'x']]", [1, 2, [3, "x"]]),
        ("(1, 2)", [1, 2]),
        ("{'a': [1, {'b': None}]}", {"a": [1, {"b": None}]}),
        ("{'b', 'a'}", ["a", "b"]),
        ("set()", []),
        ("inf", float("inf")),
        ("<SpeculativeAlgorithm.EAGLE: 'EAGLE'>", "EAGLE"),
        ("<function f at 0x7f, x>", "<function f at 0x7f, x>"),
        ("PosixPath('/models/x')", "/models/x"),
        ("torch.bfloat16", "bfloat16"),
        ("LoRARef(lora_name='a', lora_path='/b')", "LoRARef(lora_name='a', lora_path='/b')"),
        ("__import__('os').system('true')", "__import__('os').system('true')"),
        ("[f() for f in x]", "[f() for f in x]"),
    ],
)
def test_a_value_is_taken_apart_and_never_run(written: str, value: Any) -> None:
    for line in (
        f"server_args=ServerArgs(x=1, y={written}, z='end')",
        f"server_args={{'x': 1, 'y': {written}, 'z': 'end'}}",
    ):
        assert parse_server_args(f"[2025-06-26 07:25:31] {line}") == {"x": 1, "y": value, "z": "end"}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("server_args=ServerArgs(a=1, b='never clo", {"a": 1, CUT: True}),
        ("server_args=ServerArgs(a=1, b=2", {"a": 1, CUT: True}),
        ("server_args={'a': 1, 'b': [1, 2", {"a": 1, CUT: True}),
        ("server_args=ServerArgs()", None),
        ("server_args=None", None),
        ("nothing", None),
        ("server_args=ServerArgs(=1)", None),
        ("server_args=ServerArgs(a=1) and more)", {"a": 1}),
    ],
)
def test_a_line_that_was_cut_gives_what_is_there(line: str, values: dict[str, Any] | None) -> None:
    assert parse_server_args(line) == values


def test_a_key_is_hidden() -> None:
    values = parse_server_args("server_args=ServerArgs(api_key='sk-correct-horse', admin_api_key='x', model_path='m')")
    assert values is not None
    assert "correct-horse" not in str(values)
    assert values["api_key"] == "***"


def test_arguments_get_the_names_of_the_asked_release_and_defaults_are_left_out() -> None:
    line = (
        "server_args={'model_path': 'm', 'tp_size': 8, 'pp_size': 1, 'cuda_graph_max_bs_decode': 64, "
        "'host': '127.0.0.1', 'api_key': 'k', 'unheard_of': 3}"
    )
    values = parse_server_args(line) or {}
    assert named({**values, "cuda_graph_max_bs": 32}, "0.5.2")[0]["cuda_graph_max_bs"] == 32
    later = {"model_path": "m", "tp_size": 8, "cuda_graph_max_bs_decode": 64, "attn_dp_size": 8}
    assert named({**values, "attn_dp_size": 8, "dcp_size": "x"}, "0.5.23") == (later, ["dcp_size"])


# Releases


def test_every_release_since_0_4_is_known_by_its_arguments() -> None:
    releases = _releases()
    assert (releases[0][0], releases[-1][0]) == ("0.4.0", "0.5.23")
    assert len(releases) >= 90
    for version, fields in releases:
        found = version_of(fields)
        assert found is not None
        first, _, last = found.partition(" to ")
        names = [name for name, _ in releases]
        assert names.index(first) <= names.index(version) <= names.index(last or first)


def test_the_arguments_of_0_5_23_are_those_that_were_recorded() -> None:
    recorded = {name for name in RECORDED["arguments"] if not name.startswith("_")}
    assert dict(_releases())["0.5.23"] == recorded


def test_a_build_between_releases_is_near_one_and_another_program_is_none() -> None:
    fields = dict(_releases())["0.5.3"]
    assert version_of({*fields, "a_field_of_the_main_branch"}) == "near 0.5.3"
    assert version_of({"a", "b"}) is None
    assert version_of(()) is None
    assert version_of(sorted(fields)[:200], whole=False) is not None


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("sglang: 0.4.6.post5", "0.4.6.post5"),
        ("sglang version: 0.5.23", "0.5.23"),
        ("Successfully installed sglang-0.5.2 torch-2.8.0", "0.5.2"),
        ("docker run lmsysorg/sglang:v0.5.3rc1-cu129-b200 python3", "0.5.3rc1"),
        ('  File "/x/sglang-0.4.9.post2.dist-info/y"', "0.4.9.post2"),
        ("pip install sglang[all]==0.4.10.post2", "0.4.10.post2"),
        ("sgl_kernel: 0.3.9", None),
        ("sglang is great, 0.5 stars", None),
    ],
)
def test_a_release_that_is_stated_is_read(line: str, version: str | None) -> None:
    assert stated_version(line) == version
    assert diagnose([line]).version == version


def test_of_many_starts_in_a_log_one_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(diagnosis, "parse_server_args", lambda text: parsed.append(text) or parse_server_args(text))
    start = (Path(__file__).parents[2] / "data" / "diagnosis" / "start_0_5_23_strict_thinking.log").read_text()
    found = diagnose(start.splitlines() * 20)
    assert found.server_args is not None
    assert len(parsed) == 1
