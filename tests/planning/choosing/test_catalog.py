"""fit, recipes and audit: the verbs, their records, the golden audit, and published mistakes.

``make generate`` writes the golden audit again; look at its difference before you commit it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.every import canonical_name, fitting_problem
from sglang_hydra.cli.main import entry
from sglang_hydra.cli.reading import requests_from_argv
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.planning.choosing.audit import judge_recipes
from sglang_hydra.planning.choosing.catalog import models
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from tests.commands import must_follow
from tests.for_0_5_2 import for_the_newest
from tests.plans import composer, without_engines

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parents[2] / "data" / "audit.json"
MODELS = Path(__file__).parents[2] / "data" / "models.json"
MISTAKES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data/catalog/mistakes.json").read_text())[
    "mistakes"
]

_EAGLE_70B = (
    "--model-path=hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4",
    "--speculative-draft-model-path=lmsys/sglang-EAGLE-LLaMA3-Instruct-70B",
    *("--speculative-num-steps=5", "--speculative-eagle-topk=8", "--speculative-num-draft-tokens=64"),
    *("--cuda-graph-max-bs=160", "--chunked-prefill-size=-1"),
)
# What a row's thread or version knows and its command does not say, and where that is from.
BEYOND_THE_COMMAND = {
    # The generator was asked for Maverick; the command alone is a correct one for Scout.
    "cookbook-maverick-emits-scout": ("model=llama_4_maverick",),
    # The report names neither model nor draft, and without a model there is no server. An int4 model of 70 B with its
    # EAGLE draft is what an L40S holds at a fraction of 0.84: a smaller one leaves room, a larger one fails at 0.85 by
    # its weights and not while serving. Steps, top-k and tokens are those of that release's documentation of EAGLE;
    # 160 and -1 are what its srt/server_args.py makes of both fields under EAGLE.
    "l40s-speculative-mem-085": _EAGLE_70B,
    "l40s-speculative-mem-084": _EAGLE_70B,
    # The fraction is the default that the thread reports, which 0.5.2 does not compute; the facts are GLM-5's
    # (aiconfigurator's zai-org--GLM-5-FP8_config.json), whose size GLM-5.2 has. 0.5.2 has no class for it.
    "default-mem-fraction-undivided-chunk": (
        "mem_fraction_static=0.484",
        f"model.facts_from={Path(__file__).parents[2] / 'data/catalog/glm_5_fp8.json'}",
        "engine.version=0.5.15",
    ),
}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = entry(list(words))
    return code, capsys.readouterr().out


def record(capsys: pytest.CaptureFixture[str], kind: str, *words: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(run(capsys, *words, "--json")[1])
    must_follow(said, kind)
    return said


@pytest.mark.thorough
def test_the_audit_is_the_golden_one(capsys: pytest.CaptureFixture[str]) -> None:
    judged = record(capsys, "audit", "audit")
    found = {part: {item["name"]: _summary(item) for item in judged[part]} for part in ("cells", "recipes")}
    if os.environ.get("UPDATE_GOLDEN"):
        lines = [
            f'  "{part}": {{\n' + ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n  }"
            for part, rows in found.items()
        ]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8")), f"{GOLDEN.name} is stale: make generate"


def test_every_model_has_its_golden_plan_on_the_release_that_serves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By model: the release, the most GPUs of a node that serve it, the verdict and its reasons, and of one GPU the
    weights in GiB and the KV tokens."""
    without_engines(monkeypatch)
    found = {}
    for model in models(composer()):
        for size in (8, 4, 2, 1, 8):
            words = [f"model={model.name}", "gpu=b300", f"tp_size={size}"]
            asked = [Request(word, "a test") for word in words]
            with for_the_newest():
                plan = make_plan(composer(), asked, seed=42, env={"HF_HUB_OFFLINE": "1"})
            if plan.launchable is not False:
                break
        fit = plan.fit
        assert fit is not None
        assert plan.launchable is not False, model.name
        assert (fit.weights.total is None) == bool(fit.unknown), model.name
        found[model.name] = {
            "release": plan.engine.version,
            "tp_size": size,
            "launchable": plan.launchable,
            "findings": [finding.id for finding in plan.findings if finding.level != "info"],
            "weights_gib": None if fit.weights.total is None else round(fit.weights.total / 2**30, 2),
            "kv_tokens": fit.kv_tokens,
            "unknown": list(fit.unknown),
        }
    if os.environ.get("UPDATE_GOLDEN"):
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
        MODELS.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    assert found == json.loads(MODELS.read_text(encoding="utf-8")), f"{MODELS.name} is stale: make generate"


