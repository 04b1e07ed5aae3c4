"""Composing: the same outcome as Hydra's own compose API, and for each value who named it, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES
from sglang_hydra.text.locations import conf_dir
from tests.plans import composed, composer, origins, planned, refused, requests, written

GPUS = sorted(path.stem for path in (conf_dir() / "gpu").glob("*.yaml"))
MODELS = sorted(path.stem for path in (conf_dir() / "model").glob("*.yaml"))


def by_hydra(folder: Path, config_name: str, overrides: list[str], *, resolve: bool = True) -> dict[str, Any]:
    """What Hydra itself composes."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(folder)):
        config = compose(config_name, overrides)
    plain = OmegaConf.to_container(config, resolve=resolve, throw_on_missing=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def assert_same(
    folder: Path, config_name: str, overrides: list[str], using: Composer, hydras: list[str] | None = None
) -> None:
    expected = by_hydra(folder, config_name, overrides if hydras is None else hydras)
    made = using.compose(requests(*overrides))
    nodes = [name for name in NODES if name != "extra"]  # whose arguments stand with the others
    assert {name: made.nodes.plain[name] for name in nodes} == {name: expected[name] for name in nodes}
    for name in FIELDS:
        of_preset = made.origins[name][-1].layer in ("gpu", "model", "gpu_model") if name in made.origins else False
        if not of_preset:
            default = None if FIELDS[name].required else FIELDS[name].default
            assert made.intent.get(name, default) == expected[name], name


@pytest.mark.corpus
@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu_composes_as_hydra_composes_it(gpu: str) -> None:
    assert_same(conf_dir(), "sglang_hydra", [f"gpu={gpu}", "model=deepseek_v3"], composer())


@pytest.mark.corpus
@pytest.mark.parametrize("model", MODELS)
def test_every_model_composes_as_hydra_composes_it(model: str) -> None:
    assert_same(conf_dir(), "sglang_hydra", ["gpu=h100", f"model={model}", "tp_size=8"], composer())


VALUES = [
    ["tp_size=${gpu.count}", "served_model_name=${model.name}", "mem_fraction_static=0.8"],
    ["gpu.memory_mib=100", "gpu.count=2", "model.config.hidden_size=3", "ignore=[FIT001]"],
    ["cuda_graph_bs=[1,2,4]", "lora_paths={a: b}", "attention_backend=fa3", "enable_dp_attention=true"],
    ["engine.env.A=1", "engine.python='/a b'", "launch.force=true", "launch.ready_timeout=5"],
    ["served_model_name='a,b'", "revision=null", "chat_template='{{ x }}'"],
    ["engine=transformers", "launch=local", "model=unset", "gpu=none"],
]


@pytest.mark.corpus
@pytest.mark.parametrize("overrides", VALUES, ids=" ".join)
def test_overrides_of_values_mean_what_they_mean_to_hydra(overrides: list[str]) -> None:
    hydras = [f"+{text}" if text.startswith("engine.env.") else text for text in overrides]
    start = ["gpu=h200", "model=qwen3_8b"]
    if overrides[0] == "engine=transformers":
        start = []
    assert_same(conf_dir(), "sglang_hydra", [*start, *overrides], composer(), [*start, *hydras])


# An app's own folder: a primary config, presets, a pair file, experiments.

OWN = {
    "config.yaml": """\
defaults:
  - sglang_hydra_schema
  - gpu: h100
  - model: own
  - engine: auto
  - launch: local
  - _self_

page_size: 4
context_length: 4096
log_level: ${oc.env:SGLANG_RUN_ID,debug}
""",
    "gpu/own_gpu.yaml": """\
defaults: [h100]
name: own_gpu
count: 4
args:
  page_size: 1
  port: 1000
""",
    "model/own.yaml": """\
defaults: [qwen3_8b]
name: own
args:
  page_size: 2
  port: 2000
  dp_size: 2
  trust_remote_code: true
""",
    "gpu_model/own_gpu-own.yaml": """\
page_size: 3
port: 3000
dp_size: 3
tp_size: ${gpu.count}
""",
    "experiment/fast.yaml": """\
# @package _global_
defaults:
  - override /gpu: own_gpu
page_size: 5
host: experiment
""",
    "experiment/same.yaml": """\
# @package _global_
page_size: 4
trust_remote_code: true
""",
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return written(tmp_path, OWN)


@pytest.fixture
def own_composer(own: Path) -> Composer:
    return Composer([own], "config")


@pytest.mark.corpus
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["gpu=own_gpu"],
        ["+experiment=fast"],
        ["+experiment=same", "page_size=9"],
        ["+experiment=fast", "gpu=h200", "tp_size=2"],
        ["gpu=b200", "model=gpt_oss", "+experiment=same"],
    ],
    ids=" ".join,
)
def test_an_apps_own_folder_composes_as_hydra_composes_it(overrides: list[str], own: Path) -> None:
    primary = (own / "config.yaml").read_text()
    (own / "config.yaml").write_text(f"{primary}\nhydra:\n  searchpath: ['file://{conf_dir()}']\n")
    assert_same(own, "config", overrides, Composer([own], "config"))


