"""Composing on plain values gives what OmegaConf gives, for whatever is typed, and leaves to it what it must."""

from __future__ import annotations

import atexit
import shutil
from dataclasses import fields
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sglang_hydra.compose import by_plain_values as plain_bases
from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.hydra_internals import Repository, own_content, yaml_loader
from sglang_hydra.compose.overrides import Request, Wanted
from sglang_hydra.compose.plain_merge import NotPlain
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.compose.settings.nodes import Nodes
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import conf_dir
from tests.plans import requests, written

OWN = {
    "config.yaml": """\
defaults: [sglang_hydra_schema, gpu: h100, model: own, engine: auto, launch: local, bench/workload: null, _self_]
page_size: 4
fit: {context: 4096}
""",
    "gpu/flat.yaml": "name: flat\nvendor: nvidia\ndevice: cuda\nmemory_mib: 80000\ncount: 4\nargs: {page_size: 1}\n",
    "gpu/derived.yaml": "defaults: [h100]\nname: derived\ncompute_capability: 9.0\n",
    "gpu/asking.yaml": "name: asking\ncount: ${replicas}\n",
    "model/own.yaml": """\
name: own
model_path: org/own
config: {architectures: [LlamaForCausalLM], rope_scaling: null, nested: {a: 1, b: [1, 2]}, "odd key": 1.5}
args: {page_size: 2, trust_remote_code: true, mem_fraction_static: 1}
""",
    "model/referring.yaml": "name: referring\nmodel_path: org/${gpu.name}\nargs: {tp_size: '${gpu.count}'}\n",
    "gpu_model/flat-own.yaml": "page_size: 3\nhost: pair\n",
    "gpu_model/flat-referring.yaml": "tp_size: ${gpu.count}\n",
    "experiment/plain.yaml": "# @package _global_\npage_size: 5\nhost: own\ngpu: {count: 2}\nlora_paths: [a, b]\n",
    "experiment/choosing.yaml": "# @package _global_\ndefaults: [override /gpu: flat]\npage_size: 6\n",
    "experiment/wrong.yaml": "# @package _global_\ntp_size: eight\nlunch: {force: true}\n",
    "recipe/own.yaml": "# @package _global_\ndefaults: [{override /model: qwen3_8b}]\ntp_size: 2\n",
    "bench/workload/own.yaml": "# @package bench\ninput_len: 7\nslo: {ttft_ms: 5}\n",
}


class ByOmegaConf(Composer):
    """Composes as if nothing were plain."""

    def _merged_plainly(self, *_: Any) -> Composition:
        raise NotPlain("nothing is")


class Counting(Composer):
    """Counts what was composed on plain values."""

    plainly = 0

    def _merged_plainly(self, repository: Repository, chosen: list[Wanted], leaves: list[Wanted]) -> Composition:
        made = super()._merged_plainly(repository, chosen, leaves)
        self.plainly += 1
        return made


@cache
def composers(kind: str) -> tuple[Counting, ByOmegaConf]:
    if kind == "ours":
        return Counting(), ByOmegaConf()
    if kind == "hydra":
        return Counting(hydra_syntax=True), ByOmegaConf(hydra_syntax=True)
    folder = written(Path(mkdtemp()), OWN)
    atexit.register(shutil.rmtree, folder)
    return Counting([folder], "config"), ByOmegaConf([folder], "config")


def composed(composer: Composer, words: list[str]) -> dict[str, Any] | list[Finding]:
    try:
        made = composer.compose(requests(*words))
    except ConfigError as failure:
        return list(failure.findings)
    return {item.name: getattr(made, item.name) for item in fields(made)}


def typed(value: Any) -> Any:
    """``value`` with the type of every part beside it: 1, 1.0 and True are not the same here."""
    if isinstance(value, Nodes):
        return typed(value.plain)
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(typed, value)]
    return type(value).__name__, repr(value)


def assert_same(kind: str, words: list[str]) -> None:
    plain, real = composers(kind)
    assert typed(composed(plain, words)) == typed(composed(real, words)), words


