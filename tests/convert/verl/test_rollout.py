"""What verl will start, planned from its tree: verl's own arguments, the keys that were set over them, what leaves."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from omegaconf import OmegaConf

import sglang_hydra
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.convert.verl import Rollout, plan_rollout
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

AT = "actor_rollout_ref"
NODE = f"{AT}.rollout.engine_kwargs.sglang"


def tree(node: Mapping[str, Any] | None = None, rollout: Mapping[str, Any] | None = None, **model: Any) -> Any:
    """verl's tree as far as a rollout reads it, with ``node`` as its SGLang arguments."""
    return {
        AT: {
            "hybrid_engine": True,
            "model": {"path": "Qwen/Qwen3-8B", "target_modules": "all-linear", "lora_rank": 0, **model},
            "rollout": {
                "name": "sglang",
                "dtype": "bfloat16",
                "gpu_memory_utilization": 0.6,
                "enforce_eager": False,
                "tensor_model_parallel_size": 2,
                "data_parallel_size": 1,
                "max_num_seqs": 512,
                "load_format": "dummy",
                "n_gpus_per_node": "${oc.select:trainer.n_gpus_per_node,8}",
                "engine_kwargs": {"vllm": {}, "sglang": {"gpu": "h200", **(node or {})}},
                **(rollout or {}),
            },
        },
        "trainer": {"n_gpus_per_node": 8},
    }


def rollout_of(config: Any) -> Rollout:
    return plan_rollout(config, seed=1, env={})


def refusals(config: Any) -> Sequence[Finding]:
    with pytest.raises(ConfigError) as caught:
        rollout_of(config)
    return caught.value.findings


def ids(made: Rollout) -> list[str]:
    return [finding.id for finding in made.plan.findings]


def test_the_plan_starts_from_the_whole_rollout_node() -> None:
    made = rollout_of(tree())
    values = made.plan.values
    assert {name: values[name] for name in ("mem_fraction_static", "tp_size", "dp_size", "max_running_requests")} == {
        "mem_fraction_static": 0.6,
        "tp_size": 2,
        "dp_size": 1,
        "max_running_requests": 512,
    }
    assert (values["disable_cuda_graph"], values["load_format"], values["model_path"]) == (
        False,
        "dummy",
        "Qwen/Qwen3-8B",
    )
    assert (made.plan.gpu.name, made.plan.gpu.count) == ("h200", 2), "a server sees the GPUs of its own workers"
    assert made.plan.launchable
    assert made.plan.fit is not None
    assert made.plan.fit.fits


def test_what_verl_adds_itself_is_marked() -> None:
    made = rollout_of(tree({"page_size": 16}))
    itself = {name for name, own in made.passed.items() if own.place == "verl itself"}
    assert itself == {
        *("enable_memory_saver", "base_gpu_id", "gpu_id_step", "node_rank", "log_level", "skip_server_warmup"),
        *("attention_backend", "mm_attention_backend", "custom_weight_loader"),
    }
    assert made.passed["mem_fraction_static"].place == f"{AT}.rollout.gpu_memory_utilization"
    layers = {name: chain[-1].layer for name, chain in made.plan.origins.items()}
    assert (layers["enable_memory_saver"], layers["tp_size"], layers["page_size"]) == ("verl", "verl", "primary")
    assert made.plan.environment["SGLANG_BLOCK_NONZERO_RANK_CHILDREN"] == "0"
    assert set(made.server_args) <= set(FIELDS)
    assert made.server_args.keys() == made.passed.keys() | made.engine_kwargs.keys()


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"page_size": 16},
        {"tp_size": 1, "dp_size": 1},
        {"chunked_prefill_size": 8192, "kv_cache_dtype": "auto"},  # SGLang's defaults, and still set
        {"attention_backend": "flashinfer", "custom_weight_loader": ["a.b"]},
        {"cuda_graph_bs": [1, 2, 4], "lora_paths": {"sql": "/adapters/sql"}, "enable_lora": True, "max_lora_rank": 8},
        {"tokenizer_path": None},
        {"context_length": "${data.length}"},
    ],
    ids=str,
)
def test_keys_out_are_keys_in(node: dict[str, Any]) -> None:
    config = OmegaConf.create({**tree(node), "data": {"length": 1024}})
    before = copy.deepcopy(config)
    made = rollout_of(config)
    expected = {name: 1024 if value == "${data.length}" else value for name, value in node.items()}
    assert dict(made.engine_kwargs) == expected
    left = made.leave(config)
    assert OmegaConf.to_container(OmegaConf.select(left, NODE)) == expected
    assert config == before, "the tree itself stays as it is"
    OmegaConf.update(left, NODE, {})
    OmegaConf.update(before, NODE, {}, merge=False)
    OmegaConf.update(left, NODE, {}, merge=False)
    assert left == before, "nothing else changes"


