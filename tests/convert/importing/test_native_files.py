"""Files of others as words: every verb that plans takes them, exports are read back as the plan that they were made of,
and nothing of a file is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.export.registry import FORMATS
from sglang_hydra.convert.frameworks.adapters import ADAPTERS
from sglang_hydra.convert.importing.launches import split_launch
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.show.verdicts import verdicts_on
from tests.commands import Run, runner

PLANS = {
    "a drawn seed": ["gpu=h200", "model=gpt_oss_120b", "tp_size=4", "engine.version=0.5.21"],
    "a seed and flags": ["gpu=mi300x", "model=qwen3_8b", "random_seed=7", "mem_fraction_static=0.8", "port=31000"],
    "fewer GPUs": ["gpu=h100", "gpu.count=4", "model=qwen3_8b", "tp_size=4", "engine.version=0.5.12"],
    "variables": ["gpu=h200", "model=qwen3_8b", "engine.env.SGLANG_ENABLE_SPEC_V2=1", "engine.env.NCCL_DEBUG=INFO"],
    "a later flag": [
        "gpu=h200",
        "model=qwen3_8b",
        "engine.version=0.5.20",
        "enable_streaming_session=true",
    ],
    "two nodes": ["gpu=h100", "model=deepseek_v3", "tp_size=16", "nnodes=2", "dist_init_addr=10.0.0.1:20000"],
    "a key": ["gpu=h200", "model=qwen3_8b", "api_key=${oc.env:SGLANG_HYDRA_API_KEY}"],
    "the tiny model": ["gpu=l40s", "model=qwen3_8b", "served_model_name=it's $HOME", "context_length=4096"],
}
RUN_0_5_23 = "docker run lmsysorg/sglang:v0.5.23 python3 -m sglang.launch_server"
WITHOUT_COMMENTS = ("argv", "engine-kwargs")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGLANG_HYDRA_API_KEY", "k")
    made = runner(capsys, monkeypatch)
    monkeypatch.setenv("SGLANG_HYDRA_API_KEY", "k")
    return made


def verdict(run: Run, *words: str) -> dict[str, object]:
    done = run("check", "--json", *words)
    (result,) = json.loads(done.out)["results"]
    return dict(result)


@pytest.mark.thorough
def test_an_export_keeps_variables_of_any_name_and_that_there_is_a_key(run: Run) -> None:
    words = ["gpu=h200", "model=qwen3_8b", "api_key=${oc.env:SGLANG_HYDRA_API_KEY}", "+engine.env.MINE='a b=\"c\"'"]
    wanted = json.loads(run("plan", "--json", *words).out)
    for format in set(FORMATS) - set(WITHOUT_COMMENTS) - set(ADAPTERS):
        file = f"made{Path(FORMATS[format].file).suffix}"
        Path(file).write_text(run("export", format, *words).out)
        read = json.loads(run("plan", "--json", file).out)
        assert read["intent"]["api_key"] == wanted["intent"]["api_key"], format
        assert read["environment"]["MINE"] == 'a b="c"', format


def exported(run: Run, format: str, words: list[str], folder: Path) -> tuple[str, str]:
    """The file that is written, and the id of its plan."""
    suffix = Path(FORMATS[format].file).suffix
    file = folder / f"made{suffix}"
    file.unlink(missing_ok=True)
    done = run("export", format, *words, "-o", str(file))
    assert done.code == 0, done.err
    record = json.loads(run("export", format, *words, "--json").out)
    return file.name, record["server_id"]


@pytest.mark.corpus
@pytest.mark.parametrize("format", [name for name in FORMATS if name not in ADAPTERS])  # a framework adds its own
@pytest.mark.parametrize("words", PLANS.values(), ids=PLANS.keys())
def test_every_export_is_read_back_as_its_plan(words: list[str], format: str, run: Run, tmp_path: Path) -> None:
    beside: list[str] = []
    if format in WITHOUT_COMMENTS:  # who reads it says what no flag says
        words = [*words, "random_seed=7"]
        beside = [word for word in words if word.startswith(("gpu", "engine."))]
        beside += [] if any("engine.version" in word for word in words) else ["engine.version=0.5.2"]
    file, id = exported(run, format, words, tmp_path)
    read = verdict(run, file, *beside)
    assert read["server_id"] == id, read["findings"]


PD = ["gpu=h200", "topology=pd", "random_seed=7"]
TOPOLOGIES = {
    "replicas on two nodes": [
        *("gpu=h200", "model=qwen3_8b", "topology=replicas", "replicas=4", "tp_size=4", "topology.nodes=2"),
        *("topology.router.policy=round_robin", "topology.router.args.cache_threshold=0.7", "port=31000"),
    ],
    "more GPUs than a node has": [
        *("gpu=h200", "model=qwen3_8b", "topology=replicas"),
        "replicas=3",
        "tp_size=8",
        "launch=slurm",
    ],
    "one node": [*PD, "model=qwen3_8b", "topology.prefill.args.mem_fraction_static=0.8"],
    "two nodes": [*PD, "model=qwen3_8b", "topology.prefill.nodes=1", "topology.prefill.args.tp_size=4"],
    "a server on two nodes": [
        *(*PD, "model=deepseek_v3", "tp_size=8", "api_key=${oc.env:SGLANG_HYDRA_API_KEY}"),
        *("topology.decode.args.tp_size=16", "topology.decode.args.nnodes=2"),
    ],
}


@pytest.mark.corpus
@pytest.mark.parametrize("format", ["compose", "k8s", "slurm"])
@pytest.mark.parametrize("words", TOPOLOGIES.values(), ids=TOPOLOGIES.keys())
def test_a_topology_is_read_back_and_so_is_each_of_its_servers(words: list[str], format: str, run: Run) -> None:
    file = "made.sh" if format == "slurm" else "made.yaml"
    assert run("export", format, *words, "-o", file).code == 0
    planned = json.loads(run("plan", "--json", *words).out)
    assert json.loads(run("plan", "--json", file).out)["topology_id"] == planned["topology_id"]
    assert json.loads(run("check", "--json", file).out)["results"][0]["ok"] is True
    for server in planned["servers"]:
        read = verdict(run, f"{file}#{_name_in(file, server['role'], run)}")
        assert read["server_id"] == server["plan"]["server_id"]


def test_servers_that_were_added_to_an_export_count(run: Run) -> None:
    words = ["gpu=h200", "model=qwen3_8b", "topology=pd", "topology.prefill.replicas=2"]
    Path("made.yaml").write_text(run("export", "k8s", *words).out.replace("  replicas: 2", "  replicas: 3"))
    planned = json.loads(run("plan", "--json", "made.yaml").out)["servers"]
    assert [server["role"] for server in planned] == ["prefill", "prefill", "prefill", "decode"]


def _name_in(file: str, role: str, run: Run) -> str:
    """The name of the first server of a role, of those that an unknown name is answered with."""
    listed = " ".join(run("check", f"{file}#none").out.split()).partition("it starts ")[2]
    return next((word.strip(",") for word in listed.split() if role in word), listed.split()[0].strip(","))


def test_a_file_is_taken_by_every_verb_that_plans(run: Run, tmp_path: Path) -> None:
    text = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp-size 2 --mem-fraction-static 0.8\n"
    (tmp_path / "serve.sbatch").write_text(f"#!/bin/bash\n{text}")
    typed = ["serve.sbatch", "gpu=h200"]
    assert json.loads(run("plan", "--json", *typed).out)["intent"]["mem_fraction_static"] == 0.8
    assert json.loads(run("fit", "--json", *typed).out)["results"][0]["fits"] is True
    assert "serve.sbatch" in run("explain", "tp_size", *typed).out
    assert "--tp-size 2" in run("export", "shell", *typed).out
    assert "the same server" not in run("diff", "serve.sbatch", "gpu=h200 model=qwen3_8b").out
    assert run("upgrade", "--to", "0.5.23", *typed).code == 0
    assert run("check", *typed).code == 0
    refused = run("serve", *typed)
    assert refused.code == 2
    assert "import serve.sbatch -o mine.yaml" in refused.err


def test_one_of_several_servers_is_named(run: Run, tmp_path: Path) -> None:
    word = "exec python -m sglang.launch_server --model-path Qwen/Qwen3-8B --port {}"
    services = {name: {"image": "lmsysorg/sglang:v0.5.12", "command": word.format(port)} for name, port in SERVICES}
    (tmp_path / "two.yaml").write_text(json.dumps({"services": services}))
    several = run("plan", "two.yaml", "gpu=h200")
    assert several.code == 2
    assert "two.yaml#small" in several.err
    assert json.loads(run("plan", "--json", "two.yaml#large", "gpu=h200").out)["intent"]["port"] == 2
    assert "it starts small, large" in run("check", "two.yaml#huge").out
    names = [item["name"] for item in json.loads(run("check", "--json", "two.yaml", "gpu=h200").out)["results"]]
    assert names == ["two.yaml#small", "two.yaml#large"]


SERVICES = (("small", 1), ("large", 2))


def test_a_folder_has_what_starts_servers(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    folder.mkdir()
    (folder / "a.sh").write_text("python -m sglang.launch_server --model-path Qwen/Qwen3-8B\n")
    (folder / "backup.sh").write_text("tar -cf x.tar .\n")
    (folder / "service.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: x}\n")
    (folder / "mine.yaml").write_text("model: qwen3_8b\n")
    (folder / "wrong.yaml").write_text("tp_sise: 4\n")
    results = json.loads(run("check", "--json", "deploy", "gpu=h200").out)["results"]
    assert [result["name"] for result in results] == ["deploy/a.sh", "deploy/mine.yaml", "deploy/wrong.yaml"]
    assert [result["ok"] for result in results] == [True, True, False]
    assert results[2]["findings"][0]["id"] == "CLI001"


OF_ANOTHER_TOOL = {
    "chart/Chart.yaml": "apiVersion: v2\nname: chat\n",
    "chart/values.yaml": "gpu: 4\nmodel: Qwen/Qwen3-8B\nimage: {repository: lmsysorg/sglang, tag: v0.5.12}\n",
    "chart/values-prod.yaml": "tp: 4\n",
    "prometheus.yml": "global: {scrape_interval: 5s}\nscrape_configs: [{job_name: sglang}]\n",
    ".gitlab-ci.yml": "tp_size: [1]\n",
}


def test_a_folder_with_files_of_other_tools(run: Run, tmp_path: Path) -> None:
    for name, text in {**OF_ANOTHER_TOOL, "chart/templates/pod.yaml": TEMPLATE}.items():
        (tmp_path / "deploy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "deploy" / name).write_text(text)
    typed = ["gpu=h200", "model=qwen3_8b"]
    (only,) = json.loads(run("check", "--json", "deploy", *typed).out)["results"]
    assert only["name"] == "deploy/chart/templates/pod.yaml"
    assert sorted((item["id"], *item["fields"]) for item in only["findings"]) == [
        *(("IMP005",), ("IMP005", "tp_size"), ("IMP011",)),
    ]
    (filled,) = json.loads(run("check", "--json", "deploy", *typed, "tp_size=2").out)["results"]
    assert "tp_size" not in str(filled["findings"])
    values = run("check", "deploy/chart/values.yaml")
    assert values.code == 2
    assert "helm template deploy/chart > rendered.yaml" in values.out
    assert "starts no SGLang server" in run("check", "deploy/prometheus.yml").out


TEMPLATE = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
      command: [python3, -m, sglang.launch_server]
      args:
        - --model-path
        - {{ .Values.model }}
        - --tp
        - {{ .Values.tp | quote }}
        {{- range .Values.more }}
        - {{ . | quote }}
        {{- end }}
"""


