"""Asks a release of SGLang what it makes of plans: its own argument code, sealed, from its wheel or as installed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.facts.packages import find_python, installed
from sglang_hydra.facts.trust import grant, may_start
from sglang_hydra.releases.order import release_key
from sglang_hydra.releases.table import nearest_known, release
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.upstream.release import Answer, Case, ask_installed, ask_release, machine_facts, require

if TYPE_CHECKING:
    from sglang_hydra.planning.plan import Plan

INSTALLED = "installed"
_MOST_BYTES = 1 << 22
"""Of one file of a model's folder. Larger ones are tokenizers and lists of weights, which no argument is made from."""


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
    """The model's folder where the release can read it as the plan did; None where it is told the plan's facts.

    With trust_remote_code it would run what lies there: no question runs code that a model brings.
    """
    folder = plan.model.extra.get("folder")
    return None if folder is None or plan.values["trust_remote_code"] else str(folder)


def case_of(plan: Plan, version: str) -> Case:
    """The plan's command line, machine and models, as a release is asked about them."""
    facts = machine_facts(plan.gpu, _planned_environment(plan), _cuda_of(version))
    return Case(tuple(_flags(plan)), facts, _models(plan))


def _asked(authority: Authority, plan: Plan) -> Mapping[str, Any] | CannotAsk:
    obstacle = _obstacle(plan)
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
    if answer.by_library and not read:
        return CannotAsk(f"the model's facts are not all that it reads of a model: {answer.error}")
    return {
        "ok": answer.ok,
        "stage": answer.stage,
        "error": answer.error,
        "values": answer.values,
        "read": read,
    }


def _obstacle(plan: Plan) -> str | None:
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


def _cuda_of(version: str) -> str | None:
    """The CUDA that a release's torch is made for."""
    known = nearest_known(version)
    return release(known).needs["cuda"] if known else None


def _models(plan: Plan) -> dict[str, Any]:
    """What the release reads of the model and of its draft: the JSON files of a folder, else the config.json as
    stated, since a release has class defaults of its own."""
    found = {}
    paths = (plan.values["model_path"], plan.values["speculative_draft_model_path"])
    for path, model in zip(paths, (plan.model, plan.model.draft), strict=True):
        if path is None or model is None:
            continue
        folder = None if plan.values["trust_remote_code"] else model.extra.get("folder")
        if folder is not None:
            found[str(path)] = {"files": _json_files(Path(folder))}
        elif model.config is not None:
            found[str(path)] = dict(plain(model.extra.get("stated") or model.config))
    return found


def _json_files(folder: Path) -> dict[str, str]:
    """The text of each JSON file in a model's folder, by its name."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        try:
            if file.stat().st_size <= _MOST_BYTES:
                found[file.name] = read_text(file, _MOST_BYTES, errors="replace")
        except (OSError, ValueError):
            continue
    return found


def _planned_environment(plan: Plan) -> dict[str, str]:
    """The SGLANG_* variables that the server would find."""
    found = {**plan.inherited, **plan.environment}
    return {name: value for name, value in found.items() if name.startswith("SGLANG_") and not is_secret_name(name)}


__all__ = ["Authority", "CannotAsk", "ask_about", "case_of", "find_authority", "folder_of"]
