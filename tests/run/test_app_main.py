"""``@sglang_hydra.main`` under ``@hydra.main``: an app with its own conf gets a plan in every job."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.forked import run_forked
from tests.plans import written

REPOSITORY = Path(__file__).parents[2]

APP = """\
import json

import hydra
import sglang_hydra


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
@sglang_hydra.main(strict=False)
def run(plan):
    \"\"\"What the app is for.\"\"\"
    assert isinstance(plan, sglang_hydra.Plan)
    places = {name: [f"{o.layer} {o.place}" for o in chain] for name, chain in plan.origins.items()}
    record = {
        "intent": dict(plan.intent),
        "gpu": [plan.gpu.name, plan.gpu.count],
        "choices": dict(plan.choices),
        "places": places,
        "ids": [finding.id for finding in plan.findings],
        "server_id": plan.server_id,
        "launchable": plan.launchable,
    }
    print("PLANNED " + json.dumps(record))
    return float(plan.values["tp_size"])


if __name__ == "__main__":
    run()
"""

AT_THE_ROOT = {
    "app.py": APP,
    "conf/config.yaml": """\
defaults:
  - sglang_hydra_schema
  - gpu: h200
  - model: mine
  - engine: auto
  - launch: local
  - _self_

tp_size: 2
""",
    "conf/model/mine.yaml": "defaults: [qwen3_8b]\nname: mine\nargs: {page_size: 4, port: 1000}\n",
    "conf/gpu_model/h100-mine.yaml": "page_size: 8\n",
    "conf/experiment/fast.yaml": "# @package _global_\ndefaults:\n  - override /gpu: h100\ntp_size: 4\n",
}

UNDER_A_NODE = {
    "app.py": APP,
    "conf/config.yaml": """\
defaults:
  - sglang_hydra_schema@serving.sglang
  - gpu@serving.sglang.gpu: h200
  - model@serving.sglang.model: mine
  - engine@serving.sglang.engine: auto
  - launch@serving.sglang.launch: local
  - trainer: small
  - _self_

rounds: 3
serving:
  sglang:
    tp_size: 2
    context_length: ${trainer.tokens}
""",
    "conf/trainer/small.yaml": "tokens: 1024\nlr: 0.1\n",
    "conf/trainer/large.yaml": "tokens: 4096\nlr: 0.2\n",
    "conf/model/mine.yaml": "defaults: [qwen3_8b]\nname: mine\nargs: {page_size: 4, port: 1000}\n",
    "conf/gpu_model/h100-mine.yaml": "page_size: ${serving.sglang.gpu.count}\n",
    "conf/experiment/fast.yaml": """\
# @package _global_
defaults:
  - override /gpu@serving.sglang.gpu: h100
