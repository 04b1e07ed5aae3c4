"""Trees of frameworks that start SGLang: every argument is read, what they set is known, and an export is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.tables.table import known_versions, release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.convert.export.job import job_of
from sglang_hydra.convert.export.registry import render
from sglang_hydra.convert.frameworks.adapters import ADAPTERS
from sglang_hydra.convert.importing.importer import Imported, import_source
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.convert.importing.sources import Source, read_source
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.planning.recorded.input_files import named_documents
from tests.convert.export.exports import plan_of

DATA = Path(__file__).parents[2] / "data" / "frameworks"
NEWEST = {"gpu": "h200"}, {"engine.version": "0.5.23"}

READ: dict[str, dict[str, Any]] = {
    "verl.yaml": {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 2,
        "mem_fraction_static": 0.6,
        "attention_backend": "fa3",
        "enable_memory_saver": True,
        "load_format": "dummy",
    },
    "nemo-rl.yaml": {
        "model_path": "Qwen/Qwen3-8B",
        "dtype": "bfloat16",
        "context_length": 4096,
        "tp_size": 2,
        "random_seed": 42,
        "mem_fraction_static": 0.6,
        "cuda_graph_bs": [1, 2, 4],
        "enable_memory_saver": True,
        "enable_weights_cpu_backup": True,
        "trust_remote_code": True,
    },
    "slime.sh": {"model_path": "Qwen/Qwen3-30B-A3B", "tp_size": 8, "mem_fraction_static": 0.7},
    "miles.sh": {"model_path": "Qwen/Qwen3-8B", "tp_size": 2, "mem_fraction_static": 0.8, "random_seed": 7},
    "areal.yaml": {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 2,
        "max_running_requests": 64,
        "mem_fraction_static": 0.8,
        "disable_radix_cache": True,
        "attention_backend": "fa3",
        "trust_remote_code": True,
    },
    "skyrl.yaml": {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 2,
        "mem_fraction_static": 0.7,
        "disable_radix_cache": True,
        "chunked_prefill_size": 4096,
        "attention_backend": "fa3",
        "enable_memory_saver": True,
    },
    "roll.yaml": {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 2,
        "dtype": "bfloat16",
        "mem_fraction_static": 0.7,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "disable_custom_all_reduce": True,
        "random_seed": 42,
    },
    "instantiate.yaml": {"model_path": "Qwen/Qwen3-8B", "tp_size": 2, "random_seed": 3, "enable_metrics": True},
}
"""What SGLang gets of each tree, by hand from the framework's own code (the sources in adapters.json)."""


def read(name: str, nodes: dict[str, Any] | None = None) -> Imported:
    (server,) = import_source(read_source(str(DATA / name)), Typed({"gpu": "h200"}, nodes=nodes or {}), Composer())
    return server


def said(server: Imported, *parts: str) -> bool:
    return any(all(part in finding.message for part in parts) for finding in server.findings)


def test_each_framework_has_a_tree() -> None:
    assert {Path(name).stem for name in READ} == set(ADAPTERS) == {path.stem for path in DATA.iterdir()}


@pytest.mark.parametrize("name", READ)
def test_what_sglang_gets_of_a_tree(name: str) -> None:
    server = read(name)
    got = {**server.arguments, **server.extra}
    assert {key: got.get(key) for key in READ[name]} == READ[name]


@pytest.mark.parametrize("name", ["nemo-rl.yaml", "areal.yaml", "roll.yaml", "verl.yaml"])
def test_the_verdict_is_by_the_release_that_the_framework_pins(name: str) -> None:
    adapter = ADAPTERS[Path(name).stem]
    assert read(name).version == adapter.release
    assert said(read(name), f"SGLang {adapter.release} is what {adapter.title} pins")
    assert read(name, {"engine.version": "0.5.23"}).version == "0.5.23"


def test_names_in_the_table_are_arguments_of_some_release() -> None:
    known = {name for version in known_versions() for name in release(version).arguments}
    for adapter in ADAPTERS.values():
        assert {*adapter.names, *adapter.sets, *adapter.defaults} <= known


def test_a_key_that_the_framework_drops_is_named() -> None:
    server = read("nemo-rl.yaml")
    assert said(server, "policy.generation.sglang_cfg.enable_ep_moe does not reach SGLang", "0.5.23 has no such")
    assert said(server, "enable_nan_detection does not reach SGLang")
    assert not said(server, "sglang_server_config")


