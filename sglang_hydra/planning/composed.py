"""The story in one screen: from a composition to the facts, the resolution, the checks, the memory fit and the plan."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.provenance import Named
from sglang_hydra.compose.recipes import GROUP, recipe_findings
from sglang_hydra.compose.settings.topology import has_several_servers, unused_replicas
from sglang_hydra.facts.declared import gpu_facts, model_facts
from sglang_hydra.facts.trust import hub_access
from sglang_hydra.planning.engines.base import Machine
from sglang_hydra.planning.engines.planned import opinions, plan_engine, told_to_engine
from sglang_hydra.planning.gpu_class import choose_gpu_class
from sglang_hydra.planning.memory import fit_findings, fit_or_why, remedies_of, reserved_gib, with_who_stated
from sglang_hydra.planning.plan import Engine, Plan, Recorded
from sglang_hydra.planning.programs import findings_on, notes_on
from sglang_hydra.rules.checks.launchable import OUT_OF_RANGE, PLAN_CHECKS
from sglang_hydra.rules.resolution import Resolution, resolve, run_checks
from sglang_hydra.rules.rule import Facts
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.fit.remedy import Remedy
    from sglang_hydra.fit.result import Fit


def with_planned(
    findings: Sequence[Finding],
    composer: Composer,
    requests: Sequence[Request],
    *,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """``findings`` of a plan that was made without remedies, with the offers that help."""
    return Replanner(composer, requests, seed, env, None).planned(findings)


_MOST_VALUES = 2


@dataclass(frozen=True)
class Replanner:
    """What a plan was made from: all that is needed to make it with other overrides."""

    composer: Composer
    requests: Sequence[Request]
    seed: int | None
    env: Mapping[str, str] | None
    recorded: Recorded | None

    def findings_with(self, words: Sequence[str]) -> Sequence[Finding] | None:
        """Those of the plan with these overrides typed in place; None where it cannot be composed."""
        from sglang_hydra.planning.offers import typed_in_place

        requests = typed_in_place(self.composer, self.requests, words)
        try:
            composition = self.composer.compose(requests)
            plan = planned(
                self.composer,
                requests,
                composition,
                seed=self.seed,
                env=self.env,
                recorded=self.recorded,
                with_remedies=False,
            )
        except SglangHydraError:
            return None
        return plan.findings

    def planned(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings of the plan, with the offers that help."""
        if not any(finding.offers for finding in findings):
            return tuple(findings)
        from sglang_hydra.planning.offers import with_planned_offers

        return with_planned_offers(findings, self.findings_with)

    def composed_otherwise(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """What cannot be composed, with values that add no error to the plan of the rest."""
        from sglang_hydra.planning.offers import with_planned_offers, without

        wrong = {name for finding in findings for name in finding.fields}
        rest = replace(self, requests=without(self.requests, wrong))
        before = rest.findings_with(())
        return with_planned_offers(findings, rest.findings_with, before or (), most=_MOST_VALUES)


def planned(
    composer: Composer,
    requests: Sequence[Request],
    composition: Composition,
    *,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
    with_remedies: bool = True,
) -> Plan:
    """The plan of what ``requests`` were composed to. Without remedies, a plan that does not fit says no more."""
    env = os.environ if env is None else env
    composition, hardware = choose_gpu_class(composer, requests, composition, env)
    programs = _used_programs(composition)
    engine = plan_engine(composition.nodes["engine"], embedded_first=hardware.without_accelerator)
    gpu = recorded.gpu if recorded else gpu_facts(composition.nodes["gpu"], hardware)
    model, model_findings = (recorded.model, []) if recorded else _known_of_models(composer, composition, env)
    if engine.name == "transformers":  # nothing there asks torch.cuda
        gpu = replace(gpu, torch_cuda=None)
    if engine.name == "transformers" or not engine.by_own_rules:  # its transformers is another one
        model = replace(model, refused=None, config_class=None)
    environment, cpu = _planned_environment(composition, engine.name)
    inherited = _sglang_variables(recorded.inherited if recorded else env)
    seed_drawn = composition.intent.get("random_seed") is None
    seed = random.randint(0, 1 << 30) if seed is None else seed
    facts = Facts(gpu, model, {**inherited, **cpu, **environment}, seed, composition.intent)
    resolution = resolve(composition.intent, gpu=gpu, model=model, seed=facts.seed, env=facts.env)
    checked = run_checks(PLAN_CHECKS, resolution, facts)
    sane = not any(finding.id in OUT_OF_RANGE for finding in checked)
    known = engine.name == "sglang" and sane
    fit, fit_said = _memory(composer, composition, resolution, facts, with_remedies) if known else (None, [])
    request = engine.request(resolution, environment, Machine(None), composition.nodes["extra"])
    shown, engine_said = told_to_engine(engine, request) if "model_path" in request.intent else ([], [])
    said = [
        *composition.findings,
        *hardware.findings,
        *model_findings,
        *(resolution.findings if engine.by_own_rules else opinions(resolution.findings, engine.version)),
        *checked,
        *recipe_findings(composition.choices.get(GROUP), composition.nodes["extra"]),
        *unused_replicas(composition.nodes),
        *fit_said,
        *engine_said,
        *_said_of_the_launch(composition.nodes, resolution, engine.name, sane),
        *findings_on(programs),
    ]
    findings, ignored = _silence(said, composition.nodes["ignore"])
    if with_remedies:
        findings = Replanner(composer, requests, facts.seed, env, recorded).planned(findings)
    return Plan(
        resolution=resolution,
        origins=composition.origins,
        nodes=composition.nodes,
        gpu=gpu,
        model=model,
        engine=Engine(engine.name, engine.version, engine.python, engine.note),
        environment=environment,
        command=tuple(shown),
        findings=findings,
        ignored=ignored,
        notes=(
            *hardware.notes,
            *composition.shadowed,
            *([engine.note] if engine.note else []),
            *notes_on(programs),
        ),
        choices=composition.choices,
        fit=fit,
        seed_drawn=seed_drawn,
        inherited=inherited,
        settings=composition.settings,
        programs=programs,
        probed=bool(hardware.facts) or hardware.without_accelerator,
        secrets=composition.secrets,
    )


def _known_of_models(
    composer: Composer, composition: Composition, env: Mapping[str, str]
) -> tuple[ModelFacts, Sequence[Finding]]:
    """The facts of the model and of its draft model, and what is to be said of them."""
    model, findings = model_facts(composition, env, composer.model_presets)
    if not composition.intent.get("speculative_draft_model_path"):
        return model, findings
    from sglang_hydra.facts.drafts import with_draft

    named = composition.origins["speculative_draft_model_path"][-1]
    access = hub_access(named, of_app=composition.of_app)
    model, of_draft = with_draft(model, composition.intent, composer.model_presets, env, access)
    return model, [*findings, *of_draft]


def _memory(
    composer: Composer, composition: Composition, resolution: Resolution, facts: Facts, with_remedies: bool
) -> tuple[Fit | None, list[Finding]]:
    """Whether the plan fits into memory, None where that cannot be told, and what is to be said of it."""
    reserved = reserved_gib(composition.nodes["fit"])
    fit, unfit = fit_or_why(resolution, facts, reserved)
    if fit is None:
        return None, [with_who_stated(said, resolution, facts, composition.settings) for said in unfit]

    def remedies() -> Sequence[Remedy]:
        return remedies_of(resolution, facts, fit, composer.preset_files("gpu"), reserved) if with_remedies else ()

    return fit, fit_findings(fit, remedies, refused=not resolution.ok)


def _said_of_the_launch(nodes: Mapping[str, Any], resolution: Resolution, engine: str, sane: bool) -> Iterator[Finding]:
    """Findings on several nodes, on a job and on the network between them, each where there is one."""
    if sane and resolution.values["nnodes"] != 1:
        from sglang_hydra.planning.nodes import node_findings

        yield from node_findings(resolution.values, nodes["launch"]["name"], engine)
    if nodes["launch"]["name"] == "slurm":
        from sglang_hydra.planning.slurm_options import slurm_findings

        yield from slurm_findings(nodes["launch"], str(resolution.values["model_path"]))
    if nodes["fabric"] is not None:
        from sglang_hydra.planning.fabric import fabric_findings

        yield from fabric_findings(nodes["fabric"])


def _used_programs(composition: Composition) -> dict[str, Named]:
    """The interpreters that are named and have something to do."""
    several = has_several_servers(composition.nodes)
    return {key: named for key, named in composition.programs.items() if several or not key.startswith("topology.")}


def _planned_environment(composition: Composition, engine: str) -> tuple[dict[str, str], dict[str, str]]:
    """The variables that the launch sets, and those that the rules are to see beside them.

    The embedded engine needs no accelerator and does not read SGLang's variable for its CPU engine; the plan, which
    says what SGLang would do, is then made as for that. Raises ConfigError for what no environment can hold.
    """
    planned = {str(name): str(value) for name, value in composition.nodes["engine"]["env"].items()}
    odd = [name for name, value in planned.items() if not (name.isascii() and name.isidentifier()) or "\0" in value]
    if odd:
        hint = "a name of letters, digits and _, and text: engine.env.NCCL_DEBUG=INFO"
        findings = [
            Finding("error", "CLI020", f"engine.env.{name} cannot be set in an environment", ("engine.env",), hint)
            for name in odd
        ]
        raise ConfigError(*findings)
    device = composition.nodes["gpu"]["device"]
    if engine == "transformers" and device in (None, "cpu"):
        return planned, {"SGLANG_USE_CPU_ENGINE": "1"}
    if device == "cpu":
        planned.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    return planned, {}


def _sglang_variables(env: Mapping[str, str]) -> dict[str, str]:
    """What the server will find set already, without what is ours or a secret."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith("SGLANG_") and not name.startswith("SGLANG_HYDRA_") and not is_secret_name(name)
    }


def _silence(found: Sequence[Finding], ignore: Sequence[str]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Splits off the findings of ours that ``ignore`` names; a refusal of SGLang's own cannot be silenced."""
    silent = tuple(finding for finding in found if finding.id in ignore and finding.ours)
    kept = [finding for finding in found if finding not in silent]
    loud = {finding.id for finding in kept if finding.level == "error"}
    kept += [
        Finding("warning", "CLI011", f"ignore={id} has no effect: SGLang itself refuses this", ("ignore",))
        for id in ignore
        if id in loud
    ]
    return (*kept, *_unknown_ids(ignore)), silent


def _unknown_ids(ignore: Sequence[str]) -> Iterator[Finding]:
    """A mistyped id would silence nothing, and nobody would notice."""
    if not ignore:
        return
    from sglang_hydra.planning.finding_meanings import plan_ids
    from sglang_hydra.text.words import nearest

    for id in sorted(set(ignore) - (known := plan_ids())):
        if id.startswith("DIA"):  # of a server's log: no plan has it, and files that name it are valid
            continue
        near = nearest(id, known)
        hint = f"did you mean {near}?" if near else None
        yield Finding("warning", "CLI011", f"ignore={id}: no finding has this id", ("ignore",), hint)
