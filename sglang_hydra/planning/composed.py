"""The story of a plan in one screen: facts, resolution, checks, memory fit, engine, and the plan of them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import GROUP, recipe_findings
from sglang_hydra.compose.settings.topology import unused_replicas
from sglang_hydra.planning.catalog import gpu_classes
from sglang_hydra.planning.engines.planned import engine_command, opinions
from sglang_hydra.planning.ignored import split_ignored
from sglang_hydra.planning.launch_findings import launch_findings
from sglang_hydra.planning.memory import fit_with_findings
from sglang_hydra.planning.plan import Engine, Plan, Recorded
from sglang_hydra.planning.programs import findings_on, notes_on
from sglang_hydra.planning.target import find_target
from sglang_hydra.rules.checks.launchable import OUT_OF_RANGE, PLAN_CHECKS
from sglang_hydra.rules.resolution import resolve, run_checks


def plan_once(
    composer: Composer,
    requests: Sequence[Request],
    composition: Composition,
    *,
    seed: int,
    env: Mapping[str, str],
    recorded: Recorded | None = None,
    with_remedies: bool = True,
) -> Plan:
    """The plan of what ``requests`` were composed to. Its offers are not planned yet (``replan`` does that); without
    remedies, none is looked for where the model does not fit. Raises ConfigError for facts or settings that mean
    nothing."""
    target = find_target(composer, requests, composition, seed, env, recorded)
    composition, engine, facts, hardware = target.composition, target.engine, target.facts, target.hardware
    resolution = resolve(composition.intent, gpu=facts.gpu, model=facts.model, seed=seed, env=facts.env)
    checked = run_checks(PLAN_CHECKS, resolution, facts)
    in_range = not any(finding.id in OUT_OF_RANGE for finding in checked)
    sized = in_range and engine.name == "sglang"
    classes = partial(gpu_classes, composer, requests) if with_remedies else None
    fit, of_fit = fit_with_findings(composition, resolution, facts, classes) if sized else (None, [])
    command, of_engine = engine_command(engine, resolution, target.environment, composition.nodes["extra"])
    findings, ignored = split_ignored(
        [
            *composition.findings,
            *hardware.findings,
            *target.model_findings,
            *(resolution.findings if engine.by_own_rules else opinions(resolution.findings, engine.version)),
            *checked,
            *recipe_findings(composition.choices.get(GROUP), composition.nodes["extra"]),
            *unused_replicas(composition.nodes),
            *of_fit,
            *of_engine,
            *launch_findings(composition.nodes, resolution, engine.name, in_range),
            *findings_on(target.programs),
        ],
        composition.nodes["ignore"],
    )
    engine_note = [engine.note] if engine.note else []
    return Plan(
        resolution=resolution,
        origins=composition.origins,
        nodes=composition.nodes,
        gpu=facts.gpu,
        model=facts.model,
        engine=Engine(engine.name, engine.version, engine.python, engine.note),
        environment=target.environment,
        command=tuple(command),
        findings=findings,
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
