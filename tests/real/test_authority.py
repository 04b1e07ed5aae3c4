"""Plans against the real packages: 0.5.2 says what we say, in every recorded case; 0.5.23 says what it does."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.facts.trust import grant
from sglang_hydra.planning.comparing.actual import Comparison
from sglang_hydra.planning.comparing.installed import ask_about, case_of
from sglang_hydra.planning.making.make import plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.release import ask_installed
from sglang_hydra.rules.answer import Answer
from tools import conformance
from tools.recording.asked_with_torch import ask_with_torch
from tools.recording.environment import ask

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "conformance"
COUNT = 660 + 5318
GPUS = ("h200", "h100", "b200", "a100_80gb", "l40s", "t4", "mi300x", "gaudi3", "cpu", "none")
MODELS = ("qwen3_8b", "deepseek_v3", "gpt_oss", "llama_4_scout", "qwen2_5_vl_7b", "gemma_3_27b")


def asked(plans: Sequence[Plan], python: str) -> list[tuple[Answer, Comparison | None]]:
    grant(python)
    return [ask_about(made, python) for made in plans]


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
    plans = [plan([f"gpu={gpu}", f"model={model}", "tp_size=8", "random_seed=1"]) for gpu in GPUS for model in MODELS]
    answers = asked(plans, sglang_python)
    for made, (answer, compared) in zip(plans, answers, strict=True):
        if "Unknown quantization method: mxfp4" in (answer.error or ""):  # the arguments are right, the model is not
            assert "CFG006" in {finding.id for finding in made.errors}
            continue
        assert answer.ok is made.resolution.ok, (made.gpu.name, made.intent["model_path"], answer)
        assert compared is None or compared.differences == (), (made.gpu.name, made.intent["model_path"], compared)
    assert sum(bool(answer.ok) for answer, _ in answers) > len(plans) // 2


def test_0_5_23_answers_for_gpus_that_are_not_here(sglang_0_5_23_python: str) -> None:
    named = [(gpu, model) for gpu in ("h200", "h100", "b200", "mi300x") for model in ("qwen3_8b", "deepseek_v3")]
    later = ["tp_size=8", "random_seed=1", "engine.version=0.5.23"]
    plans = [plan([f"gpu={gpu}", f"model={model}", *later]) for gpu, model in named]
    values = {}
    for name, (answer, compared) in zip(named, asked(plans, sglang_0_5_23_python), strict=True):
        assert answer.ok, (name, answer)
        assert compared is not None
        assert (compared.differences, compared.absent) == ((), ()), name
        values[name] = answer.values
    assert values["h200", "qwen3_8b"]["attention_backend"] == "fa3"
    assert values["b200", "deepseek_v3"]["attention_backend"] == "trtllm_mla"
    assert values["mi300x", "qwen3_8b"]["attention_backend"] == "aiter"
    assert {values[name]["lora_backend"] for name in named} == {"csgmv"}


def test_0_5_23_is_told_of_this_machines_cpu(sglang_0_5_23_python: str) -> None:
    made = plan(["gpu=cpu", "model=qwen3_8b", "random_seed=1", "engine.version=0.5.23"])
    ((answer, _),) = asked([made], sglang_0_5_23_python)
    assert answer.ok, answer.unanswered


def test_both_through_the_command_line(sglang_python: str, sglang_0_5_23_python: str) -> None:
    for python, version in ((sglang_python, "0.5.2"), (sglang_0_5_23_python, "0.5.23")):
        words = ["check", f"engine.python={python}", "gpu=h200", "model=qwen3_8b", "random_seed=1"]
        run = subprocess.run(
            [sys.executable, "serve.py", *words], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert plan(words[1:]).engine.version == version


def test_0_5_23_takes_and_refuses_what_its_table_says(sglang_0_5_23_python: str) -> None:
    base = ["gpu=h200", "model=qwen3_8b", "random_seed=1", "engine.version=0.5.23"]
    told = [
        [
            *base,
            "cuda_graph_max_bs_decode=64",
            "pp_max_micro_batch_size=4",
            "incremental_streaming_output=true",
            "gc_threshold=[700,10,10]",
        ],
        [*base, "tp_size=3", "dp_size=2", "enable_dp_attention=true"],
    ]
    plans = [plan(words) for words in told]
    (taken, compared), (refused, _) = asked(plans, sglang_0_5_23_python)
    assert taken.ok
    assert compared is not None
    own = {"cuda_graph_max_bs_decode", "pp_max_micro_batch_size", "incremental_streaming_output", "gc_threshold"}
    assert own <= set(taken.values)
    assert not own & {item.key for item in compared.differences}
    assert (refused.ok, refused.stage) == (False, "post_init")
    gone = plan([*base, "torchao_config=int4wo-128"])  # no argument of the release: it is never handed one
    assert [finding.id for finding in gone.findings if finding.level == "error"] == ["VER004"]
