"""A Hydra user's habits with serve.py: ``-m``, the keys of Hydra's own node, and Hydra's own flags."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_hydra.cli.hydra_words import settle_hydra_words
from sglang_hydra.cli.invocation import read_invocation
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.hydra_jobs import hydra_over
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.run.launch.hydra_run import in_hydra
from sglang_hydra.run.launch.launch_request import LaunchRequest
from sglang_hydra.text.errors import ConfigError
from tests.commands import H200, Run, runner
from tests.plans import written

DRY = "sweep.dry_run=true"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys, monkeypatch)


@pytest.mark.parametrize("words", [["-m"], ["hydra.mode=MULTIRUN"], ["serve", "--multirun"]], ids=" ".join)
def test_serve_sweeps_and_shows_the_plan_of_the_sweep_first(words: list[str], run: Run) -> None:
    printed = run(*words, *H200, "tp_size=1,2", DRY)
    assert (printed.code, printed.err) == (0, "")
    for line in ("Sweep of 2 points over tp_size", "to run      2  on 2 server starts", "estimate"):
        assert line in printed.out


def test_the_mode_of_an_experiment_of_ones_own_and_its_sweep_are_obeyed(run: Run, tmp_path: Path) -> None:
    experiment = """\
# @package _global_
defaults:
  - override /hydra/launcher: joblib
hydra:
  mode: MULTIRUN
  sweep: {dir: "swept/${now:%Y}-${hydra:job.name}"}
  sweeper: {params: {tp_size: "1,2"}}
context_length: 4096
"""
    written(tmp_path, {"conf/experiment/mine.yaml": experiment})
    words = ["-cd", "conf", *H200, "experiment=mine", DRY]
    swept = run(*words)
    assert "Sweep of 2 points over tp_size" in swept.out
    assert "results in     swept/20" in swept.out
    assert "points over" not in run(*words, "tp_size=4", "--run").out, "--run asks for one run"
    assert "of 1 point" in run(*words, "tp_size=4").out, "what is typed beats hydra.sweeper.params"


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("hydra.sweep.dir=here", "results in     here"),
        ("+hydra.sweeper.params.tp_size='1,2'", "Sweep of 2 points over tp_size"),
        ("hydra.sweeper.where='tp_size > 4'", "left out  1"),
        ("hydra/sweeper=sglang", "to run      1"),
    ],
)
def test_hydras_keys_of_a_sweep_are_obeyed(word: str, shown: str, run: Run) -> None:
    assert shown in run("bench", "-m", *H200, word, DRY).out


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["plan", "hydra.mod=1"], "did you mean hydra.mode?"),
        (["plan", "hydra.run.dir=x"], "plan starts no Hydra job"),
        (["-m", "hydra.run.dir=x", DRY], "hydra.sweep.dir=FOLDER"),
        (["hydra.sweep.dir=x"], "hydra.run.dir=FOLDER"),
        (["-m", "hydra/launcher=optuna", DRY], "there is no hydra/launcher=optuna"),
        (["-m", "hydra/sweeper=optuna", DRY], "sweep.where=... constrains the points"),
        (["-m", "hydra.launcher.foo=1", DRY], "hydra.launcher.foo"),
        (["-m", "hydra.job.env_set.A=1", DRY], "+engine.env.NAME=VALUE"),
        (["explain", "tp_size", "hydra.mode=MULTIRUN"], "-m"),
        (["plan", "hydra.mode=SOME"], "hydra.mode=MULTIRUN, or -m"),
    ],
)
def test_what_cannot_be_obeyed_names_the_key_and_what_to_type(words: list[str], key: str, run: Run) -> None:
    printed = run(*words, *H200)
    assert printed.code == 2
    assert key in " ".join(printed.err.split())


def leaves(key: str, node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from leaves(f"{key}.{name}", value)
    else:
        yield key, node


@pytest.fixture(scope="module")
def hydras_tree() -> dict[str, Any]:
    """Every key of Hydra's own node, with its value, and every group of it."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.object_type import ObjectType
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    try:
        hydra = hydra_over("serve", [])
        words = ["hydra/sweeper=sglang", "hydra/launcher=joblib"]
        config = hydra.compose_config(PRIMARY_NAME, words, run_mode=RunMode.MULTIRUN)
        found = dict(leaves("hydra", OmegaConf.to_container(config.hydra)))
        groups = hydra.config_loader.list_groups("hydra")
    finally:
        GlobalHydra.instance().clear()
    assert len(found) > 60
    assert ObjectType.GROUP
    return {**found, **{f"hydra/{name}": "default" for name in groups}}


