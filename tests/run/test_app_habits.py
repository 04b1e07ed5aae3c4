"""A Hydra user's habits in an app with ``@sglang_hydra.main``: interpolations, callbacks, groups, the task."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sglang_hydra
from tests.forked import run_forked_apart
from tests.plans import written

REPOSITORY = Path(__file__).parents[2]

APP = """\
import hydra
from omegaconf import OmegaConf
import sglang_hydra

OmegaConf.register_new_resolver("mul", lambda a, b: a * b)


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
@sglang_hydra.main
def run(config, plan):
    print("TASK", config.trainer.max_epochs, config.paths.output_dir)
    for name, chain in plan.origins.items():
        print("HAS", name, plan.values[name], *(f"{origin.layer} {origin.place}" for origin in chain))


if __name__ == "__main__":
    run()
"""
LOGGING = """\
version: 1
formatters: {simple: {format: "%(message)s"}}
handlers: {console: {class: logging.StreamHandler, formatter: simple, stream: ext://sys.stderr}}
root: {level: INFO, handlers: [console]}
disable_existing_loggers: false
"""
# The layout of a well-known template of a training app, written anew: its groups, its hydra group, its interpolations.
TREE = {
    "app.py": APP,
    "configs/train.yaml": """\
defaults:
  - model: net
  - trainer: default
  - paths: default
  - hydra: default
  - /sglang_hydra@server
  - optional local: default
  - override /gpu@server.gpu: h200
  - override /model@server.model: qwen3_8b
  - _self_
task_name: train
server: {served_model_name: "${task_name}-${hydra:job.name}", download_dir: "/tmp/${now:%Y}"}
""",
    "configs/model/net.yaml": "width: 3\n",
    "configs/trainer/default.yaml": "max_epochs: ${mul:2,${mul:2,3}}\n",
    "configs/paths/default.yaml": """\
log_dir: logs
output_dir: ${hydra:runtime.output_dir}
""",
    "configs/hydra/default.yaml": """\
defaults:
  - override hydra_logging: colorlog
  - override job_logging: colorlog
run:
  dir: ${paths.log_dir}/${task_name}/runs/${now:%Y-%m-%d}
sweep:
  dir: ${paths.log_dir}/${task_name}/multiruns/${now:%Y-%m-%d}
  subdir: ${hydra.job.num}
""",
    "configs/hydra/hydra_logging/colorlog.yaml": LOGGING,
    "configs/hydra/job_logging/colorlog.yaml": LOGGING,
    "configs/experiment/fast.yaml": """\
# @package _global_
defaults:
  - override /trainer: long
server: {tp_size: 2}
""",
    "configs/trainer/long.yaml": "max_epochs: 100\n",
}
SMALL = {
    "app.py": APP.replace('print("TASK", config.trainer.max_epochs, config.paths.output_dir)', "pass").replace(
        "(config, plan)", "(plan)"
    ),
    "configs/train.yaml": """\
defaults: [sglang_hydra_schema, gpu: h200, model: qwen3_8b, engine: auto, launch: local, _self_]
tp_size: 2
""",
}


def ran(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """What the app writes to its two streams."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    env |= {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    ended, out, err = run_forked_apart(list(words), folder=str(folder), env=env, script="app.py")
    assert ended == code, out + err
    return out, " ".join(err.split())


def test_the_tree_of_a_training_app_composes_with_ours_under_a_node(tmp_path: Path) -> None:
    out, _ = ran(written(tmp_path, TREE), "server.tp_size='${mul:1,${mul:1,2}}'")
    assert "TASK 12 " in out
    assert f"{tmp_path}/logs/train/runs/" in out
    assert "HAS served_model_name train-app primary configs/train.yaml:12" in out
    assert "HAS tp_size 2 cli override 1" in out
    assert "HAS download_dir /tmp/20" in out


def test_its_experiments_and_multiruns_run(tmp_path: Path) -> None:
    out, err = ran(written(tmp_path, TREE), "-m", "+experiment=fast", "server.context_length=4096,8192")
    assert [line.split()[1] for line in out.splitlines() if line.startswith("TASK")] == ["100", "100"]
    assert out.count("HAS tp_size 2 experiment configs/experiment/fast.yaml:4") == 2
    assert (tmp_path / "logs/train/multiruns").exists(), err


CALLBACK = """\
from hydra.experimental.callback import Callback
from omegaconf import open_dict


class Sets(Callback):
    def on_run_start(self, config, **kwargs):
        config.server.tp_size = 4
        with open_dict(config):
            config.server.engine.env.FROM_CALLBACK = "yes"
"""


def test_what_a_callback_changes_is_in_the_plan_with_its_origin(tmp_path: Path) -> None:
    files = {**TREE, "hooks.py": CALLBACK}
    files["app.py"] = APP.replace('print("TASK"', 'print("ENV", dict(plan.environment)); print("TASK"')
    out, _ = ran(written(tmp_path, files), "+hydra.callbacks.sets._target_=hooks.Sets", "server.tp_size=2")
    assert "HAS tp_size 4 cli override 1 app the config that Hydra passed" in out
    assert "'FROM_CALLBACK': 'yes'" in out


def test_a_decorator_below_hydras_may_change_the_config_too(tmp_path: Path) -> None:
    changes = """\
def changing(task):
    def changed(config):
        OmegaConf.update(config, "gpu.count", 4)
        OmegaConf.update(config, "tp_size", 4)
        return task(config)
    return changed


@hydra.main("""
    files = {**SMALL, "app.py": SMALL["app.py"].replace("@hydra.main(", changes)}
    files["app.py"] = files["app.py"].replace("@sglang_hydra.main", "@changing\n@sglang_hydra.main")
    out, _ = ran(written(tmp_path, files))
    assert "HAS tp_size 4 primary configs/train.yaml:2 app the config that Hydra passed" in out


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["topology=pd"], "HAS tp_size 2"),
        (["recipe=deepseek_v3-h200-8"], "recipe"),
        (["model=my-lab/other"], "HAS model_path my-lab/other model override 1"),
    ],
)
def test_groups_are_chosen_as_with_our_own_command(words: list[str], shown: str, tmp_path: Path) -> None:
    app = SMALL["app.py"].replace("@sglang_hydra.main", "@sglang_hydra.main(strict=False)")
    out, _ = ran(written(tmp_path, {**SMALL, "app.py": app}), *words)
    assert shown in out


