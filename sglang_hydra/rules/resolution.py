"""Runs the rules in their order, applies their answers and records every write."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

from sglang_hydra.arguments.fields import FIELDS, ServerArgs, fresh_defaults, sealed
from sglang_hydra.arguments.layout import Layout, layout_of
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.rules.answer import Answer
from sglang_hydra.rules.rule import Change, Facts, Notice, Refusal, Restated, Rule
from sglang_hydra.text.findings import Finding, Level, Remedy
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject
from sglang_hydra.text.words import program, typed


class Entry(NamedTuple):
    """One write by one rule."""

    field: str
    before: Json
    after: Json
    rule: str
    reason: str


class Ledger(Sequence[Entry]):
    """All writes in the order of the rules, read-only. ``made`` makes them when they are first read."""

    def __init__(self, made: Callable[[], Iterable[Entry]] = tuple) -> None:
        self._made = made

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        return tuple(self._made())

    def __getstate__(self) -> dict[str, object]:
        return {"_entries": self._entries}

    def __getitem__(self, index: Json) -> Json:
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return self._entries == other._entries if isinstance(other, Ledger) else NotImplemented

    def __hash__(self) -> int:
        return len(self._entries)  # values of entries may be lists

    def of(self, field: str) -> tuple[Entry, ...]:
        """Returns every write to one field, first to last."""
        return tuple(entry for entry in self._entries if entry.field == field)

    def replay(self, start: JsonObject) -> JsonDict:
        """Returns the values that result from applying every entry to ``start``.

        Raises ValueError where an entry's ``before`` differs from the field's value at that point."""
        values = dict(start)
        for entry in self._entries:
            held = values[entry.field]
            if held is not entry.before and held != entry.before:  # nan is not equal to itself
                raise ValueError(f"{entry.rule}: {entry.field} is {held!r}, not {entry.before!r}")
            values[entry.field] = entry.after
        return values


Basis = Literal["exact", "recorded", "rules"]

_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})

# Python raises these where SGLang computes with values of a wrong type or zero: SGLang refuses the configuration
# at that place, and so do we.
UNCOMPUTABLE = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class Resolution:
    """A release's result for an intent on the given hardware and model.

    ``ok`` is upstream's own verdict: False if any of its rules or checks refuses. ``values`` holds all arguments of the
    release by name (210 in 0.5.2); ``ledger`` every write that led there; ``env`` the environment variables that SGLang
    sets while resolving; ``intent`` the requested arguments, unchanged.

    ``basis`` says what made the values: ``exact`` (the release's own code, or our rules where the release is 0.5.2),
    ``recorded`` (an answer of its own code that ships with this package) or ``rules`` (0.5.2's rules, for a release
    that was not asked; ``not_asked`` is the reason). ``unknown`` then names the arguments that the release may
    resolve otherwise: their values are estimates. ``release`` is its version, ``answer`` its code's own answer, with
    reasons."""

    intent: JsonObject = field(repr=False)
    values: JsonObject = field(repr=False)
    ledger: Ledger
    findings: tuple[Finding, ...]
    env: Mapping[str, str]
    basis: Basis = "exact"
    unknown: frozenset[str] = frozenset()
    answer: Answer | None = field(default=None, repr=False, compare=False)
    not_asked: str | None = None
    release: str = SPECIFIED_VERSION

    @cached_property
    def layout(self) -> Layout:
        """Returns the layout of the server's GPUs."""
        return layout_of(self.values, self.release)

    @property
    def known_values(self) -> JsonObject:
        """Returns ``values`` with null for estimates."""
        return {name: None if name in self.unknown else value for name, value in self.values.items()}

    @property
    def ok(self) -> bool:
        return not any(finding.level == "error" and not finding.ours for finding in self.findings)

    @cached_property
    def args(self) -> ServerArgs:
        """Returns the arguments of 0.5.2 as one sealed object: writing raises ``FrozenInstanceError``."""
        return sealed({name: self.values.get(name, field.default) for name, field in FIELDS.items()})


def resolve(
    intent: Mapping[str, object],
    *,
    gpu: GpuFacts,
    model: ModelFacts,
    seed: int | None = None,
    draw: bool = True,
    env: Mapping[str, str] = _NO_ENVIRONMENT,
) -> Resolution:
    """Applies every rule and check of SGLang 0.5.2 to ``intent`` and reports all findings at once.

    ``intent`` maps argument names to requested values; it accepts the same values as upstream's constructor (no choices
    and few types are checked here: text is checked where it enters). ``seed`` is used where no ``random_seed`` was set;
    without it one is drawn, or with ``draw=False`` left to the launch. ``env`` is the environment that rules may read
    (SGLANG_IS_IN_CI); the process's own is never read. A value that cannot work raises nothing: it ends in
    ``findings``. Raises TypeError for a ``gpu`` or ``model`` of another type."""
    for name, given, wanted in (("gpu", gpu, GpuFacts), ("model", model, ModelFacts)):
        if not isinstance(given, wanted):
            raise TypeError(f"{name} is a {wanted.__name__}, not {given!r}; sglang_hydra.plan takes presets by name")
    values = fresh_defaults()
    findings = list(_unknown_or_missing(intent, values))
    values.update({name: value for name, value in intent.items() if name in values})
    facts = Facts(gpu, model, env, drawn_seed() if seed is None and draw else seed, intent)
    entries = _run(values, intent, facts, findings) if "model_path" in intent else []
    return Resolution(
        intent=MappingProxyType(dict(intent)),
        values=MappingProxyType(values),
        ledger=Ledger(lambda: entries),
        findings=tuple(findings),
        env=planned_environment(values),
    )


def drawn_seed() -> int:
    """Draws a seed like SGLang where none was set: from 0 to 2**30."""
    return random.randint(0, 1 << 30)


def _run(values: dict[str, object], intent: Mapping[str, object], facts: Facts, findings: list[Finding]) -> list[Entry]:
    """Runs the rules over ``values`` in place. A rule sees them as a ServerArgs that shares their storage."""
    from sglang_hydra.rules.order import ORDER  # only 0.5.2 and estimates need the rules

    entries: list[Entry] = []
    args = object.__new__(ServerArgs)
    args.__dict__ = values
    refused = False
    for rule in ORDER:
        try:
            outcome = rule.apply(args, facts)
        except UNCOMPUTABLE as failure:
            # After a refusal later values may be missing: only the cause is reported.
            if not refused:
                findings.append(uncomputable(rule, failure, intent))
                refused = True
            continue
        if outcome is None:
            continue
        if isinstance(outcome, Change):
            _apply(outcome, rule, values, intent, entries, findings)
        else:
            findings.append(finding_of(outcome, rule))
            refused = refused or not isinstance(outcome, Notice)
    return entries


def _apply(
    change: Change,
    rule: Rule,
    values: dict[str, object],
    intent: Mapping[str, object],
    entries: list[Entry],
    findings: list[Finding],
) -> None:
    for name, after in change.values.items():
        before = values[name]
        if before == after and type(before) is type(after):
            continue
        values[name] = after
        entries.append(Entry(name, before, after, rule.id, change.reason))
        if name in intent and before is not None and (intent[name] is before or intent[name] == before):
            findings.append(_overridden(name, before, change, rule))


def _overridden(field: str, before: object, change: Change, rule: Rule) -> Finding:
    message = f"{field}={typed(before)} was set, and SGLang makes it {typed(change.values[field])}: {change.reason}"
    level: Level = "info" if isinstance(change, Restated) else "warning"
    return Finding(level, rule.id, message, (field,), None, rule.stage, rule.lines)


def finding_of(outcome: Refusal, rule: Rule) -> Finding:
    """Converts a refusal or a notice of ``rule`` to a finding."""
    level: Level = "warning" if isinstance(outcome, Notice) else "error"
    return Finding(level, rule.id, outcome.message, outcome.fields, outcome.remedies, rule.stage, rule.lines)


def uncomputable(rule: Rule, failure: Exception, intent: Mapping[str, object]) -> Finding:
    """Returns the finding on a rule that fails on these values, like SGLang at the same place."""
    from sglang_hydra.arguments.fields.check import check_value

    problems = {
        name: problem for name, value in intent.items() if name in FIELDS and (problem := check_value(name, value))
    }
    why = "; ".join(problems.values()) or f"{type(failure).__name__}: {failure}"
    name = rule.name.replace("_", " ")
    message = f"{name} cannot be computed from these values ({why}); SGLang fails at the same place"
    hint = f"{program()} explain {rule.id} names the arguments it reads"
    return Finding("error", rule.id, message, tuple(problems), hint, rule.stage, rule.lines)


def _unknown_or_missing(intent: Mapping[str, object], values: Mapping[str, object]) -> list[Finding]:
    findings = []
    for name in intent:
        if name not in values:
            near = difflib.get_close_matches(name, values, n=1)
            hint = Remedy.meant(near[0]) if near else f"{program()} --help WORD finds arguments"
            message = f"{name!r} is not an argument of SGLang 0.5.2"
            findings.append(Finding("error", "ARG001", message, (name,), hint, "post_init"))
    if "model_path" not in intent:
        message = "no model was named: model_path has no default"
        advice = "model=org/name, model=./folder or model_path=... names yours"
        offers = ("model=llama_3_1_8b", "model=llama_3_1_8b gpu=h100")
        findings.append(Finding("error", "ARG002", message, ("model_path",), advice, "post_init", offers=offers))
    return findings


def planned_environment(values: Mapping[str, object]) -> dict[str, str]:
    """Returns the variables that kernels read as switches (SGLang 0.5.2, server_args.py lines 839-848), by name."""
    return {
        "SGLANG_ENABLE_TORCH_COMPILE": "1" if values["enable_torch_compile"] else "0",
        "SGLANG_MAMBA_SSM_DTYPE": str(values["mamba_ssm_dtype"]),
        "SGLANG_DISABLE_OUTLINES_DISK_CACHE": "1" if values["disable_outlines_disk_cache"] else "0",
    }
