"""examples/verl_rollout as a Hydra app: the sparse node in verl's tree, every way to write into it, and who did."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from sglang_hydra.convert.verl import plan_rollout

# The files of verl (05a1edd) choose options by ../engine in their defaults lists.
pytestmark = pytest.mark.skipif(not hydra.__version__.startswith("1.3."), reason="Hydra 1.4 refuses verl's own files")

REPOSITORY = Path(__file__).parents[3]
EXAMPLE = REPOSITORY / "examples" / "verl_rollout"
NODE = "actor_rollout_ref.rollout.engine_kwargs.sglang"
HYDRA = ("hydra.run.dir=run", "hydra.sweep.dir=sweep")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path / "repo", ignore=shutil.ignore_patterns("outputs", "multirun", "__pyc*"))


def train(repo: Path, *words: str, exits: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Runs the app; what verl would get in each job, and everything else that was said."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "train.py", *words],
        cwd=repo,
        env={**env, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert done.returncode == exits, done.stdout + done.stderr
    lines = [line.removeprefix("engine_kwargs ") for line in done.stdout.splitlines() if line.startswith("engine_kw")]
    return [json.loads(line) for line in lines], done.stdout + done.stderr


@pytest.mark.thorough
def test_every_command_of_its_readme_works(repo: Path) -> None:
    lines = re.findall(r"^    python train.py([^#\n]*)", (repo / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 5
    for line in lines:
        jobs, _ = train(repo, *shlex.split(line))
        assert jobs


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((f"{NODE}.page_size=64",), {"chunked_prefill_size": 16384, "page_size": 64}),
        ((f"+{NODE}.tp_size=1",), {"chunked_prefill_size": 16384, "page_size": 16, "tp_size": 1}),
        ((f"++{NODE}.page_size=1", f"~{NODE}.chunked_prefill_size"), {"page_size": 1}),
        ((f"{NODE}={{tp_size: 1}}",), {"chunked_prefill_size": 16384, "page_size": 16, "tp_size": 1}),
        ((f"{NODE}.gpu={{name: h200, count: 8}}", f"~{NODE}.page_size"), {"chunked_prefill_size": 16384}),
        ((f"+{NODE}.fit.reserved_gib=10",), {"chunked_prefill_size": 16384, "page_size": 16}),
        ((f"+gpu@{NODE}.gpu=h100", f"~{NODE}.page_size"), {"chunked_prefill_size": 16384}),
        (("+experiment=dp_attention",), {"chunked_prefill_size": 16384, "enable_dp_attention": True, "page_size": 16}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_was_set_leaves_the_node_and_nothing_else(
    words: tuple[str, ...], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    with initialize_config_dir(str(EXAMPLE / "conf"), version_base=None):
        config = compose("trainer", list(words))
    made = plan_rollout(config, env={})
    assert dict(made.engine_kwargs) == expected
    assert OmegaConf.to_container(OmegaConf.select(made.leave(config), NODE)) == expected


def test_a_mistake_names_its_file_line_and_key(repo: Path) -> None:
    experiment = repo / "conf" / "experiment" / "dp_attention.yaml"
    experiment.write_text(experiment.read_text() + "        chunked_prefil_size: 1\n")
    jobs, said = train(repo, "+experiment=dp_attention", f"{NODE}.pagesize=3", *HYDRA, exits=2)
    assert jobs == []
    assert f"conf/experiment/dp_attention.yaml:{len(experiment.read_text().splitlines())}" in said
    assert "did you mean chunked_prefill_size?" in said
    assert "override 2: 'pagesize'" in said
    assert "Traceback" not in said


def test_a_server_that_does_not_fit_is_not_handed_on(repo: Path) -> None:
    jobs, said = train(repo, "actor_rollout_ref.rollout.gpu_memory_utilization=0.03", *HYDRA, exits=2)
    assert jobs == []
    assert "FIT001" in said
    assert "was set by actor_rollout_ref.rollout.gpu_memory_utilization" in said


def test_a_multirun_plans_each_job(repo: Path) -> None:
    jobs, _ = train(repo, "-m", f"{NODE}.page_size=1,16", *HYDRA)
    assert [job["page_size"] for job in jobs] == [1, 16]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sglang_hydra", "sglang_hydra_sparse"])
def test_our_groups_can_stand_in_the_node_and_stay_there(name: str, repo: Path) -> None:
    """Also a mount of everything, which holds a value for each of SGLang's arguments: what was set is told apart."""
    override = "override " if name == "sglang_hydra" else ""
    (repo / "conf" / "trainer.yaml").write_text(f"""\
defaults:
  - ppo_trainer
  - /{name}@{NODE}
  - {override}/gpu@{NODE}.gpu: h200
  - _self_
hydra: {{searchpath: [pkg://verl_tree]}}
actor_rollout_ref:
  model: {{path: Qwen/Qwen3-8B}}
  rollout: {{name: sglang, engine_kwargs: {{sglang: {{page_size: 16, dp_size: 1}}}}}}
""")
    jobs, _ = train(repo, f"{NODE}.schedule_policy=fcfs", *HYDRA)
    assert jobs == [{"page_size": 16, "dp_size": 1, "schedule_policy": "fcfs"}], "also what is SGLang's default"
    jobs, said = train(repo, f"gpu@{NODE}.gpu=h100", f"{NODE}.gpu.count=1", *HYDRA, exits=2)
    assert "2 ranks need 2 GPUs on one node; the node has 1 x h100" in said
