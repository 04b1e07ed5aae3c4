"""Asks an installed SGLang what it makes of plans: one child process for each machine that the plans are for."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.facts.packages import find_python, installed
from sglang_hydra.facts.trust import grant, may_start
from sglang_hydra.releases.order import release_key, same_release
from sglang_hydra.releases.table import nearest_known, release
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.upstream.release import Case, ask_release, machine_facts, require

if TYPE_CHECKING:
    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.planning.plan import Plan

INSTALLED = "installed"
TIMEOUT_S = 300.0
"""For one child. A later release takes about 10 s to be imported."""

_OF_THE_FILE = {"MDL001", "MDL003", "MDL014", "MDL016"}
"""Refusals of a config.json that a release sees only where it reads the file."""

_HERE = Path(__file__).resolve().parent
_DEVICES = {"nvidia": "cuda", "amd": "hip", "intel": "xpu", "habana": "hpu", "huawei": "npu"}
_CUDA = "12.8"


class Authority(NamedTuple):
    """An SGLang that can be asked: its interpreter, its release, and how it was named. ``reading`` says that it is to
    read the model's folder, with its own libraries; without an interpreter its wheel is asked."""

    python: str | None
    version: str
    name: str
    reading: bool = False

    @property
    def sealed(self) -> bool:
        """Whether it is asked alone, among inert modules: every question that it asks of its machine is known."""
        return not self.reading and same_release(self.version, SPECIFIED_VERSION)

    @property
    def reads_folders(self) -> bool:
        """Whether its environment has what reads a model's folder."""
        return self.python is not None and {"torch", "transformers"} <= installed(self.python).versions.keys()


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

    An answer has ``read`` as true where the release read the model's folder itself.
    """
    answers: list[Mapping[str, Any] | CannotAsk] = [CannotAsk("it was not asked")] * len(plans)
    groups: dict[tuple[Authority, str], list[int]] = {}
    if authority.python is None:
        return [_by_wheel(authority.version, plan) for plan in plans]
    reads = any(map(folder_of, plans)) and authority.reads_folders
    for number, plan in enumerate(plans):
        obstacle = _obstacle(plan)
        if obstacle is not None:
            answers[number] = CannotAsk(obstacle)
            continue
        asked = authority._replace(reading=reads and folder_of(plan) is not None)
        key = "" if asked.sealed else json.dumps(_machine(plan, authority), sort_keys=True)
        groups.setdefault((asked, key), []).append(number)
    for (asked, _), numbers in groups.items():
        for number, line in zip(numbers, _lines(asked, [plans[number] for number in numbers]), strict=True):
            answers[number] = line
    return answers


def folder_of(plan: Plan) -> str | None:
    """The model's folder where the release can read it as the plan did; None where it is told the plan's facts.

    With trust_remote_code it would run what lies there: no question runs code that a model brings.
    """
    folder = plan.model.extra.get("folder")
    return None if folder is None or plan.values["trust_remote_code"] else str(folder)


def ask(
    authority: Authority,
    lines: Sequence[Mapping[str, Any]],
    timeout_s: float = TIMEOUT_S,
) -> list[dict[str, Any]]:
    """The child's answers to JSON lines, in their order, the greeting left out. Raises CannotAsk."""
    if authority.python is None or not may_start(authority.python):
        raise CannotAsk(f"a file names {authority.python}, and nobody typed it")
    way = "sealed" if authority.sealed else "live"
    program = f"import sys; sys.path.insert(0, {str(_HERE)!r}); from inside.{way} import main; sys.exit(main())"
    try:
        # A child that ends in the middle, or is ended, leaves its temporary files behind.
        with tempfile.TemporaryDirectory(prefix="sglang-hydra-ask-", ignore_cleanup_errors=True) as scratch:
            done = subprocess.run(
                [authority.python, "-I", "-B", "-X", "utf8", "-W", "ignore", "-c", program],
                input="".join(json.dumps(line) + "\n" for line in lines),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env={**_environment(), "TMPDIR": scratch},
                timeout=timeout_s,
                check=False,
            )
    except subprocess.TimeoutExpired as failure:
        raise CannotAsk(f"it gave no answer within {timeout_s:.0f} s") from failure
    except OSError as failure:
        raise CannotAsk(f"{authority.python} cannot be run: {failure.strerror or failure}") from failure
    answers = _read(done.stdout)
    if answers and "refused" in answers[0]:
        raise CannotAsk(str(answers[0]["refused"]))
    if not answers or "version" not in answers[0]:
        raise CannotAsk(_last_words(done.stderr) or f"it ended with {done.returncode} and said nothing")
    return answers[1:]


def _by_wheel(version: str, plan: Plan) -> Mapping[str, Any] | CannotAsk:
    """The answer of a release's wheel, told the plan's facts."""
    obstacle = _obstacle(plan)
    if obstacle is not None:
        return CannotAsk(obstacle)
    facts = machine_facts(plan.gpu, _planned_environment(plan), _cuda_of(version))
    (answer,) = ask_release(version, [Case(tuple(_flags(plan)), facts, _models(plan))])
    if answer.ok is None:
        return CannotAsk(str(answer.unanswered))
    return {
        "ok": answer.ok,
        "stage": answer.stage,
        "error": answer.error,
        "values": answer.values,
        "fields": sorted(answer.values),
        "read": False,
    }


