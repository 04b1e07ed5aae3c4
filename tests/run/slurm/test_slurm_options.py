"""``launch.slurm``: what it asks Slurm for, and what of it would be misread."""

from __future__ import annotations

import pytest

from sglang_hydra.planning.passing.slurm_options import (
    container_command,
    gpus_per_node,
    job_name,
    sbatch_settings,
    srun_settings,
)
from sglang_hydra.planning.plan import Plan
from tests.plans import planned, without_engines

H200 = ("gpu=h200", "model=qwen3_8b", "launch=slurm")
IMAGE = "launch.image=lmsysorg/sglang:v0.5.2-cu126"


@pytest.fixture(autouse=True)
def no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engines(monkeypatch)


def slurm(*overrides: str) -> Plan:
    return planned(*H200, *overrides)


def found(*overrides: str) -> list[tuple[str, str, str]]:
    return [(item.id, item.fields[0], str(item.hint)) for item in slurm(*overrides).findings if item.id[:3] == "SLM"]


# Overrides, and the options that they make beside those of every job of one node with one GPU.
OPTIONS = [
    ([], {}),
    (["tp_size=16", "nnodes=2"], {"nodes": "2", "gpus-per-node": "8"}),
    (["tp_size=4", "base_gpu_id=2"], {"gpus-per-node": "6"}),
    (["tp_size=4", "gpu_id_step=2"], {"gpus-per-node": "7"}),
    (["tp_size=2", "dp_size=2"], {"gpus-per-node": "4"}),
    (["launch.slurm.gpu_type=h200", "tp_size=8"], {"gpus-per-node": "h200:8"}),
    (["launch.slurm.gpus=gres", "tp_size=8"], {"gpus-per-node": None, "gres": "gpu:8"}),
    (["launch.slurm.gpus=gres", "launch.slurm.gpu_type=a", "tp_size=8"], {"gpus-per-node": None, "gres": "gpu:a:8"}),
    (["launch.slurm.gpus=none"], {"gpus-per-node": None}),
    (["launch.slurm.gpus=none", "launch.slurm.sbatch.gres=npu:8"], {"gpus-per-node": None, "gres": "npu:8"}),
    (["gpu=cpu"], {"gpus-per-node": None}),
    (["launch.slurm.account=lab", "launch.slurm.partition=gpu"], {"account": "lab", "partition": "gpu"}),
    (["launch.slurm.qos=high", "launch.slurm.constraint='h200&ib'"], {"qos": "high", "constraint": "h200&ib"}),
    (["launch.slurm.walltime=1-12:00:00"], {"time": "1-12:00:00"}),
    (["launch.slurm.cpus=16", "launch.slurm.mem=0"], {"cpus-per-task": "16", "mem": "0"}),
    (["launch.slurm.exclusive=true"], {"exclusive": True}),
    (["launch.slurm.sbatch.mail_type=END"], {"mail-type": "END"}),
    (["launch.slurm.sbatch.spread-job=true"], {"spread-job": True}),
    (["launch.slurm.sbatch.nice=100", "launch.slurm.sbatch.reservation=null"], {"nice": "100"}),
    (["served_model_name=my model"], {"job-name": "sglang-my-model"}),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "options"), OPTIONS, ids=lambda value: str(value)[:60])
def test_settings_become_options_of_sbatch(overrides: list[str], options: dict[str, str | bool | None]) -> None:
    plain = {"job-name": "sglang-Qwen3-8B", "nodes": "1", "ntasks-per-node": "1", "gpus-per-node": "1"}
    expected = {**plain, "no-requeue": True, **options}
    assert sbatch_settings(slurm(*overrides)) == {name: value for name, value in expected.items() if value is not None}
    assert found(*overrides) == []