def test_the_plus_of_an_experiment_may_be_left_out(own_composer: Composer) -> None:
    with_it = own_composer.compose(requests("+experiment=fast"))
    assert own_composer.compose(requests("experiment=fast")).intent == with_it.intent
    assert with_it.choices["gpu"] == "own_gpu"
    assert with_it.choices["experiment"] == "fast"


def test_an_option_that_is_not_there_is_refused_with_the_options(own_composer: Composer) -> None:
    (finding,) = refused("experiment=fats", using=own_composer)
    assert (finding.id, finding.hint) == ("CLI006", "experiment=fast; or experiment can be: fast, same")


def test_each_layer_beats_the_one_before(own: Path, own_composer: Composer) -> None:
    made = own_composer.compose(requests("experiment=fast", "page_size=6"))
    name = own.name
    places = [(layer, Path(place).name, value) for layer, place, value in origins(made, "page_size")]
    assert places == [
        ("gpu", "own_gpu.yaml:5", 1),
        ("model", "own.yaml:4", 2),
        ("gpu_model", "own_gpu-own.yaml:1", 3),
        ("primary", "config.yaml:9", 4),
        ("experiment", "fast.yaml:4", 5),
        ("cli", "argument 2", 6),
    ]
    assert made.intent["page_size"] == 6
    assert name in made.origins["page_size"][0].place
    assert [layer for layer, _, _ in origins(made, "port")] == ["gpu", "model", "gpu_model"]
    assert made.intent["port"] == 3000
    assert made.intent["tp_size"] == 4, "a pair file may refer to the whole configuration"
    assert made.intent["context_length"] == 4096
    assert made.intent["host"] == "experiment"


@pytest.mark.parametrize(
    ("overrides", "page_size", "port"),
    [
        ([], 4, 2000),
        (["gpu=own_gpu"], 4, 3000),
        (["experiment=fast"], 5, 3000),
        (["experiment=same"], 4, 2000),
        (["experiment=fast", "page_size=null"], None, 3000),
        (["gpu=own_gpu", "model=qwen3_8b"], 4, 1000),
    ],
    ids=str,
)
def test_precedence(overrides: list[str], page_size: int | None, port: int, own_composer: Composer) -> None:
    intent = own_composer.compose(requests(*overrides)).intent
    assert (intent["page_size"], intent["port"]) == (page_size, port)


def test_the_schema_is_no_layer_of_the_intent(own_composer: Composer) -> None:
    made = own_composer.compose([])
    assert "tp_size" not in made.intent
    assert all(origin.layer != "schema" for chain in made.origins.values() for origin in chain)


def test_an_equal_value_is_recorded_too(own_composer: Composer) -> None:
    made = own_composer.compose(requests("experiment=same"))
    assert [(layer, value) for layer, _, value in origins(made, "page_size")] == [
        ("model", 2),
        ("primary", 4),
        ("experiment", 4),
    ]
    assert [layer for layer, _, _ in origins(made, "trust_remote_code")] == ["model", "experiment"]


def test_an_override_below_a_preset_is_named_where_it_was_typed(own_composer: Composer) -> None:
    made = own_composer.compose(requests("model.args.dp_size=8", "model.model_path=org/else"))
    assert origins(made, "dp_size") == [("model", "argument 1", 8)]
    assert origins(made, "model_path") == [("model", "argument 2", "org/else")]


def test_a_place_in_a_preset_that_builds_on_another_is_the_line_that_counts(own_composer: Composer) -> None:
    made = own_composer.compose([])
    assert origins(made, "model_path") == [("model", "conf/model/qwen3_8b.yaml:4", "Qwen/Qwen3-8B")]


