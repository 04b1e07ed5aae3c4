"""Whatever a text holds reaches SGLang letter by letter, through every format and every reader of it."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_hydra.arguments.parser import flag_like
from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.convert.export.job import job_of
from sglang_hydra.convert.export.registry import render
from sglang_hydra.convert.frameworks.adapters import ADAPTERS, Adapter
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.json_types import value_at
from tests.convert.export.exports import (
    HOSTILE,
    all_texts,
    compose_reads,
    kubernetes_reads,
    plan_of,
    pods,
    run_script,
    shellcheck,
    with_intent,
)

BASE = ("gpu=h200", "model=qwen3_8b", "random_seed=7")
# No surrogates (no UTF-8), no zero byte (no command line can hold one), and not the word that argparse drops.
TEXT = st.one_of(
    st.sampled_from(list(HOSTILE.values())),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.text(st.sampled_from("$(){}'\"`\\ \n#:-&*!|>%@,=~a1"), max_size=20),
).filter(lambda text: text != "--")


def hostile_plan(text: str) -> Plan:
    """A plan whose served name, chat template and an environment variable are ``text``."""
    from dataclasses import replace

    plan = with_intent(plan_of(*BASE), served_model_name=text, tool_server=text)
    return replace(plan, environment={"SGLANG_TEXT": text})


def told(words: list[str]) -> dict[str, Any]:
    """What SGLang's parser reads from everything after the program's name."""
    start = next(at for at, word in enumerate(words) if word.startswith("--"))
    return parse_argv(words[start:])


def by_a_framework(text: str, adapter: Adapter, folder: Path) -> dict[str, Any]:
    """What the node or the options of a framework say, by SGLang's names."""
    if adapter.flags:
        run = run_script(folder, text, "python3")
        assert run.code == 0, run.stderr
        own = {key: flag_like(name) for name, key in adapter.keys.items()}
        words = [own.get(word, re.sub("^--sglang-", "--", word)) for word in run.words]
        return parse_argv(words[words.index("train.py") + 1 :])
    tree = yaml.safe_load(text)
    return {**value_at(tree, adapter.node), **{name: value_at(tree, key) for name, key in adapter.keys.items()}}


def received(plan: Plan, format: str, folder: Path) -> tuple[dict[str, Any], str]:
    """What SGLang is told by an artifact, and the value of SGLANG_TEXT that it finds."""
    text = render(format, job_of(plan, ())).text
    if format in ("shell", "slurm"):
        run = run_script(folder, text, "server")
        assert run.code == 0, run.stderr
        return told(run.words), run.environment["SGLANG_TEXT"]
    if format == "docker":
        run = run_script(folder, text, "server")
        assert run.code == 0, run.stderr
        given = [word for word in run.words if word.startswith("SGLANG_TEXT=")]
        inside = run.words[run.words.index("lmsysorg/sglang:v0.5.2-cu126") + 1 :]
        return told(inside), given[0].partition("=")[2]
    if format == "compose":
        service = compose_reads(text, {"HOME": "/home/me"})["services"]["sglang"]
        return told(service["command"]), service["environment"]["SGLANG_TEXT"]
    if format == "k8s":
        [container] = pods(text)[0]["spec"]["containers"]
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        seen = {"HOME": "/home/someone", "PATH": "/bin"}
        words = [kubernetes_reads(word, seen) for word in [*container["command"], *container["args"]]]
        return told(words), kubernetes_reads(env["SGLANG_TEXT"], seen)
    if format in ADAPTERS:
        return by_a_framework(text, ADAPTERS[format], folder), plan.as_env()["SGLANG_TEXT"]
    read = json.loads(text)
    return (read if format == "engine-kwargs" else parse_argv(read)), plan.as_env()["SGLANG_TEXT"]


def assert_unharmed(text: str, folder: Path) -> None:
    plan = hostile_plan(text)
    for format in all_texts(plan):
        if format in ADAPTERS and ADAPTERS[format].passes:
            continue  # it takes no text that a user chooses
        got, variable = received(plan, format, folder)
        assert got["served_model_name"] == got["tool_server"] == text, format
        assert got["model_path"] == "Qwen/Qwen3-8B", format
        assert got["random_seed"] == 7, format
        assert variable == text, format


@pytest.mark.corpus
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_arrives_unharmed_through_every_format(text: str, tmp_path: Path) -> None:
    assert_unharmed(text, tmp_path)
    assert not Path("/tmp/owned").exists()


@settings(max_examples=15, deadline=None)
@given(TEXT)
def test_any_text_arrives_unharmed_through_every_format(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_unharmed(text, Path(folder))


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(max_examples=1000, deadline=None)
@given(TEXT)
def test_a_thousand_texts_arrive_unharmed(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_unharmed(text, Path(folder))


def test_a_word_that_sglang_cannot_be_told_is_refused() -> None:
    plan = with_intent(plan_of(*BASE), served_model_name="--")
    with pytest.raises(ConfigError, match="ENG005"):
        all_texts(plan)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_names_in_a_manifest_are_names_whatever_the_model_is_called(text: str) -> None:
    name = job_of(with_intent(plan_of(*BASE), served_model_name=text * 9), ()).name
    assert re.fullmatch(r"sglang(-[a-z0-9]+)*", name)
    assert len(name) <= 50


def test_shellcheck_finds_nothing_in_scripts_with_hostile_texts(tmp_path: Path) -> None:
    scripts = [
        render(format, job_of(hostile_plan(text), ["served_model_name=" + text])).text
        for text in HOSTILE.values()
        for format in ("shell", "docker", "slurm")
    ]
    assert shellcheck(scripts, tmp_path) == ""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_comment_keeps_to_its_line_and_sends_nothing_to_a_terminal(text: str) -> None:
    plan = with_intent(plan_of(*BASE), model_path=text)
    for format in ("shell", "docker", "compose", "slurm", "k8s"):
        written = render(format, job_of(plan, [f"model_path={text}"])).text
        assert all(char.isprintable() or char == "\n" for char in written), format
        first = next(end for end in ("\nset -", "\n---", "\nname:") if end in written)
        assert all(line.startswith("#") for line in written[: written.index(first)].splitlines()), format
