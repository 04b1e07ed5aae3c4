"""What files of others may read of the environment, each attack beside an honest twin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.variables import may_read
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.text import user_settings
from sglang_hydra.text.errors import ConfigError
from tests.commands import Run, runner
from tests.security.attacks import PLAIN_NAMES, PLAIN_VALUES, SECRET_NAMES, SECRET_VALUES

VALUE = "hunter2hunter2"
HONEST = "gpu: h200\nmodel: qwen3_8b\n"
ENV = {
    "CORP": VALUE,
    "AWS_SECRET_ACCESS_KEY": VALUE,
    "HF_TOKEN": VALUE,
    "SLURM_JWT": VALUE,
    "SGLANG_API_KEY": VALUE,
    "SGLANG_RUN_ID": "plain",
    "POD_NAME": "pod",
    "MY_KEY": VALUE,
    "SGLANG_HYDRA_API_KEY": VALUE,
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    made = runner(capsys, monkeypatch)
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    return made


READS = [
    ("served_model_name: ${oc.env:CORP}", "CORP", "served_model_name"),
    ("served_model_name: ${oc.env:CORP,default}", "CORP", "served_model_name"),
    ("served_model_name: ${oc.env:NOT_SET_AT_ALL,default}", "NOT_SET_AT_ALL", "served_model_name"),
    ("served_model_name: a-${oc.env:CORP}-b", "CORP", "served_model_name"),
    ("served_model_name: ${oc.env:AWS_SECRET_ACCESS_KEY}", "AWS_SECRET_ACCESS_KEY", "served_model_name"),
    ("served_model_name: ${oc.env:HF_TOKEN}", "HF_TOKEN", "served_model_name"),
    ("served_model_name: ${oc.env:SLURM_JWT}", "SLURM_JWT", "served_model_name"),
    ("served_model_name: ${oc.env:SGLANG_API_KEY}", "SGLANG_API_KEY", "served_model_name"),
    ("served_model_name: ${oc.env:${weight_version}}\nweight_version: CORP", "CORP", "served_model_name"),
    ("served_model_name: ${oc.decode:${oc.env:CORP}}", "CORP", "served_model_name"),
    ("served_model_name: ${oc.decode:'\\${oc.env:CORP}'}", "CORP", "served_model_name"),
    ("served_model_name: ${oc.select:weight_version}\nweight_version: ${oc.env:CORP}", "CORP", "weight_version"),
    ("served_model_name: ${weight_version}\nweight_version: ${oc.env:CORP}", "CORP", "weight_version"),
    ("served_model_name: ${engine.env.A}\nengine: {env: {A: '${oc.env:CORP}'}}", "CORP", "engine.env.A"),
    ("tp_size: ${oc.env:CORP}", "CORP", "tp_size"),
    ("lora_target_modules: [q_proj, '${oc.env:CORP}']", "CORP", "lora_target_modules"),
    ("engine: {env: {A: '${oc.env:CORP}'}}", "CORP", "engine.env.A"),
    ("engine: {env: {HF_TOKEN: '${oc.env:CORP}'}}", "CORP", "HF_TOKEN"),
    ("engine: {python: '${oc.env:CORP}'}", "CORP", "engine.python"),
    ("extra: {a: '${oc.env:CORP}'}", "CORP", "extra.a"),
    ("ignore: ['${oc.env:CORP}']", "CORP", "ignore"),
    ("gpu: ${oc.env:CORP}", "CORP", ""),
    ("lock: ${oc.env:CORP}", "CORP", "lock"),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("text", "variable", "key"), READS)
@pytest.mark.parametrize("verb", ["check", "plan", "export"])
def test_a_file_reads_no_variable_that_nobody_allows(
    verb: str, text: str, variable: str, key: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    honest = HONEST.replace("gpu: h200\n", "") if text.startswith("gpu:") else HONEST
    file.write_text(f"{honest}{text}\n")
    done = run(verb, *(["shell"] if verb == "export" else []), str(file))
    said = done.out + done.err
    assert done.code == 2
    assert VALUE not in said
    assert "Traceback" not in said
    flat = " ".join(said.split())
    assert key in flat
    if key:
        assert "VAR00" in flat
        assert variable in flat
        assert f"--allow-env {variable}" in flat
        assert "mine.yaml:" in flat


@pytest.mark.parametrize(
    "text",
    [
        "served_model_name: ${api_key}\napi_key: ${oc.env:MY_KEY}",
        "served_model_name: ${engine.env.HF_TOKEN}\nengine: {env: {HF_TOKEN: '${oc.env:HF_TOKEN}'}}",
        "served_model_name: x-${api_key}\napi_key: ${oc.env:SGLANG_HYDRA_API_KEY}",
    ],
)
def test_no_value_is_taken_from_a_secret_field(text: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"{HONEST}{text}\n")
    done = run("plan", str(tmp_path / "mine.yaml"))
    assert done.code == 2
    assert "VAR002" in done.out + done.err
    assert VALUE not in done.out + done.err


HONEST_READS = [
    ("served_model_name: ${oc.env:SGLANG_RUN_ID}", "served_model_name", "plain"),
    ("served_model_name: ${oc.env:POD_NAME,none}", "served_model_name", "pod"),
    ("served_model_name: ${oc.env:SGLANG_PORT,none}", "served_model_name", "none"),
    ("tp_size: ${gpu.count}", "tp_size", 8),
]


@pytest.mark.parametrize(("text", "key", "value"), HONEST_READS)
def test_a_file_reads_what_is_no_secret(text: str, key: str, value: object, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"{HONEST}{text}\n")
    done = run("plan", "--json", str(tmp_path / "mine.yaml"))
    assert done.code == 0
    assert json.loads(done.out)["values"][key] == value


def test_what_is_typed_reads_any_variable(run: Run) -> None:
    done = run("plan", "--json", "gpu=h200", "model=qwen3_8b", "served_model_name=${oc.env:CORP}")
    assert json.loads(done.out)["values"]["served_model_name"] == VALUE
    assert run("plan", "gpu=h200", "model=qwen3_8b", "api_key=${oc.env:MY_KEY}").code == 0


@pytest.mark.parametrize("allowed", ["CORP", "CO*", "OTHER,CORP"])
def test_the_user_allows_a_variable(allowed: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"{HONEST}served_model_name: ${{oc.env:CORP}}\n")
    assert run("plan", str(tmp_path / "mine.yaml")).code == 2
    assert run("plan", "--allow-env", allowed, str(tmp_path / "mine.yaml")).code == 0


@pytest.mark.parametrize(("allowed", "code"), [("HF_*", 2), ("HF_TOKEN", 0)])
def test_a_secret_variable_is_allowed_by_its_whole_name_only(allowed: str, code: int, run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"{HONEST}served_model_name: ${{oc.env:HF_TOKEN}}\n")
    assert run("plan", "--allow-env", allowed, str(tmp_path / "mine.yaml")).code == code


@pytest.mark.parametrize(
    "name",
    ["SGLANG_PORT", "SGLANG_HYDRA_MODEL_PATH", "CUDA_HOME", "NCCL_DEBUG", "SLURM_NODEID", "RANK", "HF_HOME"],
)
def test_variables_of_the_run_may_be_read(name: str) -> None:
    assert may_read(name)


@pytest.mark.parametrize(
    "name",
    [
        *SECRET_NAMES,
        "SGLANG_OWN",
        "SGLANG_HYDRA_OWN",
        "NCCL_OWN",
        "POD_OWN",
        "HF_TOKEN",
        "SGLANG_X_PASSWORD",
        "SLURM_JWT",
        "PATH",
        "SLURM_a_token",
        "SSH_AUTH_SOCK",
    ],
)
def test_variables_of_the_user_may_not_be_read(name: str) -> None:
    assert not may_read(name)


def test_where_configs_are_searched_is_no_way_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "defaults: [sglang_hydra_schema, {gpu: h200}, {model: qwen3_8b}, {engine: auto}, {launch: local}, _self_]\n"
        "hydra: {searchpath: ['file://${oc.env:CORP}']}\n"
    )
    for _ in range(2):
        done = run("plan", "--config-dir", str(tmp_path), "--config-name", "own")
        assert done.code == 2
        assert "VAR001" in done.out + done.err
        assert VALUE not in done.out + done.err


@pytest.mark.parametrize("value", ["${oc.env:CORP}", "\\${oc.env:CORP}"])
def test_the_parameters_of_a_sweep_in_a_file_are_no_words(value: str, run: Run, tmp_path: Path) -> None:
    text = f"{HONEST}sweep: {{dry_run: true, params: {{served_model_name: ['{value}', b]}}}}\n"
    (tmp_path / "mine.yaml").write_text(text)
    done = run("bench", "-m", str(tmp_path / "mine.yaml"), "--json")
    assert VALUE not in done.out + done.err
    assert "CORP" in done.out + done.err


def test_the_words_of_a_results_folder_are_no_words_of_the_user(run: Run, tmp_path: Path) -> None:
    from tests.measure.report.folders import write_sweep

    folder = write_sweep(tmp_path / "sweep", [], ["gpu=h200", "model=qwen3_8b", "served_model_name=${oc.env:CORP}"])
    done = run("resume", str(folder), "sweep.dry_run=true")
    assert done.code == 2
    assert "VAR001" in done.out + done.err
    assert VALUE not in done.out + done.err
    allowed = run("resume", str(folder), "sweep.dry_run=true", "--allow-env", "CORP")
    assert "VAR001" not in allowed.out + allowed.err


def test_a_composer_refuses_the_same_again(run: Run, tmp_path: Path) -> None:
    composer = Composer()
    asked = [
        Request("gpu=h200", "1"),
        Request.typed("served_model_name", "${oc.env:CORP}", "f:1", "experiment", interpolate=True),
    ]
    for _ in range(3):
        with pytest.raises(ConfigError, match="VAR001"):
            composer.compose(asked)


KEYS = [
    ("api_key: ${oc.env:SGLANG_HYDRA_API_KEY}", False),
    ("api_key: ${oc.env:MY_KEY}", True),
    ("api_key: ${oc.env:AWS_SECRET_ACCESS_KEY}", True),
    ("model: {args: {api_key: '${oc.env:MY_KEY}'}}", True),
    ("api_key: ${oc.env:NOT_SET_AT_ALL,none}", True),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("text", "withheld"), KEYS)
def test_a_key_in_a_file_is_a_reference_until_the_server_starts(
    text: str, withheld: bool, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"gpu: h200\nmodel_path: org/x\n{text}\n" if "model:" in text else f"{HONEST}{text}\n")
    for words in ("plan", "plan --json", "check", "export shell", "export docker", "explain api_key"):
        done = run(*words.split(), str(file))
        assert VALUE not in done.out + done.err
        assert done.code == 0
    composed = Composer().compose(_requests(file))
    assert composed.secrets.keys() == {"api_key"}
    assert [finding.id for finding in composed.findings] == (["VAR003"] if withheld else [])
    if withheld:
        with pytest.raises(ConfigError, match="VAR003"):
            composed.secrets["api_key"]
    else:
        assert composed.secrets["api_key"] == VALUE


def test_a_key_that_the_user_allows_reaches_the_server(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{HONEST}api_key: ${{oc.env:MY_KEY}}\nengine: {{env: {{HF_TOKEN: '${{oc.env:HF_TOKEN}}'}}}}\n")
    assert VALUE not in run("plan", "--json", str(file)).out
    user_settings.begin({"allowed_env": ["MY_KEY"]})
    composed = Composer().compose(_requests(file))
    assert (composed.secrets["api_key"], composed.findings) == (VALUE, ())
    assert make_plan(Composer(), _requests(file)).environment["HF_TOKEN"] == VALUE


def _requests(file: Path) -> list[Request]:
    from sglang_hydra.planning.recorded.input_files import read_document

    return list(read_document(file).requests)


def test_serving_a_file_hands_over_no_variable_that_nobody_allows(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("gpu: cpu\nmodel: tiny\nengine: transformers\napi_key: ${oc.env:AWS_SECRET_ACCESS_KEY}\n")
    done = run("serve", str(file), f"hydra.run.dir={tmp_path}/run", "launch.force=true")
    assert done.code in (2, 3)
    assert VALUE not in done.out + done.err
    for made in tmp_path.rglob("*"):
        assert not made.is_file() or VALUE not in made.read_text(errors="replace"), made


ECHOES = ["tp_size=${oc.env:HF_TOKEN}", "gpu.count=${oc.env:HF_TOKEN}", "attention_backend=${oc.env:HF_TOKEN}"]


@pytest.mark.corpus
@pytest.mark.parametrize("word", ECHOES)
@pytest.mark.parametrize("value", [VALUE, "x", "y" * 3000, "a'b\nc", "[1,2"])
def test_a_secret_that_was_typed_is_not_echoed(
    word: str, value: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", value)
    done = run("plan", "gpu=h200", "model=qwen3_8b", word)
    assert done.code == 2
    assert "HF_TOKEN" in done.err
    assert value == "x" or value[:20] not in done.out + done.err


ALLOWED_ECHOES = [
    f"{HONEST}tp_size: VALUE\n",
    f"{HONEST}attention_backend: VALUE\n",
    f"{HONEST}bench: {{slo: {{ttft_ms: VALUE}}}}\n",
    "model: qwen3_8b\ngpu: {count: VALUE}\n",
]


@pytest.mark.parametrize("text", ALLOWED_ECHOES)
def test_a_value_of_an_allowed_variable_is_not_echoed_in_an_error(
    text: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_RUN_ID", VALUE)
    (tmp_path / "mine.yaml").write_text(text.replace("VALUE", "'${oc.env:SGLANG_RUN_ID}'"))
    done = run("check", str(tmp_path / "mine.yaml"))
    assert done.code == 2
    assert VALUE not in done.out + done.err
    assert "SGLANG_RUN_ID" in done.out


def test_an_app_of_the_users_own_reads_what_hydra_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CORP", VALUE)
    (tmp_path / "own.yaml").write_text(
        "defaults: [sglang_hydra_schema, {gpu: h200}, {model: qwen3_8b}, {engine: auto}, {launch: local}, _self_]\n"
        "served_model_name: ${oc.env:CORP}\napi_key: ${oc.env:CORP}\n"
    )
    composed = Composer([tmp_path], "own", hydra_syntax=True).compose([])
    assert composed.intent["served_model_name"] == VALUE
    assert composed.secrets["api_key"] == VALUE
    assert not composed.findings


def test_a_token_of_slurms_is_a_secret() -> None:
    assert is_secret_name("SLURM_JWT")


def test_names_that_are_like_those_of_secrets_are_plain() -> None:
    assert [name for name in PLAIN_NAMES if is_secret_name(name)] == []
    assert [name for name in SECRET_NAMES if not is_secret_name(name)] == []


OUTPUTS = (
    ("plan",),
    ("plan", "--all"),
    ("plan", "--json"),
    ("check", "--format", "markdown"),
    ("explain", "tp_size"),
    ("export", "shell"),
    ("export", "docker"),
    ("export", "k8s"),
    ("export", "slurm"),
)


@pytest.mark.corpus
@pytest.mark.parametrize("words", OUTPUTS, ids=[" ".join(words) for words in OUTPUTS])
@pytest.mark.parametrize("named_by", ["the shell", "a file"])
def test_no_output_shows_the_value_of_a_secret_name(
    named_by: str, words: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, lines = tmp_path / "mine.yaml", []
    for number, name in enumerate(SECRET_NAMES):
        if named_by == "the shell":
            monkeypatch.setenv(name, f"hunter2-{number}-hunter2")
        else:
            lines.append(f"    {name}: hunter2-{number}-hunter2\n")
    monkeypatch.setenv("SGLANG_RUN_ID", "plain")
    file.write_text(HONEST + (f"engine:\n  env:\n{''.join(lines)}" if lines else ""))
    done = run(*words, str(file))
    assert "hunter2-" not in done.out + done.err
    if words == ("plan", "--json"):
        assert "SGLANG_RUN_ID" in done.out


@pytest.mark.corpus
@pytest.mark.parametrize("words", OUTPUTS, ids=[" ".join(words) for words in OUTPUTS])
@pytest.mark.parametrize("named_by", ["the shell", "a file", "words"])
def test_no_output_shows_a_value_with_the_form_of_a_secret(
    named_by: str, words: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {f"SGLANG_THING_{number}": value for number, value in enumerate((*SECRET_VALUES, *PLAIN_VALUES))}
    typed = [f"engine.env.{name}='{value}'" for name, value in values.items()] if named_by == "words" else []
    lines = [f"    {name}: '{value}'\n" for name, value in values.items()] if named_by == "a file" else []
    for name, value in values.items() if named_by == "the shell" else ():
        monkeypatch.setenv(name, value)
    file = tmp_path / "mine.yaml"
    file.write_text(HONEST + (f"engine:\n  env:\n{''.join(lines)}" if lines else ""))
    done = run(*words, str(file), "--allow-env", "SGLANG_THING_*", *typed)
    said = done.out + done.err
    assert [value for value in SECRET_VALUES if value.split("@")[0] in said] == []
    if words[0] == "export" and named_by == "a file":
        assert [value for value in PLAIN_VALUES if value not in said] == []


@pytest.mark.corpus
@pytest.mark.parametrize("value", SECRET_VALUES)
def test_an_argument_with_the_form_of_a_secret_is_hidden_and_not_exported(value: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"python -m sglang.launch_server --model-path m --served-model-name '{value}'\n")
    typed = ["gpu=h200", "model=qwen3_8b", f"served_model_name='{value}'"]
    for words in (["plan", *typed], ["plan", "--json", *typed], ["plan", f"tp_size='{value}'"], ["plan", value]):
        done = run(*words)
        assert value.split("@")[0] not in done.out + done.err
    assert "SEC003" in run("plan", *typed).out
    for format in ("shell", "k8s", "docker"):
        done = run("export", format, *typed)
        assert (done.code, "SEC003" in done.err, value.split("@")[0] in done.out + done.err) == (2, True, False)
    for words in (["import"], ["check"], ["upgrade", "--to", "0.5.20"]):
        done = run(*words, str(tmp_path / "run.sh"))
        assert value.split("@")[0] not in done.out + done.err


@pytest.mark.corpus
@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_file_reads_no_secret_by_its_beginning(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, VALUE)
    (tmp_path / "mine.yaml").write_text(f"{HONEST}served_model_name: ${{oc.env:{name}}}\n")
    done = run("check", str(tmp_path / "mine.yaml"))
    assert (done.code, VALUE in done.out + done.err) == (2, False)