def test_a_change_of_a_manifest_is_reviewed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    line = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp-size {}\n"
    (tmp_path / "base" / "serve.sh").write_text(line.format(1))
    (tmp_path / "serve.sh").write_text(line.format(2))
    done = run("check", "--base", "base", "--format", "markdown", "serve.sh", "gpu=h200")
    assert done.code == 0, done.err
    assert "tp_size" in done.out


EVIL = {
    "evil.sh": "MODEL=$(touch owned; echo x) `touch owned`\n"
    "python -m sglang.launch_server --model-path ${MODEL:-$SECRET}\n",
    "evil.yaml": "services: {a: {image: lmsysorg/sglang, command: \"sh -c 'touch owned; python3 -m "
    "sglang.launch_server --model-path $SECRET'\"}}\n",
    "several.sh": "# Made for: gpu=h200 topology=replicas replicas=2 topology.router.python=evil.whl seed=drawn\n"
    "python -m sglang.launch_server --model-path $SECRET\n",
    "made.sh": "# Made for: gpu=h200 engine.python=./evil.sh engine.version=./evil.whl seed=drawn\n"
    "python -m sglang.launch_server --model-path $SECRET\n",
}


@pytest.mark.parametrize("name", EVIL)
def test_a_file_runs_nothing_and_reads_no_variable(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "the-secret-of-this-machine")
    (tmp_path / name).write_text(EVIL[name])
    for verb in (["check"], ["plan"], ["fit"], ["explain", "tp_size"], ["upgrade", "--to", "0.5.23"]):
        done = run(*verb, name, "gpu=h200")
        assert "the-secret" not in done.out + done.err
        assert "evil.whl" not in done.out
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("script", "expected", "why"),
    [
        (f"{RUN_0_5_23} --model-path $M --cuda-graph-max-bs $C\n", False, "--cuda-graph-max-bs"),
        (f"{RUN_0_5_23} --model-path $M --cuda-graph-max-bs-decode $C\n", None, "config.json"),
        (f"{RUN_0_5_23} --model-path $M --tp 8 ...\n", None, "config.json"),
        (f'if [ -n "${{M:-}}" ]; then :; else M=a/b; fi\n{RUN_0_5_23} --model-path=$M\n', None, "config.json"),
    ],
)
def test_a_flag_is_judged_by_its_name_also_where_a_variable_has_its_value(
    script: str, expected: bool | None, why: str, tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(script)
    composer = Composer()
    file = Request(str(tmp_path / "run.sh"), "here")
    ((_, verdict),) = verdicts_on(composer, [file, Request("gpu=h200", "here")], others=native_reader(composer))
    assert verdict.launchable is expected
    assert why in verdict.why


SIZED = (
    "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --dp-size 8 --enable-dp-attention --tp-size"
)


@pytest.mark.parametrize(
    ("script", "expected", "errors"),
    [
        (f"{SIZED} $TP\n", None, ()),
        (f"{SIZED} $TP --reasoning-parser none-such\n", False, ("ARG014",)),
        (f"{SIZED} 8 --port $PORT\n", True, ()),
        (f"{SIZED.replace('8 ', '1 ')} 1 --port $PORT\n", False, ("FIT001",)),
    ],
)
def test_a_size_that_a_variable_has_decides_nothing(
    script: str, expected: bool | None, errors: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(script)
    requests = [Request(str(tmp_path / "run.sh"), "here"), Request("gpu=h200", "here")]
    composer = Composer()
    ((_, verdict),) = verdicts_on(composer, requests, others=native_reader(composer))
    assert (verdict.launchable, verdict.error_ids) == (expected, errors)
    assert expected is not None or "tp_size, which the file takes from variables" in verdict.why


def test_a_diffusion_server_and_a_name_in_prose_start_no_language_model_server(tmp_path: Path) -> None:
    assert split_launch(["sglang", "serve", "--model-path", "Qwen/Qwen-Image", "--ulysses-degree=2"]) is None
    assert split_launch(["sglang", "serve", "--model-path", "Qwen/Qwen3-8B", "--tp", "2"]) is not None
    (tmp_path / "notes.md").write_text("```bash\necho (`sglang.launch_server`)\n```\n")
    files = [Request(str(tmp_path / "notes.md"), "here")]
    ((_, verdict),) = verdicts_on(Composer(), files, others=native_reader(Composer()))
    assert verdict.error_ids == ("IMP001",)
