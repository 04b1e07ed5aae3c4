"""The plan: its identity, what is sealed and what stays secret, where its facts come from."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sglang_hydra
from sglang_hydra.arguments.tables.table import known_versions, release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.facts import probe
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.planning.engines import planned as planned_engines
from sglang_hydra.planning.engines.base import Availability
from sglang_hydra.planning.fields import PlanFields
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import NOT_IDENTITY, Plan
from sglang_hydra.show.plan import plan_screen
from sglang_hydra.text.errors import ConfigError
from tests.plans import H200, composer, planned, refused, requests, without_accelerator, without_engines, written


def printed(plan: Plan) -> str:
    return "\n".join("".join(content for content, _ in line) for line in plan_screen(plan))


@pytest.fixture(autouse=True)
def no_sglang_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


# Identity


def test_a_server_id_is_16_hex_digits_and_does_not_change_from_run_to_run() -> None:
    first = planned("gpu=h200", "model=qwen3_8b", "tp_size=2", "random_seed=42")
    assert len(first.server_id) == 16
    assert int(first.server_id, 16) >= 0
    assert planned("random_seed=42", "tp_size=2", "model=qwen3_8b", "gpu=h200").server_id == first.server_id
    assert Plan.server_id.func(first) == first.server_id  # type: ignore[attr-defined]


SAME_SERVER = [
    ["host=0.0.0.0"],
    ["port=1234"],
    ["nccl_port=1234"],
    ["log_level=debug", "log_level_http=warning", "log_requests=true", "log_requests_level=2"],
    ["api_key=sekret"],
    ["download_dir=/somewhere"],
    ["show_time_cost=true"],
    ["watchdog_timeout=300"],
    ["tp_size=1"],
    ["mem_fraction_static=null"],
    ["engine.env.HF_TOKEN=sekret"],
    ["launch.ready_timeout=5"],
    ["ignore=[CFG004]"],
    ["gpu.source=elsewhere"],
]
OTHER_SERVER = [
    ["tp_size=2"],
    ["random_seed=43"],
    ["gpu.memory_mib=143000"],
    ["gpu.count=4"],
    ["gpu=h100"],
    ["model.config.hidden_size=5"],
    ["model=llama_3_1_8b"],
    ["revision=main"],
    ["engine.version=0.5.3"],
    ["engine=transformers"],
    ["engine.env.SGLANG_X=1"],
]


@pytest.mark.parametrize("overrides", SAME_SERVER, ids=" ".join)
def test_what_does_not_change_what_is_computed_leaves_the_server_id(overrides: list[str]) -> None:
    assert planned(*H200, *overrides).server_id == planned(*H200).server_id


@pytest.mark.parametrize("overrides", OTHER_SERVER, ids=" ".join)
def test_what_changes_what_is_computed_changes_the_server_id(overrides: list[str]) -> None:
    assert planned(*H200, *overrides).server_id != planned(*H200).server_id


def test_a_drawn_seed_is_not_part_of_the_identity_and_a_given_one_is() -> None:
    drawn = [sglang_hydra.plan(H200, seed=seed, env={}) for seed in (1, 2)]
    assert [plan.values["random_seed"] for plan in drawn] == [1, 2]
    assert drawn[0].server_id == drawn[1].server_id
    assert all(plan.seed_drawn for plan in drawn)
    given = planned(*H200, "random_seed=1")
    assert not given.seed_drawn
    assert given.server_id != planned(*H200, "random_seed=2").server_id


def test_the_environment_that_the_server_finds_counts() -> None:
    plain = planned(*H200)
    other = planned(*H200, env={"SGLANG_RUN_ID": "1"})
    assert other.server_id != plain.server_id
    assert other.inherited == {"SGLANG_RUN_ID": "1"}
    assert 'SGLANG_RUN_ID="1" (set already)' in printed(other)
    ours = {"PATH": "/bin", "SGLANG_HYDRA_API_KEY": "sekret", "SGLANG_TOKEN": "sekret"}
    assert planned(*H200, env=ours).server_id == plain.server_id
    set_by_us = planned(*H200, "engine.env.SGLANG_RUN_ID=1")
    assert set_by_us.server_id == other.server_id, "who sets a variable does not matter"


def test_names_that_are_not_part_of_the_identity_are_arguments() -> None:
    assert {*planned(*H200).values, *release(known_versions()[-1]).arguments} > NOT_IDENTITY


# What is sealed


def test_the_intent_and_the_values_cannot_be_written_to() -> None:
    plan = planned(*H200, "tp_size=2")
    for mapping in (plan.intent, plan.values):
        with pytest.raises(TypeError):
            mapping["tp_size"] = 3  # type: ignore[index]
    with pytest.raises(AttributeError):
        plan.gpu = None  # type: ignore[assignment, misc]
    with pytest.raises(AttributeError):
        plan.resolution.args.tp_size = 3
    assert plan.intent["tp_size"] == plan.values["tp_size"] == 2


def test_replaying_the_ledger_from_the_intent_gives_the_values() -> None:
    from sglang_hydra.arguments.fields import fresh_defaults

    plan = planned("gpu=h100", "model=gpt_oss", "tp_size=4", "enable_dp_attention=true", "dp_size=2")
    start = {**fresh_defaults(), **plan.intent}
    assert plan.resolution.ledger.replay(start) == dict(plan.values)


# ignore


def test_ignore_silences_a_finding_of_ours_and_the_plan_records_it() -> None:
    loud = planned(*H200, "tp_size=3")
    assert {finding.id for finding in loud.errors} == {"CFG004"}
    assert loud.ok
    assert not loud.launchable
    silent = planned(*H200, "tp_size=3", "ignore=[CFG004]")
    assert silent.launchable
    assert [finding.id for finding in silent.ignored] == ["CFG004"]
    assert [finding["id"] for finding in silent.to_json()["ignored"]] == ["CFG004"]
    assert "; ignored: CFG004" in printed(silent)


def test_ignore_does_not_silence_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(*H200, "page_size=0", "ignore=[SCH002]")
    assert not plan.ok
    assert {finding.id for finding in plan.errors} >= {"SCH002"}
    assert "CLI011" in {finding.id for finding in plan.findings}
    assert not plan.ignored


def test_ignoring_an_id_that_does_not_exist_is_said() -> None:
    (finding,) = planned(*H200, "ignore=[MEM0003]").findings
    assert (finding.level, finding.id) == ("warning", "CLI011")
    assert "MEM003" in (finding.hint or "")


# Verdicts


@pytest.mark.parametrize(
    ("overrides", "ok", "launchable"),
    [
        ([], True, True),
        (["tp_size=3"], True, False),
        (["tp_size=16"], True, False),
        (["tp_size=0"], True, False),
        (["port=70000"], True, False),
        (["context_length=1000000"], True, False),
        (["page_size=0"], False, False),
        (["gpu=none"], False, False),
        (["model=unset"], False, False),
    ],
    ids=str,
)
def test_verdicts(overrides: list[str], ok: bool, launchable: bool) -> None:
    plan = planned(*H200, *overrides)
    assert (plan.ok, plan.launchable) == (ok, launchable), plan.findings


# Secrets


@pytest.mark.parametrize(
    ("overrides", "env"),
    [
        (["api_key=sekret"], {}),
        (["api_key='sekret'"], {}),
        (["+api_key=sekret"], {}),
        (["api_key=${oc.env:OWN_KEY}"], {"OWN_KEY": "sekret"}),
        (["experiment=key"], {}),
        (["experiment=node_key"], {}),
        (["model=keyed"], {}),
        (["model.args.api_key=sekret"], {}),
        (["model.args={api_key: sekret}"], {}),
        (["engine.env.HF_TOKEN=sekret"], {}),
        (["engine.env={HF_TOKEN: sekret}"], {}),
    ],
    ids=str,
)
def test_a_secret_appears_nowhere(
    overrides: list[str], env: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    folder = written(
        tmp_path,
        {
            "experiment/key.yaml": "# @package _global_\napi_key: sekret\n",
            "experiment/node_key.yaml": "# @package _global_\nmodel: {args: {api_key: sekret}}\n",
            "model/keyed.yaml": "defaults: [qwen3_8b]\nname: keyed\nargs: {api_key: sekret}\n",
        },
    )
    using = Composer([folder])
    plan = planned(*H200, *overrides, using=using)
    texts = {
        "json": json.dumps(plan.to_json()),
        "repr": repr(plan),
        "screen": printed(plan),
        "origins": repr(plan.origins),
        "findings": repr(plan.findings),
        "resolution": repr(plan.resolution.args),
        "composition": repr(using.compose([])),
    }
    assert not [name for name, text in texts.items() if "sekret" in text]
    is_variable = "HF_TOKEN" in overrides[0]
    assert plan.environment.get("HF_TOKEN") == ("sekret" if is_variable else None)
    assert plan.secrets == ({} if is_variable else {"api_key": "sekret"})
    from sglang_hydra.compose.overrides import Request

    assert "sekret" not in repr(using.canonical([Request(text, "") for text in (*H200, *overrides)])[-1])


def test_typing_a_key_is_warned_of_and_a_reference_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", "sekret")
    assert [finding.id for finding in planned(*H200, "api_key=sekret").findings] == ["CLI010"]
    assert not planned(*H200, "api_key=${oc.env:OWN_KEY}").findings


def test_a_key_in_a_refused_line_is_not_shown() -> None:
    for typed in ("--api-key=sekret", "model.args.api_key=[sekret]", "api_key=sekret${"):
        assert "sekret" not in repr(refused(*H200, typed, "tp_size=x")), typed


# gpu=auto

FOUND = GpuProbe(
    vendor="nvidia",
    device="cuda",
    names=("NVIDIA H200",) * 4,
    memory_mib=143771.0,
    visible_memory_mib=143771.0,
    compute_capability=(9, 0),
    count=4,
    total=8,
    visible="CUDA_VISIBLE_DEVICES=0,1,2,3",
    flashinfer=True,
    triton_kernels=True,
    tried=("NVML: 8 x NVIDIA H200",),
)


def probing(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    from dataclasses import replace

    monkeypatch.setattr(probe, "probe_gpu", lambda env, python=None: replace(FOUND, **changed))


def test_auto_becomes_the_class_that_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch)
    plan = planned("model=qwen3_8b", "tp_size=4")
    assert plan.choices["gpu"] == "h200"
    assert (plan.gpu.name, plan.gpu.count) == ("h200", 4)
    assert plan.notes[0] == "gpu: auto -> h200 (4 x NVIDIA H200, 143771 MiB, CUDA_VISIBLE_DEVICES=0,1,2,3)"
    (finding,) = plan.findings
    assert (finding.id, finding.fields) == ("FCT003", ("gpu.count",))
    assert "this machine has 4, the class h200 has 8" in finding.message
    assert plan.launchable
    assert planned("model=qwen3_8b", "tp_size=4", "gpu=h200", "gpu.count=4").server_id == plan.server_id


def test_a_gpu_of_no_known_class_is_planned_by_what_it_says_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch, names=("NVIDIA X1",), count=1, memory_mib=50000.0, visible_memory_mib=50000.0, visible=None)
    plan = planned("model=qwen3_8b")
    assert (plan.gpu.name, plan.gpu.memory_mib, plan.gpu.count) == ("NVIDIA X1", 50000.0, 1)
    assert "no class of that name (1 x NVIDIA X1, 50000 MiB)" in plan.notes[0]
    assert "no gpu_model file" in plan.notes[0]
    assert plan.launchable


@pytest.mark.parametrize("where", ["typed", "in a file"])
def test_what_is_set_by_hand_beats_the_probe(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch)
    written(tmp_path, {"experiment/two.yaml": "# @package _global_\ngpu: {count: 2}\n"})
    using = Composer([tmp_path])
    plan = planned("model=qwen3_8b", "gpu.count=2" if where == "typed" else "experiment=two", using=using)
    assert plan.gpu.count == 2
    assert not plan.findings


def test_a_pair_file_of_the_recognised_class_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch)
    written(tmp_path, {"gpu_model/h200-qwen3_8b.yaml": "page_size: 64\n"})
    plan = planned("model=qwen3_8b", using=Composer([tmp_path]))
    assert plan.intent["page_size"] == 64
    assert plan.origins["page_size"][0].layer == "gpu_model"


def test_an_experiment_may_say_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch)
    written(tmp_path, {"experiment/here.yaml": "# @package _global_\ndefaults: [override /gpu: auto]\n"})
    assert planned("model=qwen3_8b", "experiment=here", "gpu=h100", using=Composer([tmp_path])).gpu.name == "h100"
    assert planned("model=qwen3_8b", "experiment=here", using=Composer([tmp_path])).gpu.name == "h200"


def test_without_an_accelerator_sglang_refuses_as_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    without_accelerator(monkeypatch)
    plan = planned("model=qwen3_8b")
    assert plan.choices["gpu"] == "none"
    assert not plan.ok
    assert plan.notes[0] == "gpu: auto -> none (no accelerator found; NVML: not found)"
    (finding,) = plan.errors
    assert "gpu=cpu" in (finding.hint or "")


def test_without_an_accelerator_the_embedded_engine_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_accelerator(monkeypatch)
    monkeypatch.setattr(
        type(planned_engines.TRANSFORMERS), "available", lambda self, python: Availability(True, "5.0.0", None)
    )
    starting = Composer()
    starting.for_start = True
    for words, using in (
        (["model=qwen3_8b"], starting),
        (["model=tiny"], None),
        (["model=qwen3_8b", "engine=transformers"], None),
        (["model=qwen3_8b", "device=cpu"], None),
    ):
        plan = planned(*words, using=using)
        assert (plan.engine.name, plan.choices["gpu"], plan.values["device"]) == ("transformers", "cpu", "cpu")
        assert plan.launchable
        assert "the embedded engine runs on the CPU" in plan.notes[0]
    (error,) = planned("model=qwen3_8b").errors
    assert error.message == "this machine has no GPU and device is not set: gpu= names the class to plan for"
    assert (error.hint or "").startswith("gpu=h100: ")


def test_a_machine_is_not_asked_where_a_class_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> GpuProbe:
        raise AssertionError("the machine was asked")

    monkeypatch.setattr(probe, "probe_gpu", never)
    assert planned(*H200).launchable


def test_the_cpu_class_sets_the_variable_that_sglang_asks_for() -> None:
    plan = planned("gpu=cpu", "model=qwen3_8b")
    assert plan.environment == {"SGLANG_USE_CPU_ENGINE": "1"}
    assert "SGLANG_USE_CPU_ENGINE=1 python -m sglang.launch_server" in printed(plan)
    assert plan.ok


# The model's facts


def config_of(folder: Path, **fields: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"], **fields}))
    return folder


def test_another_checkpoint_than_the_presets_voids_its_facts() -> None:
    plan = planned(*H200, "model_path=/nowhere/else")
    assert plan.model.config is None
    first, *others = plan.findings
    assert (first.level, first.id, *(item.id for item in others)) == ("warning", "FCT001", "HUB004", "PTH002")
    assert "is not the checkpoint of model=qwen3_8b (Qwen/Qwen3-8B)" in first.message
    assert "model.facts_from=qwen3_8b" in (first.hint or "")
    assert "model facts: unknown" in printed(plan)


def test_the_checkpoint_of_another_preset_is_known_and_a_warning() -> None:
    plan = planned(*H200, "model_path=Qwen/Qwen3-32B")
    (finding,) = [finding for finding in plan.findings if finding.id == "FCT001"]
    assert "preset qwen3_32b" in finding.message
    assert (plan.model.config or {})["num_hidden_layers"] == 64


def test_another_format_of_a_presets_weights_is_no_warning() -> None:
    plan = planned(*H200, "model_path=Qwen/Qwen3-8B-FP8")
    assert "FCT001" not in {finding.id for finding in plan.findings}
    assert (plan.model.config or {})["quantization_config"]["quant_method"] == "fp8"


def test_a_config_of_null_lets_no_preset_speak_for_the_model() -> None:
    for words in (H200, (H200[0], "model_path=Qwen/Qwen3-8B")):
        plan = planned(*words, "model.config=null")
        assert plan.model.config is None
        assert "HUB004" in {finding.id for finding in plan.findings}


def test_the_facts_of_another_checkpoint_are_read_from_there(tmp_path: Path) -> None:
    folder = config_of(tmp_path / "weights", num_attention_heads=7)
    plan = planned(*H200, f"model_path={folder}", "tp_size=2")
    assert plan.model.config is not None
    assert {"FCT001", "CFG004"} <= {finding.id for finding in plan.findings}


def test_a_folder_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_of(tmp_path / "weights", num_attention_heads=7)
    monkeypatch.chdir(tmp_path)
    plan = planned("gpu=h200", "model=./weights", "tp_size=2")
    assert plan.intent["model_path"] == "./weights"
    assert plan.model.config is not None
    assert "CFG004" in {finding.id for finding in plan.findings}
    assert "FCT001" not in {finding.id for finding in plan.findings}


def test_facts_can_be_taken_from_a_file(tmp_path: Path) -> None:
    folder = config_of(tmp_path / "facts", num_attention_heads=7)
    plan = planned("gpu=h200", "model=org/private", f"model.facts_from={folder}/config.json", "tp_size=2")
    assert plan.intent["model_path"] == "org/private"
    assert "CFG004" in {finding.id for finding in plan.findings}
    assert "model.facts_from" in plan.model.source


def test_a_preset_speaks_for_a_folder_without_config(tmp_path: Path) -> None:
    plan = planned("gpu=h200", f"model={tmp_path}", "model.facts_from=qwen3_8b")
    assert (plan.model.source, plan.model.known, plan.errors) == ("model.facts_from=qwen3_8b", True, ())


@pytest.mark.parametrize("named", ["qwen3_8b", "Qwen/Qwen3-8B"])
@pytest.mark.parametrize("path", ["me/Qwen3-8B-tuned", "/not/here"])
def test_facts_can_be_taken_from_a_preset(named: str, path: str) -> None:
    plan = planned("gpu=h200", f"model_path={path}", f"model.facts_from={named}")
    assert plan.intent["model_path"] == path
    assert plan.model.config is not None
    assert plan.model.source == f"model.facts_from={named}"
    assert plan.fit == planned(*H200).fit
    assert not {"FCT001", "HUB004"} & {finding.id for finding in plan.findings}


def test_a_folder_or_a_checkpoint_in_the_cache_comes_before_a_preset(tmp_path: Path) -> None:
    folder = config_of(tmp_path / "weights", num_attention_heads=7)
    plan = planned("gpu=h200", f"model_path={folder}", "model.facts_from=qwen3_8b", "tp_size=2")
    assert "CFG004" in {finding.id for finding in plan.findings}


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("me/Qwen3-8B-tuned", "Qwen/Qwen3-8B"),
        ("me/gemma-4-26B-A4B-tuned", "google/gemma-4-26B-A4B"),
        ("me/something-else", None),
    ],
)
def test_an_unknown_model_names_the_preset_that_it_was_made_from(path: str, known: str | None) -> None:
    (finding,) = [one for one in planned("gpu=h200", f"model={path}").findings if one.id == "HUB004"]
    assert str(finding.hint).startswith(f"model.facts_from={known or '<its config.json>'}")


def test_a_hub_id_that_a_preset_has_needs_no_download() -> None:
    plan = planned("gpu=h200", "model=Qwen/Qwen3-8B")
    assert plan.model.config == planned(*H200).model.config
    assert "preset qwen3_8b" in plan.model.source


# The library


def test_plan_takes_what_the_command_line_takes(tmp_path: Path) -> None:
    plan = sglang_hydra.plan(["gpu=h200", "model=qwen3_8b", "tp_size=2"], seed=7, env={})
    assert isinstance(plan, sglang_hydra.Plan)
    assert plan.values["random_seed"] == 7
    assert plan.origins["tp_size"][0].place == "override 3"
    written(tmp_path, {"model/mine.yaml": "defaults: [qwen3_8b]\nname: mine\n"})
    assert sglang_hydra.plan(["gpu=h200", "model=mine"], config_dirs=[tmp_path], env={}).choices["model"] == "mine"
    with pytest.raises(ConfigError) as failure:
        sglang_hydra.plan(["tpsize=2"])
    assert failure.value.exit_code == 2
    assert "CLI001" in str(failure.value)


def test_what_is_not_a_number_in_json_is_written_as_text() -> None:
    record = planned(*H200, "schedule_conservativeness=inf", "mem_fraction_static=nan").to_json()
    assert record["intent"]["schedule_conservativeness"] == "inf"
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_every_value_of_a_plan_is_there_in_json() -> None:
    plan = planned(*H200, "lora_paths={a: b}", "lora_target_modules=[q_proj]")
    record = plan.to_json()
    assert len(record["values"]) == 210
    assert record["values"]["lora_paths"] == [{"lora_name": "a", "lora_path": "b", "pinned": False}]
    assert record["intent"]["lora_paths"] == {"a": "b"}
    assert composer().options("gpu")


def test_the_embedded_engine_needs_no_accelerator() -> None:
    plan = planned("gpu=none", "model=tiny", "engine=transformers")
    assert plan.launchable
    assert "SGLANG_USE_CPU_ENGINE" not in plan.environment
    assert [finding.id for finding in planned("gpu=none", "model=tiny", "engine=sglang").errors] == ["DEV002"]


BLAMED = {
    "model.config.hidden_size=-5": "model.config.hidden_size is -5",
    "model.config.rope_scaling={factor: x}": "model.config.rope_scaling.factor is 'x'",
    'json_model_override_args={"hidden_size": -5}': "json_model_override_args: hidden_size is -5",
}


@pytest.mark.parametrize("override", BLAMED)
def test_a_size_that_cannot_be_is_blamed_on_who_set_it(override: str) -> None:
    plan = planned(*H200, override)
    (finding,) = [item for item in plan.findings if item.id == "FIT010"]
    assert BLAMED[override] in finding.message
    assert plan.model.source not in finding.message
    assert finding.fields == (override.partition("=")[0],)


# The seed


def test_the_same_words_make_the_same_plan_and_no_seed_is_drawn() -> None:
    first, again = (make_plan(composer(), requests(*H200), env={}) for _ in range(2))
    assert first.to_json() == again.to_json()
    assert first.values["random_seed"] is None
    assert "--random-seed" not in first.command
    assert "random_seed" not in first.as_engine_kwargs()
    assert first.to_json()["seed_drawn"] is True
    assert first.server_id == planned(*H200, seed=7).server_id != planned(*H200, "random_seed=7").server_id


def test_what_starts_a_server_draws_a_seed_and_passes_it() -> None:
    started = make_plan(composer(), requests(*H200), env={}, seed=7)
    assert started.values["random_seed"] == started.to_json()["values"]["random_seed"] == 7
    assert " ".join(started.command).endswith("--random-seed 7")


def test_each_field_says_what_it_is_who_reads_it_and_what_must_not_depend_on_it() -> None:
    tree = ast.parse(inspect.getsource(PlanFields)).body[0]
    assert isinstance(tree, ast.ClassDef)
    said: dict[str, str] = {}
    for field, after in pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said[field.target.id] = ast.unparse(after)
    assert list(said) == [field.name for field in dataclasses.fields(Plan)]
    for name, text in said.items():
        assert "Readers:" in text, name
        assert re.search(r"\b(not|no|nothing|never|none|nor|only)\b", text, re.IGNORECASE), name
