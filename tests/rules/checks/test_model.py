"""The model's config and its attention backend."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks import model, model_sizes
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged

ROWS = (
    unchanged(model.config_is_readable_for_memory, json_model_override_args='{"foo": 1}'),
    unchanged(model.config_is_readable_for_memory, model="unknown"),
    unchanged(model.config_is_readable_for_memory, model="nameless", mem_fraction_static=0.8),
    refused(model.config_is_readable_for_memory, "architectures is null", model="nameless"),
    refused(model.config_is_readable_for_memory, "architectures is null", model="nameless", enable_multimodal=True),
    refused(model.config_is_readable_for_memory, "is []", json_model_override_args='{"architectures": []}'),
    unchanged(
        model.config_is_readable_for_memory, json_model_override_args='{"architectures": []}', enable_multimodal=False
    ),
    refused(model.config_is_readable_for_memory, "line 1 column 2", json_model_override_args="{oops"),
    refused(model.config_is_readable_for_memory, "line 2 column 1", json_model_override_args='{"a": 1,\n'),
    refused(model.config_is_readable_for_memory, "not JSON", model="unknown", json_model_override_args=""),
    refused(model.config_is_readable_for_memory, "not an object", json_model_override_args="[1]"),
    refused(model.config_is_readable_for_memory, "not JSON", json_model_override_args=None),
    unchanged(model.config_is_readable_for_memory, json_model_override_args="null"),
    unchanged(model.overrides_are_an_object, json_model_override_args="{oops"),
    refused(
        model.overrides_are_an_object, "line 1 column 2", json_model_override_args="{oops", mem_fraction_static=0.8
    ),
    unchanged(model.overrides_are_an_object, json_model_override_args="[]", mem_fraction_static=0.8),
    refused(model.config_names_an_architecture, "null", model="nameless", mem_fraction_static=0.8),
    refused(
        model.config_names_an_architecture,
        "is []",
        json_model_override_args='{"architectures": []}',
        enable_multimodal=False,
    ),
    unchanged(model.config_names_an_architecture, model="nameless"),
    unchanged(model.config_names_an_architecture, model="unknown", mem_fraction_static=0.8),
    unchanged(model.config_names_an_architecture, mem_fraction_static=0.8),
    refused(TABLE["MDL005"], "flashinfer", "fa3", model="gpt_oss", attention_backend="flashinfer"),
    unchanged(TABLE["MDL005"], model="gpt_oss", attention_backend="triton"),
    unchanged(TABLE["MDL005"], model="llama_3_1_8b", attention_backend="flashinfer"),
    refused(TABLE["MDL014"], "knows no model_type 'x'", model="unheard_of"),
    refused(TABLE["MDL014"], "knows no", model="unheard_of", mem_fraction_static=0.8),
    unchanged(TABLE["MDL014"], model="sized"),
    unchanged(TABLE["MDL014"], model="unknown"),
    refused(model_sizes.config_states_its_sizes, "hidden_size is null", model="sizeless"),
    refused(model_sizes.config_states_its_sizes, "num_attention_heads is 0", model="headless"),
    refused(model_sizes.config_states_its_sizes, "model_type is null", model="typeless"),
    refused(model_sizes.config_states_its_sizes, "qk_rope_head_dim is null", model="ropeless"),
    refused(
        model_sizes.config_states_its_sizes,
        "replaces text_config",
        model="nested",
        json_model_override_args='{"text_config": {}}',
    ),
    unchanged(model_sizes.config_states_its_sizes, model="nested", json_model_override_args='{"vocab_size": 4}'),
    unchanged(model_sizes.config_states_its_sizes, model="typeless", dtype="bfloat16"),
    unchanged(model_sizes.config_states_its_sizes, model="sized"),
    unchanged(model_sizes.config_states_its_sizes, model="sizeless", mem_fraction_static=0.8),
    unchanged(model_sizes.config_states_its_sizes, model="llama_3_1_8b"),
    refused(TABLE["MDL015"], "neither", gpu="cpu", model="gpt_oss"),
    unchanged(TABLE["MDL015"], gpu="cpu_of_an_excerpt", model="gpt_oss"),
    unchanged(TABLE["MDL015"], gpu="mi300x", model="gpt_oss"),
    unchanged(TABLE["MDL015"], gpu="cpu", model="llama_3_1_8b"),
    refused(
        TABLE["MDL008"],
        "ep_size=1, not 4",
        model="gpt_oss",
        ep_size=4,
        moe_runner_backend="triton_kernel",
    ),
    unchanged(TABLE["MDL008"], model="gpt_oss", ep_size=4, moe_runner_backend="triton"),
    unchanged(TABLE["MDL008"], model="mixtral_8x7b", ep_size=4, moe_runner_backend="triton_kernel"),
    refused(model.llama_4_runs_on_backend, "null", "fa3 or aiter or triton", model="llama_4_scout"),
    refused(model.llama_4_runs_on_backend, "flashinfer", model="llama_4_scout", attention_backend="flashinfer"),
    unchanged(model.llama_4_runs_on_backend, model="llama_4_scout", attention_backend="aiter"),
    unchanged(model.llama_4_runs_on_backend, model="gpt_oss"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