def test_plain_containers_leave_as_plain_containers() -> None:
    config = tree({"page_size": 16, "fit": {"reserved_gib": 20}, "ignore": ["FIT002"]})
    left = rollout_of(config).leave(config)
    assert left[AT]["rollout"]["engine_kwargs"] == {"vllm": {}, "sglang": {"page_size": 16}}
    assert config[AT]["rollout"]["engine_kwargs"]["sglang"]["gpu"] == "h200"


def test_a_tree_without_the_node_gets_an_empty_one() -> None:
    config = tree(rollout={"engine_kwargs": {}})
    made = plan_rollout(config, env={})
    assert dict(made.engine_kwargs) == {}
    assert made.leave(config)[AT]["rollout"]["engine_kwargs"] == {"sglang": {}}


def test_the_last_word_wins_as_in_verl() -> None:
    made = rollout_of(tree({"mem_fraction_static": 0.7, "attention_backend": "flashinfer", "log_level": "info"}))
    assert made.plan.values["mem_fraction_static"] == made.server_args["mem_fraction_static"] == 0.7
    assert [origin.value for origin in made.plan.origins["mem_fraction_static"]] == [0.6, 0.7]
    assert "over verl's 0.6" in made.as_text()


@pytest.mark.parametrize(
    ("node", "id", "said", "hint"),
    [
        ({"pagesize": 16}, "CLI001", f"{NODE}.pagesize: 'pagesize'", "did you mean page_size?"),
        ({"max_model_len": 1}, "CLI001", "'max_model_len' is no argument", "did you mean context_length?"),
        ({"gpus": "h200"}, "CLI001", "'gpus' is no argument", "did you mean gpu?"),
        ({"enable_weights_cpu_backup": True}, "CLI001", "of SGLang 0.5.3", f"{NODE}.engine.version=0.5.3"),
        ({"page_size": "x"}, "CLI002", f"{NODE}.page_size: page_size='x' is not an int", "--help page_size"),
        ({"attention_backend": "fa33"}, "CLI002", "attention_backend='fa33'", ""),
        ({"gpu": "h2000"}, "CLI006", "gpu=h2000 does not exist", "gpu=h200; or "),
        ({"launch": {"detach": True}}, "VRL003", "launch is not a key of a rollout", ""),
        ({"model": "qwen3_8b"}, "VRL003", "verl says which model", "model.facts_from"),
        ({"engine": "transformers"}, "VRL003", "SGLang runs it", ""),
    ],
    ids=str,
)
def test_a_key_that_cannot_be_is_an_error_with_a_suggestion(
    node: dict[str, Any], id: str, said: str, hint: str
) -> None:
    (finding,) = refusals(tree(node))
    assert (finding.id, finding.level) == (id, "error")
    assert said in finding.message
    assert hint in (finding.hint or "")