def test_an_interpolation_is_shown_as_it_was_written(own_composer: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_RUN_ID", "warning")
    made = own_composer.compose(requests("tp_size=${gpu.count}"))
    assert made.intent["log_level"] == "warning"
    assert origins(made, "log_level")[-1][2] == "${oc.env:SGLANG_RUN_ID,debug}"
    assert origins(made, "tp_size")[-1][2] == "${gpu.count}"


def test_a_composer_gives_the_same_every_time(own_composer: Composer) -> None:
    lines = [["gpu=own_gpu", "tp_size=2"], [], ["experiment=fast"], ["gpu=h200", "model=gpt_oss"]]
    first = [own_composer.compose(requests(*line)) for line in lines]
    again = [own_composer.compose(requests(*line)) for _ in range(3) for line in lines]
    assert again == first * 3


# Own presets


def test_a_folder_beats_ours_and_the_hidden_preset_is_named(tmp_path: Path) -> None:
    mine = (conf_dir() / "gpu" / "h100.yaml").read_text().replace("count: 8", "count: 2")
    written(tmp_path, {"gpu/h100.yaml": mine})
    made = Composer([tmp_path]).compose(requests("gpu=h100", "model=qwen3_8b"))
    assert made.nodes.gpu.count == 2
    (said,) = made.shadowed
    assert said.endswith("hides conf/gpu/h100.yaml of sglang_hydra")
    assert planned("gpu=h100", "model=qwen3_8b", using=Composer([tmp_path])).notes[0] == said


@pytest.mark.parametrize("word", ["experiment=deep/long", "+experiment=deep/long"])
def test_an_option_may_lie_in_a_folder_of_its_group(word: str, tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        {
            "experiment/short.yaml": "# @package _global_\ntp_size: 1\n",
            "experiment/deep/long.yaml": "# @package _global_\ncontext_length: 4096\n",
        },
    )
    assert planned("gpu=h200", word, using=Composer([folder])).values["context_length"] == 4096
    (finding,) = refused("gpu=h200", "experiment=deep/other", using=Composer([folder]))
    assert finding.id == "CLI006"


def test_a_load_that_does_not_say_where_it_goes_is_told_how(tmp_path: Path) -> None:
    folder = written(tmp_path, {"bench/workload/chat.yaml": "input_len: 7\n"})
    (finding,) = refused("gpu=h200", "bench/workload=chat", using=Composer([folder]))
    assert (finding.id, finding.hint) == ("CLI008", "# @package bench as the first line of bench/workload/chat.yaml")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("defaults: [override /gpu: h200]\n", "# @package _global_ as the first line of experiment/mine.yaml"),
        ("tp_size: 2\n", "# @package _global_ as the first line of experiment/mine.yaml"),
        ("# @package _global_\ndefaults: [gpu: h200]\n", "'- override /gpu: h200' in its defaults list"),
    ],
)
def test_the_usual_mistakes_in_an_experiment_name_the_line_to_write(text: str, hint: str, tmp_path: Path) -> None:
    folder = written(tmp_path, {"experiment/mine.yaml": text})
    assert refused("experiment=mine", using=Composer([folder]))[0].hint == hint


def test_a_new_preset_is_one_file(tmp_path: Path) -> None:
    written(tmp_path, {"model/mine.yaml": "name: mine\nmodel_path: org/mine\nconfig: {architectures: [X]}\n"})
    made = Composer([tmp_path])
    assert "mine" in made.options("model")
    assert made.compose(requests("gpu=h100", "model=mine")).intent == {"model_path": "org/mine"}


def test_a_primary_config_can_add_folders(tmp_path: Path) -> None:
    written(tmp_path, {"more/gpu/mine.yaml": "defaults: [h100]\nname: mine\n"})
    primary = (conf_dir() / "sglang_hydra.yaml").read_text()
    written(tmp_path, {"app/top.yaml": f"hydra: {{searchpath: ['file://{tmp_path}/more']}}\n{primary}"})
    made = Composer([tmp_path / "app"], "top")
    assert "mine" in made.options("gpu")
    assert made.compose(requests("gpu=mine")).choices["gpu"] == "mine"


def test_a_searchpath_can_be_typed(tmp_path: Path) -> None:
    written(tmp_path, {"gpu/mine.yaml": "defaults: [h100]\nname: mine\n"})
    made = Composer()
    typed = requests(f"hydra.searchpath=['file://{tmp_path}']", "gpu=mine")
    assert made.compose(typed).nodes.gpu.name == "mine"