_LISTS = [
    "model=qwen3_8b,my-lab/two,../folder/",
    "model=choice(qwen3_8b,my-lab/two,'../folder')",
    "model=qwen3_8b,my-lab/two,'../folder'",
]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("words", "word"),
    [
        *(([], word) for word in _LISTS),
        *((["hydra/sweeper=sglang"], word) for word in _LISTS),
        (["hydra/launcher=joblib"], _LISTS[0]),
    ],
)
def test_presets_and_paths_are_swept_in_one_list(words: list[str], word: str, tmp_path: Path) -> None:
    app = SMALL["app.py"].replace("@sglang_hydra.main", "@sglang_hydra.main(strict=False)")
    out, _ = ran(written(tmp_path, {**SMALL, "app.py": app}), "-m", word, *words)
    for path in ("Qwen/Qwen3-8B", "my-lab/two", f"{tmp_path.parent}/folder"):
        assert f"HAS model_path {path}" in out


def test_an_option_in_a_folder_of_the_group_is_no_path(tmp_path: Path) -> None:
    app = SMALL["app.py"].replace("@sglang_hydra.main", "@sglang_hydra.main(strict=False)")
    preset = "name: small\nmodel_path: my-lab/small-8b\nargs: {page_size: 4}\n"
    out, _ = ran(written(tmp_path, {**SMALL, "app.py": app, "configs/model/lab/small.yaml": preset}), "model=lab/small")
    assert "HAS model_path my-lab/small-8b model" in out
    assert "HAS page_size 4 model configs/model/lab/small.yaml:3" in out