def _lines(authority: Authority, plans: Sequence[Plan]) -> Sequence[Mapping[str, Any] | CannotAsk]:
    """The answers about ``plans``, which share a machine where that matters. Where 0.5.2 cannot be imported as it is,
    it is told the plans' facts."""
    try:
        return _ask(authority, plans)
    except CannotAsk as failure:
        if authority.reading:
            return _lines(authority._replace(reading=False), plans)
        return [failure] * len(plans)


def _ask(authority: Authority, plans: Sequence[Plan]) -> list[Mapping[str, Any] | CannotAsk]:
    if authority.sealed:
        lines = [_sealed_case(number, plan) for number, plan in enumerate(plans)]
    else:
        lines = [_machine(plans[0], authority), *(_live_case(plan) for plan in plans)]
    said = ask(authority, lines)
    answers = [_answer(line, plan, authority) for line, plan in zip(said, plans, strict=False)]
    if len(answers) < len(plans):
        # The child ended in the middle: what was asked then is what it ended of.
        answers += [CannotAsk("its process ended before it answered")] * (len(plans) - len(answers))
    return answers


def _answer(line: Mapping[str, Any], plan: Plan, authority: Authority) -> Mapping[str, Any] | CannotAsk:
    if "refused" in line:
        return CannotAsk(str(line["refused"]))
    if authority.sealed and {finding.id for finding in plan.errors} & _OF_THE_FILE:
        return CannotAsk("it was told the plan's facts, and what is wrong is in the config.json itself")
    return {**line, "read": not authority.sealed and folder_of(plan) is not None}


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


def _sealed_case(number: int, plan: Plan) -> dict[str, Any]:
    gpu = plan.gpu
    hardware = {
        "device": _device(gpu),
        "memory_mib": gpu.memory_mib,
        "capability": list(gpu.compute_capability) if gpu.compute_capability else None,
        "flashinfer": gpu.flashinfer,
        "triton_kernels": gpu.triton_kernels,
        "torch_cuda": gpu.torch_cuda,
    }
    return {
        "id": str(number),
        "hardware": hardware,
        "hf_config": _config(plan),
        "argv": _flags(plan),
        "environment": _planned_environment(plan),
    }


def _machine(plan: Plan, authority: Authority) -> dict[str, Any]:
    """What cannot change while one child lives."""
    gpu = plan.gpu
    return {
        "device": _device(gpu),
        "capability": list(gpu.compute_capability) if gpu.compute_capability else None,
        "flashinfer": gpu.flashinfer,
        "triton_kernels": gpu.triton_kernels,
        "cuda": _cuda_of(authority.version) or _CUDA,
        "environment": _planned_environment(plan),
    }


def _cuda_of(version: str) -> str | None:
    """The CUDA that a release's torch is made for."""
    known = nearest_known(version)
    return release(known).needs["cuda"] if known else None


def _live_case(plan: Plan) -> dict[str, Any]:
    gpu, models = plan.gpu, _models(plan)
    if folder_of(plan):
        del models[str(plan.values["model_path"])]
    machine = {"memory_mib": gpu.memory_mib, "count": gpu.count, "name": gpu.name}
    return {"machine": machine, "argv": _flags(plan), "models": models}


def _models(plan: Plan) -> dict[str, Any]:
    """The config.json of the model and of its draft as stated: a later release has class defaults of its own."""
    stated = plan.model.extra.get("stated")
    models = {str(plan.values["model_path"]): dict(stated) if stated else _config(plan)}
    draft, known = plan.values["speculative_draft_model_path"], plan.model.draft
    told = known is not None and (plan.values["trust_remote_code"] or "folder" not in known.extra)
    if draft is not None and known is not None and known.config is not None and told:
        models[str(draft)] = dict(known.extra.get("stated", known.config))
    return models


def _config(plan: Plan) -> dict[str, Any]:
    from sglang_hydra.text.json_types import plain

    return dict(plain(plan.model.config or {}))


def _device(gpu: GpuFacts) -> str:
    if gpu.device in (None, "cpu"):
        return "none" if gpu.device is None else "cpu"
    return _DEVICES.get(gpu.vendor, "none")


def _planned_environment(plan: Plan) -> dict[str, str]:
    """The SGLANG_* variables that the server would find."""
    found = {**plan.inherited, **plan.environment}
    return {name: value for name, value in found.items() if name.startswith("SGLANG_") and not is_secret_name(name)}


def _environment() -> dict[str, str]:
    """The child's: ours without SGLANG_* and without secrets, which it has no use for."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SGLANG_") and not is_secret_name(name) and name not in SECRET_FIELDS
    }


def _read(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not isinstance(record, dict):
            break
        found.append(record)
    return found


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


__all__ = ["Authority", "CannotAsk", "ask", "ask_about", "find_authority"]
