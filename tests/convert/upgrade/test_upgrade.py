"""``upgrade``: what breaks, what is renamed, what moves, and a new command that the release takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.tables.table import Release, known_versions, release
from sglang_hydra.cli.main import entry
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.convert.upgrade.inputs import subjects_of
from sglang_hydra.convert.upgrade.releases import started_from
from sglang_hydra.convert.upgrade.upgraded import Upgrade, upgraded
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.releases.records import default_release
from tests.commands import Printed, Run, runner, valid
from tests.plans import composer, requests, without_engines

TO = ("--to", "0.5.23")
H200 = ("gpu=h200", "model=qwen3_8b")
NEWEST = known_versions()[-1]
CHANGED = ("cuda_graph_max_bs=64", "torchao_config=int4wo-128", "engine.env.SGL_ENABLE_JIT_DEEPGEMM=1")
SCRIPT = """#!/bin/bash
docker run --gpus all lmsysorg/sglang:v0.5.2-cu126 python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B \\
  --tp 2 --cuda-graph-max-bs 64 --enable-ep-moe
"""
COMPOSE = """services:
  server:
    image: lmsysorg/sglang:v0.5.9
    command: python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --cuda-graph-max-bs 64
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers:
    - name: sglang
      image: lmsysorg/sglang:v0.5.2
      command: [python3, -m, sglang.launch_server]
      args: [--model-path, Qwen/Qwen3-8B, --cuda-graph-max-bs, "64"]
"""
EXPERIMENT = """# @package _global_
# a remark of ours
defaults:
  - override /gpu: h200
  - override /model: qwen3_8b
engine:
  env:
    SGL_ENABLE_JIT_DEEPGEMM: "1"   # faster
tp_size: ${gpu.count}   # all of them
torchao_config: int4wo-128
cuda_graph_bs:
  - 1
  - 2
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def the_server(printed: Printed) -> dict[str, Any]:
    record = valid("upgrade", printed.out)
    (server,) = record["servers"]
    assert record["ok"] is server["ok"] is (printed.code == 0)
    found: dict[str, Any] = server
    return found


def upgrade(*words: str, to: str = "0.5.23") -> Upgrade:
    (subject,) = subjects_of(requests(*words), None, None, composer())
    return upgraded(composer(), subject, to, written_for=None if "recipe=" in words[0] else "0.5.2")


def refused_by_the_table(words: list[str], known: Release) -> list[str]:
    """The flags of a command line that the release does not know, and the values that are none of their choices."""
    flags = {flag: argument for argument in known.arguments.values() for flag in argument.flags}
    flags |= {f"--no-{flag[2:]}": argument for flag, argument in flags.items() if argument.action is not None}
    wrong = []
    for at, word in enumerate(words):
        flag, _, inside = word.partition("=")
        if not flag.startswith("--"):
            continue
        if flag not in flags and flag not in known.old_flags:
            wrong.append(flag)
        elif flag in flags and (choices := flags[flag].choices) is not None:
            rest = words[at + 1 :]
            end = next((place for place, other in enumerate(rest) if other.startswith("--")), len(rest))
            said = [inside] if inside else rest[:end]
            wrong += [f"{flag} {value}" for value in said if value not in map(str, choices)]
    return wrong


def test_the_judge_of_the_command_lines_can_say_no() -> None:
    words = [
        "python",
        "--model-path",
        "a/b",
        "--torchao-config",
        "int4",
        "--attention-backend",
        "none_such",
        "--tp-size",
        "2",
    ]
    assert refused_by_the_table(words, release("0.5.23")) == ["--torchao-config", "--attention-backend none_such"]