def _summary(judged: dict[str, Any]) -> list[Any]:
    return [judged["state"], judged["tp_size"], *judged["why"]]


def test_every_recipe_is_in_the_audit() -> None:
    assert len(list(judge_recipes(composer()))) == len(recipes()) == 171


def test_every_recipe_planned_by_hydra_is_the_one_that_the_audit_judged() -> None:
    for judged in judge_recipes(composer()):
        plan = make_plan(
            composer(), [Request(f"recipe={judged.name}", "argument 1")], seed=42, env={"HF_HUB_OFFLINE": "1"}
        )
        assert plan.launchable is {"ok": True, "unknown": None}.get(judged.state, False), judged
        if plan.ok and judged.state != "unknown":
            assert plan.fit is not None
            assert plan.fit.kv_tokens == judged.kv_tokens, judged
        recipe = recipes()[judged.name]
        for name, value in recipe.args.items():
            if name not in (*recipe.unknown_args, *recipe.left_open):
                assert plan.intent[str(canonical_name(name))] == value, judged


def test_what_is_typed_beats_a_recipe() -> None:
    requests = [
        Request("recipe=deepseek_v3-h200-8", "argument 1"),
        Request("tp_size=4", "argument 2"),
        Request("gpu=b200", "argument 3"),
    ]
    plan = make_plan(composer(), requests, seed=42, env={})
    assert plan.values["tp_size"] == 4
    assert plan.gpu.name == "b200"
    assert [origin.layer for origin in plan.origins["tp_size"]] == ["recipe", "cli"]


def test_a_recipe_of_a_later_release_is_refused_by_its_argument() -> None:
    plan = make_plan(composer(), [Request("recipe=deepseek_r1-b200-8-low-latency-2", "argument 1")], seed=42, env={})
    assert "VER004" in [finding.id for finding in plan.errors]
    assert not plan.launchable


def test_an_eight_gpu_h100_node_cannot_hold_deepseek_v3_and_the_offers_plan_clean() -> None:
    asked = [Request("gpu=h100", "1"), Request("model=deepseek_v3", "2"), Request("tp_size=8", "3")]
    plan = make_plan(composer(), asked, seed=42, env={})
    assert plan.ok
    assert not plan.launchable
    refused = next(finding for finding in plan.findings if finding.id == "FIT001")
    assert "79.7 GiB" in refused.message
    assert refused.hint is not None
    assert [offer.choice for offer in refused.offers] == [False, True]
    for offer in refused.offers:
        changes = [Request(word, "offer") for word in offer.words]
        kept = [
            item for item in asked if item.text.partition("=")[0] not in {c.text.partition("=")[0] for c in changes}
        ]
        again = make_plan(composer(), [*kept, *changes], seed=42, env={})
        assert again.launchable is not False, offer


def test_reserved_memory_is_taken_from_what_fits() -> None:
    asked = ["gpu=h100", "model=qwen3_8b"]
    alone = make_plan(composer(), [Request(text, "") for text in asked], seed=42, env={})
    beside = make_plan(composer(), [Request(text, "") for text in [*asked, "fit.reserved_gib=40"]], seed=42, env={})
    assert alone.fit is not None
    assert beside.fit is not None
    assert alone.fit.kv_tokens is not None
    assert beside.fit.kv_tokens is not None
    assert beside.fit.kv_tokens < alone.fit.kv_tokens


def test_fit_says_whether_one_plan_fits(capsys: pytest.CaptureFixture[str]) -> None:
    said = record(capsys, "fit", "fit", "gpu=h100", "model=deepseek_v3", "tp_size=8")
    assert said["fits"] is False
    assert record(capsys, "fit", "fit", "gpu=h200", "model=deepseek_v3", "tp_size=8")["fits"] is True
    assert record(capsys, "fit", "fit", "gpu=cpu", "model=qwen3_8b")["fits"] is None


def test_fit_compares_several_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    said = record(capsys, "fit", "fit", "-m", "gpu=h100,h200,b200", "model=deepseek_v3", "tp_size=8")
    assert [(item["name"], item["fits"]) for item in said["results"]] == [
        ("gpu=h100", False),
        ("gpu=h200", True),
        ("gpu=b200", True),
    ]
    code, out = run(capsys, "fit", "-m", "gpu=h100,h200", "model=deepseek_v3", "tp_size=8")
    assert code == 0
    assert "does not fit" in out.splitlines()[1]


