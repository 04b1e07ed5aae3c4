"""fit, recipes and audit: the verbs, their records, the golden audit, and published mistakes.

UPDATE_GOLDEN=1 pytest tests/test_catalog.py writes the golden audit anew; look at its difference before committing it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sglang_hydra.app import make_plan
from sglang_hydra.audit import judge_cells, judge_recipes, model_presets
from sglang_hydra.cli import entry, requests_from_argv
from sglang_hydra.errors import ConfigError
from sglang_hydra.fields.check import check_value
from sglang_hydra.overrides import Request
from sglang_hydra.recipes import recipes
from sglang_hydra.schemas import schema_of
from tests.planning import composer

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "data" / "audit.json"
MISTAKES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data/catalog/mistakes.json").read_text())[
    "mistakes"
]

# What a plan for 0.5.2 cannot say of a row, and why.
BEYOND_A_PLAN = {
    "cookbook-maverick-emits-scout": "0.5.2 refuses the command for another reason before anybody sees the wrong model",
    "l40s-speculative-mem-085": "the command names no model",
    "l40s-speculative-mem-084": "the command names no model",
    "default-mem-fraction-undivided-chunk": "a model and a default of a later SGLang",
}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = entry(list(words))
    return code, capsys.readouterr().out


def record(capsys: pytest.CaptureFixture[str], kind: str, *words: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(run(capsys, *words, "--json")[1])
    jsonschema.validate(said, schema_of(kind))
    return said


def test_the_audit_is_the_golden_one() -> None:
    found = {
        "cells": {cell.name: _summary(cell.to_json()) for cell in judge_cells(composer())},
        "recipes": {item.name: _summary(item.to_json()) for item in judge_recipes(composer())},
    }
    if os.environ.get("UPDATE_GOLDEN"):
        lines = [
            f'  "{part}": {{\n' + ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n  }"
            for part, rows in found.items()
        ]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))


def _summary(judged: dict[str, Any]) -> list[Any]:
    return [judged["state"], judged["tp_size"], *judged["why"]]


def test_every_recipe_is_in_the_audit() -> None:
    assert len(list(judge_recipes(composer()))) == len(recipes()) == 138


def test_every_recipe_planned_by_hydra_is_the_one_that_the_audit_judged() -> None:
    for judged in judge_recipes(composer()):
        plan = make_plan(
            composer(), [Request(f"recipe={judged.name}", "argument 1")], seed=42, env={"HF_HUB_OFFLINE": "1"}
        )
        assert plan.launchable == (judged.state in ("ok", "unknown")), judged
        if plan.ok and judged.state != "unknown":
            assert plan.fit is not None
            assert plan.fit.kv_tokens == judged.kv_tokens, judged
        recipe = recipes()[judged.name]
        for name, value in recipe.args.items():
            if name not in (*recipe.unknown_args, *recipe.left_open):
                assert plan.intent[name] == value, judged


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
    assert "RCP001" in [finding.id for finding in plan.errors]
    assert not plan.launchable


def test_an_eight_gpu_h100_node_cannot_hold_deepseek_v3_and_the_offers_plan_clean() -> None:
    asked = [Request("gpu=h100", "1"), Request("model=deepseek_v3", "2"), Request("tp_size=8", "3")]
    plan = make_plan(composer(), asked, seed=42, env={})
    assert plan.ok
    assert not plan.launchable
    refused = next(finding for finding in plan.findings if finding.id == "FIT001")
    assert "79.7 GiB" in refused.message
    assert refused.hint is not None
    for offer in refused.hint.split("; or "):
        changes = [Request(word, "offer") for word in offer.partition(":")[0].split()]
        kept = [
            item for item in asked if item.text.partition("=")[0] not in {c.text.partition("=")[0] for c in changes}
        ]
        again = make_plan(composer(), [*kept, *changes], seed=42, env={})
        assert again.launchable, offer


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


def test_the_audit_has_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    said = record(capsys, "audit", "audit")
    assert len(said["recipes"]) == 138
    assert "Recipes: " in run(capsys, "audit")[1]


def test_the_doctor_looks_at_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    said = record(capsys, "doctor", "doctor")
    assert "DOC001" in json.dumps(said)


@pytest.mark.parametrize("row", MISTAKES, ids=[row["id"] for row in MISTAKES])
def test_a_published_mistake_comes_out_as_expected(row: dict[str, Any]) -> None:
    found = _outcome(row)
    if row["id"] in BEYOND_A_PLAN:
        assert found in ("refused", "warned"), BEYOND_A_PLAN[row["id"]]
    else:
        assert found == row["expected"].replace("silently_changed", "warned")


def _outcome(row: dict[str, Any]) -> str:
    try:
        asked = [Request(f"gpu={row['gpu']}", "argument 1"), *requests_from_argv(row["command"])]
        plan = make_plan(composer(), asked, seed=42, env={"HF_HUB_OFFLINE": "1"})
    except ConfigError:
        return "refused"
    errors = [finding.id for finding in plan.errors]
    if errors == ["FIT001"]:
        return "does_not_fit"
    if errors:
        return "refused"
    return "warned" if any(finding.level == "warning" for finding in plan.findings) else "clean"


def test_the_catalog_page_is_not_stale() -> None:
    done = subprocess.run([sys.executable, "tools/catalog_page.py", "--check"], cwd=ROOT, timeout=60)
    assert done.returncode == 0, "python tools/catalog_page.py writes it anew"


@pytest.mark.parametrize("id", sorted(recipes()))
def test_every_value_of_a_recipe_fits_its_argument(id: str) -> None:
    recipe = recipes()[id]
    for name, value in recipe.node.items():
        if name not in ("defaults", "model", "engine"):
            assert check_value(name, value) is None
    assert recipe.model in {preset.name for preset in model_presets(composer())}


def test_a_model_path_that_no_file_can_have_is_planned() -> None:
    asked = [Request("gpu=h200", "1"), Request("model=tiny", "2"), Request("model.model_path=\ud800", "3")]
    assert make_plan(composer(), asked, seed=42, env={}).fit is not None
