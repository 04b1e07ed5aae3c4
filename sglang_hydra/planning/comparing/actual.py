"""Compares a plan with the running server's own report, argument by argument.

The server's KV cache is compared with the memory fit's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.secrets import HIDDEN, is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.planning.comparing.difference import Difference, between
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import NOT_FINITE, plain
from sglang_hydra.text.screen import printable, shown
from sglang_hydra.text.words import number

if TYPE_CHECKING:
    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.fit.result import Fit
    from sglang_hydra.planning.plan import Plan

SCHEMA = "sglang_hydra.actual/1"
_WITHHELD = "<redacted>"
"""0.5.23 reports this in place of a secret, set or not (sampling/watermarking/core.py:83)."""

DRAWN = ("port", "nccl_port", "dist_init_addr", "random_seed", "disaggregation_bootstrap_port")
"""Arguments that a server, or its launcher, may draw."""

IS_SET = "set"
"""The compared value of a secret that is set."""

_DRAWN_INSIDE = ("lora_id",)
"""Keys inside a value that every construction draws anew."""

UNNAMED = "this server"
"""The version of a server that reports none."""


@dataclass(frozen=True)
class Comparison:
    """``same`` of the ``of`` arguments that plan and server share are as planned; ``absent`` lists the plan's arguments
    that the server does not report. ``version`` is the server's own; ``kv`` compares its KV cache with the fit."""

    version: str
    same: int
    of: int
    absent: tuple[str, ...]
    differences: tuple[Difference, ...]
    kv: KvTokens | None
    of_differences: tuple[Finding, ...]
    others: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*self.of_differences, *self.others)

    @property
    def summary(self) -> str:
        """Returns ``183 of 183 as planned; 27 not in 0.5.23``."""
        return summary_of(self.same, self.of, len(self.absent), self.version)

    def to_json(self, plan: Plan) -> dict[str, object]:
        """Returns the record of a run folder, without secrets; its schema is committed as
        schemas/actual.schema.json."""
        return {
            "schema": SCHEMA,
            "server_id": plan.server_id,
            "planned_version": plan.engine.version,
            "version": self.version,
            "same": self.same,
            "of": self.of,
            "absent": list(self.absent),
            "differences": [record_of(item) for item in self.differences],
            "kv_tokens": self.kv.to_json() if self.kv else None,
            "findings": [finding.to_json() for finding in self.findings],
        }


def summary_of(same: int, of: int, absent: int, version: str) -> str:
    return f"{same} of {of} as planned" + (f"; {absent} not in {printable(version)}" if absent else "")


def compare(plan: Plan, info: Mapping[str, object], machine: GpuFacts | None = None) -> Comparison:
    """Compares ``info``, the answer of /server_info (before: /get_server_info), with the plan.

    ``machine`` is the probe of the server's GPUs, or None. Raises ValueError for an answer without a server's
    arguments."""
    if not isinstance(info, Mapping) or "model_path" not in info:
        raise ValueError("the answer holds no arguments of a server")
    reported = info.get("version")
    version = reported if isinstance(reported, str) else UNNAMED
    withheld = {name for name in plan.values if is_secret_name(name) and info.get(name) == _WITHHELD}
    held = {name: value for name, value in plan.values.items() if name not in withheld}
    common = [name for name in held if name in info]
    differences = tuple(_differences(plan, held, info, version, machine))
    kv = kv_tokens(plan, info, differences, version, machine)
    others = [kv.finding] if kv is not None and kv.finding is not None else []
    if isinstance(reported, str) and version != plan.engine.version:
        message = f"the plan is for SGLang {plan.engine.version}, and the server is {version}"
        hint = f"engine.version={printable(version)}"
        others.insert(0, Finding("warning", "ACT004", message, ("engine.version",), hint))
    return Comparison(
        version=version,
        same=len(common) - len(differences),
        of=len(common),
        absent=tuple(name for name in held if name not in info),
        differences=differences,
        kv=kv,
        of_differences=tuple(_finding(item, plan, version) for item in differences),
        others=tuple(others),
    )


def sentence(item: Difference) -> str:
    """Describes one argument that differs on the server. A secret is ``***``."""
    return f"{item.key}: planned {shown(item.before)}, the server has {shown(item.after)}: {item.why[1]}"


def record_of(item: Difference) -> dict[str, object]:
    return {"field": item.key, "planned": item.before, "actual": item.after, "reason": item.why[1]}