OBEYED_BY_ALL = {"hydra.mode", "hydra.searchpath"}


@pytest.mark.parametrize(
    ("words", "obeyed"),
    [
        (["plan"], ()),
        (["check"], ()),
        (["export", "slurm"], ()),
        (["bench", "-m"], ("hydra.sweep.dir.", "hydra.sweeper.", "hydra.launcher.", "hydra/launcher.")),
        (["-m"], ("hydra.sweep.dir.", "hydra.sweeper.", "hydra.launcher.", "hydra/launcher.")),
    ],
    ids=lambda words: " ".join(words),
)
def test_no_key_of_hydras_own_tree_is_ignored(
    words: list[str], obeyed: tuple[str, ...], hydras_tree: dict[str, Any]
) -> None:
    """Each is refused with its name, or is one of those whose effect the tests above show; so is each node of keys."""
    values = dict.fromkeys(hydras_tree, "RUN")
    parts = [key.split(".") for key in hydras_tree]
    nodes = {".".join(path[:depth]): "{a: 1}" for path in parts for depth in range(1, len(path))}
    assert {"hydra", "hydra.job", "hydra.job.config.override_dirname"} <= set(nodes)
    for key, value in {**nodes, **values}.items():
        for word in (f"{key}={value}", f"+{key}={value}", f"++{key}={value}", f"~{key}"):
            invocation = read_invocation([*words, word, *H200])
            try:
                settle_hydra_words(invocation)
            except ConfigError as failure:
                (finding,) = failure.findings
                assert (finding.id, key in finding.message, bool(finding.hint)) == ("CLI023", True, True)
                continue
            assert (key in OBEYED_BY_ALL and word[0] != "~") or f"{key}.".startswith(obeyed), word
            assert key != "hydra.sweeper._target_"


def test_one_run_hands_every_key_that_it_obeys_to_hydra(hydras_tree: dict[str, Any], tmp_path: Path) -> None:
    """A key is refused, or the config of the Hydra job has the value; what Hydra cannot use, it refuses."""
    refused, obeyed = [], 0
    for key, value in hydras_tree.items():
        if key in OBEYED_BY_ALL:
            continue
        new = {bool: str(not value), int: "7"}.get(type(value), f"'{tmp_path}/new'")
        invocation = read_invocation([f"{key}={new}", *H200])
        try:
            settle_hydra_words(invocation)
        except ConfigError:
            refused.append(key)
            continue
        assert any(request.text.startswith(f"{key}=") for request in invocation.requests)
        obeyed += 1
    assert obeyed > 20
    writes = ("hydra.runtime", "hydra.overrides", "hydra.job.override_dirname", "hydra.job.config_name")
    others = ("hydra.sweep.", "hydra.sweeper", "hydra.launcher", "hydra.help", "hydra.hydra_help", "hydra/")
    assert [key for key in refused if not key.startswith((*writes, *others))] in ([], ["hydra.aliases"])