@pytest.mark.parametrize("decorator", ["@sglang_hydra.main", "@sglang_hydra.main()"])
def test_a_plan_that_cannot_be_launched_is_shown_and_ends_the_run(decorator: str, tmp_path: Path) -> None:
    folder = written(tmp_path, {**SMALL, "app.py": SMALL["app.py"].replace("@sglang_hydra.main", decorator)})
    out, err = ran(folder, "tp_size=3", code=2)
    assert "HAS" not in out
    assert "CFG004 32 attention heads do not divide by 3 ranks" in err
    assert "tp_size=3 was set by override 1" in err


def test_in_a_multirun_the_job_fails_and_the_sweep_says_so(tmp_path: Path) -> None:
    out, err = ran(written(tmp_path, SMALL), "-m", "tp_size=1,3", code=2)
    assert "HAS tp_size 1" in out
    assert "HAS tp_size 3" not in out
    assert "error CFG004" in err
    assert "Traceback" not in err


def test_a_deleted_model_is_a_finding(tmp_path: Path) -> None:
    _, err = ran(written(tmp_path, SMALL), "~model", code=2)
    assert "model_path" in err


def test_keys_of_an_apps_own_beside_our_tree_are_told_of_the_mount(tmp_path: Path) -> None:
    config = SMALL["configs/train.yaml"] + "rounds: 3\n"
    _, err = ran(written(tmp_path, {**SMALL, "configs/train.yaml": config}), code=2)
    assert "configs/train.yaml:3: 'rounds'" in err
    assert "'- /sglang_hydra@server'" in err
    assert "'- override /gpu@server.gpu: h200'" in err


def test_a_task_that_takes_neither_is_refused_where_it_is_decorated() -> None:
    def run() -> None: ...

    forms = r"calls run\(plan\), run\(config, plan\) or run\(config, plans\), and it is run\(\)"
    with pytest.raises(TypeError, match=forms):
        sglang_hydra.main(run)


def test_hydras_arguments_belong_to_hydras_decorator() -> None:
    with pytest.raises(TypeError, match=r"takes no config_path, version_base: @hydra.main\(...\) above it"):
        sglang_hydra.main(config_path="conf", version_base=None)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("server.tp_size=3", "server.tp_size=4"),
        ("server.mem_fraction_static=85", "server.mem_fraction_static=0.85 or: server.mem_fraction_static=0.8"),
        ("server.tpsize=2", "did you mean server.tp_size?"),
        ("server={tpsize: 2}", "did you mean server.tp_size?"),
        ("server.gpu.cout=2", "did you mean server.gpu.count?"),
        ("server/model=tiny", "model@server.model=tiny"),
        ("model@server.model=qwen3_8", "model@server.model=qwen3_8b"),
        ("server=null", "server.KEY=VALUE sets a key"),
    ],
)
def test_under_a_node_a_hint_is_what_the_app_takes(typed: str, hint: str, tmp_path: Path) -> None:
    _, err = ran(written(tmp_path, TREE), typed, code=2)
    assert hint in err


@pytest.mark.thorough
def test_a_finding_survives_a_launcher_of_processes(tmp_path: Path) -> None:
    _, err = ran(written(tmp_path, SMALL), "-m", "tp_size=3,5", "hydra/launcher=joblib", code=2)
    assert "CFG004" in err
    assert "BrokenProcessPool" not in err


def test_the_schema_is_registered_on_import_where_hydra_is_there() -> None:
    code = (
        "from hydra.core.config_store import ConfigStore; import sglang_hydra; sglang_hydra.register()\n"
        "assert 'sglang_hydra_schema.yaml' in ConfigStore.instance().repo"
    )
    for program in (code, code.replace("; sglang_hydra.register()", "")):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