def _differences(
    plan: Plan, held: Mapping[str, object], info: Mapping[str, object], version: str, machine: GpuFacts | None
) -> Iterator[Difference]:
    # A seed without a planned value was drawn at startup.
    common = [name for name in held if name in info and not (name == "random_seed" and held[name] is None)]
    planned = {name: comparable(name, held[name]) for name in common}
    actual = {name: comparable(name, info[name]) for name in common}
    for name, value in actual.items():
        if isinstance(value, list) and isinstance(held[name], (set, frozenset)):
            actual[name] = sorted(value, key=str)
    for item in between("value", planned, actual):
        reason = ("", _reason(plan, item.key, item.after, version, machine))
        if is_secret_name(item.key):
            words = {None: None, IS_SET: HIDDEN}
            yield replace(item, before=words[item.before], after=words[item.after], why=reason)
        else:
            yield replace(item, after=_without(item.after, plan.secrets), why=reason)


def _reason(plan: Plan, name: str, actual: object, version: str, machine: GpuFacts | None) -> str:
    """Returns a clause on why the server has another value, as far as plan and machine show it."""
    written = plan.resolution.ledger.of(name)
    is_set = plan.intent.get(name) is not None
    if is_secret_name(name):
        return "the key did not reach it as planned" if actual is None else "somebody else gave it a key"
    if version != SPECIFIED_VERSION:
        return _reason_of_release(plan, name, actual, printable(version))
    if name in DRAWN:
        return "it was drawn when the server started"
    if written and machine is not None and machine.memory_mib not in (None, plan.gpu.memory_mib):
        return f"this machine's GPU has {_mib(machine)}, the plan is for {_mib(plan.gpu)}"
    if not plan.model.known:
        return "the plan knew nothing of the model's config.json"
    if written:
        return f"{written[-1].rule} planned it ({written[-1].reason}), but the server decided otherwise"
    if is_set:
        return "the plan sets it: the server was started with another value, or changed it after its rules had run"
    return "none of our rules gives this value"


def _reason_of_release(plan: Plan, name: str, actual: object, version: str) -> str:
    from sglang_hydra.arguments.changed_defaults import changed_default

    if name not in plan.intent and (moved := changed_default(name, version, actual)):
        return moved
    written = plan.resolution.ledger.of(name)
    if written and not plan.by_own_rules:
        return f"{plan.engine.version}'s own code planned it ({written[-1].reason}), but the server decided otherwise"
    if written:
        return f"{written[-1].rule} is {SPECIFIED_VERSION}'s rule, and {version} has one of its own"
    set_here = plan.intent.get(name) is not None
    return f"it was set, and a rule of {version} changed it" if set_here else f"a rule of {version} sets it"


def _mib(gpu: GpuFacts) -> str:
    return f"{number(gpu.memory_mib)} MiB" if gpu.memory_mib else gpu.name


def _without(value: object, secrets: Mapping[str, str]) -> object:
    """Masks every secret of ours in ``value``, wherever the server put it."""
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
    """Returns the finding on a difference: a warning where the server is 0.5.2, as planned, since both should be
    equal."""
    level = "warning" if version == SPECIFIED_VERSION == plan.engine.version else "info"
    return Finding(level, "ACT001", sentence(item), (item.key,))  # type: ignore[arg-type]


def comparable(name: str, value: object) -> object:
    """Returns one argument's value in the form for comparing plan and server.

    JSON types; a secret only says whether it is set; values drawn by each construction are left out; a float that JSON
    cannot express (inf) becomes null, as a server writes it."""
    is_float = name in EVERY and EVERY[name].kind == "float"
    if is_secret_name(name):
        return None if value is None else IS_SET
    made = _without_drawn(plain(value))
    if isinstance(made, str) and made in NOT_FINITE and is_float:
        return None
    if isinstance(made, int) and not isinstance(made, bool) and is_float:
        return float(made)
    return made


def _without_drawn(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_drawn(item) for key, item in value.items() if key not in _DRAWN_INSIDE}
    if isinstance(value, list):
        return [_without_drawn(item) for item in value]
    return value


_GIB = 1 << 30
_REPORTED = "max_total_num_tokens"
_SIZING = ("mem_fraction_static", "kv_cache_dtype", "max_total_tokens", "tp_size", "pp_size", "page_size")
"""Arguments that decide the size of the pool."""


