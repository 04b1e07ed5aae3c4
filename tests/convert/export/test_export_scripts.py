"""shell, docker and slurm: the scripts run, ask for what they lack, and start what the plan says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.convert.export.docker import mount_option
from sglang_hydra.convert.export.job import Mount
from sglang_hydra.convert.export.variables import KEY_PROGRAM
from sglang_hydra.facts.tiny import tiny_path
from sglang_hydra.text.errors import ConfigError
from tests.convert.export.exports import DEEPSEEK, SCRIPTS, TWO_NODES, artifact, run_script, shellcheck

KEY = "correct-horse"
KEYED = (*DEEPSEEK, f"api_key={KEY}")
PLANS = {
    "one node": DEEPSEEK,
    "two nodes": TWO_NODES,
    "with a key": KEYED,
    "two nodes with a key": (*TWO_NODES, f"api_key={KEY}"),
    "AMD": ("gpu=mi300x", "model=deepseek_v3", "tp_size=8", "random_seed=42"),
    "CPU": ("gpu=cpu", "model=tiny", "random_seed=42"),
    "RoCE": (*TWO_NODES, "fabric=roce"),
    "no known image": (*DEEPSEEK, "engine.version=0.5.23"),
    "secret variables": (*DEEPSEEK, "+engine.env.HF_TOKEN=hf_abc", "+engine.env.SGLANG_X=a b"),
    "slurm's settings": (*TWO_NODES, "launch=slurm", "launch.slurm.account=me", "launch.slurm.constraint=a&b"),
    "a container on slurm": (*TWO_NODES, "launch=slurm", "launch.slurm.container=pyxis", "launch.image=a/b:c"),
    "apptainer on slurm": (*KEYED, "launch=slurm", "launch.slurm.container=apptainer", "launch.image=a/b:c"),
}


def test_shellcheck_finds_nothing_in_any_script(tmp_path: Path) -> None:
    scripts = [artifact(format, *overrides).text for overrides in PLANS.values() for format in SCRIPTS]
    assert shellcheck(scripts, tmp_path) == ""


def test_shellcheck_would_find_something(tmp_path: Path) -> None:
    assert "SC2086" in shellcheck(["#!/usr/bin/env bash\nls $1\n"], tmp_path)


@pytest.mark.parametrize("format", SCRIPTS)
def test_every_script_is_a_program(format: str) -> None:
    made = artifact(format, *DEEPSEEK)
    assert made.executable
    assert made.text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail\n" in made.text


def test_the_shell_script_starts_the_plan(tmp_path: Path) -> None:
    run = run_script(tmp_path, artifact("shell", *DEEPSEEK).text, "server")
    assert run.code == 0
    assert run.words[:2] == ["-m", "sglang.launch_server"]
    assert parse_argv(run.words[2:]) == {"model_path": "deepseek-ai/DeepSeek-V3", "tp_size": 8, "random_seed": 42}


def test_another_interpreter_can_be_named(tmp_path: Path) -> None:
    script = artifact("shell", *DEEPSEEK).text
    run = run_script(tmp_path, script, "server", {"SGLANG_PYTHON": str(tmp_path / "bin" / "python3")})
    assert run.words[0] == "-m"
    assert run_script(tmp_path, script, "server", {"SGLANG_PYTHON": "/no/such/python"}).code == 127


def test_the_plans_interpreter_is_the_default(tmp_path: Path) -> None:
    odd = tmp_path / "it's $HOME" / "python"
    odd.parent.mkdir()
    # Planning asks it for its packages, which it has none of.
    take = 'printf "%s\\0" "$@" > "$TAKEN.words"; env -0 > "$TAKEN.env"'
    odd.write_text(f'#!/usr/bin/env bash\n[ -n "${{TAKEN:-}}" ] || exit 1\n{take}\n')
    odd.chmod(0o755)
    script = artifact("shell", *DEEPSEEK, f'engine.python="{odd}"').text
    assert shellcheck([script], tmp_path) == ""
    run = run_script(tmp_path, script, "server", {"PATH": "/usr/bin:/bin"})
    assert (run.code, run.words[0]) == (0, "-m"), run.stderr


def test_a_drawn_seed_is_passed(tmp_path: Path) -> None:
    made = artifact("shell", "gpu=h200", "model=qwen3_8b")
    run = run_script(tmp_path, made.text, "server")
    assert parse_argv(run.words[2:])["random_seed"] == 42


def test_what_a_rule_resolves_is_not_passed(tmp_path: Path) -> None:
    overrides = ("gpu=h200", "model=deepseek_v3", "tp_size=8", "dp_size=8", "enable_dp_attention=true")
    run = run_script(tmp_path, artifact("shell", *overrides, "chunked_prefill_size=8192").text, "server")
    assert parse_argv(run.words[2:])["chunked_prefill_size"] == 8192
    assert "--schedule-conservativeness" not in run.words


@pytest.mark.parametrize("rank", [0, 1])
def test_each_node_starts_its_own_rank(rank: int, tmp_path: Path) -> None:
    env = {"NODE_RANK": str(rank), "HEAD_ADDRESS": "10.0.0.1"}
    for format in ("shell", "docker"):
        run = run_script(tmp_path, artifact(format, *TWO_NODES).text, "server", env)
        words = run.words[next(at for at, word in enumerate(run.words) if word == "--model-path") :]
        told = parse_argv(words)
        assert (told["node_rank"], told["nnodes"], told["dist_init_addr"]) == (rank, 2, "10.0.0.1:20000"), format


@pytest.mark.parametrize("format", ["shell", "docker"])
@pytest.mark.parametrize("missing", ["NODE_RANK", "HEAD_ADDRESS"])
def test_a_script_for_several_nodes_asks_for_what_it_must_know(format: str, missing: str, tmp_path: Path) -> None:
    env = {"NODE_RANK": "0", "HEAD_ADDRESS": "10.0.0.1"}
    env.pop(missing)
    run = run_script(tmp_path, artifact(format, *TWO_NODES).text, "server", env)
    assert run.code != 0
    assert run.words == []
    assert missing in run.stderr


def test_an_address_of_the_plan_is_not_asked_for(tmp_path: Path) -> None:
    script = artifact("shell", *TWO_NODES, "dist_init_addr=10.1.1.1:5000", "node_rank=1").text
    run = run_script(tmp_path, script, "server")
    assert run.code == 0, run.stderr
    told = parse_argv(run.words[2:])
    assert (told["dist_init_addr"], told["node_rank"]) == ("10.1.1.1:5000", 1)


@pytest.mark.parametrize("format", SCRIPTS)
def test_a_key_is_asked_for_by_name_and_handed_over_inside_the_process(format: str, tmp_path: Path) -> None:
    script = artifact(format, *KEYED).text
    assert KEY not in script
    without = run_script(tmp_path, script, "server")
    assert without.code != 0
    assert "SGLANG_API_KEY" in without.stderr
    assert without.words == []
    run = run_script(tmp_path, script, "server", {"SGLANG_API_KEY": KEY})
    assert run.code == 0, run.stderr
    assert KEY not in run.words
    # What $(...) takes has no line end.
    assert run.words[run.words.index("-c") + 1] == KEY_PROGRAM
    assert run.environment["SGLANG_API_KEY"] == KEY


@pytest.mark.parametrize("format", SCRIPTS)
def test_a_secret_variable_is_asked_for_by_name(format: str, tmp_path: Path) -> None:
    script = artifact(format, *DEEPSEEK, "+engine.env.HF_TOKEN=hf_abc").text
    assert "hf_abc" not in script
    assert "HF_TOKEN" in run_script(tmp_path, script, "server").stderr
    assert run_script(tmp_path, script, "server", {"HF_TOKEN": "hf_abc"}).environment["HF_TOKEN"] == "hf_abc"


def test_the_plans_variables_are_set(tmp_path: Path) -> None:
    run = run_script(tmp_path, artifact("shell", *DEEPSEEK, "+engine.env.SGLANG_X='a b'").text, "server")
    assert run.environment["SGLANG_X"] == "a b"


@pytest.mark.parametrize("name", ["python", "head", "NODE_RANK", "UID"])
def test_a_variable_that_the_script_needs_itself_is_refused(name: str) -> None:
    for format in ("shell", "slurm"):
        with pytest.raises(ConfigError, match="EXP022"):
            artifact(format, *DEEPSEEK, f"+engine.env.{name}=1")
    assert f"--env {name}=1" in artifact("docker", *DEEPSEEK, f"+engine.env.{name}=1").text


def test_a_cpu_plan_sets_what_sglang_wants(tmp_path: Path) -> None:
    run = run_script(tmp_path, artifact("shell", "gpu=cpu", "model=tiny").text, "server")
    assert run.environment["SGLANG_USE_CPU_ENGINE"] == "1"
    assert parse_argv(run.words[2:])["model_path"] == str(tiny_path())


def docker_words(tmp_path: Path, *overrides: str, env: dict[str, str] | None = None) -> list[str]:
    run = run_script(tmp_path, artifact("docker", *overrides).text, "server", env)
    assert run.code == 0, run.stderr
    return run.words


def after(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_docker_run_gets_the_gpus_the_memory_the_cache_and_the_token_by_name(tmp_path: Path) -> None:
    words = docker_words(tmp_path, *DEEPSEEK)
    assert words[0] == "run"
    assert after(words, "--gpus") == ["all"]
    assert "--ipc=host" in words
    assert after(words, "--volume") == [f"{tmp_path}/home/.cache/huggingface:/cache/huggingface"]
    assert after(words, "--env") == ["HF_TOKEN", "HF_HOME=/cache/huggingface"]
    assert words[words.index("lmsysorg/sglang:v0.5.2-cu126") + 1 :][:3] == ["python3", "-m", "sglang.launch_server"]
    assert (tmp_path / "home/.cache/huggingface").is_dir()


def test_a_container_downloads_where_the_plan_says(tmp_path: Path) -> None:
    words = docker_words(tmp_path, *DEEPSEEK, "+engine.env.HF_HOME='/my models'")
    assert after(words, "--volume") == [f"{tmp_path}/home/.cache/huggingface:/my models"]
    assert after(words, "--env") == ["HF_TOKEN", "HF_HOME=/my models"]


def test_a_container_binds_every_address_and_says_so(tmp_path: Path) -> None:
    words = docker_words(tmp_path, *DEEPSEEK)
    assert after(words, "--host") == ["0.0.0.0"]
    assert after(words, "--publish") == ["127.0.0.1:30000:30000"]
    assert "(0.0.0.0)" in artifact("docker", *DEEPSEEK).text
    open_to_all = docker_words(tmp_path, *DEEPSEEK, "host=0.0.0.0", "port=8000")
    assert after(open_to_all, "--publish") == ["8000:8000"]
    said = artifact("docker", *DEEPSEEK, "host=127.0.0.1").findings
    assert [finding.id for finding in said] == ["EXP006"]


@pytest.mark.parametrize(
    ("overrides", "gpus"),
    [
        (("tp_size=2",), "2"),
        (("tp_size=8",), "all"),
        (("tp_size=2", "base_gpu_id=4"), "6"),
        (("tp_size=2", "dp_size=2"), "4"),
        (("tp_size=2", "pp_size=2"), "4"),
    ],
)
def test_docker_hands_over_the_gpus_that_the_ranks_take(overrides: tuple[str, ...], gpus: str, tmp_path: Path) -> None:
    assert after(docker_words(tmp_path, "gpu=h200", "model=qwen3_8b", *overrides), "--gpus") == [gpus]


def test_amd_containers_get_its_devices(tmp_path: Path) -> None:
    words = docker_words(tmp_path, *PLANS["AMD"])
    assert {"--device=/dev/kfd", "--device=/dev/dri", "--group-add=video", "--ipc=host"} <= set(words)
    assert after(words, "--security-opt") == ["seccomp=unconfined"]
    assert "--gpus" not in words


def test_a_cpu_container_has_no_gpus_and_its_variable(tmp_path: Path) -> None:
    words = docker_words(tmp_path, *PLANS["CPU"], env={"SGLANG_IMAGE": "mine:1"})
    assert "--gpus" not in words
    assert "SGLANG_USE_CPU_ENGINE=1" in after(words, "--env")


def test_rdma_containers_get_its_devices_and_the_hosts_network(tmp_path: Path) -> None:
    env = {"NODE_RANK": "0", "HEAD_ADDRESS": "n1"}
    words = docker_words(tmp_path, *PLANS["RoCE"], env=env)
    assert {"--device=/dev/infiniband", "--cap-add=IPC_LOCK", "--network=host"} <= set(words)
    assert {"NCCL_IB_DISABLE=0", "NCCL_IB_GID_INDEX=3"} <= set(after(words, "--env"))
    assert "--publish" not in words


def test_a_local_model_is_mounted_read_only_under_its_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'my "model", no. 1').mkdir()
    monkeypatch.chdir(tmp_path)
    overrides = ("gpu=h200", """model_path='./my "model", no. 1'""", f"download_dir={tmp_path}/down")
    words = docker_words(tmp_path, *overrides)
    path = f'{tmp_path}/my "model", no. 1'
    assert after(words, "--mount") == [
        f"type=bind,source={tmp_path}/down,target={tmp_path}/down",
        mount_option(Mount(path)),
    ]
    assert after(words, "--model-path") == [path]
    assert after(words, "--served-model-name") == ['./my "model", no. 1']
    assert (tmp_path / "down").is_dir()


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("/a b", "type=bind,source=/a b,target=/a b,readonly"),
        ("/a,b", 'type=bind,"source=/a,b","target=/a,b",readonly'),
        ('/a"b', 'type=bind,"source=/a""b","target=/a""b",readonly'),
        ("/a\nb", 'type=bind,"source=/a\nb","target=/a\nb",readonly'),
    ],
)
def test_a_mount_is_a_line_of_csv(path: str, option: str) -> None:
    assert mount_option(Mount(path)) == option


def test_an_unknown_image_is_asked_for_when_the_script_runs(tmp_path: Path) -> None:
    made = artifact("docker", *PLANS["no known image"])
    assert [finding.id for finding in made.findings] == ["EXP002"]
    run = run_script(tmp_path, made.text, "server")
    assert run.code == 2
    assert "no published image of SGLang 0.5.23 is known for h200" in run.stderr
    assert run.words == []
    assert "my/image:1" in docker_words(tmp_path, *PLANS["no known image"], env={"SGLANG_IMAGE": "my/image:1"})


def test_slurm_starts_one_rank_on_each_node_with_the_heads_address(tmp_path: Path) -> None:
    script = artifact("slurm", *TWO_NODES).text
    directives = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert {"#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=8"} <= set(directives)
    for rank in (0, 1):
        env = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_ID": "9007", "RANKS": str(rank)}
        run = run_script(tmp_path, script, "server", env)
        assert run.code == 0, run.stderr
        told = parse_argv(run.words[2:])
        assert (told["node_rank"], told["dist_init_addr"], told["nnodes"]) == (rank, "10.0.0.1:20007", 2)


def test_slurm_keeps_the_plans_port_and_finds_the_address(tmp_path: Path) -> None:
    script = artifact("slurm", *TWO_NODES, "dist_init_addr=10.9.9.9:5555").text
    run = run_script(tmp_path, script, "server", {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_ID": "1"})
    assert parse_argv(run.words[2:])["dist_init_addr"] == "10.0.0.1:5555"


def test_slurms_settings_are_in_the_script() -> None:
    script = artifact("slurm", *PLANS["slurm's settings"]).text
    assert "#SBATCH --account=me\n" in script
    assert '#SBATCH --constraint="a&b"\n' in script


def test_a_slurm_container_is_started_by_srun_or_apptainer(tmp_path: Path) -> None:
    env = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "1", "SGLANG_API_KEY": KEY}
    run = run_script(tmp_path, artifact("slurm", *PLANS["a container on slurm"]).text, "server", env)
    assert run.code == 0, run.stderr
    srun = (tmp_path / "server.srun").read_bytes().decode().split("\0")
    assert "--container-image=a/b:c" in srun
    assert "apptainer exec --nv a/b:c python3 -c" in artifact("slurm", *PLANS["apptainer on slurm"]).text


def test_a_job_on_other_machines_that_only_they_reach_is_said() -> None:
    assert [finding.id for finding in artifact("slurm", *DEEPSEEK).findings] == ["EXP013"]
    assert artifact("slurm", *DEEPSEEK, "host=0.0.0.0").findings == ()
