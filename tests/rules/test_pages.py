"""Every rule has its page, its place in ORDER, its row in a table; and the example on its page comes true."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra import LoRARef, Resolution, resolve
from sglang_hydra.planning.finding_meanings import MEANINGS, RETIRED, plan_ids
from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.order import ORDER
from sglang_hydra.rules.rule import Change, Rule, rule
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import GPUS, MODEL_PATH, MODELS, SEED, Row, model_facts, refused, rules_without_rows, unchanged

PARTS = ("What", "Why", "Upstream", "Example")
AREAS = "DEP|DEF|DEV|MEM|GRA|MDL|KER|PAG|DPA|MOE|EPL|PIP|HIC|SPE|LOD|DIS|PAR|LOR|BUC|SCH|TOK"
LAST_LINE = 2714  # of server_args.py in SGLang 0.5.2

each_rule = pytest.mark.parametrize("rule", ORDER, ids=lambda rule: rule.id)


def parts_of(rule: Rule) -> dict[str, str]:
    """The parts of a page by heading, each on one line."""
    page = textwrap.dedent(rule.page).strip()
    found = re.split(r"^(\w+):\s", page, flags=re.MULTILINE)
    assert found[0] == "", f"{rule.id} has text before its first heading"
    return {heading: " ".join(text.split()) for heading, text in zip(found[1::2], found[2::2], strict=True)}


@each_rule
def test_page_has_its_four_parts_in_order(rule: Rule) -> None:
    parts = parts_of(rule)
    assert tuple(parts) == PARTS, (
        f"the docstring of {rule.id} has {', '.join(PARTS)} (Upstream: none. where SGLang has none)"
    )
    assert all(parts.values())


@each_rule
def test_page_names_the_lines_of_the_rule(rule: Rule) -> None:
    assert rule.lines is not None
    first, last = rule.lines
    assert 406 <= first <= last <= LAST_LINE
    assert parts_of(rule)["Upstream"] == f"server_args.py 0.5.2 lines {first}-{last}."


@each_rule
def test_id_is_an_area_and_three_digits(rule: Rule) -> None:
    assert re.fullmatch(rf"(?:{AREAS})\d{{3}}", rule.id)


def test_ids_and_names_are_unique() -> None:
    assert len({rule.id for rule in ORDER}) == len(ORDER)
    assert len({rule.name for rule in ORDER}) == len(ORDER)


def test_a_retired_id_is_used_by_no_rule_and_still_known() -> None:
    used = {rule.id for rule in (*ORDER, *PLAN_CHECKS)} | set(MEANINGS)
    assert used.isdisjoint(RETIRED)
    assert set(RETIRED) <= plan_ids()


def test_the_table_of_meanings_has_ids_and_sentences() -> None:
    for id, meaning in (*MEANINGS.items(), *RETIRED.items()):
        assert re.fullmatch(r"[A-Z]{3}\d{3}", id)
        assert meaning.endswith((".", "..."))


def test_post_init_comes_before_check() -> None:
    stages = [rule.stage for rule in ORDER]
    assert stages == sorted(stages, key=["post_init", "check"].index)


def test_order_holds_every_rule_of_both_packages() -> None:
    missing = (_defined("post_init") | _defined("check")) ^ {rule.id for rule in ORDER}
    assert not missing, (
        f'{missing}: a line in rules/order.txt, or @rule(ID, stage="plan") for a check that SGLang has not'
    )


def test_only_rules_write_and_only_checks_refuse() -> None:
    for row in _all_rows():
        if row.rule.id in TABLE:  # a row of the table sets, or refuses
            continue
        room = inspect.getmodule(row.rule.apply)
        assert room is not None
        if row.answer is not None:
            assert (row.answer is Change) != room.__name__.startswith("sglang_hydra.rules.checks."), row


@pytest.mark.parametrize("rule", [*ORDER, *PLAN_CHECKS], ids=lambda rule: rule.id)
def test_every_rule_and_check_has_rows_where_it_answers_and_where_it_stays_silent(rule: Rule) -> None:
    assert rules_without_rows([rule], _all_rows()) == []


def test_a_check_without_rows_is_reported() -> None:
    check = rule("CFG999", stage="plan")(lambda args, facts: None)
    assert rules_without_rows([check], []) == ["CFG999"]
    assert rules_without_rows([check], [unchanged(check)]) == ["CFG999"]
    assert rules_without_rows([check], [refused(check)]) == ["CFG999"]
    assert rules_without_rows([check], [refused(check), unchanged(check)]) == []


def test_plan_checks_hold_every_check_that_is_ours() -> None:
    missing = _defined("plan") ^ {rule.id for rule in PLAN_CHECKS}
    assert not missing, f'{missing}: a row in rules/checks/releases.json, and stage="plan" in its @rule'


@each_rule
def test_example_of_the_page_comes_true(rule: Rule) -> None:
    overrides, arrow, outcome = parts_of(rule)["Example"].partition(" -> ")
    assert arrow
    resolution = _resolve(overrides.split())
    levels = [finding.level for finding in resolution.findings if finding.id == rule.id]
    if outcome in ("refused", "warned"):
        assert {"refused": "error", "warned": "warning"}[outcome] in levels
        return
    written = {entry.field: entry.after for entry in resolution.ledger if entry.rule == rule.id}
    for item in outcome.split():
        field, _, value = item.partition("=")
        assert field in written
        assert value.startswith("<") or _plain(written[field]) == _value(value)


def _defined(stage: str) -> set[str]:
    """The ids of the rules of a stage that any file of the two packages defines."""
    return {rule.id for rule in TABLE.values() if rule.stage == stage} | {
        value.id
        for package in ("rules", "rules.checks")
        for path in Path(inspect.getfile(Rule)).parents[1].joinpath(package.replace(".", "/")).glob("*.py")
        for value in vars(importlib.import_module(f"sglang_hydra.{package}.{path.stem}")).values()
        if isinstance(value, Rule) and value.stage == stage
    }


@cache
def _all_rows() -> list[Row]:
    rows: list[Row] = []
    for package in ("tests.rules", "tests.rules.checks"):
        for path in sorted(Path(__file__).parents[2].joinpath(*package.split(".")).glob("test_*.py")):
            module = importlib.import_module(f"{package}.{path.stem}")
            rows += [row for row in getattr(module, "ROWS", ()) if isinstance(row, Row)]
    return rows


def _resolve(overrides: list[str]) -> Resolution:
    """Resolves overrides as they stand in an example: arguments, gpu=, model=, and gpu.x= and model.config.x.y=."""
    intent: dict[str, Any] = {"model_path": MODEL_PATH}
    gpu, model = GPUS["h100"], "llama_3_1_8b"
    config_path: list[str] = []
    for override in overrides:
        name, _, text = override.partition("=")
        if name == "gpu":
            gpu = GPUS[text]
        elif name == "model":
            model = text
        elif name.startswith("model.config."):
            config_path = name.split(".")[2:]
        else:
            intent[name] = _value(text)
    facts = model_facts(model, intent["model_path"])
    if config_path:
        section, key = config_path
        published = MODELS[model] or {}
        config = {**published, section: {**published[section], key: None}}
        facts = type(facts)(config)
    return resolve(intent, gpu=gpu, model=facts, seed=SEED)


def _value(text: str) -> Any:
    if text.startswith("'"):
        return text.strip("'")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, LoRARef):
        return {"lora_name": value.lora_name, "lora_path": value.lora_path, "pinned": value.pinned}
    return value


@pytest.mark.parametrize("rule", [*ORDER, *PLAN_CHECKS], ids=lambda rule: rule.id)
def test_why_names_its_source_or_says_that_it_is_inferred(rule: Rule) -> None:
    parts = parts_of(rule)
    why, inferred, _ = parts["Why"].partition("Inferred: ")
    sourced = rule.lines is not None or re.search(r"\.py|[a-z]_[a-z]", f"{parts['Upstream']} {why}")
    assert inferred or sourced
    # No line of code says what is fast or how a kernel was built.
    assert not re.search(r"\b(fast(er|est)?|slow(er)?|pays off|compiled for|tensor cores)\b", why)