PLAIN = [
    ["gpu=h200", "model=qwen3_8b", "tp_size=8", "mem_fraction_static=1", "engine.env.A=1"],
    ["recipe=deepseek_v3-h200-8"],
    ["recipe=deepseek_v3-h100-16", "gpu=h200", "mem_fraction_static=0.85"],
    ["gpu=b200", "recipe=gpt_oss_20b-h200-1", "model=gpt_oss", "gpu.memory_mib=5"],
    ["model=tiny", "gpu=cpu", "bench/workload=1k1k", "bench.concurrency=4"],
    ["gpu=none", "model=qwen3_8b", "sweep=tp_scaling", "model.config.x=3", "ignore=[FIT001]", "served_model_name=a b"],
    ["gpu=h200", "model=deepseek_v3", "gpu=b200", "tp_size=2"],
    ["gpu=h200", r"model_path='\${MODEL}'", r"served_model_name='a-\\\\\${X}'", r"engine.env.A='\${B} \${C}'"],
    ["gpu=h100", "api_key=x", "engine.env.HF_TOKEN=y", "model.args.tp_size=2", "gpu.args.page_size=1"],
]
OWN_PLAIN = [
    [],
    ["gpu=flat", "port=5"],
    ["gpu=derived", "gpu.count=2"],
    ["experiment=plain", "gpu=flat", "page_size=7"],
    ["experiment=choosing"],
    ["experiment=choosing", "gpu=h200"],
    ["recipe=own", "gpu=flat"],
    ["recipe=own", "model=own"],
    ["bench/workload=own"],
]
LEFT = [
    ["gpu=h200", "served_model_name=${model.name}"],
    ["gpu=h200", r"served_model_name='\${A} ${model.name}'"],
    ["gpu=h200", r"tp_size='\${TP}'"],
    ["gpu=h200", r"model_path='\${tiny_path:}'"],
    ["gpu=h200", "engine.env={A: b}"],
    ["gpu=h200", "lora_paths={a: b}"],
]
OWN_LEFT = [
    ["gpu=asking"],
    ["model=referring", "gpu=flat"],
    ["experiment=wrong"],
    ["gpu=nowhere"],
]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("kind", "words"), [*(("ours", words) for words in PLAIN), *(("own", words) for words in OWN_PLAIN)], ids=str
)
def test_plain_values_are_merged_without_omegaconf(kind: str, words: list[str]) -> None:
    plain, _ = composers(kind)
    before = plain.plainly
    assert_same(kind, words)
    assert plain.plainly == before + 1


@pytest.mark.parametrize(
    ("kind", "words"), [*(("ours", words) for words in LEFT), *(("own", words) for words in OWN_LEFT)], ids=str
)
def test_what_depends_on_more_than_its_place_is_left_to_omegaconf(kind: str, words: list[str]) -> None:
    plain, _ = composers(kind)
    before = plain.plainly
    assert_same(kind, words)
    assert plain.plainly == before


@pytest.mark.corpus
@pytest.mark.parametrize("id", sorted(recipes())[::9])
def test_a_published_recipe_is_the_one_that_hydra_composes(id: str) -> None:
    twice = ["gpu=b200", "gpu=h100"] if len(id) % 2 else []
    assert_same("ours", [*twice, f"recipe={id}", "tp_size=4"])


LEAVES = st.sampled_from(
    [
        *(
            "tp_size=8",
            "tp_size=x",
            "++tp_size=2",
            "+port=5",
            "~tp_size",
            "page_size=1",
            "page_size=9",
            "revision=null",
        ),
        *("mem_fraction_static=1", "mem_fraction_static=0.8", "cuda_graph_bs=[1,2]", "lora_paths=[a,b]"),
        *("lora_paths={a: b}", "served_model_name=${model.name}", "served_model_name=it's", "host=a", "host='???'"),
        *("model_path=org/x", "model=org/x", "api_key=x", "api_key=${oc.env:HOME}", "trust_remote_code=false"),
        *("gpu.count=4", "+gpu.count=3", "gpu.count=null", "gpu.count=x", "gpu.memory_mib=100", "gpu.name=flat"),
        *("gpu.compute_capability=9.0", "gpu.device_names=[1,a]", "gpu.dense_tflops.bf16=3", "gpu.nope=1", "gpu=null"),
        *("gpu.args.attention_backend=fa3", "model.args={tp_size: 4}", "model.args.tp_size=2", "model.args.nope=2"),
        *("model.config.hidden_size=3", "model.config.new=[1,2]", "model.config=null", "model.config.nested.a=2"),
        *("model.config.nested=5", "model.config.text_config={a: 1}", "model.config.rope_scaling.x=3", "model.name=z"),
        *("engine.env.A=1", "engine.env={B: x}", "engine.env.HF_TOKEN=s", "engine.version=0.5", "engine=sglang"),
        *("ignore=[FIT001]", "launch.force=true", "launch.stop_timeout=5", "fit.context=2000", "fit.reserved_gib=1"),
        *("bench.slo.ttft_ms=4", "bench.concurrency=ladder", "sweep.where=a < 3", "sweep.params={tp_size: [1,2]}"),
    ]
)
CHOICES = {
    "ours": st.lists(
        st.sampled_from(
            [
                *(f"gpu={name}" for name in ("h100", "h200", "cpu", "none", "mi300x")),
                *(f"model={name}" for name in ("qwen3_8b", "gpt_oss", "deepseek_v3", "tiny", "unset")),
                *(f"recipe={id}" for id in sorted(recipes())[::20]),
                *("bench/workload=8k1k", "sweep=concurrency", "sweep=null", "engine=transformers"),
            ]
        ),
        max_size=4,
    ),
    "own": st.lists(
        st.sampled_from(
            [
                *(f"gpu={name}" for name in ("flat", "derived", "asking", "h200", "nowhere")),
                *(f"model={name}" for name in ("own", "referring", "qwen3_8b")),
                *(f"experiment={name}" for name in ("plain", "choosing", "wrong")),
                *("recipe=own", "recipe=qwen3_8b-h100-1", "bench/workload=own", "+experiment=plain", "~launch"),
            ]
        ),
        max_size=4,
    ),
}


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["ours", "own"])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_overrides_compose_alike(kind: str, data: st.DataObject) -> None:
    words = data.draw(CHOICES[kind]) + data.draw(st.lists(LEAVES, max_size=4))
    assert_same(kind, data.draw(st.permutations(words)))