def test_what_files_say_of_hydra_itself_does_not_matter_here(tmp_path: Path) -> None:
    primary = (
        (conf_dir() / "sglang_hydra.yaml")
        .read_text()
        .replace("  - _self_", "  - override hydra/job_logging: none\n  - _self_")
    )
    written(
        tmp_path,
        {
            "top.yaml": f"{primary}\nhydra:\n  run: {{dir: out}}\n",
            "experiment/quiet.yaml": "# @package _global_\nhydra: {verbose: false}\ntp_size: 2\n",
        },
    )
    made = Composer([tmp_path], "top").compose(requests("gpu=h100", "experiment=quiet"))
    assert made.intent == {"tp_size": 2}


# Mistakes in files

MISTAKES = [
    ("config.yaml", "page_size: [1\n", "CLI009", "config.yaml:13:1: this is no YAML", None),
    ("config.yaml", "tpsize: 8\n", "CLI001", "config.yaml:12: 'tpsize' is neither", "did you mean tp_size?"),
    ("config.yaml", "tp_size: x\n", "CLI002", "config.yaml:12: tp_size='x' is not an int", None),
    ("config.yaml", "served_model_name: off\n", "CLI002", "config.yaml:12: served_model_name=false", 'name: "off"'),
    ("config.yaml", "tp_size: ${gpu.name}\n", "CLI008", "config.yaml:12: tp_size: ", None),
    ("config.yaml", "tp_size: ${nope}\n", "CLI008", "config.yaml:12: tp_size: Interpolation key 'nope'", None),
    ("config.yaml", "json_model_override_args: '{'\n", "CLI002", "config.yaml:12: json_model_override_args is", None),
    ("config.yaml", "gpu: {cuont: 4}\n", "CLI002", "config.yaml:12: gpu has no key 'cuont'", "gpu.count"),
    ("config.yaml", "launch: {force: maybe}\n", "CLI002", "config.yaml:12: launch.force='maybe' is not true", None),
    ("gpu/own_gpu.yaml", "memory: 5\n", "CLI002", "own_gpu.yaml:7: gpu has no key 'memory'", "gpu.memory_mib"),
    ("gpu/own_gpu.yaml", "memory_mib: many\n", "CLI002", "own_gpu.yaml:7: gpu.memory_mib='many' is not a number", None),
    ("gpu/own_gpu.yaml", f"memory_mib: 1{'0' * 309}\n", "CLI002", "0 is not a number", None),
    ("gpu/own_gpu.yaml", "  tpsize: 4\n", "CLI001", "own_gpu.yaml:7: 'tpsize' is neither", "tp_size"),
    ("model/own.yaml", "  attention_backend: fa9\n", "CLI002", "own.yaml:8: attention_backend='fa9'", None),
    ("gpu_model/own_gpu-own.yaml", "tp_sise: 4\n", "CLI001", "own_gpu-own.yaml:5: 'tp_sise'", "tp_size"),
    ("gpu_model/own_gpu-own.yaml", "pp_size: x\n", "CLI002", "own_gpu-own.yaml:5: pp_size='x'", None),
    ("experiment/fast.yaml", "tpsize: 8\n", "CLI001", "fast.yaml:6: 'tpsize'", "tp_size"),
    ("experiment/fast.yaml", "page_size: 7\n", "CLI009", "fast.yaml:6", None),
]


@pytest.mark.corpus
@pytest.mark.parametrize(("file", "adds", "id", "message", "hint"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_in_a_file_is_named_with_its_line(
    file: str, adds: str, id: str, message: str, hint: str | None, own: Path
) -> None:
    path = own / file
    path.write_text(path.read_text() + adds)
    findings = refused("experiment=fast", using=Composer([own], "config"))
    assert [finding.id for finding in findings] == [id]
    assert message in findings[0].message.replace(f"{own}/", "")
    assert hint is None or hint in (findings[0].hint or "")


_BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]\n" for i in range(9))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"- 5\n", "it holds a list, not a mapping of keys"),
        (b"name: \xff\n", "it is not UTF-8 text"),
        (b"a: &a [*a]\n", "the alias *a is within the value that it names"),
        (_BOMB.encode(), "it holds more than 10000 values once its aliases are followed"),
    ],
    ids=["list", "binary", "loop", "bomb"],
)
def test_a_preset_that_is_none_is_named_by_its_file(content: bytes, why: str, own: Path) -> None:
    (own / "gpu/odd.yaml").write_bytes(content)
    (finding,) = refused("gpu=odd", using=Composer([own], "config"))
    assert finding.id == "CLI009"
    assert finding.message.replace(f"{own}/", "") == f"gpu/odd.yaml: {why}"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("served_model_name=${oc.env:NO_SUCH_VARIABLE}", "export NO_SUCH_VARIABLE=..."),
        ("served_model_name=${nosuch}", "the name of a key that is there"),
    ],
)
def test_an_interpolation_that_leads_nowhere_says_what_to_type(typed: str, hint: str) -> None:
    (finding,) = refused("gpu=h200", typed)
    assert (finding.hint or "").startswith(hint)