@dataclass(frozen=True)
class KvTokens:
    """Tokens of one replica's KV cache: the fit's (``planned``, between ``low`` and ``high`` by its error), and the
    server's report (``actual``). The fit's numbers are None without a fit, and ``note`` says why."""

    actual: int
    planned: int | None = None
    low: int | None = None
    high: int | None = None
    note: str | None = None
    finding: Finding | None = None

    @property
    def as_planned(self) -> bool | None:
        """Returns whether the report is within the fit's error; None without a fit."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.actual <= self.high

    @property
    def text(self) -> str:
        if self.planned is None or self.low is None or self.high is None:
            return f"KV cache: {self.actual:,} tokens; {self.note}"
        span = f"{self.planned:,}" if self.low == self.high else f"{self.planned:,} ({self.low:,} to {self.high:,})"
        verdict = "as predicted" if self.as_planned else "not as predicted"
        return f"KV cache: {self.actual:,} tokens, {verdict}: {span}"

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("actual", "planned", "low", "high", "as_planned", "note")}


def kv_tokens(
    plan: Plan,
    info: Mapping[str, object],
    differences: Sequence[Difference],
    version: str,
    machine: GpuFacts | None = None,
) -> KvTokens | None:
    """Compares the server's ``max_total_num_tokens`` with the fit; None where it reports no such number."""
    actual = info.get(_REPORTED)
    if not isinstance(actual, int) or isinstance(actual, bool):
        return None
    found = plan.fit
    if found is None or found.kv_tokens is None or found.weights.total is None:
        unknown = f"the fit does not know {', '.join(found.unknown)}" if found and found.unknown else ""
        on_cpu = "there is no memory fit on the CPU" if plan.gpu.device == "cpu" else ""
        return KvTokens(actual, note=on_cpu or unknown or "there is no memory fit to compare with")
    low, high = _error_bar(found, plan.values.get("max_total_tokens"))
    planned = found.kv_tokens
    if low <= actual <= high:
        return KvTokens(actual, planned, low, high)
    reasons = "; ".join(_reasons(plan, found, info, differences, version, machine, actual)) or "the reason is not known"
    message = f"the KV cache has {actual:,} tokens, and the fit predicted {planned:,} ({low:,} to {high:,}): {reasons}"
    hint = "gpu=auto plans for this machine's own memory"
    if actual < planned:
        hint = "nvidia-smi shows what else is on the GPU; mem_fraction_static and max_total_tokens size the pool"
    finding = Finding("warning", "ACT002", message, ("mem_fraction_static",), hint)
    return KvTokens(actual, planned, low, high, finding=finding)


def _error_bar(found: Fit, limit: int | None) -> tuple[int, int]:
    """Returns the least and the most tokens within the fit's errors.

    The errors are those of the weights and of the free memory before loading, the latter times the fraction. ``limit``
    is max_total_tokens, which limits the pool."""
    assert found.kv is not None
    assert found.free is not None
    assert found.fraction is not None
    each = max(1, found.kv.bytes_per_token)
    down = (found.fraction * (found.free.mid - found.free.low) + found.weights.error) / each
    up = (found.fraction * (found.free.high - found.free.mid) + found.weights.slack) / each
    tokens = found.kv_tokens or 0
    profiled = found.kv.profiled if found.kv.profiled is not None else tokens
    # Rounding loses at most a page, which is small against both errors.
    low, high = min(tokens, int(profiled - down)), int(max(profiled, tokens) + up)
    return (max(0, low), min(high, limit)) if limit else (max(0, low), high)


def _reasons(
    plan: Plan,
    found: Fit,
    info: Mapping[str, object],
    differences: Sequence[Difference],
    version: str,
    machine: GpuFacts | None,
    actual: int,
) -> Iterator[str]:
    """Yields possible reasons for another number, the surest first."""
    for item in differences:
        if item.key in _SIZING:
            yield f"{item.key} is {item.after} and not {item.before}"
    if machine is not None and machine.memory_mib and plan.gpu.memory_mib and machine.memory_mib != plan.gpu.memory_mib:
        yield f"this machine's GPU has {number(machine.memory_mib)} MiB, planned for {number(plan.gpu.memory_mib)}"
    weights = _logged_weights(info)
    total, fraction = found.weights.total, found.fraction
    assert total is not None
    assert fraction is not None
    assert found.kv is not None
    if weights is not None and not total - found.weights.slack <= weights * _GIB <= total + found.weights.error:
        yield f"the weights take {weights:.1f} GiB, and the fit says {total / _GIB:.1f}"
    if version != SPECIFIED_VERSION:
        yield f"{printable(version)} may size its pool by other rules than {SPECIFIED_VERSION}"
    if found.unknown:
        yield f"unknown to the fit: {', '.join(found.unknown)}"
    if actual < (found.kv_tokens or 0):
        missing = ((found.kv_tokens or 0) - actual) * found.kv.bytes_per_token / max(fraction, 0.01)
        yield f"something else may hold {missing / _GIB:.1f} GiB of the GPU's memory"
    else:
        yield "more memory was free than the fit assumes"


def _logged_weights(info: Mapping[str, object]) -> float | None:
    """Returns the GiB of weights that the first scheduler reports, or None."""
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], Mapping) else {}
    usage = state.get("memory_usage")
    weight = usage.get("weight") if isinstance(usage, Mapping) else None
    return float(weight) if isinstance(weight, (int, float)) and not isinstance(weight, bool) and weight > 0 else None
