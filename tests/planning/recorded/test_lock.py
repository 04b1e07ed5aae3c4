"""lock=plan.json: the same server again, or a refusal that names every difference."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.facts import probe
from sglang_hydra.facts.installed import Packages
from sglang_hydra.facts.probe import GpuProbe
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import NOT_IDENTITY, Plan
from sglang_hydra.text.findings import Finding
from tests.commands import Run, must_follow, runner
from tests.plans import (
    H200,
    composer,
    origins,
    planned,
    refused,
    requests,
    without_accelerator,
    without_engines,
    written,
)

KEY = "sk-correct-horse"
MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
}

PLANS: tuple[tuple[str, ...], ...] = (
    H200,
    ("gpu=h100", "model=deepseek_v3", "tp_size=8", "dp_size=8", "enable_dp_attention=true"),
    ("gpu=h100", "gpu.memory_mib=95830", "gpu.count=4", "model=qwen3_8b", "tp_size=4"),
    (*H200, "random_seed=7", "lora_paths=['a=/x',/y]", "max_lora_rank=8", "lora_target_modules=[q_proj,k_proj]"),
    (*H200, "engine.env.SGLANG_X=1", "launch.image=repo@sha256:1", "ignore=[FIT001]", "fit.context=100"),
    (*H200, "context_length=null", "schedule_conservativeness=2", "cuda_graph_bs=[1,2]"),
    ("gpu=cpu", "model=tiny", "attention_backend=torch_native"),
    ("recipe=deepseek_v3-h200-8-low-latency", "mem_fraction_static=0.85"),
    ("gpu=none", "model=unset"),
    (*H200, "engine.version=0.5.23", "dcp_size=2", "cuda_graph_max_bs_decode=4"),
    ("gpu=h200", "model_path=someone/unheard-of", "engine.version=0.5.2"),
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.fixture
def lock(tmp_path: Path) -> Callable[..., str]:
    """Saves a plan, changed here and there, and names the file."""

    def save(made: Plan | dict[str, Any], **changed: Any) -> str:
        record = made.to_json() if isinstance(made, Plan) else dict(made)
        record = json.loads(json.dumps(record))
        for key, value in changed.items():
            *path, last = key.split("__")
            node = record
            for name in path:
                node = node[name]
            node[last] = value
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(record), encoding="utf-8")
        return str(file)

    return save


def errors(findings: Sequence[Finding]) -> list[tuple[str, tuple[str, ...]]]:
    return [(finding.id, finding.fields) for finding in findings if finding.level == "error"]


def about(findings: Sequence[Finding], field: str) -> Finding:
    (found,) = [finding for finding in findings if field in finding.fields and finding.level == "error"]
    return found


@pytest.mark.parametrize("overrides", PLANS, ids=str)
def test_a_lock_is_the_same_server_again(overrides: tuple[str, ...], lock: Callable[..., str]) -> None:
    before = planned(*overrides)
    again = planned(f"lock={lock(before)}")
    assert again.server_id == before.server_id
    assert again.values == before.values
    assert again.intent == before.intent
    assert (again.ok, again.launchable, again.seed_drawn) == (before.ok, before.launchable, before.seed_drawn)
    assert again.command == before.command
    assert again.nodes.launch.image == before.nodes.launch.image
    must_follow(again.to_json(), "plan")


def test_who_set_it_is_the_lock_over_the_presets(lock: Callable[..., str]) -> None:
    path = lock(planned(*H200, "tp_size=2"))
    again = planned(f"lock={path}", "port=4000")
    assert origins(again, "tp_size") == [("lock", path, 2)]
    assert [layer for layer, _, _ in origins(again, "model_path")] == ["model", "lock"]
    assert origins(again, "port") == [("cli", "argument 2", 4000)]


def test_a_drawn_seed_is_drawn_no_more(lock: Callable[..., str]) -> None:
    path = lock(planned(*H200))
    again = planned_with_another_draw(f"lock={path}")
    assert again.values["random_seed"] == 42
    assert again.seed_drawn
    assert "42" in again.command


def planned_with_another_draw(*words: str) -> Plan:
    from sglang_hydra.planning.making.make import make_plan
    from tests.plans import composer, requests

    return make_plan(composer(), requests(*words), seed=None, env={})


ON_TOP = {
    "host": "0.0.0.0",
    "port": 4000,
    "nccl_port": 31000,
    "log_level": "debug",
    "log_requests": True,
    "base_gpu_id": 2,
    "download_dir": "/data",
    "dist_init_addr": "10.0.0.1:5000",
}


def test_where_a_server_runs_may_be_said_anew(lock: Callable[..., str]) -> None:
    assert ON_TOP.keys() <= NOT_IDENTITY
    before = planned(*H200)
    words = [f"{name}={str(value).lower() if value is True else value}" for name, value in ON_TOP.items()]
    again = planned(f"lock={lock(before)}", *words, "launch.ready_timeout=60", "tp_size=1", "ignore=[FIT002]")
    assert again.server_id == before.server_id
    assert {name: again.values[name] for name in ON_TOP} == ON_TOP


REFUSED: dict[str, tuple[str, str, str, str]] = {
    "tp_size=2": ("LCK005", "tp_size", "tp_size: 1 in the lock (SGLang's default), now 2 (argument 2)", ""),
    "mem_fraction_static=0.8": ("LCK005", "mem_fraction_static", "now 0.8 (argument 2)", ""),
    "random_seed=1": ("LCK005", "random_seed", "random_seed: 42 in the lock", ""),
    "gpu=h100": ("LCK006", "gpu.memory_mib", "gpu.memory_mib: 143771 in the lock, now 81559 (argument 2)", ""),
    "gpu.count=2": ("LCK006", "gpu.count", "gpu.count: 8 in the lock, now 2 (argument 2)", ""),
    "model=qwen3_32b": ("LCK007", "model", "qwen3_8b in the lock, now qwen3_32b (argument 2)", ""),
    "model=Qwen/Qwen3-32B": ("LCK005", "model_path", "now Qwen/Qwen3-32B (argument 2)", ""),
    "recipe=gpt_oss_120b-h200-8": ("LCK005", "recipe", "null in the lock", ""),
    "revision=abc": ("LCK005", "revision", "revision: null in the lock", ""),
    "engine.version=0.5.3": ("LCK008", "engine.version", "now \"0.5.3\" (argument 2)", "engine.version=0.5.2"),
    "engine=transformers": ("LCK008", "engine", "engine: sglang in the lock, now transformers", "engine=sglang"),
    "launch.image=repo@sha256:2": ("LCK009", "launch.image", "now repo@sha256:2 (argument 2)", ""),
    "engine.env.SGLANG_X=1": ("LCK010", "SGLANG_X", "SGLANG_X: null in the lock", "unset SGLANG_X"),
    "json_model_override_args='{\"a\": 1}'": ("LCK005", "json_model_override_args", "argument 2", ""),
}  # fmt: skip


@pytest.mark.parametrize("word", REFUSED)
def test_anything_else_on_top_is_refused_field_by_field(word: str, lock: Callable[..., str]) -> None:
    id, field, said, hint = REFUSED[word]
    path = lock(planned(*H200))
    findings = refused(f"lock={path}", word)
    found = about(findings, field)
    assert found.id == id
    assert said in found.message
    assert hint in (found.hint or "")
    (way_out,) = [finding for finding in findings if finding.id == "LCK012"]
    anew = (way_out.hint or "").partition("plan --json ")[2].removesuffix(" > new.json")
    keys = [each.partition("=")[0] for each in shlex.split(anew)]
    assert {"gpu", "model", word.partition("=")[0]} <= set(keys)
    assert len(keys) == len(set(keys)), "what is typed on top replaces the word of the lock"


def test_the_new_lock_that_a_refusal_names_can_be_made(lock: Callable[..., str]) -> None:
    before = planned("gpu=h100", "gpu.count=4", "model=qwen3_8b", "tp_size=2", "served_model_name='a b'")
    findings = refused(f"lock={lock(before)}", "tp_size=4")
    (way_out,) = [finding for finding in findings if finding.id == "LCK012"]
    command = shlex.split((way_out.hint or "").partition("plan --json ")[2])
    again = planned(*command[: command.index(">")])
    assert (again.values["tp_size"], again.values["served_model_name"], again.gpu.count) == (4, "a b", 4)


def test_a_preset_that_only_names_another_is_locked_by_its_name(lock: Callable[..., str]) -> None:
    findings = refused(f"lock={lock(planned('gpu=h200', 'model=gpt_oss'))}", "tp_size=4")
    (way_out,) = [finding for finding in findings if finding.id == "LCK012"]
    assert "plan --json gpu=h200 model=gpt_oss tp_size=4 > new.json" in (way_out.hint or "")


CHANGED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a value": ({"values__chunked_prefill_size": 4096}, "LCK005", "chunked_prefill_size", "now 8192 (SCH001: GPUs of"),
    "an answer of a rule": ({"values__grammar_backend": "outlines"}, "LCK005", "grammar_backend", "KER007"),
    "a fact": ({"gpu__memory_mib": 150000.0}, "LCK006", "gpu.memory_mib", "150000 in the lock, now 143771 (gpu=h200)"),
    "a package": ({"gpu__flashinfer": False}, "LCK006", "gpu.flashinfer", "false in the lock, now true"),
    "a revision": ({"model__revision": "abc123"}, "LCK007", "model.revision", "abc123 in the lock, now null"),
    "a layer": ({"model__config__num_hidden_layers": 99}, "LCK007", "model.config.num_hidden_layers", "99 in the lock"),
    "an image": ({"settings": {"launch.image": {"value": "x@sha256:1"}}}, "", "", ""),
    "a variable": ({"inherited": {"SGLANG_Y": "1"}}, "LCK010", "SGLANG_Y", "now null"),
    "a bool for a number": ({"values__tp_size": True}, "LCK005", "tp_size", "true in the lock"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_what_resolves_otherwise_now_is_refused(case: str, lock: Callable[..., str]) -> None:
    changed, id, field, said = CHANGED[case]
    path = lock(planned(*H200), **changed)
    if not id:
        assert planned(f"lock={path}").nodes.launch.image == "x@sha256:1"
        return
    found = about(refused(f"lock={path}"), field)
    assert found.id == id
    assert said in found.message


def test_a_preset_that_brings_something_new_is_a_difference(lock: Callable[..., str], tmp_path: Path) -> None:
    conf = written(tmp_path / "conf", {"model/mine.yaml": "defaults: [qwen3_8b]\nname: mine\n"})
    before = planned("gpu=h200", "model=mine", using=Composer([conf]))
    path = lock(before)
    assert planned(f"lock={path}", using=Composer([conf])).server_id == before.server_id
    written(conf, {"model/mine.yaml": "defaults: [qwen3_8b]\nname: mine\nargs: {page_size: 16}\n"})
    found = about(refused(f"lock={path}", using=Composer([conf])), "page_size")
    assert "mine.yaml" in found.message


def test_a_folder_whose_model_changed_is_refused(lock: Callable[..., str], tmp_path: Path) -> None:
    folder = written(tmp_path / "model", {"config.json": json.dumps(MODEL)})
    before = planned("gpu=h200", f"model={folder}")
    path = lock(before)
    assert planned(f"lock={path}").server_id == before.server_id
    written(folder, {"config.json": json.dumps({**MODEL, "num_hidden_layers": 40})})
    assert "36 in the lock, now 40" in about(refused(f"lock={path}"), "model.config.num_hidden_layers").message
    (folder / "config.json").unlink()
    folder.rmdir()
    unread = planned(f"lock={path}")
    assert unread.server_id == before.server_id
    assert [finding.id for finding in unread.findings if finding.level == "info"].count("LCK004") == 1


def test_an_option_that_is_not_here_leaves_its_recorded_facts(lock: Callable[..., str], tmp_path: Path) -> None:
    conf = written(tmp_path / "conf", {"gpu/lab.yaml": "defaults: [h100]\nname: lab\nmemory_mib: 90000\n"})
    before = planned("gpu=lab", "model=qwen3_8b", using=Composer([conf]))
    again = planned(f"lock={lock(before)}")
    assert again.server_id == before.server_id
    (note,) = [finding for finding in again.findings if finding.id == "LCK004"]
    assert "gpu=lab of the lock is no option here" in note.message


H100S = GpuProbe("nvidia", "cuda", ("NVIDIA H100 80GB HBM3",) * 8, 81559.0, 81559.0, (9, 0), 8, 8, flashinfer=True)


def test_probed_gpus_are_compared_where_there_are_any(
    lock: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "probe_gpu", lambda env, python=None: H100S)
    before = planned("gpu=auto", "model=qwen3_8b")
    assert before.probed
    path = lock(before)
    assert planned(f"lock={path}").server_id == before.server_id

    from dataclasses import replace

    monkeypatch.setattr(probe, "probe_gpu", lambda env, python=None: replace(H100S, memory_mib=80000.0))
    assert "81559 in the lock, now 80000 (this machine)" in about(refused(f"lock={path}"), "gpu.memory_mib").message
    without_accelerator(monkeypatch)
    elsewhere = planned(f"lock={path}")
    assert elsewhere.server_id == before.server_id
    assert "there is no GPU here" in next(item.message for item in elsewhere.findings if item.id == "LCK004")


def test_another_release_that_is_installed_is_refused(
    lock: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lock(planned(*H200))
    monkeypatch.setattr("sglang_hydra.facts.installed.installed", lambda python: Packages({"sglang": "0.5.4"}))
    found = about(refused(f"lock={path}"), "engine.version")
    assert found.message == 'engine.version: "0.5.2" in the lock, now "0.5.4" (installed here)'
    assert found.hint == "engine.python=<an interpreter that has SGLang 0.5.2>"


FILES: dict[str, tuple[str | None, str, str]] = {
    "gone": (None, "LCK001", "No such file"),
    "empty": ("", "LCK001", ":1:1 cannot be read: it is no JSON"),
    "no JSON": ("{]", "LCK001", "it is no JSON"),
    "a list": ("[]", "LCK002", "it is no plan, as it names no schema"),
    "another kind": ('{"schema": "sglang_hydra.check/1"}', "LCK002", "'sglang_hydra.check/1'"),
    "foreign": ('{"name": "x", "version": 3}', "LCK002", "it is no plan, as it names no schema"),
    "later": ('{"schema": "sglang_hydra.plan/9"}', "LCK002", "a later sglang-hydra wrote it"),
    "earlier": ('{"schema": "sglang_hydra.plan/0"}', "LCK002", "an earlier sglang-hydra wrote it"),
    "no number": ('{"schema": "sglang_hydra.plan/x"}', "LCK002", "'sglang_hydra.plan/x'"),
    "half": ('{"schema": "sglang_hydra.plan/1"}', "LCK001", "engine is missing"),
    "deep": ("[" * 100_000, "LCK001", "it is no JSON"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_lock_says_what_it_is(case: str, tmp_path: Path) -> None:
    content, id, said = FILES[case]
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    (finding,) = refused(f"lock={file}")
    assert (finding.id, finding.fields) == (id, ("lock",))
    assert said in finding.message
    assert "makes a lock" in (finding.hint or "")


@pytest.mark.parametrize(
    "broken",
    [
        {"values": {}}, {"intent": []}, {"gpu__memory_mib": "x"}, {"gpu__bad": 1}, {"values__tpsize": 1},
        {"model__config": 5}, {"environment": {"A": 1}}, {"seed_drawn": "yes"}, {"ledger": [3]},
        {"gpu__compute_capability": [9]}, {"values__random_seed": "x"}, {"engine": {"name": "sglang"}},
        {"intent__tpsize": 4}, {"choices": None}, {"model__draft": "x"}, {"model__draft": {"config": {}}},
        {"settings": [1]}, {"settings": {"launch.image": "x"}}, {"settings": {"launch.image": {"place": "x"}}},
    ],
    ids=str,
)  # fmt: skip
def test_a_broken_plan_is_refused_in_words(broken: dict[str, Any], lock: Callable[..., str]) -> None:
    (finding,) = refused(f"lock={lock(planned(*H200), **broken)}")
    assert finding.id == "LCK001"
    assert "it is no whole plan" in finding.message


def test_a_folder_and_a_file_of_bytes_are_no_locks(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "bytes"):
        assert refused(f"lock={path}")[0].id == "LCK001"


def test_a_lock_holds_no_key_and_says_so(lock: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_HYDRA_API_KEY", raising=False)
    path = lock(planned(*H200, f"api_key={KEY}", "engine.env.HF_TOKEN=hf_abc"))
    assert KEY not in Path(path).read_text()
    assert "hf_abc" not in Path(path).read_text()
    keyless = planned(f"lock={path}")
    assert errors(keyless.findings) == [("LCK013", ("api_key",))]
    assert not keyless.launchable
    given = planned(f"lock={path}", f"api_key={KEY}")
    assert given.launchable
    assert given.secrets == {"api_key": KEY}
    monkeypatch.setenv("SGLANG_HYDRA_API_KEY", "from the environment")
    assert planned(f"lock={path}").secrets == {"api_key": "from the environment"}
    findings = refused(f"lock={path}", f"api_key={KEY}", "tp_size=4")
    assert KEY not in str(findings)


def test_every_verb_that_plans_takes_a_lock(lock: Callable[..., str], run: Run) -> None:
    path = lock(planned("gpu=h200", "model=gpt_oss", "tp_size=2"))
    for words in (["plan"], ["check"], ["fit"], ["explain", "tp_size"], ["export", "argv"]):
        assert run(*words, f"lock={path}").code == 0, words
        assert run(*words, f"lock={path}", "port=4000").code == 0, words
        assert run(*words, f"lock={path}", "tp_size=4").code == 2, words
    record = json.loads(run("plan", "--json", f"lock={path}", "tp_size=4").out)
    must_follow(record, "findings")
    assert {item["id"] for item in record["findings"]} >= {"LCK005", "LCK012"}


def test_a_lock_can_be_locked_again(lock: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = planned(*H200, "tp_size=2")
    second = planned(f"lock={lock(first)}", "port=4000")
    third = planned(f"lock={lock(second)}")
    assert third.server_id == first.server_id
    assert third.values["port"] == 4000
    monkeypatch.setattr("sglang_hydra.facts.installed.installed", lambda python: Packages({"sglang": "0.5.4"}))
    assert about(refused(f"lock={lock(third)}"), "engine.version").id == "LCK008"


def test_a_lock_of_several_servers_is_refused(lock: Callable[..., str]) -> None:
    assert refused(f"lock={lock(planned(*H200))}", "topology=replicas", "replicas=2")[0].id == "LCK011"


def test_a_lock_in_a_yaml_file_is_one_too(lock: Callable[..., str], tmp_path: Path, run: Run) -> None:
    path = lock(planned(*H200))
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(f"lock: {path}\nport: 4000\n")
    bad.write_text(f"lock: {path}\ntp_size: 4\n")
    assert run("check", str(good)).code == 0
    printed = run("check", str(bad))
    assert printed.code == 2
    assert "bad.yaml:2" in printed.out


def test_the_points_of_a_sweep_are_held_to_the_lock_one_by_one(lock: Callable[..., str], run: Run) -> None:
    path = lock(planned(*H200, "tp_size=2"))
    printed = run("plan", "-m", f"lock={path}", "port=4000,4001")
    assert (printed.code, printed.out.count("can be launched")) == (0, 3)
    printed = run("check", "-m", f"lock={path}", "tp_size=2,4")
    assert printed.code == 2
    assert "LCK005" in printed.out


def test_a_saved_plan_is_no_override_on_a_lock(lock: Callable[..., str], run: Run, tmp_path: Path) -> None:
    path, saved = lock(planned(*H200)), tmp_path / "saved.json"
    saved.write_text(json.dumps(planned(*H200).to_json()))
    printed = run("check", str(saved), f"lock={path}")
    assert printed.code == 2
    assert "LCK011" in printed.out
    assert f"diff PLAN {path}" in printed.out


def test_a_lock_without_a_seed_takes_the_one_that_the_start_draws_and_one_with_a_seed_keeps_it(
    lock: Callable[..., str],
) -> None:
    path = lock(make_plan(composer(), requests(*H200), env={}))
    assert planned(f"lock={path}", seed=7).values["random_seed"] == 7
    (typed,) = refused(f"lock={path}", "random_seed=7")[:1]
    assert (typed.id, typed.fields) == ("LCK005", ("random_seed",))
    drawn = lock(planned(*H200, seed=11))
    assert planned(f"lock={drawn}", seed=7).values["random_seed"] == 11