# An override, and the key and a part of the hint of the finding that it gets.
REFUSED = [
    ("launch.slurm.gpus=gpus-per-node", "gpus", "launch.slurm.gpus=gpus_per_node"),
    ("launch.slurm.walltime=240", "walltime", "launch.slurm.walltime=4:00:00"),
    ("launch.slurm.walltime=14400", "walltime", "launch.slurm.walltime=4:00:00"),
    ("launch.slurm.walltime='4 hours'", "walltime", "launch.slurm.walltime=4:00:00"),
    ("launch.slurm.mem=lots", "mem", "launch.slurm.mem=200G"),
    ("launch.slurm.mem=200GB", "mem", "launch.slurm.mem=200G"),
    ("launch.slurm.cpus=0", "cpus", "launch.slurm.cpus=16"),
    ("launch.slurm.partition=''", "partition", "launch.slurm.partition=null"),
    ('launch.slurm.account="a\n#SBATCH --uid=0"', "account", "launch.slurm.account=null"),
    ("launch.slurm.container=docker", "container", "launch.slurm.container="),
    ("launch.slurm.mounts=['/data:/data']", "mounts", "launch.slurm.container=pyxis"),
    ("launch.slurm.setup=[\"a\nb\"]", "setup", "launch.slurm.setup=[...]"),
    ("launch.slurm.sbatch.nodes=3", "sbatch.nodes", "leave out launch.slurm.sbatch.nodes"),
    ("launch.slurm.sbatch.requeue=true", "sbatch.requeue", "leave out launch.slurm.sbatch.requeue"),
    ("launch.slurm.sbatch.quiet=true", "sbatch.quiet", "leave out launch.slurm.sbatch.quiet"),
    ("launch.slurm.sbatch.partition=x", "sbatch.partition", "launch.slurm.partition=..."),
    ("launch.slurm.sbatch.gres=gpu:1", "sbatch.gres", "launch.slurm.gpus=..."),
    ("launch.slurm.sbatch.job-name='a b'", "sbatch.job-name", "launch.slurm.sbatch.job-name=sglang"),
    ("launch.slurm.sbatch.comment=[1,2]", "sbatch.comment", "launch.slurm.sbatch.comment=VALUE"),
    ("launch.slurm.sbatch.Nodes=1", "sbatch.Nodes", "reservation"),
]  # fmt: skip


@pytest.mark.parametrize(("override", "key", "hint"), REFUSED, ids=lambda value: value[:40])
def test_what_slurm_would_misread_is_refused_with_what_to_type(override: str, key: str, hint: str) -> None:
    [(id, field, said)] = found(override)
    assert (id, field) == ("SLM001", f"launch.slurm.{key}")
    assert hint in said


def test_an_unknown_setting_is_refused_when_composing() -> None:
    from tests.plans import refused

    [finding] = refused(*H200, "launch.slurm.partitoin=gpu")
    assert "launch.slurm.partition" in str(finding.hint)


def test_a_container_runs_each_rank_with_our_programs_in_it() -> None:
    mounts = "launch.slurm.mounts=['/models:/models:ro','/cache:/cache']"
    pyxis = slurm(
        "launch.slurm.container=pyxis", IMAGE, mounts, "launch.slurm.cpus=8", "launch.slurm.srun=['--mpi=pmix']"
    )
    assert srun_settings(pyxis, ["/ours"]) == [
        "--cpus-per-task=8",
        "--mpi=pmix",
        "--container-image=lmsysorg/sglang:v0.5.2-cu126",
        "--container-mounts=/models:/models:ro,/cache:/cache,/ours:/ours:ro",
    ]
    assert container_command(pyxis, ["/ours"]) == []

    apptainer = slurm("launch.slurm.container=apptainer", "launch.image=/images/sglang.sif", mounts)
    assert srun_settings(apptainer, ["/ours"]) == []
    assert container_command(apptainer, ["/ours"]) == [
        *("apptainer", "exec", "--nv", "--bind", "/models:/models:ro", "--bind", "/cache:/cache"),
        *("--bind", "/ours:/ours:ro", "/images/sglang.sif"),
    ]
    amd = planned("gpu=mi300x", "model=qwen3_8b", "launch=slurm", "launch.slurm.container=apptainer", "launch.image=i")
    assert container_command(amd)[:3] == ["apptainer", "exec", "--rocm"]


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        (["launch.slurm.container=pyxis"], "launch.image"),
        (["launch.slurm.container=pyxis", IMAGE, "launch.slurm.mounts=['a b']"], "launch.slurm.mounts"),
        (["launch.slurm.container=pyxis", IMAGE, "model_path=tests"], "model_path"),
    ],
)
def test_a_container_that_cannot_work_is_refused(overrides: list[str], field: str) -> None:
    assert field in [finding[1] for finding in found(*overrides)]


def test_a_job_has_a_plain_name_whatever_its_model_is_called() -> None:
    for path in ("$(touch x)", "a'b\"c\n#SBATCH --uid=0", "../..", "...", "\x1b[31m", "模型"):
        made = slurm(f"served_model_name={path!r}")
        assert set(job_name(made)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")
        assert job_name(made).startswith("sglang")


def test_a_node_gives_gpus_up_to_the_last_one_that_a_rank_takes() -> None:
    assert gpus_per_node(slurm("tp_size=16", "nnodes=4")) == 4
    assert gpus_per_node(slurm("tp_size=2", "pp_size=4", "nnodes=2", "disable_overlap_schedule=true")) == 4


def test_the_settings_cost_nothing_elsewhere() -> None:
    """Wrong ones are no obstacle for a plan that no job is made of."""
    made = planned("gpu=h200", "model=qwen3_8b", "launch.slurm.walltime=240")
    assert made.launchable