serving: {sglang: {tp_size: 4}}
""",
}


def ended(folder: Path, words: list[str]) -> tuple[int, str]:
    """Runs the app; its exit code and what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    env |= {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OWN_KEY": "sekret"}
    return run_forked(words, folder=str(folder), env=env, script="app.py")


def jobs(folder: Path, *words: str, exits: int = 0) -> list[dict[str, Any]]:
    """Runs the app; what each of its jobs planned."""
    code, printed = ended(folder, list(words))
    assert code == exits, printed
    lines = [line.removeprefix("PLANNED ") for line in printed.splitlines() if line.startswith("PLANNED ")]
    return [json.loads(line) for line in lines]


def test_one_run(tmp_path: Path) -> None:
    (job,) = jobs(written(tmp_path, AT_THE_ROOT), "tp_size=4", "gpu.count=4")
    assert job["intent"] == {"model_path": "Qwen/Qwen3-8B", "page_size": 4, "port": 1000, "tp_size": 4}
    assert job["gpu"] == ["h200", 4]
    assert job["places"]["tp_size"] == ["primary conf/config.yaml:9", "cli override 1"]
    assert job["places"]["page_size"] == ["model conf/model/mine.yaml:3"]
    assert job["places"]["model_path"] == ["model conf/model/qwen3_8b.yaml:4"]
    assert job["launchable"]


def test_an_experiment_and_the_pair_file_of_what_it_chooses(tmp_path: Path) -> None:
    (job,) = jobs(written(tmp_path, AT_THE_ROOT), "+experiment=fast")
    assert job["intent"]["page_size"] == 8
    assert job["intent"]["tp_size"] == 4
    assert job["places"]["page_size"] == ["model conf/model/mine.yaml:3", "gpu_model conf/gpu_model/h100-mine.yaml:1"]
    assert job["places"]["tp_size"][-1] == "experiment conf/experiment/fast.yaml:4"


@pytest.mark.thorough
def test_every_job_of_a_multirun_gets_its_own_plan(tmp_path: Path) -> None:
    made = jobs(written(tmp_path, AT_THE_ROOT), "-m", "tp_size=1,2", "gpu=h100,h200")
    assert [(job["intent"]["tp_size"], job["gpu"][0]) for job in made] == [
        (1, "h100"),
        (1, "h200"),
        (2, "h100"),
        (2, "h200"),
    ]
    assert len({job["server_id"] for job in made}) == 4


@pytest.mark.parametrize("words", [["tp_size=3"], ["page_size=0"]], ids=" ".join)
def test_a_plan_that_cannot_be_launched_reaches_the_task(words: list[str], tmp_path: Path) -> None:
    (job,) = jobs(written(tmp_path, AT_THE_ROOT), *words)
    assert not job["launchable"]
    assert job["ids"]


@pytest.mark.parametrize("word", ["attention_backend=fa9", "gpu=h1000"])
def test_what_is_wrong_by_itself_is_refused_as_anywhere(word: str, tmp_path: Path) -> None:
    assert jobs(written(tmp_path, AT_THE_ROOT), word, exits=2) == []


def test_our_tree_can_stand_under_a_node_of_an_app_with_keys_of_its_own(tmp_path: Path) -> None:
    (job,) = jobs(written(tmp_path, UNDER_A_NODE))
    assert job["intent"] == {
        "model_path": "Qwen/Qwen3-8B",
        "context_length": 1024,
        "page_size": 4,
        "port": 1000,
        "tp_size": 2,
    }
    assert job["gpu"] == ["h200", 8]
    assert job["choices"]["trainer"] == "small"
    assert job["places"]["tp_size"] == ["primary conf/config.yaml:13"]
    assert job["places"]["context_length"] == ["primary conf/config.yaml:14"]


def test_under_a_node_everything_is_found_too(tmp_path: Path) -> None:
    words = ["+experiment=fast", "serving.sglang.dp_size=2", "serving.sglang.gpu.count=6", "trainer=large", "rounds=9"]
    (job,) = jobs(written(tmp_path, UNDER_A_NODE), *words)
    assert job["intent"]["page_size"] == 6, "the pair file of h100 and mine, with an interpolation"
    assert job["intent"]["context_length"] == 4096
    assert job["intent"]["tp_size"] == 4
    assert job["gpu"] == ["h100", 6]
    assert job["places"]["tp_size"] == ["primary conf/config.yaml:13", "experiment conf/experiment/fast.yaml:4"]
    assert job["places"]["dp_size"] == ["cli override 2"]


def test_our_primary_config_can_be_mounted_as_a_whole(tmp_path: Path) -> None:
    """Choices that such a list overrides cannot be overridden again by an experiment: that is Hydra's rule."""
    primary = """\
defaults:
  - sglang_hydra@serving.sglang
  - trainer: small
  - override gpu@serving.sglang.gpu: h200
  - override model@serving.sglang.model: mine
  - _self_
rounds: 3
"""
    (job,) = jobs(written(tmp_path, {**UNDER_A_NODE, "conf/config.yaml": primary}), "serving.sglang.tp_size=8")
    assert (job["gpu"], job["intent"]["tp_size"], job["intent"]["page_size"]) == (["h200", 8], 8, 4)


@pytest.mark.thorough
def test_a_multirun_under_a_node(tmp_path: Path) -> None:
    made = jobs(written(tmp_path, UNDER_A_NODE), "-m", "gpu@serving.sglang.gpu=h100,b200", "serving.sglang.tp_size=1,2")
    assert [(job["gpu"][0], job["intent"]["tp_size"]) for job in made] == [
        ("h100", 1),
        ("h100", 2),
        ("b200", 1),
        ("b200", 2),
    ]


MISTAKES = {
    "conf/experiment/tabs.yaml": "# @package _global_\ntp_size: 2\n\tport: 1\n",
    "conf/experiment/gpus.yaml": "# @package _global_\ndefaults:\n  - override /gpu: h2000\n",
    "conf/experiment/ports.yaml": "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {prt: '1,2'}}}\n",
}


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("experiment=gpus", "conf/experiment/gpus.yaml:3: gpu=h2000 does not exist"),
        ("-m experiment=gpus tp_size=1,2", "conf/experiment/gpus.yaml:3: gpu=h2000 does not exist"),
        ("-m experiment=fast,tabs", "conf/experiment/tabs.yaml:3:1: this is no YAML"),
        ("--cfg job experiment=tabs", "conf/experiment/tabs.yaml:3:1: this is no YAML"),
        ("--cfg job tpsize=2", "override 1: 'tpsize' is neither"),
        ("--cfg job --resolve served_model_name=${nope}", "Interpolation key 'nope' not found"),
        ("--info defaults gpu=h2000", "override 1: gpu=h2000 does not exist"),
        ("-m port=1 tpsize=1,2", "override 2: 'tpsize' is neither"),
        ("-m gpu=h100,h2000", "override 1: gpu=h2000 does not exist"),
        ("-m hydra/launcher=nope port=1,2", "override 1: hydra/launcher=nope does not exist"),
        ("-m port=1,2 hydra.sweep.dir=${nope}", "hydra.sweep.dir: Interpolation key 'nope' not found"),
        ("hydra.nope=1", "hydra.nope: Could not override 'hydra.nope'"),
        ("experiment=ports", "hydra.sweeper.params: 'prt' is neither"),
        ("port", "'port' has no value"),
        ("port = 1", "'port' has no value"),
    ],
)
def test_what_hydra_cannot_compose_is_a_finding_in_every_mode(words: str, said: str, tmp_path: Path) -> None:
    code, printed = ended(written(tmp_path, {**AT_THE_ROOT, **MISTAKES}), words.split())
    assert (code, "Traceback" in printed) == (2, False), printed
    assert said in " ".join(printed.split())