def test_what_one_run_obeys_has_its_effect(tmp_path: Path) -> None:
    import os

    seen: dict[str, Any] = {}

    def task() -> int:
        from hydra.core.hydra_config import HydraConfig

        node = HydraConfig.get()
        seen.update(cwd=os.getcwd(), name=node.job.name, id=node.job.id, variable=os.environ.get("FROM_HYDRA"))
        return 0

    words = [f"hydra.run.dir={tmp_path}/r", "hydra.job.name=mine", "hydra.job.chdir=true", "hydra.job.id=7"]
    invocation = read_invocation([*words, "+hydra.job.env_set.FROM_HYDRA=yes", "hydra.output_subdir=notes", *H200])
    settle_hydra_words(invocation)
    before = os.getcwd()
    assert in_hydra(LaunchRequest(Composer(), invocation.requests), task) == 0
    assert (seen, os.getcwd()) == ({"cwd": f"{tmp_path}/r", "name": "mine", "id": "7", "variable": "yes"}, before)
    assert (tmp_path / "r" / "notes" / "overrides.yaml").exists()
    assert "model_path: ${.model.model_path}" in (tmp_path / "r" / "notes" / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("flag", "shown"),
    [
        (["-sc", "install=bash"], "completion bash"),
        (["--shell-completion"], "completion bash"),
        (["--experimental-rerun", "x.pickle"], "lock=RUN_FOLDER/plan.json"),
        (["--verbose"], "hydra.verbose=true"),
        (["-r", "-m"], "--run asks for one run"),
        (["plan", "--run"], "--run asks for one run"),
    ],
)
def test_a_flag_of_hydras_that_is_not_ours_says_what_does_it_here(flag: list[str], shown: str, run: Run) -> None:
    printed = run(*flag, *H200)
    assert printed.code == 2
    assert shown in " ".join(printed.err.split())


@pytest.mark.parametrize("typed", [["check", "--against", "0.5.21"], ["plan", "--against=0.5.21"]], ids=str)
def test_a_flag_for_the_release_names_the_key(typed: list[str], run: Run) -> None:
    printed = run(*typed, *H200)
    assert printed.code == 2
    said = " ".join(printed.err.split())
    assert "check --base HEAD FILE, or" in said
    assert "check engine.version=0.5.23 ..." in said


def test_the_shown_config_holds_what_the_presets_bring(run: Run, tmp_path: Path) -> None:
    files = {"conf/gpu_model/h200-qwen3_8b.yaml": "page_size: 16\n"}
    written(tmp_path, files)
    shown = yaml.safe_load(run("--cfg", "job", "--resolve", "-cd", "conf", *H200).out)
    assert (shown["model_path"], shown["page_size"]) == ("Qwen/Qwen3-8B", 16)
    assert run("--cfg", "job", "-p", "model.name", *H200).out.split() == ["qwen3_8b"]
    assert "${.model.model_path}" in run("--cfg", "job", *H200).out
    assert "attn_dp_size: 2" in run("--cfg=job", *H200, "attn_dp_size=2").out


MOUNTED = """\
defaults:
  - /sglang_hydra@serving.sglang
  - override /gpu@serving.sglang.gpu: h200
  - override /model@serving.sglang.model: mine
  - _self_
"""


def test_under_a_node_the_shown_config_holds_it_too(run: Run, tmp_path: Path) -> None:
    files = {"conf/config.yaml": MOUNTED, "conf/model/mine.yaml": "defaults: [qwen3_8b]\nargs: {page_size: 4}\n"}
    written(tmp_path, files)
    words = ["--cfg", "job", "--resolve", "-cd", "conf", "-cn", "config", "serving.sglang.tp_size=2"]
    shown = yaml.safe_load(run(*words).out)["serving"]["sglang"]
    assert (shown["model_path"], shown["page_size"], shown["tp_size"]) == ("Qwen/Qwen3-8B", 4, 2)


FILE = """\
defaults:
  - override /gpu: mine
  - override /model: qwen3_8b
  - override /hydra/launcher: joblib
hydra:
  searchpath: ["file://more"]
  sweep: {dir: "swept/${now:%Y}-${hydra:job.name}"}
  sweeper: {params: {gpu.count: "1,2"}}
  mode: MULTIRUN
"""


