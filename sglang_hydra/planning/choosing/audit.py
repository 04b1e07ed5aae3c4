"""Judges the whole catalog: every GPU class with every model, and every published recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.model_presets import ModelPresets
from sglang_hydra.compose.recipes import Recipe, recipe_findings, recipes
from sglang_hydra.compose.schema import PAIR
from sglang_hydra.compose.settings.nodes import Nodes
from sglang_hydra.facts.declared import known_draft
from sglang_hydra.facts.defaults import as_read
from sglang_hydra.facts.gpu import GpuClass, GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.planning.choosing.catalog import Model, gpu_classes, models
from sglang_hydra.planning.engines.planned import PlannedEngine
from sglang_hydra.planning.finding_meanings import title_of
from sglang_hydra.planning.making.by_release import resolved
from sglang_hydra.planning.making.gpu_class import Hardware
from sglang_hydra.planning.making.memory import fit_findings, fit_of
from sglang_hydra.planning.making.target import Needed, Target, needed_for, newest_serving
from sglang_hydra.rules.checks.launchable import run_plan_checks
from sglang_hydra.rules.resolution import Resolution, resolve
from sglang_hydra.rules.rule import Facts
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import by_identity
from sglang_hydra.text.screen import Line, all_folded, columns, text
from sglang_hydra.text.words import program

SEED = 42
NOT_ASKED = "not asked"
"""The state without an answer of the judging release."""
TOO_SHORT = "FIT003"
"""The warning on an ok plan whose KV cache holds less than one request."""
_as_read = by_identity(as_read)
_TP_SIZES = (1, 2, 4, 8)
_GPUS_A_TABLE = 8  # they fit into 120 columns


@dataclass(frozen=True)
class Judged:
    """One plan of the catalog: its name, its size, and the verdict.

    ``state`` is ok, does not fit, refused, unknown or not asked; ``why`` holds the ids of the deciding findings,
    missing facts, or the warnings of an ok plan. ``weights_gib`` is for one GPU and ``kv_tokens`` for one replica, None
    if unknown. ``release`` is the judging release, None where it is the same for all."""

    name: str
    tp_size: int
    state: str
    why: tuple[str, ...] = ()
    weights_gib: float | None = None
    kv_tokens: int | None = None
    release: str | None = None

    def to_json(self) -> dict[str, object]:
        weights = None if self.weights_gib is None else round(self.weights_gib, 2)
        return {**vars(self), "why": list(self.why), "weights_gib": weights}


@dataclass(frozen=True)
class Judging:
    """The judging release, by its recorded answers; with ``ask`` also by its wheel where an answer is missing.

    ``is_open``: nobody named the release, so an older one judges plans that the newest cannot serve."""

    engine: PlannedEngine
    ask: bool = False
    is_open: bool = False

    def serving(self, needed: Needed) -> Judging:
        """Returns the judging release for a plan with these needs."""
        version = newest_serving([needed]) if self.is_open else None
        return replace(self, engine=self.engine._replace(version=version)) if version else self

    def resolved(self, facts: Facts, env: Mapping[str, str]) -> Resolution:
        """Resolves ``facts.given`` by the release; the basis is ``rules`` without an answer."""
        model = replace(facts.model, refused=None, config_class=None)
        facts = facts._replace(model=model, env=env, release=self.engine.version)
        nodes = Composition(facts.given, {}, Nodes({"engine": {}}), {})
        target = Target(nodes, Hardware(), self.engine, facts, (), env, {}, {})
        return resolved(target, may_fetch=False, may_ask=self.ask, why=False)


def judge_cells(
    composer: Composer, by: Judging | None = None, is_chosen: Callable[[str, str], bool] = lambda model, gpu: True
) -> Iterator[Judged]:
    """Yields every GPU class with every model (or the pairs that are ``is_chosen``), on the fewest GPUs of one node (1,
    2, 4, 8) that serve it, else on all; ``by`` another release than 0.5.2.

    Raises ConfigError for a broken preset."""
    classes = gpu_classes(composer, strict=True)
    pairs = _pair_args(composer)
    for model in models(composer, strict=True):
        least = math.inf  # of the weights on all GPUs together, in GiB
        for gpu in (gpu for gpu in classes if is_chosen(model.name, gpu.name)):
            cell = _judge_cell(model, gpu, pairs.get(f"{gpu.facts.name}-{model.pair_name}", {}), by, least)
            least = min(least, (cell.weights_gib or math.inf) * cell.tp_size)
            yield cell


def judge_recipes(
    composer: Composer, chosen: Sequence[Recipe] | None = None, by: Judging | None = None
) -> Iterator[Judged]:
    """Yields every published recipe as written; ``by`` another release than 0.5.2."""
    classes = {gpu.name: gpu for gpu in gpu_classes(composer)}
    known = {model.name: model for model in models(composer)}
    pairs = _pair_args(composer)
    for recipe in recipes().values() if chosen is None else chosen:
        gpu, model = classes[recipe.gpu], known[recipe.model]
        usual = {**gpu.args, **model.args, **pairs.get(f"{gpu.facts.name}-{model.pair_name}", {})}
        yield _judge_recipe(recipe, gpu.facts, model._replace(args=usual), composer.model_presets(), by)


def judge(
    name: str,
    intent: Mapping[str, object],
    gpu: GpuFacts,
    model: ModelFacts,
    more: Sequence[Finding] = (),
    *,
    by: Judging | None = None,
    env: Mapping[str, str] = MappingProxyType({}),
    sized: bool = True,
    of_recipe: tuple[str, ...] = (),
) -> Judged:
    """Returns the verdict on one set of arguments: SGLang's, then ours, then the memory's. ``env`` is the environment
    for another release than 0.5.2. With ``sized`` False, a refused plan is not sized. ``of_recipe`` names the arguments
    that a recipe sets."""
    older = by.serving(needed_for(intent, model, env, of_recipe)) if by else None
    if by and older and older.engine.version != by.engine.version:
        judged = judge(name, intent, gpu, model, more, by=replace(older, is_open=False), env=env, sized=sized)
        return replace(judged, release=older.engine.version)
    model = _as_read(model, str(intent["model_path"]), trust_remote_code=bool(intent.get("trust_remote_code")))
    facts = Facts(gpu, model, {}, SEED, intent)
    resolution = by.resolved(facts, env) if by else resolve(intent, gpu=gpu, model=model, seed=SEED)
    if by:
        if resolution.basis == "rules":
            size = int(resolution.values.get("tp_size") or 1)
            return Judged(name, size, NOT_ASKED, ("REL011",) if by.ask else ())
        facts = facts._replace(release=by.engine.version)
    findings = [*resolution.findings, *run_plan_checks(resolution, facts), *more]
    if not sized and any(finding.level == "error" for finding in findings):
        return Judged(name, resolution.layout.tp, "refused")
    return _verdict(name, resolution, facts, findings)


def audit_lines(cells: Sequence[Judged], published: Sequence[Judged]) -> list[Line]:
    """Returns a matrix of models and classes, then the recipes whose state is not ok."""
    gpus = list(dict.fromkeys(cell.name.split(" ")[1] for cell in cells))
    models: dict[str, dict[str, Judged]] = {}
    for cell in cells:
        model, gpu = cell.name.split(" ")
        models.setdefault(model, {})[gpu] = cell
    lines: list[Line] = [[text("Models by GPU class: the GPUs of one node that serve it, or why none does", "bold")]]
    if any(TOO_SHORT in cell.why for cell in cells):
        lines.append([text(f"* the KV cache holds less than one request of the longest context ({TOO_SHORT})", "dim")])
    for start in range(0, len(gpus), _GPUS_A_TABLE):
        shown = gpus[start : start + _GPUS_A_TABLE]
        head = [text(""), *(text(gpu, "bold") for gpu in shown)]
        rows = [[text(model), *(_cell(row[gpu]) for gpu in shown)] for model, row in models.items()]
        lines += [*columns([head, *rows], gap=" "), []]
    not_ok = [recipe for recipe in published if recipe.state != "ok"]
    lines.append([text(f"Recipes: {len(published) - len(not_ok)} of {len(published)} ok", "bold")])
    lines += columns([[text(item.name), _state(item), text(", ".join(item.why), "dim")] for item in not_ok])
    lines += legend_lines(legend(cells, lambda cell: cell.why[:1]) | legend(not_ok))
    if left := sum(item.state == NOT_ASKED and not item.why for item in (*cells, *published)):
        lines += [[], [text(f"{left:,} not asked: their answers are not recorded; --exact asks the release's wheel")]]
    return lines


def legend(
    judged: Iterable[Judged], ids_of: Callable[[Judged], Sequence[str]] = lambda item: item.why
) -> dict[str, str]:
    """Returns the meanings of the ids that ``ids_of`` gives for the plans."""
    ids = sorted({id for item in judged for id in ids_of(item)})
    return {id: title for id in ids if (title := title_of(id)) is not None}


def legend_lines(meanings: Mapping[str, str]) -> list[Line]:
    rows = [[text("  "), text(id, "bold"), text("  "), text(meaning)] for id, meaning in meanings.items()]
    lines = all_folded(rows)
    return [[], *lines, [text(f"  {program()} explain ID has the whole of each", "dim")]] if lines else []


def _pair_args(composer: Composer) -> dict[str, Mapping[str, object]]:
    """Returns the additional arguments of each pair of class and model, by ``<gpu>-<model>``."""
    return {preset.name: preset.node for preset in composer.presets(PAIR, strict=True)}


def _judge_cell(
    model: Model, gpu: GpuClass, pair: Mapping[str, object], by: Judging | None, least: float = math.inf
) -> Judged:
    """Judges a cell on whole GPUs of a node: the first size that works, else the largest. By recorded answers, which
    are for the first size that fits, it does not ask for sizes that cannot hold four fifths of ``least``."""
    name = f"{model.name} {gpu.name}"
    sizes = [size for size in _TP_SIZES if size <= (gpu.facts.count or 1)]
    judged = Judged(name, sizes[0], NOT_ASKED) if by and not by.ask else None
    too_small = least * 0.8 / ((gpu.facts.memory_mib or math.inf) / 1024) if judged and least < math.inf else 0
    for size in (size for size in sizes if size >= too_small or size == sizes[-1]):
        intent = {"model_path": model.path, "tp_size": size, **gpu.args, **model.args, **pair}
        is_last = by is not None or size == sizes[-1]  # of a release, answers to larger sizes may not be recorded
        found = judge(name, intent, gpu.facts, model.facts, by=by, sized=is_last)
        if judged is None or found.state != NOT_ASKED:  # the recorded answer is for the first size that fits
            judged = found
        if found.state in ("ok", "unknown"):
            break
    assert judged is not None
    return judged


def _judge_recipe(recipe: Recipe, gpu: GpuFacts, model: Model, known: ModelPresets, by: Judging | None) -> Judged:
    node = recipe.node
    args = {name: value for name, value in node.items() if name not in ("defaults", "model", "engine")}
    path = str(args.get("model_path", model.path))
    facts = model.facts if path == model.path else known.facts_of(path) or ModelFacts(None)
    if "model" in node and facts.config is not None:
        config = {key: value for key, value in facts.config.items() if key != "quantization_config"}
        facts = replace(facts, config=config)
    intent = {"model_path": path, **model.args, **args}
    draft = str(args.get("speculative_draft_model_path", path))
    if draft != path:
        facts = replace(facts, draft=known_draft(draft, known))
    return judge(recipe.id, intent, gpu, facts, recipe_findings(recipe.id), by=by, env=recipe.env, of_recipe=(*args,))


def _verdict(name: str, resolution: Resolution, facts: Facts, findings: Sequence[Finding]) -> Judged:
    tp_size = resolution.layout.tp
    try:
        found = fit_of(resolution, facts, sized_end=False)
    except ConfigError as failure:
        found, findings = None, [*findings, *failure.findings]
    errors = dict.fromkeys(finding.id for finding in findings if finding.level == "error")
    weights = found.weights.total / 2**30 if found and found.weights.total is not None else None
    tokens = found.kv_tokens if found else None
    of_fit = fit_findings(found, lambda: ()) if found else []
    if errors:
        errors |= dict.fromkeys(finding.id for finding in of_fit if finding.level == "error")
        return Judged(name, tp_size, "refused", tuple(errors), weights, tokens)
    if found is None or found.fits is None:
        missing = found.unknown if found else (("model",) if not facts.model.known else ("gpu memory",))
        return Judged(name, tp_size, "unknown", tuple(missing), weights, tokens)
    state, ids = "ok" if found.fits else "does not fit", tuple(finding.id for finding in of_fit)
    return Judged(name, tp_size, state, ("tight",) if found.tight and found.fits else ids, weights, tokens)


def _cell(judged: Judged) -> tuple[str, str]:
    if judged.state == "ok":
        return text(f"ok {judged.tp_size}{'*' if TOO_SHORT in judged.why else ''}", "yellow" if judged.why else "green")
    if judged.state == "does not fit":
        return text("no fit", "red")
    style = {"refused": "red", NOT_ASKED: "dim"}.get(judged.state, "yellow")
    return text(judged.why[0] if judged.why and judged.state != NOT_ASKED else judged.state, style)


def _state(judged: Judged) -> tuple[str, str]:
    return text(judged.state, {"unknown": "yellow", NOT_ASKED: "dim"}.get(judged.state, "red"))
