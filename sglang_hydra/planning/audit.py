"""The catalog looked through as a whole: every GPU class with every model, and every published recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.model_presets import ModelPresets
from sglang_hydra.compose.recipes import Recipe, recipe_findings, recipes
from sglang_hydra.compose.schema import PAIR
from sglang_hydra.facts.drafts import known_draft
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.planning.catalog import GpuClass, Model, gpu_classes, models
from sglang_hydra.planning.memory import fit_findings, fit_of
from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
from sglang_hydra.rules.resolution import Resolution, resolve, run_checks
from sglang_hydra.rules.rule import Facts
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import Line, columns, text

SEED = 42
_TP_SIZES = (1, 2, 4, 8)
_GPUS_A_TABLE = 8  # as many as fit into 120 columns


@dataclass(frozen=True)
class Judged:
    """One plan of the catalog: its name, what it was planned with, and the verdict.

    ``state`` is ok, does not fit, refused or unknown; ``why`` the ids of the findings that decided, or the facts that
    are missing. ``weights_gib`` and ``kv_tokens`` are of one GPU and one replica, None where they are unknown.
    """

    name: str
    tp_size: int
    state: str
    why: tuple[str, ...] = ()
    weights_gib: float | None = None
    kv_tokens: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tp_size": self.tp_size,
            "state": self.state,
            "why": list(self.why),
            "weights_gib": None if self.weights_gib is None else round(self.weights_gib, 2),
            "kv_tokens": self.kv_tokens,
        }


def judge_cells(composer: Composer) -> Iterator[Judged]:
    """Every GPU class with every model, on the fewest GPUs of one node (1, 2, 4, 8) that serve it, else on all.

    Raises ConfigError where a preset is broken.
    """
    classes = gpu_classes(composer, strict=True)
    pairs = _pair_args(composer)
    for model in models(composer, strict=True):
        for gpu in classes:
            yield _judge_cell(model, gpu, pairs.get(f"{gpu.facts.name}-{model.pair_name}", {}))


def judge_recipes(composer: Composer, chosen: Sequence[Recipe] | None = None) -> Iterator[Judged]:
    """Every published recipe as it is written."""
    classes = {gpu.name: gpu for gpu in gpu_classes(composer)}
    known = {model.name: model for model in models(composer)}
    pairs = _pair_args(composer)
    for recipe in recipes().values() if chosen is None else chosen:
        gpu, model = classes[recipe.gpu], known[recipe.model]
        usual = {**gpu.args, **model.args, **pairs.get(f"{gpu.facts.name}-{model.pair_name}", {})}
        yield _judge_recipe(recipe, gpu.facts, replace(model, args=usual), composer.model_presets())


def judge(
    name: str, intent: Mapping[str, Any], gpu: GpuFacts, model: ModelFacts, more: Sequence[Finding] = ()
) -> Judged:
    """The verdict on one set of arguments: SGLang's, then ours, then the memory's."""
    facts = Facts(gpu, model, {}, SEED, intent)
    resolution = resolve(intent, gpu=gpu, model=model, seed=SEED)
    findings = [*resolution.findings, *run_checks(PLAN_CHECKS, resolution, facts), *more]
    return _verdict(name, resolution, facts, findings)


def audit_lines(cells: Sequence[Judged], published: Sequence[Judged]) -> list[Line]:
    """A matrix of models and classes, then the recipes that are not plainly ok."""
    gpus = list(dict.fromkeys(cell.name.split(" ")[1] for cell in cells))
    models: dict[str, dict[str, Judged]] = {}
    for cell in cells:
        model, gpu = cell.name.split(" ")
        models.setdefault(model, {})[gpu] = cell
    lines: list[Line] = [[text("Models by GPU class: the GPUs of one node that serve it, or why none does", "bold")]]
    for start in range(0, len(gpus), _GPUS_A_TABLE):
        shown = gpus[start : start + _GPUS_A_TABLE]
        head = [text(""), *(text(gpu, "bold") for gpu in shown)]
        rows = [[text(model), *(_cell(row[gpu]) for gpu in shown)] for model, row in models.items()]
        lines += [*columns([head, *rows], gap=" "), []]
    not_ok = [recipe for recipe in published if recipe.state != "ok"]
    lines.append([text(f"Recipes: {len(published) - len(not_ok)} of {len(published)} ok", "bold")])
    lines += columns([[text(item.name), _state(item), text(", ".join(item.why), "dim")] for item in not_ok])
    return lines


def _pair_args(composer: Composer) -> dict[str, Mapping[str, Any]]:
    """What each pair of a class and a model needs besides, by ``<gpu>-<model>``."""
    return {preset.name: preset.node for preset in composer.presets(PAIR, strict=True)}


def _judge_cell(model: Model, gpu: GpuClass, pair: Mapping[str, Any]) -> Judged:
    """A cell stands for whole nodes: the first size that works, else the verdict on the largest."""
    name = f"{model.name} {gpu.name}"
    judged = None
    for size in (size for size in _TP_SIZES if size <= (gpu.facts.count or 1)):
        intent = {"model_path": model.path, "tp_size": size, **gpu.args, **model.args, **pair}
        judged = judge(name, intent, gpu.facts, model.facts)
        if judged.state in ("ok", "unknown"):
            break
    assert judged is not None
    return judged


def _judge_recipe(recipe: Recipe, gpu: GpuFacts, model: Model, known: ModelPresets) -> Judged:
    node = recipe.node
    args = {name: value for name, value in node.items() if name not in ("defaults", "model", "engine")}
    path = str(args.get("model_path", model.path))
    facts = model.facts if path == model.path else known.facts_of(path) or ModelFacts(None)
    if "model" in node and facts.config is not None:
        config = {key: value for key, value in facts.config.items() if key != "quantization_config"}
        facts = ModelFacts(config, source=facts.source)
    intent = {"model_path": path, **model.args, **args}
    draft = str(args.get("speculative_draft_model_path", path))
    if draft != path:
        facts = replace(facts, draft=known_draft(draft, known))
    return judge(recipe.id, intent, gpu, facts, recipe_findings(recipe.id))


def _verdict(name: str, resolution: Resolution, facts: Facts, findings: Sequence[Finding]) -> Judged:
    tp_size = int(resolution.values["tp_size"])
    try:
        found = fit_of(resolution, facts)
    except ConfigError as failure:
        found, findings = None, [*findings, *failure.findings]
    if found is not None:
        findings = [*findings, *fit_findings(found, lambda: ())]
    errors = tuple(dict.fromkeys(finding.id for finding in findings if finding.level == "error"))
    weights = found.weights.total / 2**30 if found and found.weights.total is not None else None
    tokens = found.kv_tokens if found else None
    if [id for id in errors if id != "FIT001"]:
        return Judged(name, tp_size, "refused", errors, weights, tokens)
    if errors:
        return Judged(name, tp_size, "does not fit", errors, weights, tokens)
    if found is None or found.fits is None:
        missing = found.unknown if found else (("model",) if not facts.model.known else ("gpu memory",))
        return Judged(name, tp_size, "unknown", tuple(missing), weights, tokens)
    return Judged(name, tp_size, "ok", ("tight",) if found.tight else (), weights, tokens)


def _cell(judged: Judged) -> tuple[str, str]:
    if judged.state == "ok":
        return text(f"ok {judged.tp_size}", "green" if not judged.why else "yellow")
    if judged.state == "does not fit":
        return text("no fit", "red")
    return text(judged.why[0] if judged.why else judged.state, "red" if judged.state == "refused" else "yellow")


def _state(judged: Judged) -> tuple[str, str]:
    return text(judged.state, {"unknown": "yellow"}.get(judged.state, "red"))


__all__ = ["SEED", "Judged", "audit_lines", "judge", "judge_cells", "judge_recipes"]
