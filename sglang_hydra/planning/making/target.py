"""Finds the target of a plan: GPU, model, engine and environment, from presets, this machine or a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.secrets import is_secret
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.arguments.tables.table import every_variable, has_class, release
from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.recipes import GROUP
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.facts.declared import gpu_facts, model_facts, with_draft
from sglang_hydra.facts.trust import hub_access
from sglang_hydra.planning.engines.planned import PlannedEngine, plan_engine
from sglang_hydra.planning.making.gpu_class import Hardware, choose_gpu_class
from sglang_hydra.releases.case import FACTS
from sglang_hydra.releases.recorded import recorded_releases
from sglang_hydra.releases.records import first_reading, records
from sglang_hydra.rules.rule import Facts
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.user_settings import settings
from sglang_hydra.text.words import nearest

if TYPE_CHECKING:
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.planning.plan import Recorded
    from sglang_hydra.text.origins import Named


class Target(NamedTuple):
    """All inputs of a resolution.

    ``composition`` has this machine's GPU class in place of ``gpu=auto``. ``environment`` holds the variables that the
    launch sets, ``inherited`` the SGLANG_* ones that are already set for the server, ``programs`` the interpreters that
    the configuration names and the launch uses. ``is_open``: nobody decided the release."""

    composition: Composition
    hardware: Hardware
    engine: PlannedEngine
    facts: Facts
    model_findings: Sequence[Finding]
    environment: Mapping[str, str]
    inherited: Mapping[str, str]
    programs: Mapping[str, Named]
    is_open: bool = False


def find_target(
    composer: Composer,
    requests: Sequence[Request],
    composition: Composition,
    seed: int | None,
    env: Mapping[str, str],
    recorded: Recorded | None,
    instead: str | None = None,
) -> Target:
    """Finds the hardware, model and engine of ``composition``, probing the machine only for ``gpu=auto``.

    ``recorded`` has the facts of an earlier plan, used unchanged. ``instead`` is an older release to plan for where
    none is named. Raises ConfigError for impossible GPU facts, an unknown engine, and variables that no environment can
    hold."""
    composition, hardware = choose_gpu_class(composer, requests, composition, env)
    engine = plan_engine(composition.nodes.engine, embedded_first=hardware.embedded)
    gpu = recorded.gpu if recorded else gpu_facts(composition.nodes.plain["gpu"], hardware.facts)
    model, model_findings = (recorded.model, []) if recorded else _facts_of_models(composer, requests, composition, env)
    nobody_decides = is_open(composition, engine)
    if nobody_decides:
        needed = needed_by(composition, model, env)
        older = instead or newest_serving([needed])
        if older not in (None, engine.version):
            missing = needed.missing_in(engine.version)
            why = f"has {missing}" if missing else f"does not refuse this, as {engine.version} does"
            nodes = composition.nodes.having("engine", {"version": older})  # not marked as a setting of the user
            composition, engine = replace(composition, nodes=nodes), engine._replace(version=older, newest_that=why)
            model_findings = [*model_findings, chosen(older, why)]
    if engine.name == "transformers":  # nothing there asks torch.cuda
        gpu = replace(gpu, torch_cuda=None)
    if engine.name == "transformers" or not engine.provider.is_by_rules:  # it has another transformers
        model = replace(model, refused=None, config_class=None)
    environment, for_rules = _planned_environment(composition, engine.name)
    inherited = _sglang_variables(recorded.inherited if recorded else env)
    release = engine.version if engine.name == "sglang" else SPECIFIED_VERSION
    used = ("engine.", "topology.") if has_several_servers(composition.nodes) else "engine."
    return Target(
        composition=composition,
        hardware=hardware,
        engine=engine,
        facts=Facts(gpu, model, {**inherited, **for_rules, **environment}, seed, composition.intent, release),
        model_findings=model_findings,
        environment=environment,
        inherited=inherited,
        programs={key: named for key, named in composition.programs.items() if key.startswith(used)},
        is_open=nobody_decides,
    )


def _facts_of_models(
    composer: Composer, requests: Sequence[Request], composition: Composition, env: Mapping[str, str]
) -> tuple[ModelFacts, Sequence[Finding]]:
    """Returns the facts of the model and its draft model, and the findings on both."""
    model, findings = model_facts(composition.nodes.plain["model"], composition, env, composer.model_presets(requests))
    if not composition.intent.get("speculative_draft_model_path"):
        return model, findings
    named = composition.origins["speculative_draft_model_path"][-1]
    access = hub_access(named, of_app=composition.of_app)
    model, of_draft = with_draft(model, composition.intent, composer.model_presets(requests), env, access)
    return model, [*findings, *of_draft]


def _planned_environment(composition: Composition, engine: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the variables that the launch sets, and those that only the rules see.

    The embedded engine needs no accelerator and ignores SGLang's variable for its CPU engine; the rules get that
    variable, because the plan shows SGLang's values. Raises ConfigError for variables that no environment can hold."""
    planned = {str(name): str(value) for name, value in composition.nodes.engine.env.items()}
    invalid = [name for name, value in planned.items() if not (name.isascii() and name.isidentifier()) or "\0" in value]
    if invalid:
        hint = "a name of letters, digits and _, and text: engine.env.NCCL_DEBUG=INFO"
        findings = [
            Finding("error", "CLI020", f"engine.env.{name} cannot be set in an environment", ("engine.env",), hint)
            for name in invalid
        ]
        raise ConfigError(*findings)
    if composition.nodes.engine.facts:
        _check_facts(composition.nodes.engine.facts)
    device = composition.nodes.gpu.device
    if engine == "transformers" and device in (None, "cpu"):
        return planned, {"SGLANG_USE_CPU_ENGINE": "1"}
    if device == "cpu":
        planned.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    return planned, {}


