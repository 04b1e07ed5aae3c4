"""What a plan comes to, in a word: whether it can be launched, and what of its values is the same for every plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sglang_hydra.arguments.layout import SIZES
from sglang_hydra.planning.fields import PlanFields
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import plural, short

_MOST_OF_A_LINE = 240
"""Of the first error; the findings below it have it whole."""


_SENTENCES = {
    "yes": "can be launched",
    "no": "cannot be launched",
    "unknown": "whether it can be launched is not known",
}


class Verdict(NamedTuple):
    """Whether a plan can be launched, and why: what is wrong, what is missing to tell, or what was warned of."""

    answer: Literal["yes", "no", "unknown"]
    why: str = ""

    @property
    def launchable(self) -> bool | None:
        """Returns the answer as JSON has it: null where it is not known."""
        return {"yes": True, "no": False}.get(self.answer)

    @property
    def sentence(self) -> str:
        """Returns the answer in words, without the reason."""
        return _SENTENCES[self.answer]


def verdict_on(findings: Sequence[Finding], plans: Sequence[PlanFields]) -> Verdict:
    """Returns the verdict on servers that start together, with all that was found. object error is a no. Unknown is a
    plan of which a fact is missing, or whose release was not asked."""
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


def sizes_left_open(findings: Sequence[Finding]) -> str:
    """Returns which sizes of a server a file leaves to a variable that nobody set (IMP005); empty for none."""
    names = [item.fields[0] for item in findings if item.id == "IMP005" and SIZES.intersection(item.fields)]
    return f"{', '.join(dict.fromkeys(names))}, which the file takes from variables" if names else ""


def what_is_missing(plan: PlanFields) -> str:
    """Returns the facts that are missing to tell whether a plan can be launched; empty where there are all."""
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
    """Returns the mark of every figure from values that the release did not give; empty where it gave them."""
    return "" if plan.is_exact else f", by estimate: SGLang {plan.engine.version} was not asked for its values"


def constant_fields(plan: PlanFields) -> set[str]:
    """Returns the arguments that got what every plan of the release gives them, whatever the GPU, the model and what
    was set: what all recorded answers of the release agree on, names and the device as they were given, pages of one
    token; where there are no answers, what 0.5.2's rules give a server of which nothing is known."""
    path = plan.intent.get("model_path")
    if path is None:
        return set()
    same: dict[str, object] = {}
    if not plan.by_own_rules:
        from sglang_hydra.releases.recorded import always_same

        same = always_same(plan.engine.version)
    if same:
        same |= {"tokenizer_path": path, "served_model_name": path, "device": plan.gpu.device, "page_size": 1}
    else:
        from sglang_hydra.facts.gpu import GpuFacts
        from sglang_hydra.facts.model import ModelFacts
        from sglang_hydra.rules.resolution import resolve

        gpu = GpuFacts("", vendor=plan.gpu.vendor, device=plan.gpu.device)
        bare = resolve({"model_path": path}, gpu=gpu, model=ModelFacts({}), seed=0)
        same = {entry.field: entry.after for entry in bare.ledger}
    asked = set(plan.intent)
    values = plan.values
    return {name for name, value in same.items() if name not in asked and name in values and values[name] == value}
