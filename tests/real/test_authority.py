"""check --against the real packages: 0.5.2 says what we say, in every recorded case; 0.5.23 says what it does."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sglang_hydra.planning.make import plan
from sglang_hydra.planning.upstream.ask import case_of, find_authority
from sglang_hydra.planning.upstream.verdict import verdicts_on
from sglang_hydra.schemas import schema_of
from sglang_hydra.upstream.release import ask_installed
from tools import conformance
from tools.recording.asked_with_torch import ask_with_torch
from tools.recording.environment import ask

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "conformance"
COUNT = 660 + 5318
GPUS = ("h200", "h100", "b200", "a100_80gb", "l40s", "t4", "mi300x", "gaudi3", "cpu", "none")
MODELS = ("qwen3_8b", "deepseek_v3", "gpt_oss", "llama_4_scout", "qwen2_5_vl_7b", "gemma_3_27b")


def recorded() -> list[dict[str, Any]]:
    names = ("public.jsonl.gz", "targeted.jsonl.gz")
    lines = [line for name in names for line in gzip.decompress((RECORDED / name).read_bytes()).splitlines()]
    return [json.loads(line) for line in lines]


def test_0_5_2_agrees_with_our_rules_in_every_recorded_case(sglang_python: str) -> None:
    records = recorded()
    assert len(records) == COUNT
    answers = ask(Path(sglang_python), "0.5.2", [{"case": record["case"]} for record in records], 600)
    assert len(answers) == COUNT
    unasked = [record["case"]["id"] for record, answer in zip(records, answers, strict=True) if "refused" in answer]
    assert unasked == []
    differing = [
        difference
        for record, answer in zip(records, answers, strict=True)
        for difference in conformance.compare(answer, conformance.produce(record["case"]))
    ]
    assert differing == []
    print(f"{COUNT} of {COUNT} recorded cases: SGLang 0.5.2 and the rules agree")


@pytest.mark.parametrize(
    ("version", "gpu"),
    [
        ("0.5.2", "h200"),
        ("0.5.2", "mi300x"),
        ("0.5.2", "cpu"),
        ("0.5.23", "h200"),
        ("0.5.23", "b200"),
        ("0.5.23", "mi300x"),
    ],
)
def test_the_sealed_child_makes_what_the_installed_release_makes_with_torch(
    version: str, gpu: str, sglang_python: str, sglang_0_5_23_python: str
) -> None:
    python = {"0.5.2": sglang_python, "0.5.23": sglang_0_5_23_python}[version]
    words = [f"gpu={gpu}", "tp_size=8", "random_seed=1", f"engine.version={version}"]
    cases = [case_of(plan([f"model={model}", *words]), version) for model in MODELS]
    sealed = ask_installed(python, version, cases)
    machine = dict(cases[0].machine)
    lines = [{"machine": machine, "argv": case.argv, "models": case.models} for case in cases]
    same = 0
    for model, answer, live in zip(MODELS, sealed, ask_with_torch(python, machine, lines), strict=True):
        assert answer.unanswered is None, (model, answer.unanswered)
        if "refused" in live:  # vllm, which 0.5.2 asks about quantized models, is stood in for with torch
            assert "AQLMConfig" in live["refused"], (model, live)
            continue
        assert answer.ok is live["ok"], (model, answer, live)
        if answer.ok:
            assert {name: live["values"][name] for name in answer.values} == answer.values, model
            same += 1
    assert same >= 4


def test_0_5_2_has_no_difference_to_any_plan(sglang_python: str) -> None:
    authority = find_authority(sglang_python)
    plans = [plan([f"gpu={gpu}", f"model={model}", "tp_size=8", "random_seed=1"]) for gpu in GPUS for model in MODELS]
    verdicts = verdicts_on(authority, plans)
    for made, verdict in zip(plans, verdicts, strict=True):
        if "Unknown quantization method: mxfp4" in (verdict.error or ""):  # the arguments are right, the model is not
            assert "CFG006" in {finding.id for finding in made.errors}
            continue
        assert verdict.ok is made.resolution.ok, (made.gpu.name, made.intent["model_path"], verdict.text)
        assert verdict.differences == (), (made.gpu.name, made.intent["model_path"], verdict.differences)
    assert sum(bool(verdict.ok) for verdict in verdicts) > len(plans) // 2


def test_0_5_23_answers_for_gpus_that_are_not_here(sglang_0_5_23_python: str) -> None:
    authority = find_authority(sglang_0_5_23_python)
    named = [(gpu, model) for gpu in ("h200", "h100", "b200", "mi300x") for model in ("qwen3_8b", "deepseek_v3")]
    later = ["tp_size=8", "random_seed=1", f"engine.version={authority.version}"]
    verdicts = verdicts_on(authority, [plan([f"gpu={gpu}", f"model={model}", *later]) for gpu, model in named])
    by_name = dict(zip(named, verdicts, strict=True))
    for name, verdict in by_name.items():
        assert verdict.ok, (name, verdict.text)
        assert verdict.compared is not None
        assert (verdict.compared.of, len(verdict.compared.absent)) == (183, 27), name
    said = {name: {item.field: item.actual for item in verdict.differences} for name, verdict in by_name.items()}
    assert said["h200", "qwen3_8b"]["attention_backend"] == "fa3"
    assert said["b200", "deepseek_v3"]["attention_backend"] == "trtllm_mla"
    assert said["mi300x", "qwen3_8b"]["attention_backend"] == "aiter"
    assert {said[name]["lora_backend"] for name in named} == {"csgmv"}


def test_0_5_23_is_told_of_this_machines_cpu(sglang_0_5_23_python: str) -> None:
    authority = find_authority(sglang_0_5_23_python)
    made = plan(["gpu=cpu", "model=qwen3_8b", "random_seed=1", f"engine.version={authority.version}"])
    (verdict,) = verdicts_on(authority, [made])
    assert verdict.ok, verdict.why


def test_both_through_the_command_line(sglang_python: str, sglang_0_5_23_python: str) -> None:
    for python, version, summary in (
        (sglang_python, "0.5.2", "210 of 210 as planned"),
        (sglang_0_5_23_python, "0.5.23", " as planned"),
    ):
        venv = str(Path(python).parents[1])
        words = ["check", "--against", venv, "gpu=h200", "model=qwen3_8b", "random_seed=1"]
        run = subprocess.run(
            [sys.executable, "serve.py", *words], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert f"SGLang {version} ({venv}) accepts it" in run.stdout
        assert summary in run.stdout


def test_0_5_23_refuses_and_translates_what_its_table_says(sglang_0_5_23_python: str) -> None:
    authority = find_authority(sglang_0_5_23_python)
    base = ["gpu=h200", "model=qwen3_8b", "random_seed=1", f"engine.version={authority.version}"]
    told = [
        [
            *base,
            "cuda_graph_max_bs=64",
            "max_micro_batch_size=4",
            "stream_output=true",
            "extra.gc_threshold=[700,10,10]",
        ],
        [*base, "tp_size=3", "dp_size=2", "enable_dp_attention=true"],
        [*base, "torchao_config=int4wo-128"],
    ]
    plans = [plan(words) for words in told]
    translated, refused, unasked = verdicts_on(authority, plans)
    assert translated.ok
    assert translated.compared is not None
    own = {"cuda_graph_max_bs_decode", "pp_max_micro_batch_size", "incremental_streaming_output", "gc_threshold"}
    assert translated.compared.of == 183 + len(own)
    assert not own & {item.field for item in translated.differences}
    assert (refused.ok, refused.stage) == (False, "post_init")
    assert unasked.ok is None
    jsonschema.validate({**plans[0].to_json(), "authority": translated.to_json()}, schema_of("plan"))