@pytest.mark.thorough
@pytest.mark.parametrize("to", dict.fromkeys(("0.5.23", NEWEST)))
def test_every_recipe_has_a_new_command_that_the_release_takes(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    known = release(to)
    for id in recipes():
        made = upgrade(f"recipe={id}", to=to)
        words = list(made.plan.command)
        assert words[:3] == ["python", "-m", "sglang.launch_server"], id
        assert refused_by_the_table(words, known) == [], id
        assert made.ok is not bool(made.steps.broken), (id, made.plan.errors)
        assert not [finding for finding in made.plan.errors if finding.id.startswith("VER")], id
        assert made.words[0] == f"recipe={id}"
        assert f"engine.version={to}" in made.words
    assert len(recipes()) == 171


def test_our_own_new_command_is_the_same_server(run: Run) -> None:
    made = upgrade(*H200, *CHANGED, "extra.dcp_size=2", "random_seed=1")
    again = make_plan(composer(), requests(*made.words))
    assert again.command == made.plan.command
    assert again.ok


def test_an_argument_that_only_the_recipes_release_has_is_one_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    made = upgrade("recipe=deepseek_r1-b200-8-low-latency-2")
    assert made.start == ("0.5.6", "the recipe was written for 0.5.6", False)
    assert made.words[-1] == "cuda_graph_max_bs_decode=128"
    assert made.plan.launchable is not False
    assert made.plan.intent["fp8_gemm_runner_backend"] == "flashinfer_trtllm"
    assert "--fp8-gemm-backend flashinfer_trtllm" in " ".join(made.plan.command)


def test_the_record_says_what_breaks_what_is_renamed_and_what_moves(run: Run) -> None:
    server = the_server(run("upgrade", *TO, "--from", "0.5.2", "--json", *H200, *CHANGED))
    (broken,) = server["breaks"]
    assert (broken["key"], broken["value"], broken["kind"]) == ("torchao_config", "int4wo-128", "gone")
    assert broken["set_by"].startswith("cli, argument")
    assert broken["hint"] == "leave torchao_config out"
    assert server["renamed"] == [
        {
            "key": "cuda_graph_max_bs",
            "value": 64,
            "before": ["--cuda-graph-max-bs", "64"],
            "after": ["--cuda-graph-max-bs-decode", "64"],
        }
    ]
    moved = {item["name"]: item for item in server["defaults"]}
    assert moved["lora_backend"] == {
        "name": "lora_backend",
        "before": "triton",
        "after": "csgmv",
        "since": "0.5.4.post2",
        "resolved": "csgmv",
        "keep": "lora_backend=triton",
    }
    assert server["variables"] == [
        {
            "name": "SGL_ENABLE_JIT_DEEPGEMM",
            "state": "renamed",
            "place": "engine.env",
            "instead": "SGLANG_ENABLE_JIT_DEEPGEMM",
        }
    ]
    assert server["needs"]["driver"] == "580.65.06"
    assert "sglang serve" in server["release"]["scripts"]["added"]
    assert "GET /get_load" in server["release"]["pages"]["removed"]
    assert server["environment"] == {"SGLANG_ENABLE_JIT_DEEPGEMM": "1"}
    assert "--torchao-config" not in server["command"]


def test_the_screen_ends_with_the_new_command_and_the_verdict(run: Run) -> None:
    printed = run("upgrade", *TO, "--from", "0.5.2", *H200, *CHANGED)
    assert printed.code == 2
    order = ["Breaks", "Renamed", "Defaults that move", "Environment", "The server of 0.5.23", "The new command"]
    places = [printed.out.index(title) for title in order]
    assert places == sorted(places)
    assert "--cuda-graph-max-bs 64  ->  --cuda-graph-max-bs-decode 64" in printed.out
    assert "Which values 0.5.23 resolves otherwise is not known" in printed.out
    assert "sglang serve MODEL (since 0.5.5)" in printed.out
    assert printed.out.rstrip().endswith("0.5.23 refuses it as it was")


def test_a_choice_that_is_gone_breaks(run: Run) -> None:
    server = the_server(
        run("upgrade", *TO, "--json", *H200, "enable_hierarchical_cache=true", "sampling_backend=pytorch")
    )
    assert server["breaks"] == []
    gone = next(
        (name, choice)
        for name, argument in release("0.5.2").arguments.items()
        for choice in argument.choices or ()
        if name in release("0.5.23").arguments
        and release("0.5.23").arguments[name].choices is not None
        and choice not in (release("0.5.23").arguments[name].choices or ())
        and choice is not None
    )
    server = the_server(run("upgrade", *TO, "--json", *H200, f"{gone[0]}={gone[1]}"))
    assert [(item["key"], item["kind"]) for item in server["breaks"]] == [(gone[0], "choice")]


@pytest.mark.parametrize(
    ("name", "content", "start"),
    [("run.sh", SCRIPT, "0.5.2"), ("compose.yaml", COMPOSE, "0.5.9"), ("pod.yaml", POD, "0.5.2")],
)
def test_a_launch_file_is_read_and_its_release_is_told_by_its_image(
    name: str, content: str, start: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(content)
    server = the_server(run("upgrade", *TO, "--json", str(file), "gpu=h200"))
    assert (server["source"], server["from"]) == ("import", start)
    words = server["command"]
    assert words[words.index("--model-path") + 1] == "Qwen/Qwen3-8B"
    assert words[words.index("--cuda-graph-max-bs-decode") + 1] == "64"
    assert server["file"]["kind"] == "experiment"
    new = tmp_path / "new.yaml"
    new.write_text(server["file"]["content"])
    assert run("check", str(new)).code == 0


def test_a_command_is_read_by_the_release_that_from_names(run: Run) -> None:
    command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --cuda-graph-max-bs-decode 64 --dcp-size 2"
    for words in ((command,), ("--", *command.split()[3:])):
        server = the_server(run("upgrade", *TO, "--from", "0.5.22", "--json", "gpu=h200", *words))
        assert (server["from"], server["from_why"], server["breaks"]) == ("0.5.22", "--from", [])
        assert {"--cuda-graph-max-bs-decode", "--dcp-size"} <= set(server["command"])


def test_an_experiment_is_changed_in_place_with_its_remarks_and_references(run: Run, tmp_path: Path) -> None:
    file, new = tmp_path / "long.yaml", tmp_path / "new.yaml"
    file.write_text(EXPERIMENT)
    printed = run("upgrade", *TO, str(file), "-o", str(new))
    assert printed.code == 2
    assert f"Written to {new}" in printed.out
    kept = EXPERIMENT.replace("engine:\n", 'engine:\n  version: "0.5.23"\n').replace("SGL_E", "SGLANG_E")
    kept = kept.replace("cuda_graph_bs:", "cuda_graph_bs_decode:")
    kept = kept.replace("torchao", "# SGLang 0.5.23: leave torchao_config out\n# torchao")
    assert new.read_text() == kept
    assert run("check", str(new)).code == 0
    assert run("upgrade", *TO, str(new)).code == 0


def test_what_cannot_be_changed_in_place_is_written_anew(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text("{gpu: h200, model: qwen3_8b, engine: sglang, tp_size: 2, torchao_config: int4wo-128}")
    server = the_server(run("upgrade", *TO, "--json", str(file)))
    assert "# Left out: torchao_config=int4wo-128" in server["file"]["content"]
    new = tmp_path / "new.yaml"
    new.write_text(server["file"]["content"])
    assert run("check", str(new)).code == 0


def test_nothing_is_written_over(run: Run, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text("mine")
    printed = run("upgrade", *TO, *H200, "-o", str(new))
    assert printed.code == 2
    assert "UPG005" in printed.err
    assert new.read_text() == "mine"


@pytest.mark.parametrize("name", ["new.json", "new.sh", "new.yaml", "new"])
def test_the_name_of_the_new_file_says_what_it_is(name: str, run: Run, tmp_path: Path) -> None:
    new = tmp_path / name
    assert run("upgrade", *TO, *H200, "cuda_graph_max_bs=64", "-o", str(new)).code == 0
    if name == "new.json":
        assert valid("plan", new.read_text())["engine"]["version"] == "0.5.23"
        assert run("plan", f"lock={new}").code == 0
    elif name == "new.sh":
        assert "--cuda-graph-max-bs-decode" in new.read_text()
        assert new.stat().st_mode & 0o100
    else:
        assert run("check", str(new.with_suffix(".yaml"))).code == 0


def test_a_plan_goes_there_and_back_with_its_facts(run: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(run("plan", "--json", *H200, "gpu.count=2", "engine.version=0.5.9", "cuda_graph_max_bs=64").out)
    for given in (str(old), f"lock={old}"):
        server = the_server(run("upgrade", *TO, "--json", given))
        assert (server["source"], server["from"]) == ("plan", "0.5.9")
        assert server["from_why"] == "the plan was written for 0.5.9"
        assert [item["after"] for item in server["renamed"]] == [["--cuda-graph-max-bs-decode", "64"]]
        assert "gpu=h200" in server["ours"]
    assert run("upgrade", *TO, str(old), "-o", str(new)).code == 0
    back = the_server(run("upgrade", "--to", "0.5.9", "--json", str(new)))
    assert back["direction"] == "downgrade"
    assert back["command"] == json.loads(old.read_text())["command"]


def test_on_the_way_back_new_names_become_old_ones_and_what_is_new_breaks(run: Run) -> None:
    later = ("engine.version=0.5.23", "cuda_graph_max_bs_decode=64", "extra.dcp_size=2")
    server = the_server(run("upgrade", "--to", "0.5.9", "--json", *H200, *later))
    assert (server["from"], server["from_why"]) == ("0.5.23", "engine.version")
    assert [item["key"] for item in server["breaks"]] == ["dcp_size"]
    assert "it came with" in server["breaks"][0]["message"]
    assert [item["after"] for item in server["renamed"]] == [["--cuda-graph-max-bs", "64"]]
    assert "cuda_graph_max_bs=64" in server["ours"]


def test_to_the_same_release_nothing_changes(run: Run) -> None:
    server = the_server(run("upgrade", "--to", "0.5.2", "--json", *H200, "torchao_config=int4wo-128"))
    assert server["direction"] == "same"
    assert server["breaks"] == server["renamed"] == server["defaults"] == server["variables"] == []


def test_a_preset_that_breaks_is_told_the_default(run: Run, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("model_path: Qwen/Qwen3-8B\nargs: {torchao_config: int4wo-128}\n")
    words = ("--config-dir", str(tmp_path), "gpu=h200", "model=mine")
    server = the_server(run("upgrade", *TO, "--json", *words))
    assert server["breaks"][0]["set_by"].startswith("model, ")
    assert "torchao_config=" in server["ours"]
    assert f"--config-dir {tmp_path}" in server["ours"]
    assert "--torchao-config" not in server["command"]


START = {
    "0.5.6+": "0.5.6",
    "0.5.x": "0.5.2",
    ">=0.5.0rc2": "0.5.2",
    "0.3": "0.5.2",
    "0.5.3rc1": "0.5.3",
    "0.5.2 (rocm7.0 dev 20250915)": "0.5.2",
    "0.5.5.post3": "0.5.5.post3",
    "v0.5.23-cu130": "0.5.23",
}


@pytest.mark.parametrize("said", START)
def test_what_a_source_says_of_its_release_is_read(said: str) -> None:
    found = started_from(said, "it")
    assert found is not None
    assert found.version == START[said]


def test_every_recipe_says_its_release() -> None:
    assert [id for id, recipe in recipes().items() if started_from(recipe.version, "it") is None] == []


REFUSALS = {
    "no release": ((*H200,), "UPG001", NEWEST),
    "unknown": (("--to", "0.5.32", *H200), "UPG001", "--to 0.5.23 or: "),
    "no version": (("--to", "soon", *H200), "UPG001", f"--to {NEWEST} or: "),
    "too old": (("--to", "0.4.1", *H200), "UPG001", "--to 0.5.2 or: "),
    "from": ((*TO, "--from", "0.9", *H200), "UPG001", f"--from {NEWEST} or: "),
    "nothing": (TO, "UPG002", "upgrade what?"),
    "two": ((*TO, "a.sh", "b.sh"), "UPG002", "a.sh, b.sh"),
    "folder": ((*TO, "conf"), "UPG002", "is a folder"),
    "missing": ((*TO, "nothere.sh"), "IMP002", "nothere.sh"),
    "no launch": ((*TO, "echo hello world"), "IMP001", "looked for"),
    "engine": ((*TO, "engine=transformers", "model=tiny"), "UPG004", "transformers"),
    "topology": ((*TO, "topology=replicas", *H200), "UPG004", "topology=replicas"),
    "mistyped": ((*TO, *H200, "tpsize=8"), "CLI001", "tp_size=8"),
    "flag": ((*TO, *H200, "--tp-size", "8"), "CLI004", "tp_size=8"),
    "several runs": ((*TO, "-m", *H200), "CLI013", "upgrade"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_says_what_to_type(case: str, run: Run) -> None:
    words, id, said = REFUSALS[case]
    printed = run("upgrade", *words)
    assert printed.code == 2
    assert id in printed.err
    assert said in " ".join(printed.err.split())


def test_the_nearest_releases_are_listed_for_an_unknown_one(run: Run) -> None:
    said = " ".join(run("upgrade", "--to", "0.7.0", *H200).err.split())
    assert f"{len(known_versions()) - 5} more: sglang-hydra release list" in said


def test_to_belongs_to_upgrade(run: Run) -> None:
    assert "UPG006" in run("plan", *TO, *H200).err


def test_no_secret_is_shown_or_written(run: Run, tmp_path: Path) -> None:
    command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --api-key hunter22"
    file = tmp_path / "own.yaml"
    file.write_text("gpu: h200\nmodel: qwen3_8b\napi_key: hunter22\nengine: {env: {HF_TOKEN: hunter22}}\n")
    given = (
        (*H200, "api_key=hunter22"),
        (*H200, "engine.env.HF_TOKEN=hunter22", "-o", str(tmp_path / "new.yaml")),
        (*H200, "engine.env={HF_TOKEN: hunter22, A: 1}"),
        (command, "gpu=h200"),
        (str(file),),
    )
    for words in given:
        for flags in ((), ("--json",)):
            printed = run("upgrade", *TO, *flags, *words)
            assert printed.code == 0, printed.err
            assert "hunter22" not in printed.out + printed.err
            for new in tmp_path.glob("new*"):
                assert "hunter22" not in new.read_text()
                new.unlink()


def test_a_key_that_is_in_no_command_is_named(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(run("plan", *H200, "api_key=hunter22", "--json").out)
    command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --api-key hunter22"
    given = {
        (*H200, "api_key=hunter22"): "without api_key, which the command below hands over unseen",
        (command, "gpu=h200"): "without api_key, which the command below hands over unseen",
        (str(plan),): "without api_key, and so is the command below: add 'api_key=${oc.env:MY_KEY}'",
    }
    for words, said in given.items():
        assert said in run("upgrade", *TO, *words).out
    assert "api_key" not in run("upgrade", *TO, *H200).out


def test_where_nothing_names_the_release_it_is_that_of_a_plan_or_the_newest_with_all_arguments(run: Run) -> None:
    said = "if it was written for another one: --from VERSION"
    assert said in run("upgrade", *TO, *H200).out
    assert said not in run("upgrade", *TO, *H200, "--from", "0.5.9").out
    meant = default_release()  # which the tests' environment sets
    plain = the_server(run("upgrade", *TO, "--json", *H200, "cuda_graph_max_bs=64"))
    assert (plain["from"], plain["from_why"]) == (meant, f"no release is named: it is planned for {meant}")
    later = the_server(run("upgrade", *TO, "--json", *H200, "cuda_graph_max_bs_decode=64"))
    newest = next(one for one in reversed(known_versions()) if "cuda_graph_max_bs_decode" in release(one).arguments)
    assert "cuda_graph_max_bs_decode" not in release(meant).arguments
    assert (later["from"], later["renamed"]) == (newest, [])
    file = the_server(run("upgrade", *TO, "--json", "python -m sglang.launch_server --model-path a/b --dcp-size 2"))
    assert "by its flags the source was written for" in file["from_why"]


def test_an_upgrade_compares_what_both_releases_make_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from", "0.5.12", "--to", "0.5.23", "gpu=h200", "model=qwen3_8b", "--steps", "--json"]
    assert entry(["upgrade", *words]) == 0
    (server,) = json.loads(capsys.readouterr().out)["servers"]
    moved = {move["key"]: move for move in server["values"]["moves"]}
    assert server["values"]["asked"]
    assert moved["hicache_mem_layout"]["since"] == "0.5.15"
    assert moved["hicache_mem_layout"]["before"] == "layer_first"
    assert server["values"]["steps"] == ["0.5.15", "0.5.18", "0.5.20"]
    assert server["values"]["before_id"] != server["values"]["after_id"] == server["server_id"]


def test_old_flags_are_written_under_the_new_release_by_what_they_mean(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "--model-path Qwen/Qwen3-8B --disable-piecewise-cuda-graph --mamba-scheduler-strategy extra_buffer"
    more = "--nsa-prefill-backend trtllm --enable-nsa-prefill-context-parallel"
    words = ["--from", "0.5.19", "--to", "0.5.20", "gpu=h200", "--json", "--", "python", "-m", "sglang.launch_server"]
    assert entry(["upgrade", *words, *typed.split(), *more.split()]) == 0
    (server,) = json.loads(capsys.readouterr().out)["servers"]
    line = " ".join(server["command"])
    for flags in (
        "--cuda-graph-backend-prefill disabled",
        "--mamba-radix-cache-strategy extra_buffer",
        "--dsa-prefill-backend trtllm",
        "--enable-prefill-cp",
        "--cp-strategy interleave",
    ):
        assert flags in line
