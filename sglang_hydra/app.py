"""The story in one screen: compose, know the facts, resolve, plan. Acting on a plan is ``cli`` and ``launch``.

argv -> compose -> intent --+
                            +-> resolve -> plan -> explain, check, launch
probe / preset -> facts ----+
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.checks.launchable import OUT_OF_RANGE, PLAN_CHECKS
from sglang_hydra.compose import Composer, Composition
from sglang_hydra.config import PRIMARY_NAME
from sglang_hydra.engines.base import Machine
from sglang_hydra.engines.planned import opinions, plan_engine, told_to_engine
from sglang_hydra.errors import ConfigError
from sglang_hydra.facts.declared import gpu_facts, model_facts
from sglang_hydra.facts.hardware import choose_gpu_class
from sglang_hydra.findings import Finding
from sglang_hydra.fitting import fit_findings, fit_or_why, remedies_of, reserved_gib, with_who_stated
from sglang_hydra.overrides import Request
from sglang_hydra.plans import Engine, Plan, Recorded
from sglang_hydra.recipes import GROUP, recipe_findings
from sglang_hydra.resolution import Resolution, resolve, run_checks
from sglang_hydra.rules.rule import Facts
from sglang_hydra.secret import is_secret_name
from sglang_hydra.topology.settings import unused_replicas

if TYPE_CHECKING:
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.fit import Fit, Remedy


def plan(
    overrides: Sequence[str] = (),
    *,
    config_dirs: Sequence[str | Path] = (),
    config_name: str = PRIMARY_NAME,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Plan:
    """Plans what ``python serve.py plan OVERRIDES`` plans.

    ``config_dirs`` are searched for config groups before ours. ``seed`` stands in for the seed that is drawn when
    no ``random_seed`` is set; ``env`` for the process's environment. Raises ConfigError, with every finding, when
    the overrides cannot be composed; what SGLang would refuse is in the plan's ``findings`` instead.
    """
    if isinstance(overrides, str):
        raise TypeError(f"overrides is a list of words, [{overrides!r}, ...], not one word")
    if isinstance(overrides, Mapping):
        raise TypeError('overrides is a list of words, ["tp_size=2", ...], not a mapping; resolve takes one')
    requests = [Request(text, f"override {number}") for number, text in enumerate(overrides, 1)]
    own = not config_dirs and config_name == PRIMARY_NAME
    return make_plan(_own_composer() if own else Composer(config_dirs, config_name), requests, seed=seed, env=env)


@functools.lru_cache(maxsize=1)
def _own_composer() -> Composer:
    """Our own configs change as little as our code does while a program runs."""
    return Composer()


def make_plan(
    composer: Composer,
    requests: Sequence[Request],
    *,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    recorded: Recorded | None = None,
) -> Plan:
    """From what was typed to the finished plan, step by step. ``recorded`` is what an earlier plan knew already.

    With ``lock=plan.json`` that plan is made once more, or refused where it would be another one.
    """
    composition = composer.compose(requests)
    return plan_composed(composer, requests, composition, seed=seed, env=env, recorded=recorded)


def plan_composed(
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
    if composition.nodes["lock"] is not None and not (recorded and recorded.locked):
        from sglang_hydra.lock import replay

        return replay(composer, requests, composition.nodes["lock"], env, recorded)
    composition, hardware = choose_gpu_class(composer, requests, composition, env)
    engine = plan_engine(composition.nodes["engine"], embedded_first=hardware.without_accelerator)
    gpu = recorded.gpu if recorded else gpu_facts(composition.nodes["gpu"], hardware)
    model, model_findings = (recorded.model, []) if recorded else _known_of_models(composer, composition, env)
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
    ]
    findings, ignored = _silence(said, composition.nodes["ignore"])
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
        notes=(*hardware.notes, *composition.shadowed, *([engine.note] if engine.note else [])),
        choices=composition.choices,
        fit=fit,
        seed_drawn=seed_drawn,
        inherited=inherited,
        settings=composition.settings,
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

    model, of_draft = with_draft(model, composition.intent, composer.model_presets, env)
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
        from sglang_hydra.launch.nodes import node_findings

        yield from node_findings(resolution.values, nodes["launch"]["name"], engine)
    if nodes["launch"]["name"] == "slurm":
        from sglang_hydra.launch.slurm.options import slurm_findings

        yield from slurm_findings(nodes["launch"], str(resolution.values["model_path"]))
    if nodes["fabric"] is not None:
        from sglang_hydra.launch.export.fabric import fabric_findings

        yield from fabric_findings(nodes["fabric"])


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
    from sglang_hydra.meanings import known_ids
    from sglang_hydra.words import nearest

    for id in sorted(set(ignore) - (known := known_ids())):
        near = nearest(id, known)
        hint = f"did you mean {near}?" if near else None
        yield Finding("warning", "CLI011", f"ignore={id}: no finding has this id", ("ignore",), hint)
