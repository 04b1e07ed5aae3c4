"""Builds the screen of a terminal without typed words: this machine in three lines, and three first commands."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.planning.engines.planned import PlannedEngine, plan_engine
from sglang_hydra.planning.making.make import plan_composed
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.records import default_release
from sglang_hydra.text.screen import VERBATIM, Line, columns, text
from sglang_hydra.text.words import install_command, number, program

_MODELS = ("gpt_oss", "qwen3_8b", "qwen3_0_6b")
"""Models for a first try, the largest first."""
_ELSEWHERE = "gpu=h200"


def first_screen() -> list[Line]:
    """Returns the screen; each of its commands works on this machine."""
    composer = Composer()
    composer.for_start = True
    plan, model = next(_tried(composer))
    return [
        *columns([[text(title, "bold"), text(content)] for title, content in _machine(plan)]),
        [],
        *columns([[text(about), text(command, VERBATIM)] for about, command in _commands(plan, model)]),
        [],
        [text(f"{program()} --help shows everything else", "dim")],
    ]


def _tried(composer: Composer) -> Iterator[tuple[Plan, str]]:
    """Yields the models that can be launched here, largest first, and last the tiny one, which runs on any machine."""
    for model in _MODELS:
        plan = _plan_of(composer, model)
        if plan.gpu.device in (None, "cpu"):
            break
        if plan.launchable is not False:
            yield plan, model
    yield _plan_of(composer, "tiny"), "tiny"


def _plan_of(composer: Composer, model: str) -> Plan:
    requests = [Request(f"model={model}", "a model to try")]
    return plan_composed(composer, requests, composer.compose(requests), with_remedies=False)


def _machine(plan: Plan) -> Iterator[tuple[str, str]]:
    gpu, engine = plan.gpu, _engine(plan)
    memory = f", {number(gpu.memory_mib)} MiB each" if gpu.memory_mib else ""
    has_gpus = gpu.device not in (None, "cpu")
    yield (
        "GPUs",
        f"{gpu.count} x {gpu.name}{memory}" if has_gpus else f"none here; {_ELSEWHERE} plans for another machine",
    )
    if engine.name == "sglang":
        has = f"{engine.installed}, in {engine.program}" if engine.installed else "not installed here"
    else:
        has = f"not installed here; transformers {engine.version} serves small models"
    yield "SGLang", has
    release = engine.version if engine.name == "sglang" else default_release()
    yield "Release", f"plans are for {release}; engine.version=RELEASE names another"


def _engine(plan: Plan) -> PlannedEngine:
    return plan_engine(plan.nodes.engine, embedded_first=plan.gpu.device in (None, "cpu"))


def _commands(plan: Plan, model: str) -> Iterator[tuple[str, str]]:
    called, chosen = program(), plan.choices.get("gpu")
    shown, where = (_MODELS[0], f" {_ELSEWHERE}") if model == "tiny" else (model, "")
    known = f" gpu={chosen}" if chosen not in (None, "auto", "cpu", "none") else f" {_ELSEWHERE}"
    yield "what would run, and why", f"{called} plan model={shown}{where}"
    yield "which layout for a load", f"{called} suggest model={shown}{known} concurrency=64"
    lacks = install_command("local") if model == "tiny" else f"pip install 'sglang[all]=={default_release()}'"
    installs = "" if _engine(plan).installed else f"{lacks} && "
    yield "start a server", f"{installs}{called} model={model}"
