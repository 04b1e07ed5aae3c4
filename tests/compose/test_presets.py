"""Presets with a defaults list: one reader, for the plan, the audit, the fit's offers and the import alike."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_hydra.cli.main import entry
from sglang_hydra.compose.by_plain_values import PlainBases
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.hydra_internals import Repository
from sglang_hydra.compose.plain_merge import NotPlain
from sglang_hydra.convert.importing.importer import _all_classes, classes_named_in
from sglang_hydra.convert.importing.launches import Launch
from sglang_hydra.convert.importing.reduction import preset_for
from sglang_hydra.planning.choosing.catalog import gpu_classes, models
from sglang_hydra.run.diagnose.diagnosis import Diagnosis
from sglang_hydra.run.diagnose.replan import gpu_classes_of
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import conf_dir
from tests.plans import composer, planned, requests, written

FOLDER = {
    "gpu/big.yaml": "defaults: [h200]\nname: big\nmemory_mib: 400000\n",
    "gpu/my_h200.yaml": "defaults: [h200]\nname: my_h200\ncount: 4\n",
    "gpu/big_pair.yaml": "defaults: [big]\nname: big_pair\ncount: 2\nargs: {attention_backend: fa3, page_size: 32}\n",
    "gpu/unnamed.yaml": "defaults: [h200]\ncount: 2\n",
    "gpu/second_name.yaml": "defaults: [h200]\n",
    "gpu_model/big-llama_4_scout.yaml": "defaults: [h200-llama_4_scout]\npage_size: 64\n",
    "model/my_dsv3.yaml": """\