def test_all_mistakes_of_the_files_are_reported_together(own: Path) -> None:
    for file, adds in (("config.yaml", "tpsize: 8\nport: x\n"), ("experiment/fast.yaml", "dp_sise: 2\n")):
        (own / file).write_text((own / file).read_text() + adds)
    findings = refused("experiment=fast", using=Composer([own], "config"))
    assert [finding.id for finding in findings] == ["CLI001", "CLI002", "CLI001"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("just text\n", "does not hold SGLang's arguments"),
        ("defaults: 5\n", "defaults must be a list"),
        ("defaults: [sglang_hydra_schema, gpu: nope]\n", "nope"),
        ("defaults: [nowhere]\n", "nowhere"),
        ("defaults: [sglang_hydra_schema, {gpu: h100, model: x}]\n", "Too many keys"),
        ("tp_size: 8\n", "does not hold SGLang's arguments"),
        ("a: \x07\n", "config.yaml"),
    ],
)
def test_a_primary_config_that_cannot_be_composed_says_why(content: str, message: str, tmp_path: Path) -> None:
    written(tmp_path, {"config.yaml": content})
    (finding,) = refused(using=Composer([tmp_path], "config"))
    assert message in finding.message


def test_a_file_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    written(tmp_path, {"gpu/odd.yaml": ""})
    (tmp_path / "gpu" / "odd.yaml").write_bytes(b"name: \xff\n")
    (finding,) = refused("gpu=odd", using=Composer([tmp_path]))
    assert finding.id == "CLI009"


def test_a_primary_config_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (finding,) = refused(using=Composer([tmp_path], "nope"))
    assert (finding.id, "there is no config 'nope'" in finding.message) == ("CLI018", True)


# Names


@pytest.mark.parametrize("version", ["0.5.2", "0.5.23"])
def test_no_key_of_ours_is_an_argument_of_sglang(version: str) -> None:
    names = set(FIELDS)
    if version == "0.5.23":
        recorded = json.loads((Path(__file__).parents[1] / "data" / "arguments_0_5_23.json").read_text())
        names = set(recorded["arguments"])
        assert len(names) == 546
    ours = {*NODES, "experiment", "recipe", "hydra", *composer().groups()}
    assert not names & ours


def test_nothing_is_written_by_composing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    composed("gpu=h100", "model=qwen3_8b")
    assert not list(tmp_path.iterdir())


CANONICAL: list[list[str]] = [
    *VALUES[:-1],
    ["served_model_name=it's a,b", "chat_template={{x}}", "revision=null"],
    ["served_model_name=C:\\x\\", "tokenizer_path=a\nb"],
    ["engine.env.A=1", "engine.env={B: x}", "+gpu.count=3", "++tp_size=2", "gpu={memory_mib: 5}"],
    ["model=org/name", "gpu=null", "engine=null"],
    ["model.config.x.y=3", "model.args={tp_size: 2}", "ignore=CFG004,GPU001"],
    ["api_key=sekret", "engine.env.HF_TOKEN=sekret", "model.args.api_key=sekret"],
]


@pytest.mark.corpus
@pytest.mark.parametrize("overrides", CANONICAL, ids=str)
def test_hydra_takes_the_overrides_in_their_canonical_form(overrides: list[str]) -> None:
    typed = requests("gpu=h200", "model=qwen3_8b", *overrides)
    typed += [Request.typed("file_storage_path", "a${b} 'c' \\", "argument 1 after --")]
    words = composer().canonical(typed)
    assert "sekret" not in repr(words)
    made, expected = composer().compose(typed), by_hydra(conf_dir(), "sglang_hydra", words, resolve=False)
    hidden = made.secret_keys
    for name, value in made.nodes.plain.items():
        if not any(key.startswith(name) for key in hidden):
            assert expected[name] == value or "${" in repr(expected[name])
    assert expected["file_storage_path"] == "a\\${b} 'c' \\"
    for name in ("tp_size", "served_model_name", "chat_template", "revision", "cuda_graph_bs"):
        if name in made.intent and "${" not in repr(expected[name]) and made.origins[name][-1].layer == "cli":
            assert expected[name] == made.intent[name]
