"""The verb: what it prints and writes, its exit codes, its record; and the schema that editors read."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from sglang_hydra.cli.main import entry
from sglang_hydra.convert.importing.report import yaml_of
from sglang_hydra.planning.making.make import plan
from sglang_hydra.planning.recorded.input_files import read_document
from sglang_hydra.schemas import schema_of
from tests.convert.importing.importing import DATA, composer, imported, of_file, the_one
from tools import config_schema

LAUNCH = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
ROOT = Path(__file__).parents[3]


def problems(text: str) -> list[str]:
    from sglang_hydra.compose.hydra_internals import yaml_loader

    validator = Draft202012Validator(schema_of("config"))
    return [error.message for error in validator.iter_errors(yaml.load(text, Loader=yaml_loader()))]


@pytest.mark.corpus
@pytest.mark.parametrize("file", sorted(path.name for path in DATA.iterdir() if path.suffix != ".md"))
def test_an_experiment_is_valid_for_the_schema_and_plans_to_the_same_server(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "SGLANG_HYDRA_API_KEY", "SERVER_KEY"):
        monkeypatch.setenv(name, "not-a-real-secret")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if file.endswith(".txt"):
        servers = imported((DATA / file).read_text(), "gpu=h200")
    else:
        servers = of_file(file, "gpu=h200")
    for number, server in enumerate(servers):
        text = yaml_of(server)
        assert problems(text) == []
        path = tmp_path / "conf" / "experiment" / f"one{number}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        made = plan([f"experiment=one{number}", "engine=sglang"], config_dirs=[tmp_path / "conf"], seed=42)
        assert made.server_id == server.server_id
        requests = read_document(path).requests
        assert {request.key or request.text.partition("=")[0] for request in requests} >= {*server.overrides, "gpu"}


@pytest.mark.parametrize(
    "text",
    [
        "tpsize: 8\n",
        "tp_size: eight\n",
        "tp_size: 8.5\n",
        "gpu: h2000\n",
        "model: deepsek_v3\n",
        "dtype: bf16\n",
        "trust_remote_code: 1\n",
        "engine: {versoin: 0.5.2}\n",
        "gpu: {count: many}\n",
        "bench: {dataset: randm}\n",
        "bench: {client: vllm}\n",
        "sweep: {search: bisekt}\n",
        "fabric: infiniband\n",
        "defaults: [{override /gpu: h2000}]\n",
        "defaults: [{override /gpuu: h200}]\n",
        "lora_paths: null\nport: null\n",
        "api_key: sesame\n",
    ],
)
def test_a_slip_fails_the_schema(text: str) -> None:
    assert problems(text)


@pytest.mark.parametrize(
    "text",
    [
        "gpu: h200\nmodel: gpt_oss\ntp_size: 2\n",
        "defaults: [{override /gpu: b200}, {override /model: org/name}, _self_]\n",
        "defaults: [sglang_hydra_schema, {gpu: auto}, {override hydra/sweeper: sglang}]\n",
        "tp_size: ${gpu.count}\napi_key: ${oc.env:KEY}\n",
        "gpu: {memory_mib: 1000, count: 4}\nbench: {concurrency: 8}\n",
        "attention_backend: my_plugin\ncontext_length: null\nignore: [FIT001]\n",
        "extra: {some_later_flag: 1}\nengine: {version: 0.5.23, env: {NCCL_DEBUG: INFO}}\n",
    ],
)
def test_what_can_be_composed_passes_the_schema(text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize("repo", ["experiment_repo"])
def test_the_files_of_an_example_pass_the_schema_of_its_repo(repo: str, tmp_path: Path) -> None:
    conf = ROOT / "examples" / repo / "conf"
    schema = tmp_path / "schema.json"
    config_schema.main(["--config-dir", str(conf), "--out", str(schema)])
    validator = Draft202012Validator(json.loads(schema.read_text()))
    files = [conf / "config.yaml", *sorted((conf / "experiment").glob("*.yaml"))]
    assert len(files) >= 2
    for file in files:
        assert [error.message for error in validator.iter_errors(yaml.safe_load(file.read_text()))] == [], file


def test_every_key_of_ours_has_a_word_of_help() -> None:
    node = schema_of("config")["properties"]["bench"]
    keys = node.get("properties") or node["anyOf"][0]["properties"]
    assert "Poisson" in keys["request_rate"]["description"]
    assert all(key["description"] for key in keys.values())


def test_our_own_primary_config_passes_the_schema() -> None:
    assert problems((ROOT / "conf" / "sglang_hydra.yaml").read_text()) == []


def test_the_schema_says_what_every_argument_is_for() -> None:
    from sglang_hydra.arguments.every import EVERY
    from sglang_hydra.compose.schema import NODES

    properties = schema_of("config")["properties"]
    assert set(properties) == {"defaults", "hydra", *EVERY, *NODES}
    assert all(properties[name]["description"].startswith(field.arg.help) for name, field in EVERY.items())
    assert set(composer().options("gpu")) <= set(properties["gpu"]["anyOf"][1]["enum"])


def test_the_committed_schema_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert config_schema.main(["--check"]) == 0, capsys.readouterr().out


def test_a_stale_schema_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    assert config_schema.main(["--out", str(path)]) == 0
    assert config_schema.main(["--check", "--out", str(path)]) == 0
    path.write_text(path.read_text().replace('"h200"', '"h201"'))
    assert config_schema.main(["--check", "--out", str(path)]) == 1


def test_presets_of_a_repo_get_a_schema_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "conf" / "gpu").mkdir(parents=True)
    shutil.copy(ROOT / "conf" / "gpu" / "h200.yaml", tmp_path / "conf" / "gpu" / "lab.yaml")
    path = tmp_path / "schema.json"
    config_schema.main(["--config-dir", str(tmp_path / "conf"), "--out", str(path)])
    assert "lab" in json.loads(path.read_text())["properties"]["gpu"]["anyOf"][1]["enum"]


def run(*words: str) -> int:
    return entry(["import", *words])


def test_a_command_is_printed_as_yaml_with_its_marks(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(f"{LAUNCH} --tp 2 --port 30000 --tp-sise 3", "gpu=h200", "engine.version=0.5.2")
    out, err = capsys.readouterr()
    assert code == 2
    assert yaml.safe_load(out) == {
        "defaults": [{"override /gpu": "h200"}, {"override /model": "qwen3_8b"}],
        "port": 30000,
        "tp_size": 2,
        "engine": {"version": "0.5.2"},
    }
    assert "# Left out, SGLang would not read it: --tp-sise" in out
    assert "--tp-size 3" in err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((LAUNCH,), 0),
        ((LAUNCH, "gpu=h200"), 0),
        ((LAUNCH, "gpu=h2000"), 2),
        ((f"{LAUNCH} --nope",), 2),
        (("nothing at all",), 2),
        (("/nowhere.sh",), 2),
        ((), 2),
        (("--", *LAUNCH.split(), "--tp", "2"), 0),
        ((f"{LAUNCH} --tp 8 --context-length 99999999", "gpu=l4"), 0),
    ],
)
def test_the_exit_code_says_whether_all_was_taken_over(words: tuple[str, ...], code: int) -> None:
    assert run(*words) == code


def test_standard_input_is_a_source(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Input:
        buffer = (DATA / "k8s_lws.yaml").open("rb")

    monkeypatch.setattr(sys, "stdin", Input())
    with Input.buffer:
        assert run("-") == 0
    assert yaml.safe_load(capsys.readouterr().out)["nnodes"] == 2


def test_a_file_is_written_and_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.yaml"
    assert run(LAUNCH, "gpu=h200", "-o", str(path)) == 0
    before = path.read_text()
    assert yaml.safe_load(before)["defaults"][0] == {"override /gpu": "h200"}
    assert str(ROOT) not in before
    assert f"plan {shlex.quote(str(path))} shows the plan" in capsys.readouterr().out
    assert run(f"{LAUNCH} --tp 2", "-o", str(path)) == 2
    assert "IMP015" in capsys.readouterr().err
    assert path.read_text() == before


def test_the_summary_stands_one_line_below_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(LAUNCH) == 0
    before, summary = capsys.readouterr().err.rstrip("\n").rsplit("\n\n", 1)
    assert not before.endswith("\n")
    assert "\n" not in summary


def test_several_servers_are_several_files(tmp_path: Path) -> None:
    assert run(str(DATA / "srtctl_pd.yaml"), "-o", str(tmp_path / "kimi.yaml")) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kimi-decode.yaml", "kimi-prefill.yaml"]


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(LAUNCH, "-o", str(tmp_path / "no" / "folder.yaml")) == 2
    assert "IMP015" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["k8s_deployment.yaml", "srtctl_pd.yaml", "log_0523.log", "script_two_nodes.sh"])
def test_the_record_follows_its_schema(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(DATA / file), "--json") == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    Draft202012Validator(schema_of("import")).validate(record)


def test_a_refusal_has_a_record_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nothing at all", "--json") == 2
    record = json.loads(capsys.readouterr().out)
    assert [finding["id"] for finding in record["findings"]] == ["IMP001"]


@pytest.mark.parametrize(
    "value", ["a # b", "yes", "1e3", "${x}", "a: b", "\u2028é'\"", "-x", "null", "$(rm)", "0.0.0.0"]
)
def test_any_text_survives_the_yaml(value: str, tmp_path: Path) -> None:
    server = the_one(f"{LAUNCH} --served-model-name {shlex.quote(value) if value != '-x' else '=-x'}", "gpu=h200")
    path = tmp_path / "one.yaml"
    path.write_text(yaml_of(server), encoding="utf-8")
    requests = [request for request in read_document(path).requests if request.key == "served_model_name"]
    made = composer().compose(requests)
    assert made.intent["served_model_name"] == server.arguments["served_model_name"]


@pytest.mark.parametrize("folder", ["deepseek_v3-h100-two-nodes", "deepseek_v3-h200"])
def test_our_own_exports_come_back(folder: str) -> None:
    for path in sorted((ROOT / "docs" / "exports" / folder).iterdir()):
        (server,) = of_file(str(path), "gpu=h200")
        assert server.choices["model"] == "deepseek_v3", path
        assert server.overrides["tp_size"] == (16 if "two" in folder else 8)
        assert server.overrides["random_seed"] == 42
        assert server.equal


def test_a_runtime_with_env_plans_to_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime of OME leaves its model to the cluster: with it, ``import -o`` writes what ``plan`` can launch."""
    monkeypatch.chdir(tmp_path)
    runtime = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "srt-qwen"},
        "spec": {
            "engineConfig": {
                "runner": {
                    "name": "ome-container",
                    "image": "docker.io/lmsysorg/sglang:v0.5.12",
                    "command": ["python3", "-m", "sglang.launch_server", "--model-path", "$(MODEL_PATH)"],
                    "args": ["--tp-size", "$(PARALLELISM_SIZE)", "--enable-metrics"],
                }
            }
        },
    }
    Path("rt.yaml").write_text(yaml.safe_dump(runtime))
    env = ["--env", "MODEL_PATH=Qwen/Qwen3-8B", "PARALLELISM_SIZE=2"]
    assert entry(["import", "rt.yaml", "gpu=h200", "-o", "mine.yaml", *env]) == 0
    capsys.readouterr()
    assert entry(["plan", "mine.yaml", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    command = " ".join(made["command"])
    assert made["engine"]["version"] == "0.5.12"
    assert "--tp-size 2" in command
    assert "--enable-metrics" in command