defaults: [deepseek_v3]
name: my_dsv3
model_path: me/my-dsv3
config: {num_nextn_predict_layers: 0}
""",
}
MEMORY = {"big": 400000, "my_h200": 143771, "big_pair": 400000, "unnamed": 143771}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("presets"), FOLDER)


@pytest.fixture(scope="module")
def own(folder: Path) -> Composer:
    return Composer([folder])


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = entry(list(words))
    done = capsys.readouterr()
    return code, done.out + done.err


def test_a_variant_states_only_the_difference(own: Composer) -> None:
    base, mine, pair = (own.preset("gpu", name).node for name in ("h200", "big", "big_pair"))
    assert mine == {**base, "name": "big", "memory_mib": 400000.0}
    assert pair == {**mine, "name": "big_pair", "count": 2, "args": {"attention_backend": "fa3", "page_size": 32}}
    assert [Path(part.file).stem for part in own.preset("gpu", "big_pair").parts][-3:] == ["h200", "big", "big_pair"]
    v3, model = (own.preset("model", name).node for name in ("deepseek_v3", "my_dsv3"))
    assert model["config"] == {**v3["config"], "num_nextn_predict_layers": 0}
    assert model["config_file"] == v3["config_file"]
    assert model["args"] == v3["args"]


@pytest.mark.parametrize("name", ["big", "my_h200", "big_pair", "unnamed"])
def test_a_variant_is_planned_with_what_it_inherits(name: str, own: Composer) -> None:
    plan = planned(f"gpu={name}", "model=qwen3_8b", using=own)
    assert plan.launchable is not False
    assert plan.gpu.memory_mib == MEMORY[name]
    assert plan.gpu.compute_capability == (9, 0)
    assert planned("gpu=b200", "model=my_dsv3", "tp_size=8", using=own).launchable is not False


def test_a_variant_is_in_the_catalog_and_a_second_name_is_not(own: Composer) -> None:
    classes = {gpu.name: gpu.facts for gpu in gpu_classes(own)}
    assert {name: classes[name].memory_mib for name in MEMORY} == MEMORY
    assert set(classes) - set(MEMORY) == {gpu.name for gpu in gpu_classes(composer())}
    assert [model.name for model in models(own)] == ["my_dsv3", *(model.name for model in models(composer()))]


def test_the_audit_judges_variants_as_they_are_planned(
    folder: Path, own: Composer, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, "audit", "--config-dir", str(folder), "gpu=big", "engine.version=0.5.2", "--json")
    assert code == 0
    cells = {cell["name"]: cell for cell in json.loads(text)["cells"]}
    assert {name.split()[1] for name in cells} == {"big", "big_pair"}
    for name in ("qwen3_8b big", "my_dsv3 big", "llama_4_scout big", "llama_4_scout big_pair", "deepseek_v3 big_pair"):
        model, gpu = name.split()
        cell = cells[name]
        plan = planned(f"gpu={gpu}", f"model={model}", f"tp_size={cell['tp_size']}", "engine.version=0.5.2", using=own)
        assert plan.launchable == (cell["state"] == "ok"), cell
        assert plan.fit is None or plan.fit.kv_tokens == cell["kv_tokens"]


def test_a_variant_is_offered_where_a_model_does_not_fit(
    folder: Path, own: Composer, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("gpu=h200", "gpu.count=1", "model=mixtral_8x22b")
    (finding,) = [finding for finding in planned(*words, using=own).findings if finding.id == "FIT001"]
    assert [offer.said for offer in finding.offers][:2] == ["tp_size=4 nnodes=4", "gpu=big"]
    assert "gpu=big" in said(capsys, "fit", "--config-dir", str(folder), *words)[1]


def test_a_variant_is_known_to_import_and_to_diagnose(own: Composer, tmp_path: Path) -> None:
    assert {"big", "big_pair"} <= set(_all_classes(Launch("script", "a.sh"), {"device": "cuda"}, own))
    found = preset_for("me/my-dsv3", own)
    assert found is not None
    assert found.name == "my_dsv3"
    assert classes_named_in(["serve-my-h200.sh"], own.options("gpu")) == ["my_h200"]
    log = Diagnosis("unknown", 0, None, None, None, None, Finding("info", "DIA001", ""), gpu_memory_mib=400000 * 0.98)
    assert gpu_classes_of(log, own, []) == ["big", "big_pair"]


def test_the_file_of_an_inherited_key_is_named(folder: Path, own: Composer, capsys: pytest.CaptureFixture[str]) -> None:
    origins = planned("gpu=big", "model=llama_4_scout", using=own).origins
    assert [origin.place.rpartition("/")[2] for origin in origins["page_size"]] == ["big-llama_4_scout.yaml:2"]
    assert origins["attention_backend"][-1].layer == "gpu_model"
    shown = said(capsys, "explain", "gpu.memory_mib", "--config-dir", str(folder), "gpu=big_pair", "model=qwen3_8b")[1]
    places = [shown.find(place) for place in ("h200.yaml", "big.yaml:3")]
    assert places == sorted(places)
    assert -1 not in places


def test_a_variant_of_a_checkpoint_does_not_speak_for_it(tmp_path: Path) -> None:
    variant = "defaults: [qwen3_8b]\nname: changed\nconfig: {num_hidden_layers: 2}\n"
    own = Composer([written(tmp_path, {"model/changed.yaml": variant})])
    facts = own.model_presets().facts_of("Qwen/Qwen3-8B")
    assert facts is not None
    assert facts.config is not None
    assert facts.config["num_hidden_layers"] == 36
    assert own.preset("model", "changed").node["config"]["num_hidden_layers"] == 2


@pytest.mark.parametrize(
    ("path", "preset"),
    [
        ("deepseek-ai/DeepSeek-R1", "deepseek_r1"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek_v3"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v3_2"),
        ("google/gemma-4-26B-A4B-it", "gemma_4_26b"),
    ],
)
def test_a_checkpoint_of_a_presets_shapes_is_known_by_its_name(path: str, preset: str) -> None:
    presets = Composer().model_presets()
    facts, known = presets.facts_of(path), presets.facts_named(preset)
    assert facts is not None
    assert known is not None
    assert facts.config == known.config
    assert "which has the same shapes" in facts.source


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("my-org/Qwen3-32B-tuned", "Qwen/Qwen3-32B"),
        ("RedHatAI/Qwen3-32B-NVFP4", None),  # it states another format than that of the preset
        ("unsloth/Qwen3.6-27B-NVFP4", "nvidia/Qwen3.6-27B-NVFP4"),
        ("unsloth/gpt-oss-20b-GGUF", None),
        ("org/GLM-5.2-FP8-tuned", "zai-org/GLM-5.2-FP8"),
    ],
)
def test_a_name_that_states_a_format_resembles_only_what_states_it(path: str, known: str | None) -> None:
    assert Composer().model_presets().resembling(path) == known


class ByHydra(Composer):
    """Composes presets, and everything else, by Hydra and OmegaConf."""

    def _plain_bases(self, repository: Repository) -> PlainBases:
        plain = super()._plain_bases(repository)
        plain.presets.chain = _refuse  # type: ignore[method-assign]
        return plain


def _refuse(config_path: str) -> tuple[str, ...]:
    raise NotPlain(config_path)


BASE = "name: base\nmemory_mib: 1000\ncount: 8\ndense_tflops: {bf16: 1, fp8: 2}\ndevice_names: [A, B]\n"
LISTS = {
    "self_first": ("defaults: [_self_, base]\nname: x\nsource: mine\n", {"name": "base", "source": "mine"}),
    "self_last": ("defaults: [base, _self_]\nname: x\ncount: 4\n", {"name": "x", "count": 4}),
    "no_list": ("defaults: []\nname: x\nmemory_mib: 2000\n", {"name": "x", "memory_mib": 2000.0}),
    "part_of_a_mapping": ("defaults: [base]\ndense_tflops: {fp8: 3}\n", {"dense_tflops": {"bf16": 1.0, "fp8": 3.0}}),
    "a_shorter_list": ("defaults: [base]\ndevice_names: [C]\n", {"device_names": ["C"]}),
    "a_number_where_text_is_wanted": ("defaults: [base]\ncompute_capability: 9.0\n", {"compute_capability": "9.0"}),
    "the_same_twice": ("defaults: [base, more, base]\nname: x\n", {"name": "x", "count": 8}),
    "two_lists": ("defaults: [base, more]\nname: x\n", {"name": "x", "count": 2, "memory_mib": 1000.0}),
    "of_its_own_package": ("defaults: [base@_here_]\nname: x\n", {"name": "x", "count": 8}),
    "by_its_whole_name": ("defaults: [/gpu/base@_here_]\nname: x\n", {"name": "x", "count": 8}),
    "of_another_group": ("defaults: [/facts@_here_: fast]\nname: x\n", {"name": "x", "memory_bandwidth_gbps": 9.0}),
    "of_the_whole": ("# @package _global_\ndefaults: [/gpu/base@gpu]\ngpu: {count: 3}\n", {"count": 3}),
    "referring": ("defaults: [base]\ncount: ${replicas}\n", {"count": "${replicas}", "memory_mib": 1000.0}),
}
NOT_PLAIN = {"of_its_own_package", "by_its_whole_name", "of_another_group", "of_the_whole", "referring"}


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = {"gpu/base.yaml": BASE, "gpu/more.yaml": "count: 2\n", "facts/fast.yaml": "memory_bandwidth_gbps: 9\n"}
    options = {f"gpu/{name}.yaml": text for name, (text, _) in LISTS.items()}
    return written(tmp_path_factory.mktemp("lists"), {**more, **options})


@pytest.mark.parametrize("name", LISTS)
def test_a_defaults_list_means_what_it_means_to_hydra(name: str, lists: Path) -> None:
    read, by_hydra = Composer([lists]), ByHydra([lists])
    preset = read.preset("gpu", name)
    assert {key: preset.node[key] for key in LISTS[name][1]} == LISTS[name][1]
    assert by_hydra.preset("gpu", name)._replace(parts=preset.parts) == preset
    assert [part.tree for part in by_hydra.preset("gpu", name).parts] == [part.tree for part in preset.parts]
    composed = read.compose(requests(f"gpu={name}", "model=qwen3_8b"))
    if name != "referring":
        assert composed.nodes.plain["gpu"] == preset.node
    with contextlib.ExitStack() as stack:
        if name in NOT_PLAIN:
            stack.enter_context(pytest.raises(NotPlain))
        read._plain_bases(read._repository()).presets.preset("gpu", name)


def test_a_class_that_depends_on_the_rest_is_left_out(lists: Path) -> None:
    classes = {gpu.name for gpu in gpu_classes(Composer([lists]))}
    assert classes >= set(LISTS) - {"referring", "of_another_group"}
    assert "referring" not in classes


def _in_its_primary_config(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Composer, list[str]]:
    primary = (conf_dir() / "sglang_hydra.yaml").read_text(encoding="utf-8")
    written(folder, {"app/top.yaml": f"hydra: {{searchpath: ['file://{folder}/more']}}\n{primary}"})
    return Composer([folder / "app"], "top"), []


def _typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Composer, list[str]]:
    return Composer(), [f"hydra.searchpath=['file://{folder}/more']"]


def _of_a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Composer, list[str]]:
    written(folder, {"more/__init__.py": ""})
    folder.joinpath("more").rename(folder / "conf_of_an_app")
    for child in ("gpu", "model"):
        written(folder, {f"conf_of_an_app/{child}/__init__.py": ""})
    monkeypatch.syspath_prepend(str(folder))
    return Composer(["pkg://conf_of_an_app"]), []


@pytest.mark.corpus
@pytest.mark.parametrize("source", [_in_its_primary_config, _typed, _of_a_package])
def test_presets_are_found_wherever_hydra_searches(
    source: Callable[[Path, pytest.MonkeyPatch], tuple[Composer, list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(tmp_path, {f"more/{name}": text for name, text in FOLDER.items()})
    own, words = source(tmp_path, monkeypatch)
    typed = requests(*words)
    classes = {gpu.name: gpu.facts for gpu in gpu_classes(own, typed)}
    assert {name: classes[name].memory_mib for name in MEMORY} == MEMORY
    assert "my_dsv3" in [model.name for model in models(own, typed)]
    plan = planned(*words, "gpu=h200", "gpu.count=1", "model=mixtral_8x22b", using=own)
    assert "gpu=big" in [offer.said for finding in plan.findings for offer in finding.offers]
    facts = planned(*words, "gpu=big", "model_path=me/my-dsv3", using=own).model
    assert facts.source == "preset my_dsv3, which has this model_path"


BROKEN = {
    "an unknown key": ("defaults: [h200]\nmemory_mb: 5\n", "gpu/broken.yaml:2", "memory_mb"),
    "a wrong type": ("defaults: [h200]\ncount: many\n", "gpu/broken.yaml:2", "gpu.count='many'"),
    "no such preset": ("defaults: [h2000]\nname: x\n", "gpu/broken", "h2000"),
    "itself": ("defaults: [broken]\nname: x\n", "gpu/broken.yaml", "defaults list leads back to itself"),
    "no YAML": ("defaults: [h200]\ncount: [\n", "gpu/broken.yaml:3", "no YAML"),
    "no arguments": ("defaults: [h200]\nargs: 5\n", "gpu/broken.yaml:2", "gpu.args=5"),
    "a wrong argument": ("defaults: [h200]\nargs: {tp_size: eight}\n", "gpu/broken.yaml:2", "tp_size"),
    "no size": ("defaults: [h200]\nmemory_mib: -5\n", "gpu=broken", "gpu.memory_mib=-5"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_preset_is_named_with_its_key(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, place, key = BROKEN[kind]
    folder = written(tmp_path, {"gpu/broken.yaml": text, "gpu/good.yaml": FOLDER["gpu/my_h200.yaml"]})
    for words in (("audit",), ("plan", "gpu=broken", "model=qwen3_8b")):
        code, shown = said(capsys, *words, "--config-dir", str(folder))
        shown = " ".join(shown.split())
        assert code == 2
        assert place in shown or (words[0] == "plan" and kind == "no size"), shown
        assert key in shown, shown
    classes = {gpu.name: gpu.facts for gpu in gpu_classes(Composer([folder]))}
    assert "broken" not in classes
    assert classes["good"].count == 4


def test_an_option_that_is_not_there_is_refused(own: Composer) -> None:
    with pytest.raises(ConfigError, match="gpu=h2 does not exist"):
        own.preset("gpu", "h2")
