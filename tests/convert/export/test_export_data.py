"""argv and engine-kwargs, and the same for programs that have a plan: as_argv() and its like."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.text.errors import ConfigError
from tests.convert.export.exports import DEEPSEEK, TWO_NODES, artifact, plan_of, with_intent

ADAPTERS = "lora_paths=['sql=/a',{lora_name: x, lora_path: /b}]"


def test_argv_is_a_list_with_a_line_for_each_argument() -> None:
    text = artifact("argv", *DEEPSEEK).text
    words = json.loads(text)
    assert len(text.splitlines()) == len(words) + 2
    assert parse_argv(words) == {"model_path": "deepseek-ai/DeepSeek-V3", "tp_size": 8, "random_seed": 42}


def test_argv_of_several_nodes_is_a_list_for_each() -> None:
    made = artifact("argv", *TWO_NODES)
    first, second = json.loads(made.text)
    assert parse_argv(second)["node_rank"] == 1
    assert "--node-rank" not in first
    assert [finding.id for finding in made.findings] == ["EXP005"]
    named = artifact("argv", *TWO_NODES, "dist_init_addr=10.0.0.1:5000")
    assert parse_argv(json.loads(named.text)[1])["dist_init_addr"] == "10.0.0.1:5000"
    assert named.findings == ()


def test_the_key_is_in_no_data() -> None:
    for format in ("argv", "engine-kwargs"):
        made = artifact(format, *DEEPSEEK, "api_key=correct-horse")
        assert "correct-horse" not in made.text
        assert "EXP007" in [finding.id for finding in made.findings]


def test_keyword_arguments_are_what_was_asked_for_and_the_seed() -> None:
    made = artifact("engine-kwargs", "gpu=h200", "model=qwen3_8b", "host=0.0.0.0", "enable_metrics=true", ADAPTERS)
    assert json.loads(made.text) == {
        "model_path": "Qwen/Qwen3-8B",
        "enable_metrics": True,
        "lora_paths": ["sql=/a", {"lora_name": "x", "lora_path": "/b"}],
        "random_seed": 42,
    }
    assert [finding.id for finding in made.findings] == ["EXP008"]
    assert artifact("engine-kwargs", *DEEPSEEK, "log_level=info").findings == ()


def test_variables_that_keyword_arguments_cannot_hold_are_named() -> None:
    said = artifact("engine-kwargs", *DEEPSEEK, "+engine.env.SGLANG_X=1", "log_level=info").findings
    assert [(finding.id, "SGLANG_X" in finding.message) for finding in said] == [("EXP009", True)]


def test_a_relative_path_is_said_to_be_one() -> None:
    for format in ("argv", "engine-kwargs", "shell", "slurm"):
        made = artifact(format, *DEEPSEEK, "chat_template=./chat.jinja", "host=0.0.0.0", "log_level=info")
        assert [finding.id for finding in made.findings] == ["EXP019"], format


def test_a_plan_gives_its_flags_arguments_and_variables() -> None:
    plan = plan_of(*DEEPSEEK, "+engine.env.SGLANG_X=1", "+engine.env.HF_TOKEN=hf_abc", "api_key=correct-horse")
    assert plan.as_argv() == list(plan.command[3:])
    assert plan.as_engine_kwargs() == {"model_path": "deepseek-ai/DeepSeek-V3", "tp_size": 8, "random_seed": 42}
    assert plan.as_env() == {"SGLANG_X": "1"}
    two = plan_of(*TWO_NODES)
    assert parse_argv(two.as_argv(1))["node_rank"] == two.as_engine_kwargs(1)["node_rank"] == 1


def merged(text: str) -> list[str]:
    """The flags that SGLang makes of a --config file (0.5.23: srt/utils/server_args_config_parser.py)."""
    words: list[str] = []
    for key, value in yaml.safe_load(text).items():
        if isinstance(value, bool):
            words += [f"--{key}"]
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        else:
            words += [f"--{key}", str(value)]
    return words


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tp_size": 8, "mem_fraction_static": 0.85, "enable_metrics": True},
        {"served_model_name": "on", "tool_server": "12:30", "schedule_conservativeness": 1e-05},
        {"served_model_name": "1e5", "tool_server": "0x10"},
        {"cuda_graph_bs": [1, 2, 4], "crash_dump_folder": "/a b"},
        {"served_model_name": "a\nb: {c}", "json_model_override_args": '{"a": 1}'},
    ],
)
def test_a_config_file_of_sglangs_own_gives_the_same_flags(arguments: dict[str, Any]) -> None:
    plan = with_intent(plan_of(*DEEPSEEK), **arguments)
    assert merged(plan.as_yaml()) == plan.as_argv()


def test_a_config_file_refuses_adapters_and_what_would_be_read_as_a_flag() -> None:
    with pytest.raises(ConfigError, match="adapters"):
        with_intent(plan_of(*DEEPSEEK), lora_paths=["a=/b"]).as_yaml()
    with pytest.raises(ConfigError, match="served_model_name"):
        with_intent(plan_of(*DEEPSEEK), served_model_name="-x").as_yaml()
    with pytest.raises(ConfigError, match="EXP020"):
        with_intent(plan_of(*DEEPSEEK), chunked_prefill_size=-1).as_yaml()


@pytest.mark.parametrize("id", sorted(recipes())[::10])
def test_recipes_come_back_from_their_flags(id: str) -> None:
    plan = plan_of(f"recipe={id}", "random_seed=1")
    if plan.ok:
        for name, value in parse_argv(plan.as_argv()).items():
            assert plan.intent[name] == value or name == "dist_init_addr", name
        assert merged(plan.as_yaml()) == plan.as_argv() or "chunked_prefill_size" in plan.intent
