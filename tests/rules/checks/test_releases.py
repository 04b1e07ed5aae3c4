"""Our checks under every release: what each declares, what it sees there, and that it says nothing untrue."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tests.rules.checks
from sglang_hydra.arguments.tables.successors import name_in
from sglang_hydra.arguments.tables.table import known_versions, release
from sglang_hydra.planning.making.target import find_target
from sglang_hydra.rules.checks import attention_at_load, model_config, releases, weights_at_load
from sglang_hydra.rules.checks.attention_at_load import check_graph_sizes
from sglang_hydra.rules.checks.ineffective import TABLE, check_ineffective
from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.checks.releases import EVERYTHING, LAYOUT, Undeclared, answer_of, declared
from sglang_hydra.rules.rule import Facts, Notice, Refusal, Rule, rule
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.locations import conf_dir
from tests.plans import SEED, composed, composer, requests
from tests.rules.cases import GPUS, Row, model_facts

NEWEST = known_versions()[-1]
SIZE = "cuda_graph_max_bs_decode"
each_check = pytest.mark.parametrize("check", PLAN_CHECKS, ids=lambda check: check.id)
ASSIGNED = re.compile(r"(?<![\w.\[])([a-z][a-z0-9_]+)=")


def facts_of(*overrides: str, env: Mapping[str, str] | None = None) -> Facts:
    """The facts of a plan, with what was given under the names of its release."""
    facts = find_target(composer(), requests(*overrides), composed(*overrides), SEED, env or {}, None).facts
    words = {known: value for name, value in facts.given.items() if (known := name_in(name, facts.release))}
    return facts._replace(given=words)


def values_as_resolved(facts: Facts) -> dict[str, Any]:
    """The defaults of the release under what was given, with what it always makes of sizes and CUDA graphs."""
    defaults = {name: argument.default for name, argument in release(facts.release).arguments.items()}
    values = {**defaults, **facts.given}
    if "cuda_graph_config" in values:
        is_off = values.get("disable_cuda_graph") or values["attention_backend"] == "torch_native"
        decode = {"backend": "disabled" if is_off else "full", "max_bs": values["cuda_graph_max_bs_decode"]}
        values["cuda_graph_config"] = {"decode": decode, "prefill": dict(decode)}
    if values.get("enable_dp_attention") and "attn_dp_size" in values:
        values["attn_dp_size"], values["dp_size"] = values["dp_size"], 1
    return values


def answer(check: Rule, *overrides: str, env: Mapping[str, str] | None = None, **resolved: Any) -> Refusal | None:
    facts = facts_of(*overrides, env=env)
    return answer_of(check, {**values_as_resolved(facts), **resolved}, facts)


def rows_of_checks() -> Iterator[Row]:
    """Every row of a command line, of every table of our checks."""
    for info in pkgutil.iter_modules(tests.rules.checks.__path__, f"{tests.rules.checks.__name__}."):
        for row in vars(importlib.import_module(info.name)).get("ROWS", ()) if info.name != __name__ else ():
            if row.rule in PLAN_CHECKS and row.overrides:
                yield row


def words_of(row: Row, version: str) -> list[str]:
    words = re.split(r" (?=\S+=)", row.overrides)
    return [*(word for word in words if not word.startswith("engine.version=")), f"engine.version={version}"]


# What is declared


@each_check
def test_every_check_declares_its_releases(check: Rule) -> None:
    periods = declared(check).periods
    sinces = [known_versions().index(period.since) for period in periods]
    assert sinces[0] == 0
    assert sinces == sorted(set(sinces))
    for period in periods:
        assert sum(text is not None for text in (period.holds, period.said, period.gone)) == 1


def test_a_check_that_declares_nothing_is_reported() -> None:
    with pytest.raises(Undeclared, match=r"releases\.json does not name CFG999"):
        declared(rule("CFG999", stage="plan")(lambda args, facts: None))


def test_nothing_is_declared_for_a_check_that_is_not_there() -> None:
    assert set(releases.declarations()) == {check.id for check in PLAN_CHECKS}


@each_check
def test_what_a_check_reads_is_there_in_each_release_that_it_holds_for(check: Rule) -> None:
    known = declared(check)
    for version in known_versions():
        period = known.at(version)
        if period.gone is None:
            read = {period.names.get(name, name).partition(".")[0] for name in known.reads} - {EVERYTHING, LAYOUT}
            assert read <= set(release(version).arguments), version


def test_a_newer_release_takes_the_newest_declaration() -> None:
    assert declared(check_graph_sizes).at("0.9.0") == declared(check_graph_sizes).periods[-1]
    assert declared(check_graph_sizes).at("0.0.0.dev1+g1234567") == declared(check_graph_sizes).periods[-1]
    assert declared(check_graph_sizes).at("0.5.14rc1") == declared(check_graph_sizes).periods[0]
    assert declared(check_graph_sizes).at("0.4.9") == declared(check_graph_sizes).periods[0]


def test_a_check_that_reads_what_it_does_not_declare_fails() -> None:
    reading = check_graph_sizes._replace(apply=lambda args, facts: args.max_running_requests)
    with pytest.raises(Undeclared, match="RUN019 reads max_running_requests"):
        answer(reading, "gpu=h200", "model=qwen3_8b")
    everything = check_graph_sizes._replace(apply=lambda args, facts: args.everything)
    with pytest.raises(Undeclared, match="RUN019 reads everything"):
        answer(everything, "gpu=h200", "model=qwen3_8b")


@each_check
def test_what_a_check_names_in_its_code_is_declared(check: Rule) -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(check.apply)))
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_args(node.value)}
    assert read - {"everything"} <= set(declared(check).reads)


def _is_args(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "args"


def test_what_is_not_known_draws_no_answer() -> None:
    facts = facts_of("gpu=h200", "model=qwen3_8b", f"engine.version={NEWEST}")
    values = {**values_as_resolved(facts), "cuda_graph_config": None}
    assert answer_of(check_graph_sizes, values, facts) is None


def test_a_table_of_ineffective_settings_names_what_its_releases_have() -> None:
    for row in TABLE:
        for version in filter(row.holds_for, known_versions()):
            known = set(release(version).arguments)
            fields = known & set(row.fields.split())
            ways = [way for way in row.read if {name.partition(".")[0] for name in way} <= known]
            assert not fields or not row.read or ways, (row.fields, version)
        newest = [version for version in known_versions() if row.holds_for(version)][-1]
        named = {name.partition(".")[0] for way in row.read for name in way}
        assert all(any(name in release(one).arguments for one in known_versions()) for name in named), newest


# What they say


# Rows that the newest release answers with silence, by what it has and 0.5.2 has not, or the other way round.
SILENT_IN_THE_NEWEST = (
    "model_path=nvidia/DeepSeek-R1-0528-FP4",  # NVFP4 runs from 8.0 on
    "model=nemotron_3_super_nvfp4",
    "[Qwen3_5ForConditionalGeneration]",  # a class that it has
    "model=kimi_k3",
    "model=deepseek_v3 tp_size=8 speculative_algorithm=EAGLE3",  # that feeds a draft
    "ep_num_redundant_experts=2",  # whose experts are repeated
    *("moe_runner_backend=flashinfer_cutlass", "moe_runner_backend=deep_gemm"),  # that have kernels
    *("hicache_mem_layout=page_first", "hicache_storage_prefetch_policy=timeout"),  # its default
    *("enable_lmcache=", "enable_mixed_chunk=", "file_storage_path="),  # read
    *("disaggregation_decode_tp=", "disaggregation_decode_dp=", "ds_", "collect_tokens_histogram="),  # not there
)


NO_CHOICES_OF_THE_NEWEST = ("=cutlass_mla", "=dual_chunk_flash_attn", "=hybrid_linear_attn", "=shortest_queue")


@pytest.mark.parametrize("row", tuple(rows_of_checks()), ids=str)
def test_the_newest_release_is_answered_as_its_declaration_says(row: Row) -> None:
    if any(choice in row.overrides for choice in NO_CHOICES_OF_THE_NEWEST):
        with pytest.raises(ConfigError):
            facts_of(*words_of(row, NEWEST))
        return
    found = answer(row.rule, *words_of(row, NEWEST), env={"HF_HUB_OFFLINE": "1", **row.env})
    is_gone = declared(row.rule).at(NEWEST).gone is not None
    if is_gone or any(part in row.overrides for part in SILENT_IN_THE_NEWEST):
        assert found is None
    elif "hicache_ratio=2.0" in row.overrides:  # the default of 0.5.2, not of the newest
        assert isinstance(found, Notice)
    else:
        assert type(found) is (row.answer or type(None))


@pytest.mark.corpus
@pytest.mark.parametrize("version", ["0.5.9", "0.5.20", NEWEST])
def test_every_argument_that_an_answer_names_is_one_of_its_release(version: str) -> None:
    known = set(release(version).arguments)
    others = {name for one in known_versions() for name in release(one).arguments} - known
    for row in rows_of_checks():
        try:
            found = answer(row.rule, *words_of(row, version), env={"HF_HUB_OFFLINE": "1", **row.env})
        except ConfigError:  # a choice that it has not
            continue
        if found is None:
            continue
        texts = [found.message, *map(str, found.remedies)]
        named = {name for text in texts for name in ASSIGNED.findall(text)} | set(found.fields)
        assert not named & others, row.overrides


@pytest.mark.parametrize(
    ("version", "name"),
    [("0.5.2", "cuda_graph_max_bs"), ("0.5.20", SIZE), (NEWEST, SIZE)],
)
def test_an_answer_speaks_the_words_of_its_release(version: str, name: str) -> None:
    words = ["model=deepseek_v3", "tp_size=8", "dp_size=2", "enable_dp_attention=true", "cuda_graph_max_bs=2"]
    found = answer(check_graph_sizes, "gpu=h200", *words, f"engine.version={version}")
    assert found is not None
    assert found.message == f"{name}=2 leaves no batch to capture: they are multiples of 4 here"
    assert found.fields == (name,)
    assert [remedy.said for remedy in found.remedies][:2] == [f"{name}=4", f"{name}=null"]
    other = answer(check_graph_sizes, "gpu=h200", *words[:-1], "cuda_graph_max_bs=4", f"engine.version={version}")
    assert other is None


def test_a_word_that_the_release_refuses_draws_no_warning() -> None:
    facts = facts_of("gpu=h200", "model=qwen3_8b", "attention_backend=torch_native", f"engine.version={NEWEST}")
    typed = facts._replace(given={**facts.given, "cuda_graph_max_bs": 64})
    assert answer_of(check_ineffective, values_as_resolved(facts), typed) is None


@pytest.mark.parametrize("version", ["0.5.20", "0.5.21", "0.5.22", NEWEST])
@pytest.mark.parametrize("off", ["attention_backend=torch_native", "disable_cuda_graph=true"])
def test_graph_sizes_without_graphs_are_named_in_every_release(version: str, off: str) -> None:
    words = ("gpu=h100", "model=qwen3_8b", "cuda_graph_max_bs=64", f"engine.version={version}")
    found = answer(check_ineffective, *words, off)
    assert isinstance(found, Notice)
    assert found.fields == ("cuda_graph_max_bs_decode",)
    assert answer(check_ineffective, *words) is None


@pytest.mark.parametrize("version", known_versions())
def test_defaults_draw_no_answer(version: str) -> None:
    facts = Facts(GPUS["h100"], model_facts("llama_3_1_8b", "org/name"), {}, SEED, {"model_path": "org/name"}, version)
    values = {**values_as_resolved(facts), "device": "cuda", "host": "127.0.0.1"}
    assert [check.id for check in PLAN_CHECKS if answer_of(check, values, facts)] == []


@pytest.mark.parametrize(
    ("gpu", "cache", "version", "warned"),
    [
        ("rtx_pro_6000", "fp8_e4m3", "0.5.16", True),
        ("rtx_pro_6000", "fp8_e4m3", "0.5.17", False),
        ("rtx_pro_6000", "bf16", NEWEST, True),
        ("rtx_pro_6000", "fp8_e4m3", NEWEST, False),
        ("a100_80gb", "fp8_e4m3", NEWEST, True),
    ],
)
def test_sparse_attention_of_glm_has_kernels_for_sm120_since_0_5_17(
    gpu: str, cache: str, version: str, warned: bool
) -> None:
    words = (f"gpu={gpu}", "model=glm_5_fp8", "tp_size=8", f"engine.version={version}")
    found = answer(attention_at_load.check_sparse_attention_kernels, *words, kv_cache_dtype=cache)
    assert (found is not None) is warned


@pytest.mark.parametrize(("version", "refused"), [("0.5.4.post1", True), ("0.5.4.post2", False), (NEWEST, False)])
def test_deepseek_feeds_an_eagle_3_draft_since_0_5_4_post2(version: str, refused: bool) -> None:
    words = ("gpu=h200", "model=deepseek_v3", "tp_size=8", "speculative_algorithm=EAGLE3", f"engine.version={version}")
    assert (answer(weights_at_load.check_eagle3_target, *words) is not None) is refused


def test_a_context_that_the_release_refuses_itself_is_said_once() -> None:
    words = ("gpu=h200", "model=qwen3_8b", "context_length=50000", f"engine.version={NEWEST}")
    facts = facts_of(*words)
    check, made = model_config.check_context_length, SimpleNamespace(answer="its own")
    assert answer_of(check, values_as_resolved(facts), facts) is not None
    assert answer_of(check, values_as_resolved(facts), facts, made) is None
    allowed = facts._replace(env={"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"})
    assert isinstance(answer_of(check, values_as_resolved(facts), allowed, made), Notice)


# A check that is added after CONTRIBUTING.md alone


ADDED = """

