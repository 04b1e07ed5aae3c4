"""Asks a release of SGLang what it makes of plans: its own argument code, sealed, from its wheel or as installed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.facts.packages import find_python, installed
from sglang_hydra.facts.trust import grant, may_start
from sglang_hydra.planning.upstream.case import case_for, folder_to_read
from sglang_hydra.releases.order import release_key
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.upstream.case import Answer, Case
from sglang_hydra.upstream.release import ask_installed, ask_release, require

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan

INSTALLED = "installed"


class Authority(NamedTuple):
    """A release that can be asked: the interpreter of its environment, its version, and how it was named. Without an
    interpreter its wheel is asked."""

    python: str | None
    version: str
    name: str


class CannotAsk(Exception):
    """The release gave no answer; the text is why, in a clause."""


def find_authority(where: str, python: str | None = None) -> Authority:
    """The SGLang that ``--against where`` names: ``installed`` (that of ``python``, None for ours), a release number,
    the folder of an environment, or an interpreter. Raises MachineError where there is none, and where the wheels of
    a release are not here."""
    if release_key(where) is not None and not os.path.exists(where):
        require(where)
        return Authority(None, where, where)
    named = where if where != INSTALLED else python
    if where != INSTALLED and os.path.isdir(os.path.expanduser(where)):
        named = str(Path(where).expanduser() / "bin" / "python")
    path = find_python(named)
    hint = "--against VENV, the folder of an environment that has SGLang, or its python; --against 0.5.23 needs none"
    if path is None:
        raise MachineError(Finding("error", "AUT001", f"--against {where}: {named} is not a program here", (), hint))
    grant(path)  # both were typed
    found = installed(named)
    version = found.versions.get("sglang")
    if version is None:
        whose = f"the environment of {named}" if named else "this environment"
        message = f"--against {where}: {found.problem or f'{whose} has no package sglang'}"
        raise MachineError(Finding("error", "AUT001", message, (), hint))
    return Authority(path, version, where)


def ask_about(authority: Authority, plans: Sequence[Plan]) -> list[Mapping[str, Any] | CannotAsk]:
    """What the release makes of each plan's command line, in their order; why, where it could not be asked.

    An answer has ``ok``, ``stage`` and ``error`` of a refusal, ``values``, and ``read``: whether the release read the
    files of the model's folder.
    """
    return [_asked(authority, plan) for plan in plans]


def folder_of(plan: Plan) -> str | None:
    """The model's folder where the release can read it as the plan did; None where it is given the plan's facts."""
    return folder_to_read(plan.model, plan.view)


def case_of(plan: Plan, version: str) -> Case:
    """The plan's command line, machine and models, as a release is asked about them."""
    environment = {**plan.inherited, **plan.environment}
    return case_for(
        _flags(plan), plan.gpu, plan.model, plan.view, environment, version, plan.nodes["engine"].get("facts", {})
    )


def _asked(authority: Authority, plan: Plan) -> Mapping[str, Any] | CannotAsk:
    obstacle = obstacle_to(plan)
    if obstacle is not None:
        return CannotAsk(obstacle)
    case = case_of(plan, authority.version)
    if authority.python is None:
        (answer,) = ask_release(authority.version, [case])
    elif may_start(authority.python):
        (answer,) = ask_installed(authority.python, authority.version, [case])
    else:
        return CannotAsk(f"a file names {authority.python}, and nobody typed it")
    return _answer(answer, read=folder_of(plan) is not None)


def _answer(answer: Answer, *, read: bool) -> Mapping[str, Any] | CannotAsk:
    if answer.ok is None:
        return CannotAsk(str(answer.unanswered))
    if answer.by_library and not read and not answer.lacks_type:
        return CannotAsk(f"the model's facts are not all that it reads of a model: {answer.error}")
    return {
        "ok": answer.ok,
        "stage": answer.stage,
        "error": str(answer.error).partition("\n\n")[0] if answer.lacks_type else answer.error,
        "values": answer.values,
        "read": read,
    }


def obstacle_to(plan: Plan) -> str | None:
    """Why a plan cannot be put to the release at all."""
    if plan.engine.name != "sglang":
        return f"the plan is for engine={plan.engine.name}"
    if "model_path" not in plan.intent:
        return "the plan names no model"
    if not plan.model.known:
        return "the model's config.json is not known"
    if plan.model.gguf:
        return "the model is a GGUF file, of which only the facts are here"
    unsaid = [
        finding for finding in plan.findings if finding.level == "error" and finding.id.startswith(("VER", "ENG005"))
    ]
    return f"its command line does not take the arguments ({unsaid[0].message})" if unsaid else None


def _flags(plan: Plan) -> list[str]:
    """The command line, without interpreter and module, and without a key."""
    words = list(plan.command)
    return words[next((at for at, word in enumerate(words) if word.startswith("--")), len(words)) :]


__all__ = ["Authority", "CannotAsk", "ask_about", "case_of", "find_authority", "folder_of", "obstacle_to"]