def test_all_mistakes_are_reported_at_once() -> None:
    found = refusals(tree({"pagesize": 16, "tpsize": 2, "page_size": "x"}))
    assert [finding.hint for finding in found][:2] == ["did you mean page_size?", "did you mean tp_size?"]
    assert len(found) == 3


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "has no rollout and model nodes"),
        ({AT: {"rollout": {}, "model": None}}, "has no rollout and model nodes"),
        (tree(rollout={"name": "vllm"}), "rollout.name=vllm"),
        (tree(path=None), "no model is named"),
        (tree(rollout={"tensor_model_parallel_size": "two"}), "tensor_model_parallel_size='two' is no number of GPUs"),
        (tree(rollout={"data_parallel_size": 0}), "data_parallel_size=0 is no number of GPUs"),
        (tree(rollout={"engine_kwargs": {"sglang": [1]}}), "is not a mapping"),
        (tree(rollout={"gpu_memory_utilization": "much"}), f"{AT}.rollout.gpu_memory_utilization: mem_fraction_static"),
        (tree(rollout={"max_num_seqs": "${nowhere}"}), "nowhere"),
    ],
    ids=["empty", "no model", "vllm", "no path", "text", "zero", "list", "value", "interpolation"],
)
def test_what_is_no_rollout_of_sglang_is_refused(config: Any, said: str) -> None:
    assert said in " ".join(finding.message for finding in refusals(config))


@pytest.mark.parametrize(("typed", "meant"), [("2", 2), ("two", 1), ("0", 1)])
def test_a_number_in_quotes_keeps_its_value_in_the_hint(typed: str, meant: int) -> None:
    (finding,) = refusals(tree(rollout={"tensor_model_parallel_size": typed}))
    assert finding.hint == f"{AT}.rollout.tensor_model_parallel_size={meant}"