@pytest.mark.corpus
@pytest.mark.parametrize("files", [AT_THE_ROOT, UNDER_A_NODE], ids=["root", "node"])
def test_auto_asks_the_machine_also_here(files: dict[str, str], tmp_path: Path) -> None:
    word = "gpu=auto" if files is AT_THE_ROOT else "gpu@serving.sglang.gpu=auto"
    (job,) = jobs(written(tmp_path, files), word)
    assert job["gpu"][0] != "auto"
    assert job["choices"]["gpu"] == job["gpu"][0] or job["choices"]["gpu"] == "auto"


def test_a_key_from_the_environment_is_a_reference(tmp_path: Path) -> None:
    (job,) = jobs(written(tmp_path, AT_THE_ROOT), "api_key=${oc.env:OWN_KEY}")
    assert job["intent"]["api_key"].startswith("${oc.env:")
    left = [path.read_text() for path in (tmp_path / "outputs").rglob("*") if path.is_file()]
    assert left
    assert not any("sekret" in text for text in left)


def test_the_task_keeps_its_name_and_its_page() -> None:
    import sglang_hydra

    def run(plan: sglang_hydra.Plan) -> None:
        """What the app is for."""

    decorated = sglang_hydra.main(run)
    assert (decorated.__name__, decorated.__doc__) == ("run", "What the app is for.")


def test_a_key_that_is_typed_is_written_nowhere(tmp_path: Path) -> None:
    written(tmp_path, AT_THE_ROOT)
    (record,) = jobs(tmp_path, "api_key=sk-typed-here", "hydra.run.dir=run")
    assert record["intent"]["api_key"] == "${oc.env:SGLANG_HYDRA_API_KEY}"
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert not [path for path in files if "sk-typed-here" in path.read_text(encoding="utf-8")]