@rule("XYZ001", stage="plan")
def check_added(args: ServerArgs, facts: Facts) -> Outcome:
    return Refusal("seven", "max_running_requests") if args.max_running_requests == 7 else None
"""
ROW = """{"XYZ001": {"reads": "max_running_requests", "periods": [{"holds": "managers/scheduler.py:1"}]},"""
ASKED = """
import sys
import textwrap
from sglang_hydra import plan
for words in sys.stdin.read().splitlines():
    print(*[finding.id for finding in plan(words.split()).findings if finding.id == "XYZ001"], "|")
"""


def test_a_check_that_is_added_in_two_places_answers_for_every_release(tmp_path: Path) -> None:
    package = tmp_path / "sglang_hydra"
    shutil.copytree(Path(releases.__file__).parents[2], package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(conf_dir(), tmp_path / "conf")
    room = package / "rules" / "checks"
    (room / "api.py").write_text((room / "api.py").read_text() + ADDED)
    (room / "releases.json").write_text((room / "releases.json").read_text().replace("{", ROW, 1))
    cases = [
        f"gpu=h200 model=qwen3_8b engine.version={version} max_running_requests={size}"
        for version in ("0.5.2", NEWEST)
        for size in (7, 8)
    ]
    asked = subprocess.run(
        [sys.executable, "-c", ASKED],
        input="\n".join(cases),
        text=True,
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert asked.stdout.split("\n")[:4] == ["XYZ001 |", "|", "XYZ001 |", "|"]