@pytest.mark.parametrize(
    ("rollout", "model", "said"),
    [
        ({"pipeline_model_parallel_size": 2}, {}, "no pipeline parallelism"),
        ({"expert_parallel_size": 4}, {}, "1 or 2"),
        ({"quantization": "torchao"}, {}, "fp8 is the one"),
        ({"quantization": "fp8"}, {}, "SGLang 0.5.5"),
        ({"mtp": {"enable": True, "enable_rollout": True}}, {}, "SGLang 0.5.6"),
        ({"tensor_model_parallel_size": 12}, {}, "does not fill nodes of 8"),
        ({"max_model_len": 99999}, {}, "the model has 40960"),
        ({}, {"lora_rank": 8, "target_modules": ".*proj"}, "names of modules"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_verl_refuses_in_its_workers_is_said_before(rollout: Any, model: Any, said: str) -> None:
    try:
        made = rollout_of(tree(rollout=rollout, **model))
    except ConfigError as failure:  # SGLang has no such value either
        errors = tuple(failure.findings)
    else:
        errors = made.plan.errors
        assert not made.plan.launchable
    messages = [finding.message for finding in errors if finding.id == "VRL004"]
    assert any(said in message for message in messages), errors


def test_data_parallel_ranks_share_the_gpus_of_a_server_with_dp_attention_only() -> None:
    sizes = {"tensor_model_parallel_size": 2, "data_parallel_size": 2}
    without = rollout_of(tree(rollout=sizes))
    assert without.plan.values["tp_size"] == 4
    assert {"GPU001", "VRL006"} <= set(ids(without))
    shared = rollout_of(tree({"enable_dp_attention": True}, rollout=sizes, path="Qwen/Qwen3-30B-A3B"))
    assert shared.plan.launchable
    assert shared.plan.gpu.count == 4


def test_keys_that_do_not_reach_sglang_are_named() -> None:
    made = rollout_of(tree(rollout={"max_num_batched_tokens": 16384, "enable_prefix_caching": False}))
    assert ids(made).count("VRL005") == 2
    assert f"{NODE}.disable_radix_cache=..." in [finding.hint for finding in made.plan.findings]
    over = rollout_of(tree({"chunked_prefill_size": 16384}, rollout={"max_num_batched_tokens": 16384}))
    assert "VRL005" not in ids(over)
    silent = rollout_of(tree({"ignore": ["VRL005"]}, rollout={"max_num_batched_tokens": 16384}))
    assert [finding.id for finding in silent.plan.ignored] == ["VRL005"]


@pytest.mark.parametrize(
    ("node", "rollout", "model", "expected"),
    [
        ({}, {}, {"lora_rank": 16}, {"enable_lora": True, "max_lora_rank": 16, "lora_target_modules": ["all"]}),
        ({}, {}, {"lora": {"rank": 8, "merge": True}}, {}),
        ({}, {}, {"lora_rank": 4, "target_modules": ["q_proj"]}, {"lora_target_modules": ["q_proj"]}),
        (
            {"served_model_name": "mine"},
            {"prometheus": {"enable": True, "served_model_name": "org/name"}},
            {},
            {"served_model_name": "name", "enable_metrics": True},
        ),
        (
            {"engine": {"version": "0.5.12"}},
            {"quantization": "fp8", "mtp": {"enable": True, "enable_rollout": True, "speculative_algorithm": "EAGLE"}},
            {},
            {"speculative_algorithm": "EAGLE", "enable_weights_cpu_backup": True, "attention_backend": "flashinfer"},
        ),
        ({"engine": {"version": "0.5.12"}}, {"nnodes": 2}, {}, {"enable_weights_cpu_backup": False}),
        ({"gpu": "mi300x"}, {}, {}, {"attention_backend": "aiter"}),
        ({}, {"tensor_model_parallel_size": 16}, {}, {"tp_size": 16, "nnodes": 2}),
        ({}, {"quantization": "fp8"}, {}, {"quantization": "fp8"}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_other_keys_of_verl_switch_on(node: Any, rollout: Any, model: Any, expected: dict[str, Any]) -> None:
    made = rollout_of(tree(node, rollout, **model))
    assert {name: made.server_args[name] for name in expected} == expected
    if not expected:
        assert "enable_lora" not in made.server_args


def test_what_verl_overwrites_after_all_is_said() -> None:
    config = tree({"served_model_name": "mine"}, {"prometheus": {"enable": True, "served_model_name": "org/name"}})
    made = rollout_of(config)
    (finding,) = [finding for finding in made.plan.findings if finding.id == "VRL007"]
    assert "served_model_name=mine is overwritten: verl sets name" in finding.message
    assert made.plan.values["served_model_name"] == "name"
    assert dict(made.engine_kwargs) == {"served_model_name": "mine"}


def test_arguments_of_the_release_that_runs_are_known() -> None:
    made = rollout_of(tree({"engine": {"version": "0.5.12"}, "enable_return_routed_experts": True}))
    assert dict(made.engine_kwargs) == {"enable_return_routed_experts": True}
    assert made.plan.intent["enable_return_routed_experts"] is True
    named = rollout_of(tree({"engine": {"version": "0.5.12"}, "extra": {"enable_return_routed_experts": True}}))
    assert dict(named.engine_kwargs) == {"enable_return_routed_experts": True}


def test_a_trainer_that_keeps_memory_is_counted() -> None:
    free, kept = (rollout_of(tree({"fit": {"reserved_gib": gib}})).plan.fit for gib in (0, 60))
    assert free is not None
    assert kept is not None
    assert kept.kv_tokens is not None
    assert free.kv_tokens is not None
    assert kept.kv_tokens < free.kv_tokens, "SGLang takes its share of what is free when it starts"


def test_a_key_of_ours_may_set_facts_of_the_gpu() -> None:
    made = rollout_of(tree({"gpu": {"name": "h200", "memory_mib": 100000, "count": 4}}))
    assert (made.plan.gpu.name, made.plan.gpu.memory_mib, made.plan.gpu.count) == ("h200", 100000, 4)


def test_a_secret_is_handed_on_and_never_shown() -> None:
    made = rollout_of(tree({"api_key": "sk-very-secret"}))
    assert made.engine_kwargs["api_key"] == "sk-very-secret"
    shown = made.as_text() + repr(made) + str(made.plan.to_json())
    assert "sk-very-secret" not in shown


def test_it_is_reached_from_the_package() -> None:
    assert sglang_hydra.convert.verl.plan_rollout is plan_rollout