HYDRAS = st.sampled_from(
    [
        *(
            "gpu=h100",
            "gpu=null",
            "~gpu",
            "gpu@gpu=h200",
            "model=qwen3_8b",
            "model=gpt_oss",
            "+recipe=gpt_oss_20b-h200-1",
        ),
        *("bench/workload=1k1k", "engine=sglang", "++gpu=h100", "gpu=[h100,h200]"),
        *(
            "tp_size=8",
            "tp_size=x",
            "+tp_size=2",
            "++tp_size=2",
            "~tp_size",
            "tp_size=2.0",
            "tp_size=null",
            "nothing=1",
        ),
        *("mem_fraction_static=1", "host=5", "host='5'", "cuda_graph_bs=[1,2]", "trust_remote_code=1", "+new=1"),
        *("gpu.count=4", "gpu.count='4'", "gpu.count=x", "+gpu.count=3", "gpu.memory_mib=5", "gpu.name=7", "gpu.new=1"),
        *("model.config.hidden_size=3", "model.config.new=1", "+model.config.new=1", "++model.config.new.x=1"),
        *("engine.env={A: b}", "+engine.env.A=b", "ignore=[A]", "ignore=A", "fit.context=2000", "bench.slo.ttft_ms=4"),
        *("api_key=x", "served_model_name=${model.name}", "sweep.zip=[[a,b]]", "launch.force=yes", "launch.force=true"),
    ]
)


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(st.lists(HYDRAS, max_size=5))
@example(["gpu=h100", "model=qwen3_8b", "tp_size=8", "gpu.count='4'"])
@example(["gpu=h100", "host=5"])
@example(["gpu=h100", "+model.config.new=1"])
def test_overrides_that_hydra_has_accepted_compose_alike(words: list[str]) -> None:
    assert_same("hydra", words)


@settings(max_examples=25, deadline=None)
@given(st.lists(LEAVES, max_size=3), st.lists(LEAVES, max_size=3))
@example(["model.config.hidden_size=3"], [])
def test_what_one_point_sets_is_not_in_the_next(first: list[str], second: list[str]) -> None:
    start = ["gpu=h200", "model=qwen3_8b"]
    composed(composers("ours")[0], [*start, *first])
    assert_same("ours", [*start, *second])


def test_a_key_is_shown_by_no_composition() -> None:
    for composer in composers("ours"):
        made = composer.compose(requests("gpu=h200", "model=qwen3_8b", "api_key=sekret", "engine.env.HF_TOKEN=sekret"))
        assert "sekret" not in repr(made)


def test_the_folder_of_the_tiny_model_is_asked_for_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain, _ = composers("ours")
    for name in ("one", "two"):
        monkeypatch.setattr(plain_bases, "tiny_path", lambda name=name: tmp_path / name)
        made = plain.compose(requests("gpu=cpu", "model=tiny"))
        assert made.intent["model_path"] == made.nodes.model.model_path == str(tmp_path / name)


@pytest.mark.parametrize("file", sorted(conf_dir().rglob("*.yaml")), ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_parser_in_c_reads_our_files_as_omegaconf_does(file: Path) -> None:
    read = own_content(str(file))
    expected = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml_loader())
    assert read is not None
    assert typed(read.tree) == typed(expected or {})


def test_a_composer_is_used_by_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    composer = Composer()
    words = [["gpu=h200", f"recipe={id}", f"tp_size={size}"] for id in sorted(recipes())[::30] for size in (1, 2)]
    words += [["gpu=h200", "served_model_name=${model.name}", f"tp_size={size}"] for size in (1, 2)]
    expected = [typed(composed(Composer(), own)) for own in words]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda own: typed(composed(composer, own)), words * 2))
    assert made == expected * 2


def test_a_word_is_read_once() -> None:
    composer = Composer()
    request = Request("tp_size=8", "argument 1")
    (first,) = composer._read([request], composer._repository())
    (again,) = composer._read([request], composer._repository())
    assert again is first
    (other,) = composer._read([Request("tp_size=8", "argument 2")], composer._repository())
    assert other.request.place == "argument 2"
