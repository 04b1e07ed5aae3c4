"""Makes a plan in one screen of steps: facts, resolution, checks, memory fit, engine, and the plan of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import GROUP, recipe_findings
from sglang_hydra.compose.settings.nodes import Nodes, unused_by_one_server
from sglang_hydra.planning.choosing.catalog import gpu_classes
from sglang_hydra.planning.engines.planned import engine_command, opinions
from sglang_hydra.planning.fields import Engine
from sglang_hydra.planning.making.by_release import serving
from sglang_hydra.planning.making.memory import fit_with_findings
from sglang_hydra.planning.making.paths import findings_on, missing_paths, notes_on
from sglang_hydra.planning.making.target import Target, find_target
from sglang_hydra.planning.plan import Plan, Recorded
from sglang_hydra.rules.checks.launchable import run_plan_checks
from sglang_hydra.rules.resolution import Resolution
from sglang_hydra.text.budget import FINDINGS
from sglang_hydra.text.findings import Finding

_PUBLISHED = ("gpu", "model", "gpu_model", "recipe")


def plan_once(
    composer: Composer,
    requests: Sequence[Request],
    composition: Composition,
    *,
    seed: int | None,
    env: Mapping[str, str],
    recorded: Recorded | None = None,
    with_remedies: bool = True,
) -> Plan:
    """Plans the composition of ``requests``. Its offers are not planned yet (``replan`` does that). Without remedies,
    none is searched where the model does not fit, and another release is not asked for its reasons. Raises ConfigError
    for impossible facts or settings."""
    find = partial(find_target, composer, requests, composition, seed, env, recorded)
    target, resolution = _serving(find, composer, with_remedies)
    composition, engine, facts, hardware = target.composition, target.engine, target.facts, target.hardware
    checked = run_plan_checks(resolution, facts)
    in_range = not any(finding.about == "out_of_range" for finding in checked)
    classes = partial(gpu_classes, composer, requests) if with_remedies else None
    fit, of_fit = fit_with_findings(target, resolution, classes) if in_range and engine.name == "sglang" else (None, [])
    command, of_engine = engine_command(engine, resolution, target.environment)
    published = {name for name, chain in composition.origins.items() if chain and chain[-1].layer in _PUBLISHED}
    findings, ignored = split_ignored(
        [
            *composition.findings,
            *hardware.findings,
            *target.model_findings,
            *(opinions(resolution.findings, engine.version) if resolution.basis == "rules" else resolution.findings),
            *checked,
            *recipe_findings(composition.choices.get(GROUP)),
            *unused_by_one_server(composition.nodes, requests),
            *of_fit,
            *of_engine,
            *_launch_findings(composition.nodes, resolution, engine.name, in_range),
            *(*findings_on(target.programs), *(() if recorded else missing_paths(composition.intent, published))),
        ],
        composition.nodes.ignore,
    )
    engine_note = [engine.note(resolution.basis)]
    return Plan(
        resolution=resolution,
        origins=composition.origins,
        nodes=composition.nodes,
        gpu=facts.gpu,
        model=facts.model,
        engine=Engine(engine.name, engine.version, engine.python, *engine_note),
        environment=target.environment,
        command=tuple(command),
        findings=tuple(map(hardware.named, findings)),
        ignored=ignored,
        notes=(*hardware.notes, *composition.shadowed, *engine_note, *notes_on(target.programs)),
        choices=composition.choices,
        fit=fit,
        seed_drawn=composition.intent.get("random_seed") is None,
        inherited=target.inherited,
        settings=composition.settings,
        programs=target.programs,
        probed=bool(hardware.facts) or hardware.without_accelerator,
        secrets=composition.secrets,
    )


def _serving(
    find: Callable[[str | None], Target], composer: Composer, with_remedies: bool
) -> tuple[Target, Resolution]:
    """Returns the target with its values. A composer that ``only_judges`` asks for reasons only after a refusal."""
    target, resolution = serving(find, why=with_remedies and not composer.only_judges)
    if with_remedies and composer.only_judges and resolution.answer is not None and not resolution.answer.ok:
        return serving(find)
    return target, resolution


def _launch_findings(nodes: Nodes, resolution: Resolution, engine: str, in_range: bool) -> Iterator[Finding]:
    """Yields findings on the launch: on several nodes (only where every size is ``in_range``), as a Slurm job, over a
    network. Imports only the modules that apply."""
    if in_range and resolution.values["nnodes"] != 1:
        from sglang_hydra.planning.passing.nodes import node_findings

        yield from node_findings(resolution.values, nodes.launch.name, engine)
    if nodes.launch.name == "slurm":
        from sglang_hydra.planning.passing.slurm_options import slurm_findings

        yield from slurm_findings(nodes.launch, str(resolution.values["model_path"]))
    if nodes.fabric is not None:
        from sglang_hydra.planning.passing.fabric import fabric_findings

        yield from fabric_findings(nodes.fabric)


def split_ignored(
    findings: Sequence[Finding], ignore: Sequence[str]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Returns the remaining findings, and ours that ``ignore`` names; a refusal of SGLang's own cannot be silenced. An
    id in ``ignore`` that has no effect or does not exist is a finding (CLI011)."""
    ignored = tuple(finding for finding in findings if finding.id in ignore and finding.ours)
    kept = [finding for finding in findings if finding not in ignored]
    refused = {finding.id for finding in kept if finding.level == "error"}
    kept += [
        Finding("warning", "CLI011", f"ignore={id} has no effect: SGLang itself refuses this", ("ignore",))
        for id in ignore
        if id in refused
    ]
    return (*kept, *_unknown_ids(ignore)), ignored


def _unknown_ids(ignore: Sequence[str]) -> Iterator[Finding]:
    if not ignore:
        return
    from sglang_hydra.planning.finding_meanings import plan_ids
    from sglang_hydra.text.words import nearest

    for id in sorted(set(ignore) - (known := plan_ids()))[:FINDINGS]:
        if id.startswith("DIA"):  # a finding of a log: no plan has it, but a file may name it
            continue
        near = nearest(id, known)
        hint = f"did you mean {near}?" if near else None
        yield Finding("warning", "CLI011", f"ignore={id}: no finding has this id", ("ignore",), hint)
