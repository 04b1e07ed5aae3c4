"""The answers that the web page shows: those of the verbs and of a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra import plan
from sglang_hydra.cli.answers import answer, filled, form_words, taken_names

BIG = {"gpu": "h100", "model": "llama_3_1_70b", "more": "random_seed=7"}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ask(**question: Any) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(answer(json.dumps(question)))
    return record


def test_a_form_is_planned_as_its_words_are() -> None:
    made = ask(ask="plan", form=BIG)
    assert made["plan"] == plan(["gpu=h100", "model=llama_3_1_70b", "random_seed=7"]).to_json()
    assert made["typed"] == "sglang-hydra plan gpu=h100 model=llama_3_1_70b random_seed=7"
    assert (made["launch"], made["commands"], made["room"]) == ("no", [], "none: it does not fit")
    assert made["gpus"] == "1 of 8 x h100, 81559 MiB each"


def test_every_node_has_a_whole_command() -> None:
    made = ask(ask="plan", form={"gpu": "h100", "model": "llama_3_1_70b", "count": "16", "more": "nnodes=2"})
    commands = [command for _, command in made["commands"] if command]
    assert [f"--nnodes 2 --node-rank {rank}" in command for rank, command in enumerate(commands)] == [True, True]
    assert all("--dist-init-addr HEAD:PORT" in command for command in commands)
    assert made["commands"][-1][0].startswith("HEAD:PORT is an address of node 0")


@pytest.mark.parametrize(
    ("field", "typed", "name"),
    [
        ("model", "llama-3.1-70b", "llama_3_1_70b"),
        ("model", "Llama-3.1-70B-Instruct", "llama_3_1_70b"),
        ("model", "meta-llama/llama-3.1-70b-instruct", "llama_3_1_70b"),
        ("model", "gpt-oss", "gpt_oss"),
        ("model", "Qwen3-235B", "qwen3_235b_a22b"),
        ("model", "acme/some-model-9b", None),
        ("model", "qwen3", None),
        ("gpu", "RTX 4090", "rtx_4090"),
        ("gpu", "H100 SXM 80 GB", "h100"),
        ("gpu", "H100 PCIe", "h100_pcie"),
        ("gpu", "NVIDIA A100-SXM4-80GB", "a100_80gb"),
        ("gpu", "Intel Gaudi 3", "gaudi3"),
        ("gpu", "A100", None),
        ("gpu", "H800", None),
    ],
)
def test_names_are_found_as_people_write_them(field: str, typed: str, name: str | None) -> None:
    taken = [{"field": field, "typed": typed, "name": name}] if name else []
    assert taken_names({field: typed}) == taken
    assert f"{field}={name or typed}" in form_words({field: typed}) or name is None


def test_a_model_that_nothing_names_is_refused_with_those_near_it() -> None:
    (finding,) = ask(ask="plan", form={"gpu": "h100", "model": "lama-4"})["findings"]
    assert finding["message"] == "model=lama-4 does not exist"
    assert "llama_4_scout" in finding["hint"]


def test_the_requests_that_are_wanted_are_judged() -> None:
    form = {"gpu": "h100", "model": "llama_3_1_70b", "count": "4", "users": "32"}
    made = ask(ask="plan", form=form)
    assert "capacity for 3 requests of 131,072 tokens at a time, and 32 are needed" in made["short"]
    assert made["plan"]["forecast"]["load"]["concurrency"] == 32
    enough = ask(ask="plan", form={**form, "context": "8192"})
    assert enough["short"] is None
    assert {"label": "requests at a time", "value": "48", "note": "of 8,192 tokens"} in enough["tiles"]
    assert filled({}, ["bench.concurrency=8", "fit.context=4096"]) == {"users": "8", "context": "4096"}


def test_a_model_that_nobody_knows_is_offered_its_config_in_the_pages_own_terms() -> None:
    made = ask(ask="plan", form={"gpu": "h100", "model": "acme/some-model-9b"})
    assert (made["hub"], made["launch"], made["why"]) == ("acme/some-model-9b", "unknown", "its config.json is needed")
    shown = json.dumps({name: value for name, value in made.items() if name != "plan"})
    assert ".cache" not in shown
    assert "HF_HUB_OFFLINE" not in shown
    assert ask(ask="plan", form=BIG)["hub"] is None


def test_a_remedy_filled_into_the_form_helps() -> None:
    refused = ask(ask="plan", form=BIG)
    (finding,) = (item for item in refused["findings"] if item["id"] == "FIT001")
    form = ask(ask="fill", form=BIG, add=finding["remedies"][0]["words"])["form"]
    assert form == {**BIG, "count": "4"}
    assert ask(ask="plan", form=form)["plan"]["launchable"]


def test_an_experiment_beside_the_page_is_planned_with_what_is_typed_over_it() -> None:
    Path("mine.yaml").write_text("gpu: h100\nmodel: llama_3_1_70b\ntp_size: 4\n")
    made = ask(ask="plan", form={"more": "mine.yaml random_seed=7 tp_size=8"})
    typed = plan(["gpu=h100", "model=llama_3_1_70b", "tp_size=8", "random_seed=7"])
    assert made["plan"]["server_id"] == typed.server_id
    assert made["typed"] == "sglang-hydra plan mine.yaml random_seed=7 tp_size=8"
    missing = ask(ask="plan", form={"more": "nowhere.yaml"})
    assert "there is no such file" in missing["findings"][0]["message"]


def test_words_in_place_keep_the_others() -> None:
    form = {"model": "qwen3_8b", "more": "tp_size=2 'context_length=8192'"}
    filled = ask(ask="fill", form=form, add=["context_length=4096", "model_path=a/b", "gpu=h20"])["form"]
    assert filled == {"model": "a/b", "gpu": "h20", "more": "tp_size=2 context_length=4096"}


def test_what_cannot_be_composed_has_its_findings() -> None:
    made = ask(ask="plan", words=["gpu=h1000"])
    assert made["plan"] is None
    assert [item["id"] for item in made["findings"]] == ["CLI006"]


def test_a_pasted_config_is_read_and_a_broken_one_says_where() -> None:
    config = '{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}'
    known = ask(ask="plan", words=["gpu=h100"], config=config)
    assert known["plan"]["model"]["config"]["hidden_size"] == 64
    broken = ask(ask="plan", words=["gpu=h100"], config='{"a": 1,\n x')
    assert any("config.json:2:2" in item["message"] for item in broken["findings"])


def test_several_servers_are_shown_as_the_verb_shows_them() -> None:
    made = ask(ask="plan", words=["gpu=h200", "model=qwen3_8b", "topology=replicas", "replicas=2"])
    assert made["plan"] is None
    assert "replica" in made["screen"]


def test_a_verb_reads_what_was_pasted_and_prints() -> None:
    made = ask(ask="verb", verb=["diagnose", "-", "--json"], stdin="torch.OutOfMemoryError: CUDA out of memory.")
    assert made["code"] == 0
    assert json.loads(made["out"])["results"][0]["kind"] == "oom_gpu"
    failed = ask(ask="verb", verb=["explain", "nothing_of_that_name"])
    assert failed["code"] == 2
    assert "CLI015" in failed["err"]


def test_a_pasted_command_becomes_a_form() -> None:
    line = "docker run lmsysorg/sglang:v0.5.2 python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2"
    made = ask(ask="paste", text=line)
    assert [server["form"] for server in made["servers"]] == [{"model": "qwen3_8b", "count": "2", "release": "0.5.2"}]
    assert made["diagnosis"] is None


def test_a_pasted_log_is_diagnosed_and_leads_to_a_plan() -> None:
    log = "server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1)\ntorch.OutOfMemoryError: CUDA out of memory."
    made = ask(ask="paste", text=log)
    assert made["diagnosis"]["kind"] == "oom_gpu"
    assert made["servers"][0]["form"]["model"] == "qwen3_8b"


def test_a_number_that_a_page_cannot_hold_is_shown_as_it_is_written() -> None:
    line = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --max-queued-requests 9223372036854775807"
    (server,) = ask(ask="paste", text=line)["servers"]
    shown = {argument["name"]: argument["shown"] for argument in server["arguments"]}
    assert shown["max_queued_requests"] == "9223372036854775807"


def test_a_log_that_names_its_gpu_is_planned_on_it() -> None:
    log = "server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1)\n8x NVIDIA H100 80GB HBM3, driver 550\n"
    assert ask(ask="paste", text=log)["servers"][0]["form"] == {"gpu": "h100", "model": "qwen3_8b"}
    several = log + "compared with an L4\n"
    assert "gpu" not in ask(ask="paste", text=several)["servers"][0]["form"]


def test_a_text_that_is_neither_says_what_was_looked_for() -> None:
    made = ask(ask="paste", text="<b>hello</b>")
    assert made["servers"] == []
    assert "launch_server" in made["findings"][0]["message"]
    assert made["diagnosis"]["id"] == "DIA000"


@pytest.mark.parametrize("verb", [["serve"], ["stop"], []])
def test_a_verb_that_starts_something_is_not_run(verb: list[str]) -> None:
    with pytest.raises(ValueError, match="one of plan, check"):
        ask(ask="verb", verb=verb)


def test_words_are_completed() -> None:
    assert "gpu=h200" in ask(ask="complete", line="model=qwen3_8b gpu=h2")["candidates"]


def test_another_question_is_refused() -> None:
    with pytest.raises(ValueError, match="one of plan, verb"):
        ask(ask="eval")
