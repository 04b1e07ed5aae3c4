"""plan, check and explain where ``topology=`` asks for several servers."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest

from sglang_hydra.planning.topology import router
from sglang_hydra.planning.topology.plan import plan_topology
from sglang_hydra.show.topology import topology_screen
from sglang_hydra.text.screen import write
from tests.commands import H200, Run, runner, valid
from tests.plans import SEED, composer, requests

PD = (*H200, "topology=pd", "topology.prefill.replicas=2", "topology.decode.args.tp_size=4", "random_seed=42")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(router, "find_router", lambda python, engine_python: (python, None))
    return runner(capsys, monkeypatch)


def test_the_screen_shows_what_is_common_once_and_a_row_for_each_server(run: Run) -> None:
    shown = run("plan", *PD)
    assert shown.code == 0
    lines = re.sub("\n {40,}", " ", shown.out).splitlines()
    assert len([line for line in lines if line.startswith("  +  model_path")]) == 1
    shape = "topology: 2 x prefill, 1 x decode, behind sglang-router 0.1.9 (not installed here) on 127.0.0.1:30000"
    assert shape in " ".join(shown.out.split())
    start = lines.index("Servers") + 2
    assert [re.sub("  +", " | ", line.strip()) for line in lines[start : start + 3]] == [
        re.sub("PLAN", _plan_id(lines[start]), "prefill 0 | 0 | http://127.0.0.1:30001 | PLAN | ")
        + "port=30001 base_gpu_id=0 nccl_port=30101 disaggregation_bootstrap_port=8998",
        re.sub("PLAN", _plan_id(lines[start]), "prefill 1 | 1 | http://127.0.0.1:30002 | PLAN | ")
        + "port=30002 base_gpu_id=1 nccl_port=30102 disaggregation_bootstrap_port=8999",
        re.sub("PLAN", _plan_id(lines[start + 2]), "decode 0 | 2-5 | http://127.0.0.1:30003 | PLAN | ")
        + "port=30003 base_gpu_id=2 nccl_port=30103",
    ]
    only = lines[lines.index("Only for decode") + 1 : start - 3]
    assert [line.split()[1] for line in only if line.strip()][:3] == [
        "tp_size",
        "disaggregation_mode",
        "mem_fraction_static",
    ]
    assert "--pd-disaggregation --prefill http://127.0.0.1:30001 8998" in shown.out
    assert lines[:2] == ["Launch    yes, by SGLang 0.5.2", "GPUs      6 of 8 x h200, for 3 servers"]
    assert [line.split(":")[0] for line in lines[2:4]] == ["Capacity  prefill", "          decode"]
    assert re.fullmatch(r"Topology [0-9a-f]{16}: 3 servers", lines[-1])


def _plan_id(line: str) -> str:
    found = re.search(r"\b[0-9a-f]{16}\b", line)
    assert found
    return found[0]


def test_every_value_of_every_server_can_be_read_from_the_screen(run: Run) -> None:
    made = plan_topology(composer(), requests(*PD), seed=SEED, env={})
    out = io.StringIO()
    write(topology_screen(made), out)
    for server in made.servers:
        for name in server.plan.intent:
            assert re.search(rf"(^|\s){name}[ =]", out.getvalue(), re.MULTILINE), name


def test_for_machines_it_is_one_record(run: Run) -> None:
    shown = run("plan", "--json", *PD)
    record = valid("topology", shown.out)
    assert shown.code == 0
    assert [(server["role"], server["gpus"]) for server in record["servers"]] == [
        ("prefill", [0]),
        ("prefill", [1]),
        ("decode", [2, 3, 4, 5]),
    ]
    assert record["router"]["command"][-2:] == ["--decode", "http://127.0.0.1:30003"]


@pytest.mark.parametrize(
    ("more", "code", "upstream_only"),
    [
        ([], 0, 0),
        (["topology.decode.args.page_size=64"], 2, 0),
        (["topology.prefill.args.tp_size=3"], 2, 2),
        (["topology.decode.replicas=0"], 2, 2),
        (["replicas=2"], 2, 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_verdict_is_on_all_of_it(run: Run, more: list[str], code: int, upstream_only: int) -> None:
    assert run("plan", *PD, *more).code == code
    assert run("check", *PD, *more).code == code
    assert run("check", "--strict", *PD, *more).code == code
    shown = run("check", "--json", "--upstream-only", *PD, *more)
    record = valid("check", shown.out)
    assert (shown.code, record["ok"]) == (upstream_only, upstream_only == 0)


def test_check_judges_a_file_that_asks_for_several_servers(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text("gpu: h200\nmodel: qwen3_8b\ntopology: replicas\nreplicas: 9\n", encoding="utf-8")
    shown = run("check", "--strict", str(file))
    assert shown.code == 2
    assert "TOP004  9 servers need 9 GPUs, and h200 has 8: replica 8 takes 8" in shown.out
    assert run("check", "--strict", str(file), "replicas=8").code == 0


def test_the_same_finding_of_several_servers_names_them(run: Run) -> None:
    shown = run("check", *PD, "topology.prefill.args.context_length=1000000")
    found = [line for line in shown.out.splitlines() if line.startswith("  error")]
    assert len(found) == 1
    assert "prefill 0, prefill 1: " in found[0]


def test_explain_takes_the_argument_of_one_server(run: Run) -> None:
    shown = run("explain", "decode.tp_size", *PD)
    assert shown.code == 0
    assert shown.out.startswith("decode 0\ntp_size = 4\n")
    assert run("explain", "prefill.1.port", *PD).out.startswith("prefill 1\nport = 30002\n")
    both = run("explain", "tp_size", *PD).out
    assert "prefill 0\ntp_size = 1\n" in both
    assert "decode 0\ntp_size = 4\n" in both
    assert "topology=pd, prefill 1" in run("explain", "prefill.1.port", *PD).out


def test_explain_for_machines_needs_to_know_which_server(run: Run) -> None:
    record = valid("explain", run("explain", "--json", "decode.tp_size", *PD).out)
    assert (record["server"], record["value"]) == ("decode 0", 4)
    shown = run("explain", "--json", "tp_size", *PD)
    assert shown.code == 2
    assert [(finding["id"], finding["hint"]) for finding in valid("findings", shown.out)["findings"]] == [
        ("TOP020", "explain prefill.tp_size or explain decode.tp_size")
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["decode.7.tp_size", *PD], "there is no server decode 7; there are prefill 0, prefill 1, decode 0"),
        (["replica.tp_size", *PD], "there is no server replica; there are prefill 0, prefill 1, decode 0"),
        (["decode.x.tp_size", *PD], "there is no server decode x; there are prefill 0, prefill 1, decode 0"),
        (["decode.tp_size", *H200], "one server is planned, and no topology"),
        (["decode.tpsize", *PD], "'decode.tpsize' is neither an argument, one of our keys nor the id of a finding"),
        (["decode.0.tpsize", *PD], "explain decode.0.tp_size gpu=h200"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_explain_of_what_is_not_there_is_refused(run: Run, words: list[str], message: str) -> None:
    shown = run("explain", *words)
    assert shown.code == 2
    assert message in re.sub(r"\s+", " ", shown.err)


def test_help_shows_every_key_of_the_group(run: Run) -> None:
    shown = run("--help", "topology")
    assert shown.code == 0
    for key in ("topology.prefill.args", "topology.on_worker_exit", "topology.router.policy", "topology.router.args"):
        assert key in shown.out


def test_a_hostile_name_cannot_steer_the_screen(run: Run) -> None:
    shown = run("plan", "gpu=h200", "model_path=a\x1b[2J$(x)'b", "topology=replicas", "replicas=2", "random_seed=1")
    assert "\x1b" not in shown.out
    assert "\\x1b[2J" in shown.out


def _documented() -> list[list[str]]:
    """The commands of docs/topology.md, those that start servers as plans of them."""
    page = (Path(__file__).parents[3] / "docs" / "topology.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    return [["plan", *words] if "=" in words[0] else words for words in commands]


@pytest.mark.parametrize("words", _documented(), ids=" ".join)
def test_what_is_documented_can_be_typed(run: Run, words: list[str]) -> None:
    assert run(*words).code == 0
