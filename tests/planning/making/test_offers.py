"""What hints offer: every override in a hint, typed in place, takes its finding away and brings no other error."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tests.rules
import tests.rules.checks
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.grammar import as_override
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.making.composed import plan_once
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.order import ORDER
from sglang_hydra.rules.rule import Notice, Refusal
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from tests.rules.cases import Row

MISTAKES = json.loads((Path(__file__).parents[2] / "data/catalog/mistakes.json").read_text())["mistakes"]
COMPOSER = Composer()
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "HOME": "/nonexistent"}
OVERRIDE = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z0-9_]+)*=")
FORMS = ("=org/name", "...", "=<", "HOST:PORT")
"""What stands for a name that only the user knows."""
GPUS = ("h100", "h200", "b200", "a100_80gb", "l40s", "t4", "mi300x", "rtx_4090", "cpu", "none")
MODELS = (
    *("qwen3_8b", "llama_3_1_8b", "deepseek_v3", "qwen3_30b_a3b", "qwen2_5_vl_7b", "gpt_oss", "llama_4_scout"),
    *("gemma_3_27b", "mixtral_8x7b"),
)
MODELS_OF_ROWS = {"glm_4_5": "glm_4_5", "phi4mm": None, "internvl_26b": None, "gpt_oss_bf16": None, "nameless": None}
QUICK, LONG = 40, 4000


def findings_of(words: Sequence[str]) -> Sequence[Finding]:
    try:
        return make_plan(COMPOSER, [Request(word, "a test") for word in words], seed=1, env=ENVIRONMENT).findings
    except ConfigError as failure:
        return failure.findings


def errors(findings: Sequence[Finding]) -> set[str]:
    return {finding.id for finding in findings if finding.level == "error"}


def offered(hint: str) -> Iterator[list[str]]:
    """The overrides that the parts of a hint begin with, each part's as words."""
    for part in hint.split("; or "):
        words = []
        try:
            parts = shlex.split(part)
        except ValueError:  # an apostrophe in what is said behind it
            parts = part.split()
        for word in parts:
            if not OVERRIDE.match(word):
                break
            words.append(word.rstrip(":,"))
        if words and not any(form in part for form in FORMS):
            yield words


def broken_offers(words: Sequence[str]) -> Iterator[str]:
    """The offers of the plan of these words that help nothing or that lead to another error."""
    before = findings_of(words)
    for finding in before:
        for change in offered(finding.hint or ""):
            keys = {word.partition("=")[0] for word in change} | set(finding.fields if finding.id == "CLI002" else ())
            after = findings_of([*(word for word in words if word.partition("=")[0] not in keys), *change])
            same = [other for other in after if is_same(other, finding)]
            more = errors(after) - errors(before)
            elsewhere = errors(without_wrong(words, before)) | {"VER008"}  # what CLI002 is under another release
            wrong_elsewhere = more and errors(before) == {"CLI002"} and more <= elsewhere
            if same or (more and not wrong_elsewhere):
                yield f"{' '.join(words)}: {finding.id} offers {change}: {[(one.id, one.message) for one in after]}"


def is_same(other: Finding, finding: Finding) -> bool:
    """Several values may be wrong at once, each of them a finding of its own."""
    apart = finding.id == "CLI002" and other.fields != finding.fields
    return other.id == finding.id and other.level in ("error", finding.level) and not apart


def without_wrong(words: Sequence[str], found: Sequence[Finding]) -> Sequence[Finding]:
    """The findings of the plan without the words that could not be composed."""
    wrong = {name for finding in found for name in finding.fields}
    return findings_of([word for word in words if word.partition("=")[0] not in wrong])


# What others and we have written down


def examples() -> Iterator[list[str]]:
    """The examples of all rules and checks that are refused or warned of."""
    for page in (*ORDER, *PLAN_CHECKS):
        typed, arrow, outcome = page.page.partition("Example:")[2].partition(" -> ")
        if arrow and ("refused" in outcome or "warned" in outcome):
            words = shlex.split(typed)
            yield words if any(word.startswith("model") for word in words) else [*words, "model=qwen3_8b"]


def rows() -> Iterator[list[str]]:
    """The rows of the tables of rules and checks that are refused or warned of."""
    for package in (tests.rules, tests.rules.checks):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for row in rows_of(importlib.import_module(info.name)):
                gpu = {"a100": "a100_80gb"}.get(row.gpu, row.gpu)
                known = row.model in COMPOSER.options("model") and "model_path" not in row.given
                model = f"model={row.model}" if known else "model=qwen3_8b"
                if gpu in COMPOSER.options("gpu"):
                    yield [f"gpu={gpu}", model, *typed(row.given)]


def rows_of(module: ModuleType) -> Iterator[Row]:
    marks = (mark for test in vars(module).values() for mark in getattr(test, "pytestmark", ()))
    tables = [mark.args[1] for mark in marks if mark.name == "parametrize"]
    tables += [table for table in vars(module).values() if isinstance(table, (tuple, list))]
    for row in (row for table in tables for row in table):
        if isinstance(row, Row) and row.answer in (Refusal, Notice):
            yield row