def _sglang_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of ``env`` that SGLang's releases read, and those that the user allows."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith("SGLANG_") and not name.startswith("SGLANG_HYDRA_") and not is_secret(name, value)
        if name in every_variable() or settings().allows_variable(name)
    }


def _check_facts(declared: Mapping[str, object]) -> None:
    """Raises ConfigError for a fact that no release reads."""
    unknown = next((name for name in declared if name not in FACTS), None)
    if unknown is not None:
        near = nearest(unknown, FACTS)
        message = f"engine.facts.{unknown} is no fact that a release asks for; these are: {', '.join(sorted(FACTS))}"
        hint = Remedy.meant(f"engine.facts.{near}") if near else None
        raise ConfigError.of("CLI030", message, "engine.facts", hint=hint)


EXTERNAL = "SGLANG_EXTERNAL_MODEL_PACKAGE"


class Needed(NamedTuple):
    """A plan's needs of a release: one of ``classes`` (architectures in the model's config.json; empty where any
    release works), a reader of its ``model_type``, and the ``arguments`` that a published recipe sets. A release that
    would read the model by the checkpoint's own code (trust_remote_code) is not chosen: that code is not run, so its
    plan would be an estimate."""

    classes: tuple[str, ...] = ()
    model_type: str | None = None
    arguments: tuple[str, ...] = ()

    def missing_in(self, version: str) -> str | None:
        """Returns the first need that a release does not meet, or None."""
        if self.classes and not has_class(version, self.classes):
            return f"a class {self.classes[0]}"
        first = first_reading(self.model_type) if self.classes else None
        if first is not None and not at_least(version, first):
            return f"a reader of {self.model_type}"
        return next((name for name in self.arguments if not _takes(version, name)), None)


def _takes(version: str, name: str) -> bool:
    """Returns whether a release accepts an argument, even only by a deprecated flag."""
    known = release(version)
    old = known.old_flags.get("--" + name.replace("_", "-"))
    return name in known.arguments or (old is not None and (old.field in known.arguments or old.does_nothing))


def is_open(composition: Composition, engine: PlannedEngine) -> bool:
    """Returns whether neither the user nor an installed SGLang decides a plan's release."""
    decides = engine.installed or composition.nodes.engine.version or settings().release
    return engine.name == "sglang" and decides is None


def needed_by(composition: Composition, model: ModelFacts, env: Mapping[str, str]) -> Needed:
    """Returns the needs of the model and the recipe."""
    of_recipe = tuple(name for name, chain in composition.origins.items() if chain and chain[-1].layer == GROUP)
    return needed_for(composition.intent, model, {**env, **composition.nodes.engine.env}, of_recipe)


def needed_for(
    intent: Mapping[str, object], model: ModelFacts, env: Mapping[str, str], of_recipe: tuple[str, ...] = ()
) -> Needed:
    """Returns the needs for these arguments, of which a recipe sets ``of_recipe``."""
    config = model.config or {}
    names = config.get("architectures")
    if not isinstance(names, (list, tuple)) or intent.get("model_impl") == "transformers" or EXTERNAL in env:
        return Needed(arguments=of_recipe)
    return Needed(tuple(map(str, names)), config.get("model_type"), of_recipe)


def newest_serving(plans: Iterable[Needed]) -> str | None:
    """Returns the newest recorded release that meets all needs of ``plans``; if it is not the newest of all, one with
    answers in this package is preferred. None where no release meets them."""
    needed = list(plans)
    known = [*reversed([*records()])]
    serving = (version for version in known if not any(one.missing_in(version) for one in needed))
    newest = next(serving, None)
    if newest in (None, known[0]):
        return newest
    return next((version for version in (newest, *serving) if version in recorded_releases()), newest)


def chosen(version: str, what: str) -> Finding:
    """Returns the finding on an older release that nobody named. ``what`` is why: it is the newest that does this."""
    message = f"nobody named a release: SGLang {version} is the newest recorded one that {what}"
    return Finding("info", "REL013", message, ("engine.version",), f"engine.version={version} in a file pins it")
