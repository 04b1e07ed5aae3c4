"""Predicted against actual: what a running server says of itself, held against its plan, field by field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.secrets import HIDDEN, is_secret_name, masked
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.planning.actual_values import IS_SET, comparable
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import plain
from sglang_hydra.text.screen import printable, shown

if TYPE_CHECKING:
    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.planning.actual_memory import KvTokens
    from sglang_hydra.planning.actual_reasons import Reasons
    from sglang_hydra.planning.plan import Plan

SCHEMA = "sglang_hydra.actual/1"
_WITHHELD = "<redacted>"
"""What 0.5.23 reports in place of a secret, set or not (sampling/watermarking/core.py:83)."""

UNNAMED = "this server"
"""The version of a server that names none."""


@dataclass(frozen=True)
class Difference:
    """One argument that the server holds otherwise than planned. Values are JSON's; a secret's is ``***``."""

    field: str
    planned: Any
    actual: Any
    reason: str

    @property
    def text(self) -> str:
        return f"{self.field}: planned {shown(self.planned)}, the server has {shown(self.actual)}: {self.reason}"


@dataclass(frozen=True)
class Comparison:
    """``same`` of the ``of`` arguments that plan and server both have are as planned; ``absent`` are those of the plan
    that the server does not report. ``version`` is the server's own word; ``kv`` its KV cache against the fit."""

    version: str
    same: int
    of: int
    absent: tuple[str, ...]
    differences: tuple[Difference, ...]
    kv: KvTokens | None
    findings: tuple[Finding, ...]

    @property
    def summary(self) -> str:
        """``183 of 183 as planned; 27 not in 0.5.23``."""
        return summary_of(self.same, self.of, len(self.absent), self.version)

    def to_json(self, plan: Plan) -> dict[str, Any]:
        """The record of a run folder; its schema is committed as schemas/actual.schema.json. It holds no secret."""
        return {
            "schema": SCHEMA,
            "server_id": plan.server_id,
            "planned_version": plan.engine.version,
            "version": self.version,
            "same": self.same,
            "of": self.of,
            "absent": list(self.absent),
            "differences": [vars(item) for item in self.differences],
            "kv_tokens": self.kv.to_json() if self.kv else None,
            "findings": [finding.to_json() for finding in self.findings],
        }


def summary_of(same: int, of: int, absent: int, version: str) -> str:
    """The sentence of a comparison, by its numbers."""
    return f"{same} of {of} as planned" + (f"; {absent} not in {printable(version)}" if absent else "")


def compare(plan: Plan, info: Mapping[str, Any], machine: GpuFacts | None = None) -> Comparison:
    """Holds ``info``, the answer of /server_info (before: /get_server_info), against the plan.

    ``machine`` is what a probe of the server's GPUs found; without it a differing GPU is only guessed. Raises
    ValueError for an answer that is not about a server's arguments.
    """
    from sglang_hydra.planning.actual_memory import kv_tokens
    from sglang_hydra.planning.actual_reasons import Reasons

    if not isinstance(info, Mapping) or "model_path" not in info:
        raise ValueError("the answer holds no arguments of a server")
    reported = info.get("version")
    version = reported if isinstance(reported, str) else UNNAMED
    reasons = Reasons(plan, version, machine)
    held = plan.values if plan.is_exact else {name: plan.view[name] for name in FIELDS}
    held = {name: value for name, value in held.items() if info.get(name) != _WITHHELD}
    common = [name for name in held if name in info]
    others = {name: value for name, value in _own_names(plan).items() if name in info}
    differences = (*_differences(plan, held, info, reasons), *_other_differences(others, info, reasons))
    kv = kv_tokens(plan, info, differences, version, machine)
    findings = [*_other_release(plan, reported), *(_finding(item, plan, version) for item in differences)]
    if kv is not None and kv.finding is not None:
        findings.append(kv.finding)
    return Comparison(
        version=version,
        same=len(common) + len(others) - len(differences),
        of=len(common) + len(others),
        absent=tuple(name for name in held if name not in info),
        differences=differences,
        kv=kv,
        findings=tuple(findings),
    )


def _differences(
    plan: Plan, held: Mapping[str, Any], info: Mapping[str, Any], reasons: Reasons
) -> Iterator[Difference]:
    for name, value in held.items():
        if name not in info:
            continue
        planned, actual = comparable(name, value), comparable(name, info[name])
        if isinstance(value, (set, frozenset)) and isinstance(actual, list):
            actual = sorted(actual, key=str)
        if planned == actual or (name == "random_seed" and value is None):  # any seed is one that the start drew
            continue
        if is_secret_name(name):
            words = {None: None, IS_SET: HIDDEN}
            planned, actual = words[planned], words[actual]
        yield Difference(name, planned, _without(actual, plan.secrets), reasons.of(name, actual))


def _own_names(plan: Plan) -> dict[str, Any]:
    """Where the values are an estimate: the arguments that a later release gets beside those of 0.5.2, extras and
    arguments under their new names."""
    if plan.is_exact:
        return {}
    from sglang_hydra.arguments.translate import arguments_for

    arguments = arguments_for(plan.intent, plan.engine.version, plan.nodes["extra"])
    return {name: plain(value) for name, value in arguments.items() if name not in FIELDS}


def _other_differences(arguments: Mapping[str, Any], info: Mapping[str, Any], reasons: Reasons) -> Iterator[Difference]:
    for name, planned in arguments.items():
        if planned != info[name]:
            shown_planned, actual = masked(name, planned), masked(name, plain(info[name]))
            yield Difference(name, shown_planned, actual, reasons.of_own(name))


def _without(value: Any, secrets: Mapping[str, str]) -> Any:
    """``value`` with every secret of ours in it hidden, wherever the server has put it."""
    if isinstance(value, str):
        for secret in filter(None, secrets.values()):
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, list):
        return [_without(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_without(key, secrets): _without(item, secrets) for key, item in value.items()}
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _finding(item: Difference, plan: Plan, version: str) -> Finding:
    """A warning where the server is the release whose rules the plan follows: there, they should have been equal."""
    level = "warning" if version == SPECIFIED_VERSION == plan.engine.version else "info"
    return Finding(level, "ACT001", item.text, (item.field,))  # type: ignore[arg-type]


def _other_release(plan: Plan, version: Any) -> Iterator[Finding]:
    if isinstance(version, str) and version != plan.engine.version:
        message = f"the plan is for SGLang {plan.engine.version}, and the server is {version}"
        yield Finding("warning", "ACT004", message, ("engine.version",), f"engine.version={printable(version)}")