def typed(given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        try:
            yield as_override(name, sorted(value) if isinstance(value, set) else value)
        except ValueError:
            continue  # what nobody can type


def mistakes() -> Iterator[list[str]]:
    """Published and typical wrong launch commands, on their GPUs."""
    for mistake in MISTAKES:
        given = mistake.get("gpu")
        command = [str(word) for word in mistake["command"]]
        try:
            values = parse_argv(command)
        except ConfigError:
            continue
        gpu = [f"gpu={given}"] if given in COMPOSER.options("gpu") else ["gpu=h100"]
        yield [*gpu, *typed(values)]


def of_the_issue() -> Iterator[list[str]]:
    yield ["gpu=h100", "model=qwen2_5_vl_7b", "nnodes=2", "pp_size=3", "tp_size=3"]
    yield ["gpu=h100", "model=llama_3_1_8b", "attention_backend=flash_attn"]
    yield ["gpu=b200", "model=llama_3_1_8b", "attention_backend=flash_attn"]
    yield ["gpu=h100", "model=llama_3_1_8b", "kv_cache_dtype=fp8"]


@pytest.mark.corpus
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("source", [examples, rows, mistakes, of_the_issue], ids=lambda source: source.__name__)
def test_what_a_hint_offers_helps_and_leads_to_no_other_error(source: Any, part: int) -> None:
    cases = list(source())[part::4]
    assert cases
    assert [broken for words in cases for broken in broken_offers(words)] == []


def test_most_findings_still_say_what_to_type() -> None:
    found = {}
    for words in (words for source in (examples, rows) for words in source()):
        found |= {finding.id: (finding, words) for finding in findings_of(words)}
    silent = {id: item for id, item in found.items() if item[0].level == "error" and not item[0].hint}
    assert len(found) > 80
    assert [item for id, item in silent.items() if id not in SILENT] == []


SILENT = {"CFG004", "FIT001", "RUN005"}
"""Nothing can be typed against these, not always."""


# Random plans


def random_words(dice: random.Random) -> list[str]:
    words = [f"gpu={dice.choice(GPUS)}", f"model={dice.choice(MODELS)}"]
    words += [f"{name}={dice.choice((1, 2, 3, 4, 6, 8, 16))}" for name in SIZES if dice.random() < 0.25]
    for _ in range(dice.choice((1, 2, 3))):
        field = dice.choice(list(FIELDS.values()))
        if field.arg.choices and field.kind == "str":
            words.append(f"{field.name}={dice.choice([*map(str, field.arg.choices), 'fp8', 'flash_attn'])}")
        elif field.is_flag:
            words.append(f"{field.name}={dice.choice(('true', 'false', 'yes'))}")
        elif field.kind in ("int", "float") and not field.is_list:
            words.append(f"{field.name}={dice.choice((0, 1, 2, 3, 8, 64, 100, 4096, -1, 0.5, 'x'))}")
    return list({word.partition("=")[0]: word for word in words}.values())


SIZES = ("tp_size", "pp_size", "dp_size", "ep_size", "nnodes")


def broken_of_random(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return [broken for _ in range(count) for broken in broken_offers(random_words(dice))]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_offers_of_random_plans_help(seed: int) -> None:
    assert broken_of_random(QUICK, seed) == []


@pytest.mark.long
def test_offers_of_thousands_of_random_plans_help() -> None:
    assert broken_of_random(LONG, 11) == []


# The mechanism


def test_nothing_is_planned_for_a_plan_without_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        "sglang_hydra.planning.making.replan.plan_once",
        lambda *given, **more: made.append(given) or plan_once(*given, **more),
    )
    make_plan(COMPOSER, [Request("gpu=h200", "a test"), Request("model=qwen3_8b", "a test")], env=ENVIRONMENT)
    assert len(made) == 1
    make_plan(COMPOSER, [Request("gpu=h200", "a test"), Request("tp_size=16", "a test")], env=ENVIRONMENT)
    assert len(made) > 3


@pytest.mark.parametrize(
    ("gpu", "wrong", "hint"),
    [
        ("h100", "attention_backend=flash_attn", "attention_backend=fa3"),
        ("b200", "attention_backend=flash_attn", ""),  # fa3 is not for it, and flashinfer was not meant
        ("h100", "kv_cache_dtype=fp8", "kv_cache_dtype=fp8_e4m3"),
        ("a100_80gb", "kv_cache_dtype=fp8", "kv_cache_dtype=fp8_e4m3"),
    ],
)
def test_a_value_is_the_nearest_that_this_plan_accepts(gpu: str, wrong: str, hint: str) -> None:
    offered = findings_of([f"gpu={gpu}", "model=qwen3_8b", wrong])[0].offers
    assert "; or ".join(offer.said for offer in offered) == hint


def test_an_offer_that_does_not_help_is_not_named() -> None:
    from sglang_hydra.planning.making.replan import with_planned_offers

    offers = ("a=1", Remedy.typed("b=2", when="is better"))
    finding = Finding("error", "X001", "no", hint="what is known", offers=offers)
    other = Finding("error", "X002", "no")
    after = {"a=1": (other,), "b=2": ()}
    (said,) = with_planned_offers([finding], lambda words: after[words[0]])
    assert (said.hint, [offer.words for offer in said.offers]) == ("b=2 is better; or what is known", [("b=2",)])
    (said,) = with_planned_offers([finding], lambda words: None)
    assert said == finding.said("what is known")
