"""Decides whether a plan can be launched, and which of its values are the same for every plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sglang_hydra.arguments.layout import SIZES
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.planning.fields import PlanFields
from sglang_hydra.releases.recorded import always_same
from sglang_hydra.rules.resolution import resolve
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import plural, short

_MOST_OF_A_LINE = 240
"""The shown letters of the first error; the findings below have it whole."""


_SENTENCES = {
    "yes": "can be launched",
    "no": "cannot be launched",
    "unknown": "whether it can be launched is not known",
}


class Verdict(NamedTuple):
    """Whether a plan can be launched, and why: the error, the missing fact, or the warnings."""

    answer: Literal["yes", "no", "unknown"]
    why: str = ""

    @property
    def launchable(self) -> bool | None:
        """Returns the answer for JSON: null if unknown."""
        return {"yes": True, "no": False}.get(self.answer)

    @property
    def sentence(self) -> str:
        """Returns the answer in words, without the reason."""
        return _SENTENCES[self.answer]


def verdict_on(findings: Sequence[Finding], plans: Sequence[PlanFields]) -> Verdict:
    """Returns the verdict on servers that start together, with all findings. An error means no. A missing fact, or a
    release that was not asked, means unknown."""
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        more = f", and {plural(len(errors) - 1, 'error')} more" if len(errors) > 1 else ""
        return Verdict("no", f"{short(errors[0].message, _MOST_OF_A_LINE)} ({errors[0].id}){more}")
    missing = next(filter(None, map(what_is_missing, plans)), "") or sizes_left_open(findings)
    if missing:
        return Verdict("unknown", missing)
    warned = dict.fromkeys(finding.id for finding in findings if finding.level == "warning")
    notes = [f"with {plural(len(warned), 'warning')} ({', '.join(warned)})"] if warned else []
    tight = ["tightly"] if any(plan.fit is not None and plan.fit.tight for plan in plans) else []
    return Verdict("yes", ", ".join([*tight, *notes]))


_OF_MEMORY = {"context_length", "mem_fraction_static", "max_total_tokens"}
"""The arguments that decide whether a server and its longest request fit."""


def sizes_left_open(findings: Sequence[Finding]) -> str:
    """Returns the sizes of a server that a file leaves to an unset variable (IMP005); empty for none."""
    sizes = SIZES | _OF_MEMORY
    names = [item.fields[0] for item in findings if item.about == "value_open" and sizes.intersection(item.fields)]
    return f"{', '.join(dict.fromkeys(names))}, which the file takes from variables" if names else ""


def what_is_missing(plan: PlanFields) -> str:
    """Returns the missing facts for the verdict on a plan; empty where there are none."""
    if not plan.is_exact:
        return f"SGLang {plan.engine.version} was not asked: {plan.resolution.not_asked}"
    if plan.engine.name != "sglang" or plan.gpu.device == "cpu":
        return ""
    if not plan.model.known:
        return f"the model's config.json ({plan.model.source})"
    if plan.fit is None:
        return "gpu.memory_mib" if plan.gpu.memory_mib is None else ""
    return ", ".join(plan.fit.unknown) if plan.fit.fits is None else ""


def by_estimate(plan: PlanFields) -> str:
    """Returns the mark for figures from values that the release did not give; empty for its own values."""
    return "" if plan.is_exact else f", by estimate: SGLang {plan.engine.version} was not asked for its values"


def constant_fields(plan: PlanFields) -> set[str]:
    """Returns the arguments with the value of every plan of the release, whatever the GPU, the model and the settings:
    the values common to all recorded answers of the release, with names and device as given and pages of one token;
    without answers, those that 0.5.2's rules give a server without known facts."""
    path = plan.intent.get("model_path")
    if path is None:
        return set()
    same: dict[str, object] = {} if plan.by_own_rules else always_same(plan.engine.version)
    if same:
        same |= {"tokenizer_path": path, "served_model_name": path, "device": plan.gpu.device, "page_size": 1}
    else:
        gpu = GpuFacts("", vendor=plan.gpu.vendor, device=plan.gpu.device)
        bare = resolve({"model_path": path}, gpu=gpu, model=ModelFacts({}), seed=0)
        same = {entry.field: entry.after for entry in bare.ledger}
    asked = set(plan.intent)
    values = plan.values
    return {name for name, value in same.items() if name not in asked and name in values and values[name] == value}
