"""Our own keys as people look for them: every key is explained, by itself and in a plan, and so are other names."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.compose.node_types import problems_at
from sglang_hydra.compose.schema import NODES, Root
from sglang_hydra.facts import probe
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.releases.records import newest_release
from sglang_hydra.show.key_help import GROUPS, HELP, below, key_of, keys
from sglang_hydra.show.keys import record
from tests.commands import H200, Run, runner, valid
from tests.plans import composer


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def nodes_of(path: str, node: Any) -> list[str]:
    inner = [(f"{path}.{item.name}", item.type) for item in fields(node) if is_dataclass(item.type)]
    return [path, *(name for below_path, kind in inner for name in nodes_of(below_path, kind))]


def test_every_key_and_every_node_has_its_help() -> None:
    assert list(keys()) == list(HELP)
    assert {name.partition(".")[0] for name in HELP} == set(NODES)
    declared = [name for item in fields(Root) if is_dataclass(item.type) for name in nodes_of(item.name, item.type)]
    assert set(GROUPS) == set(declared)
    assert all(below(group) for group in GROUPS)


@pytest.mark.parametrize("name", HELP)
def test_the_help_of_a_key_agrees_with_its_type_and_its_default(name: str) -> None:
    key = keys()[name]
    may_be_null = key.default is None if "type" in HELP[name] else not any(problems_at(name.split("."), None))
    assert (key.null is not None) == may_be_null
    if key.choices:
        assert key.default is None or key.default in key.choices
    assert key.about == key.about.strip().rstrip(".")


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("bench.concurrency", "bench.concurrency"),
        ("engine.env.NCCL_DEBUG", "engine.env"),
        ("extra.stream_interval", "extra"),
        ("topology.prefill.args.tp_size", "topology.prefill.args"),
        ("bench.slo.ttft_ms.x", None),
        ("bench.slo", None),
        ("tp_size", None),
        ("", None),
    ],
)
def test_a_word_names_a_key_or_what_is_below_a_mapping(word: str, key: str | None) -> None:
    found = key_of(word)
    assert (found.name if found else None) == key


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench.concurrency"], ["requests in flight", "null means  1", "default     null"]),
        (["launch.wait", *H200], ["launch.wait = true", "default  true", "launch  true  conf/launch/local.yaml:"]),
        (["launch.wait=false", *H200], ["launch.wait = false", "cli     false  argument 2"]),
        (["gpu.memory_mib", *H200, "gpu.memory_mib=999"], ["143771  conf/gpu/h200.yaml:", "cli     999.0"]),
        (["bench.input_len", *H200, "bench/workload=8k1k"], ["bench/workload  8192  conf/bench/workload/8k1k.yaml:"]),
        (["engine.version", *H200], [f'engine.version = "{newest_release()}"', "SGLang is not installed here"]),
        (["engine.env", *H200, "engine.env.A=b"], ["cli     {A: b}  argument 5"]),
        (["engine.env.A", *H200, "engine.env.A=b"], ["engine.env.A = b", "part of  engine.env"]),
        (["fabric"], ["choices     tcp, roce, ib"]),
        (["sweep.where"], ["a constraint that every point must meet"]),
        (["fit.context", *H200, "fit.context=4096"], ["fit.context = 4096"]),
        (["launch.slurm.gpus", *H200, "topology=pd"], ["choices  gpus_per_node, gres, none"]),
    ],
    ids=str,
)
def test_a_key_is_explained_with_its_value_and_who_set_it(words: list[str], said: list[str], run: Run) -> None:
    printed = run("explain", *words)
    assert printed.code == 0, printed.err
    for part in said:
        assert part in printed.out


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_is_explained_by_its_keys(group: str, run: Run) -> None:
    said = run("explain", group).out.splitlines()
    assert said[0] == group
    for key in below(group):
        assert any(line.split()[:1] == [key.name] for line in said), key.name


def test_a_group_is_shown_with_the_values_of_a_plan(run: Run) -> None:
    values = {
        line.split()[0]: line.split()[1]
        for line in run("explain", "fit", *H200, "fit.context=4096").out.splitlines()[3:]
    }
    assert values == {"fit.reserved_gib": "0.0", "fit.context": "4096", "fit.users": "null"}


@pytest.mark.parametrize(
    "words",
    [["bench.concurrency"], ["bench"], ["gpu", *H200], ["gpu.args", *H200], ["engine.env.A", *H200, "engine.env.A=b"]],
    ids=str,
)
def test_what_is_said_of_keys_has_a_schema(words: list[str], run: Run) -> None:
    made = valid("explain", run("explain", *words, "--json").out)
    assert made.get("key", made.get("group")) == words[0]


def test_no_secret_is_explained(run: Run) -> None:
    typed = [*H200, "engine.env.HF_TOKEN=sekret"]
    for words in (["engine.env"], ["engine.env.HF_TOKEN"], ["engine"], ["engine.env", "--json"]):
        assert "sekret" not in run("explain", *words, *typed).out


def test_what_this_machine_says_of_its_gpu_is_the_value(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = GpuProbe(vendor="nvidia", device="cuda", names=("NVIDIA H200",), memory_mib=140000, count=2)
    monkeypatch.setattr(probe, "probe_gpu", lambda env, python=None: found)
    said = run("explain", "gpu.memory_mib", "model=qwen3_8b").out
    assert said.startswith("gpu.memory_mib = 140000\n")
    assert "on this machine" in said


@pytest.mark.parametrize(
    "word", ["tp", "--tp", "--tp-size", "tensor_parallel_size", "--tensor-parallel-size", "tp-size"]
)
def test_another_name_of_an_argument_is_answered_for_it_and_says_so(word: str, run: Run) -> None:
    first, rest = run("explain", word, *H200, "tp_size=2").out.split("\n", 1)
    assert first.startswith("--t")
    assert first.endswith("is the argument tp_size")
    assert rest == run("explain", "tp_size", *H200, "tp_size=2").out
    assert run("explain", f"{word}=2", *H200).out.split("\n", 1)[1].startswith("tp_size = 2\n")
    assert valid("explain", run("explain", word, "--json").out)["field"] == "tp_size"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--help", "bench.concurrency"], "requests in flight"),
        (["help", "launch.wait"], "with launch.detach"),
        (["plan", "--help", "launch"], "with launch.detach"),
        (["--help", "sweep"], "a constraint that every point must meet"),
        (["--help", "fabric"], "tcp, roce, ib"),
        (["--help", "prompts"], "bench.num_prompts"),
        (["--help", "launch.slurm"], "launch.slurm.walltime"),
        (["bench", "--help"], "explain bench"),
    ],
    ids=str,
)
def test_help_finds_our_own_keys(words: list[str], said: str, run: Run) -> None:
    printed = run(*words)
    assert printed.code == 0
    assert said in printed.out


def test_help_for_a_misspelt_key_names_the_nearest(run: Run) -> None:
    assert "--help bench.concurrency" in run("--help", "bench.concurency").err


def test_an_options_file_is_read_where_it_was_found(tmp_path: Path, run: Run) -> None:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "lab.yaml").write_text("defaults: [h100]\nname: lab\ncount: 4\n", encoding="utf-8")
    typed = ["model=qwen3_8b", "--config-dir", str(tmp_path), "gpu=lab"]
    assert "lab.yaml:3" in run("explain", "gpu.count", *typed).out
    assert run("explain", "gpu.memory_mib", *typed).out.startswith("gpu.memory_mib = 81559")


def test_a_record_without_a_plan_has_no_value() -> None:
    assert record("launch.wait", composer())["value"] is None