def test_a_typed_file_sets_hydras_keys_as_an_experiment_does(run: Run, tmp_path: Path) -> None:
    written(tmp_path, {"server.yaml": FILE, "more/gpu/mine.yaml": "defaults: [h200]\n"})
    swept = run("server.yaml", DRY).out
    assert "Sweep of 2 points over gpu.count" in swept
    assert "results in     swept/20" in swept
    assert json.loads(run("plan", "--json", "server.yaml", "gpu.count=2").out)["gpu"]["count"] == 2
    assert "of 1 point" in run("bench", "-m", "server.yaml", "gpu.count=2", DRY).out
    searched = "hydra.searchpath=['file://more']"
    assert "to run      2" in run("bench", "-m", searched, "model=tiny", "gpu=mine,h100", DRY).out


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("defaults: [{hydra.searchpath: x}]", "hydra.searchpath is a key, and a defaults list names only groups"),
        ("hydra: {foo: 1}", "bad.yaml:2: Hydra has no key hydra.foo"),
        ("hydra: {runtime: {cwd: x}}", "bad.yaml:2: hydra.runtime.cwd=x: Hydra writes it"),
        ("hydra: {searchpath: ['pkg://os']}", "hydra.searchpath names pkg://os: it is a package"),
    ],
)
def test_a_typed_file_is_refused_a_key_that_nothing_obeys(line: str, shown: str, run: Run, tmp_path: Path) -> None:
    written(tmp_path, {"bad.yaml": f"gpu: h200\n{line}\n"})
    printed = run("plan", "bad.yaml", "model=qwen3_8b")
    assert printed.code == 2
    assert shown in " ".join(printed.err.split())


@pytest.mark.parametrize(
    ("kind", "shown"), [("defaults", "gpu/h200"), ("searchpath", "structured://"), ("plugins", "SglangSweeper")]
)
def test_hydras_info_is_shown(kind: str, shown: str, run: Run) -> None:
    assert shown in run("--info", kind, *H200).out


def test_hydra_searches_every_folder_that_is_named(run: Run, tmp_path: Path) -> None:
    written(tmp_path, {"a/gpu/mine.yaml": "defaults: [h200]\n", "b/model/mine.yaml": "defaults: [qwen3_8b]\n"})
    shown = yaml.safe_load(run("--cfg", "job", "-cd", "a", "-cd", "b", "gpu=mine", "model=mine").out)
    assert (shown["gpu"]["memory_mib"], shown["model"]["model_path"]) == (143771, "Qwen/Qwen3-8B")


@pytest.mark.parametrize("flag", ["-cp", "--config-path"])
def test_the_folder_of_the_primary_config_is_replaced(flag: str, run: Run, tmp_path: Path) -> None:
    primary = "defaults: [sglang_hydra_schema, gpu: h200, model: qwen3_8b, engine: auto, launch: local, _self_]\n"
    written(tmp_path, {"mine/sglang_hydra.yaml": f"{primary}page_size: 8\n", "mine/other.yaml": primary, "no/x": ""})
    assert json.loads(run("plan", "--json", flag, "mine").out)["values"]["page_size"] == 8
    assert json.loads(run("plan", "--json", flag, "mine", "-cn", "other", "gpu=h100").out)["values"]["page_size"] == 1
    refused = run("plan", flag, "no", *H200)
    assert refused.code == 2
    assert "there is no primary config sglang_hydra.yaml in it" in " ".join(refused.err.split())
    assert "--config-dir no adds its groups to ours" in " ".join(refused.err.split())


@pytest.mark.parametrize("flag", ["-cd", "--config-dir"])
def test_a_folder_of_ones_own_is_searched_first(flag: str, run: Run, tmp_path: Path) -> None:
    written(tmp_path, {"conf/model/mine.yaml": "defaults: [qwen3_8b]\nname: mine\nargs: {page_size: 4}\n"})
    record = json.loads(run("plan", "--json", flag, "conf", "gpu=h200", "model=mine").out)
    assert record["values"]["page_size"] == 4