def test_keys_that_a_release_no_longer_has_are_errors_with_what_took_their_place() -> None:
    server = read("nemo-rl.yaml", {"engine.version": "0.5.23"})
    assert said(server, "cuda_graph_bs=[1, 2, 4]: SGLang 0.5.23 has no such argument", "cuda_graph_bs_decode")
    assert not server.taken_over
    assert read("nemo-rl.yaml").taken_over


def test_flags_that_are_gone_are_errors() -> None:
    server = read("slime.sh", {"engine.version": "0.5.23"})
    errors = [finding.message for finding in server.findings if finding.level == "error"]
    assert any("--enable-ep-moe" in message for message in errors)
    assert any("--cuda-graph-bs" in message for message in errors)


def test_a_mistyped_key_is_an_error_with_the_key_that_was_meant() -> None:
    finding = next(item for item in read("verl.yaml").findings if item.level == "error")
    assert "'chunked_prefill'" in finding.message
    assert "chunked_prefill_size" in str(finding.hint)


def test_a_gone_key_is_refused_also_where_it_is_false() -> None:
    text = "engine: {_target_: sglang.Engine, model_path: Qwen/Qwen3-8B, enable_ep_moe: false}"
    (server,) = import_source(
        Source("x.yaml", text), Typed({"gpu": "h200"}, nodes={"engine.version": "0.5.23"}), Composer()
    )
    assert said(server, "enable_ep_moe", "0.5.23 has no such argument")


def test_a_key_that_the_framework_overwrites_is_named() -> None:
    text = (DATA / "roll.yaml").read_text().replace("load_format: dummy", "skip_tokenizer_init: false")
    (server,) = import_source(Source("x.yaml", text), Typed({"gpu": "h200"}), Composer())
    assert said(server, "skip_tokenizer_init=False is overwritten: ROLL passes True")


def test_a_reference_that_leads_nowhere_is_left_open() -> None:
    text = (DATA / "nemo-rl.yaml").read_text().replace("  precision: bfloat16\n", "")
    (server,) = import_source(Source("x.yaml", text), Typed({"gpu": "h200"}), Composer())
    assert "dtype" not in server.arguments
    assert said(server, "dtype", "${policy.precision}")


@pytest.mark.parametrize("name", [name for name in READ if name.endswith(".yaml")])
def test_check_takes_a_tree_for_the_frameworks(name: str) -> None:
    """Not for an experiment of ours, also where it has a defaults list or a node that is named like one of ours."""
    composer = Composer()
    ((_, document),) = named_documents(str(DATA / name), native_reader(composer))
    assert "model='qwen3_8b'" in {request.text for request in document.requests}


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_export_is_read_back_as_the_same_server(name: str, tmp_path: Path) -> None:
    overrides = {"tp_size": 2, "mem_fraction_static": 0.7, "context_length": 8192, "chunked_prefill_size": 4096}
    plan = plan_of(
        "gpu=h200", "model=qwen3_8b", "dtype=bfloat16", *(f"{key}={value}" for key, value in overrides.items())
    )
    text = render(name, job_of(plan, ())).text
    file = tmp_path / ("x.sh" if ADAPTERS[name].flags else "x.yaml")
    file.write_text(text)
    (server,) = import_source(
        read_source(str(file)), Typed({"gpu": "h200"}, nodes={"engine.version": "0.5.2"}), Composer()
    )
    got = {**server.arguments, **server.extra}
    wanted = {**overrides, "model_path": "Qwen/Qwen3-8B", "dtype": "bfloat16"}
    assert {key: got.get(key) for key in wanted} == wanted


@pytest.mark.parametrize("name", ["slime", "miles"])
def test_a_script_without_options_of_sglang_is_read_back(name: str) -> None:
    text = render(name, job_of(plan_of("gpu=h200", "model=qwen3_8b"), ())).text
    (server,) = import_source(Source("x.sh", text), Typed({"gpu": "h200"}), Composer())
    assert server.arguments["tp_size"] == 1


def test_an_export_says_what_the_framework_passes_otherwise() -> None:
    plan = plan_of("gpu=h200", "model=qwen3_8b", "disable_radix_cache=true")
    said = [finding.message for finding in render("nemo-rl", job_of(plan, ())).findings]
    assert "disable_radix_cache=true is left out: NeMo-RL does not pass it to SGLang" in said
    assert any(message.startswith("NeMo-RL pins SGLang 0.5.12.post1") for message in said)
    assert any("trust_remote_code=true" in message for message in said)
