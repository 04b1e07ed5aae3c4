"""Compares a plan with the answer of an installed SGLang's own argument code."""

from __future__ import annotations

from sglang_hydra.facts.environments import find_python
from sglang_hydra.facts.installed import installed
from sglang_hydra.facts.trust import may_start
from sglang_hydra.planning.comparing.actual import Comparison, compare
from sglang_hydra.planning.plan import Plan
from sglang_hydra.releases.case import Case, case_for
from sglang_hydra.releases.release import ask_installed
from sglang_hydra.rules.answer import Answer


def case_of(plan: Plan, version: str) -> Case:
    """Returns the plan's command line, machine and models as a question to a release."""
    words = list(plan.command)
    flags = words[next((at for at, word in enumerate(words) if word.startswith("--")), len(words)) :]
    environment = {**plan.inherited, **plan.environment}
    return case_for(flags, plan.gpu, plan.model, plan.values, environment, version, plan.nodes.engine.facts)


def ask_about(plan: Plan, python: str | None) -> tuple[Answer, Comparison | None]:
    """Asks the SGLang of ``python`` (None: this environment) about the plan's command line. Returns its answer and,
    where it accepts, the comparison with the plan."""
    program = find_python(python)
    version = None if program is None else installed(python).versions.get("sglang")
    if program is None or version is None or not may_start(program):
        return Answer(None, unanswered=f"no SGLang can be asked in the environment of {python or 'this program'}"), None
    (answer,) = ask_installed(program, version, [case_of(plan, version)])
    # The question has no API key, because the key decides nothing.
    values = {**answer.values, "api_key": plan.values["api_key"], "version": version}
    return answer, compare(plan, values) if answer.ok else None