def test_recipes_are_chosen_by_parts_of_names(capsys: pytest.CaptureFixture[str]) -> None:
    said = record(capsys, "recipes", "recipes", "gpu=h200", "model=deepseek")
    assert {item["gpu"] for item in said["recipes"]} == {"h200"}
    assert all("deepseek" in item["model"] for item in said["recipes"])
    assert entry(["recipes", "gpu=h999"]) == 2
    assert "gpu=h999: nothing was published for it" in capsys.readouterr().err
    assert entry(["recipes", "tp_size=8"]) == 2


def test_the_audit_of_a_part_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "audit", "gpu=h200")[1]
    assert "Recipes: " in shown
    assert "h100" not in shown


def test_the_audit_marks_a_pool_that_holds_less_than_one_request(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "audit", "gpu=h100", "model=qwen3_32b")[1]
    assert "ok 1*" in shown
    assert "* the KV cache holds less than one request of the longest context (FIT003)" in shown


def test_the_doctor_looks_at_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    said = record(capsys, "doctor", "doctor")
    assert "DOC001" in json.dumps(said)


@pytest.mark.parametrize("row", MISTAKES, ids=[row["id"] for row in MISTAKES])
def test_a_published_mistake_comes_out_as_expected(row: dict[str, Any]) -> None:
    assert _outcome(_plan_of(row)) == row["expected"].replace("silently_changed", "warned")


def _plan_of(row: dict[str, Any], beyond: Sequence[str] | None = None) -> Plan | None:
    """The plan of a row's command and of what is known beyond it; None where its words are no arguments."""
    words = BEYOND_THE_COMMAND.get(row["id"], ()) if beyond is None else beyond
    flags = [word for word in words if word.startswith("--")]
    asked = [Request(word, "declared") for word in (f"gpu={row['gpu']}", *words) if word not in flags]
    try:
        asked += requests_from_argv([*row["command"], *flags])
        return make_plan(composer(), asked, seed=42, env={"HF_HUB_OFFLINE": "1"})
    except ConfigError:
        return None


def _outcome(plan: Plan | None) -> str:
    errors = ["CLI000"] if plan is None else [finding.id for finding in plan.errors]
    if errors == ["FIT001"]:
        return "does_not_fit"
    if plan is None or errors:
        return "refused"
    return "warned" if any(finding.level == "warning" for finding in plan.findings) else "clean"


def test_a_mistake_that_names_no_model_is_refused_as_it_stands() -> None:
    for row in MISTAKES:
        if row["id"].startswith("l40s-speculative"):
            plan = _plan_of(row, ())
            assert plan is None or plan.launchable is False


def test_the_wrong_checkpoint_of_a_generator_is_named() -> None:
    row = next(row for row in MISTAKES if row["id"] == "cookbook-maverick-emits-scout")
    plan = _plan_of(row)
    assert plan is not None
    assert "not the checkpoint of model=llama_4_maverick" in next(f for f in plan.findings if f.id == "FCT001").message


def test_a_likely_fraction_fits_where_the_default_of_a_later_version_did_not() -> None:
    row = next(row for row in MISTAKES if row["id"] == "default-mem-fraction-undivided-chunk")
    facts = BEYOND_THE_COMMAND[row["id"]][1:]
    for fraction in (["mem_fraction_static=0.78"], []):
        plan = _plan_of(row, [*facts, *fraction])
        assert plan is not None
        assert plan.launchable is None, "the release was not asked"
        assert plan.fit is not None
        assert plan.fit.fits


@pytest.mark.thorough
def test_the_catalog_page_is_not_stale() -> None:
    done = subprocess.run([sys.executable, "tools/catalog_page.py", "--check"], cwd=ROOT, timeout=250)
    assert done.returncode == 0, "docs/catalog.md is stale: make generate"


@pytest.mark.parametrize("id", sorted(recipes()))
def test_every_value_of_a_recipe_fits_its_argument(id: str) -> None:
    recipe = recipes()[id]
    for name, value in recipe.node.items():
        if name not in ("defaults", "model", "engine"):
            assert fitting_problem(name, value, None) is None
    assert recipe.model in {preset.name for preset in models(composer())}


def test_a_model_path_that_no_file_can_have_is_planned() -> None:
    asked = [Request("gpu=h200", "1"), Request("model=tiny", "2"), Request("model.model_path=\ud800", "3")]
    assert make_plan(composer(), asked, seed=42, env={}).fit is not None
