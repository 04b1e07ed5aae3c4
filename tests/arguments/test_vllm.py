"""vLLM's flags in SGLang's words."""

from __future__ import annotations

import shlex

import pytest

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.fields.check import check_value
from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.arguments.vllm import counterpart, counterparts, translated

COMMANDS = [
    ("m --tensor-parallel-size 2 --max-model-len 32K", "--model-path m --tp-size 2 --context-length 32768", []),
    ("m -tp 4 --enable-expert-parallel", "--model-path m --tp-size 4 --ep-size 4", []),
    ("--model m --enforce-eager --seed=7", "--model-path m --disable-cuda-graph --random-seed 7", []),
    (
        "m --kv-cache-dtype fp8 --max-model-len 25.6k",
        "--model-path m --kv-cache-dtype fp8_e4m3 --context-length 25600",
        [],
    ),
    ("m --swap-space 4 --enable-prefix-caching", "--model-path m", ["warning", "info"]),
    ("m --gpu-memory-utilization 0.9", "--model-path m --mem-fraction-static 0.9", ["info"]),
    ("m --zzz 4", "--model-path m", ["error"]),
]


@pytest.mark.parametrize(("theirs", "ours", "levels"), COMMANDS, ids=[theirs for theirs, _, _ in COMMANDS])
def test_a_command_of_vllm_is_one_of_sglang(theirs: str, ours: str, levels: list[str]) -> None:
    argv, findings = translated(shlex.split(theirs))
    assert shlex.join(argv) == ours
    assert [finding.level for finding in findings] == levels
    assert parse_argv(argv)["model_path"] == "m"


def test_each_row_names_an_argument_that_takes_its_values() -> None:
    for flag, row in counterparts().items():
        assert (row.argument is None) == (row.why is not None), flag
        if row.argument is not None:
            field = FIELDS[row.argument.lstrip("!")]
            for value in (*row.values.values(), *([row.value] if row.value is not None else [])):
                assert check_value(field.name, value) is None, (flag, value)


def test_a_flag_that_vllm_does_not_have_has_no_counterpart() -> None:
    assert counterpart("--tp-size") is None
    assert counterpart("--max_model_len=4") == counterpart("--max-model-len")
