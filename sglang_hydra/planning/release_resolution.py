"""A resolution by the code of another release; where that cannot be asked, an estimate by 0.5.2's rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.secrets import SECRET_FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.translate import Translation, translate
from sglang_hydra.planning.release_advice import advised
from sglang_hydra.planning.release_answer import NoAnswer, answer_to
from sglang_hydra.planning.release_values import entries_of, same_value, under_old_names, unknown_by_rules
from sglang_hydra.planning.upstream.case import case_for, folder_to_read, own_config_class
from sglang_hydra.rules.ledger import Ledger
from sglang_hydra.rules.resolution import Basis, Resolution
from sglang_hydra.text.findings import Finding, Offer
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import program, short

if TYPE_CHECKING:
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.planning.target import Target
    from sglang_hydra.upstream.case import Answer

_MOST_OF_A_LINE = 200


def of_release(target: Target, own: Resolution, *, may_fetch: bool, may_ask: bool, why: bool = True) -> Resolution:
    """What the target's release makes of what ``own``, the resolution by 0.5.2's rules, was made of. Where it must not
    be asked and its answer is not recorded, ``own`` stands as it is: no estimate is made of it."""
    passed = {name: value for name, value in own.intent.items() if name not in SECRET_FIELDS}
    made = translate(passed, target.engine.version, target.composition.nodes["extra"])
    found = _asked(target, own, made, may_fetch=may_fetch, may_ask=may_ask, why=why)
    if isinstance(found, NoAnswer):
        return _by_rules(own, made, found) if may_ask else replace(own, basis="rules", release=made.version)
    answer, basis = found
    if answer.ok:
        return _accepted(answer, basis, own, made, target.facts.model)
    return _refused(answer, basis, own, made, target)


def _asked(
    target: Target, own: Resolution, made: Translation, *, may_fetch: bool, may_ask: bool, why: bool
) -> tuple[Answer, Basis] | NoAnswer:
    """The release's answer, or why there is none."""
    model, view = target.facts.model, own.values
    if not model.known:
        return NoAnswer(
            "the model's config.json is not known",
            "model.facts_from=PRESET, or its config.json: model.facts_from=./config.json",
        )
    if model.gguf:
        return NoAnswer("the model is a GGUF file, of which only the facts are here")
    try:
        flags = made.flags()
    except ValueError as failure:
        return NoAnswer(str(failure))
    environment = {**target.inherited, **target.environment}
    declared = target.composition.nodes["engine"].get("facts", {})
    case = case_for(flags, target.facts.gpu, model, view, environment, target.engine.version, declared)
    setting = target.composition.settings.get("engine.version")
    is_typed = setting is not None and setting.layer == "cli"
    found = answer_to(case, target.engine, may_fetch=may_fetch and is_typed, may_ask=may_ask, why=why)
    if isinstance(found, NoAnswer):
        return found
    if found.answer.lacks_type and folder_to_read(model, view) is None:
        return NoAnswer(f"its transformers has no model type {(model.config or {}).get('model_type')}")
    if found.answer.by_library and folder_to_read(model, view) is None:
        return NoAnswer(
            f"what is known of the model is not all that the release reads of it: {_first_line(found.answer)}"
        )
    if found.answer.ok is False and not _is_whole(model):
        return NoAnswer(
            f"only a part of the model's config.json is known, and with that it refuses: {_first_line(found.answer)}"
        )
    return found.answer, found.basis


def _first_line(answer: Answer) -> str:
    """The first line of a refusal: what follows is upstream's advice on installing."""
    return short(str(answer.error).strip().partition("\n")[0], _MOST_OF_A_LINE)


def _is_whole(model: ModelFacts) -> bool:
    """Whether all that a checkpoint's config.json has is known: transformers writes its version into each."""
    stated = model.extra.get("stated") or model.config or {}
    known = {"files", "folder", "whole"} & set(model.extra)
    return bool(known) or "transformers_version" in stated


def _accepted(answer: Answer, basis: Basis, own: Resolution, made: Translation, model: ModelFacts) -> Resolution:
    values = {**answer.values, "random_seed": own.values["random_seed"]}
    values |= {name: own.intent[name] for name in SECRET_FIELDS if name in own.intent}
    entries = list(entries_of(replace(answer, values=values), made.arguments, made))
    findings = [*_without_model(own), *_overridden(values, made), *_stand_in(model, values)]
    return Resolution(
        intent=own.intent,
        values=MappingProxyType(values),
        ledger=Ledger(entries),
        findings=tuple(findings),
        env=answer.environment,
        basis=basis,
        of_0_5_2=MappingProxyType(under_old_names(values)),
        answer=answer,
        release=made.version,
    )


def _refused(answer: Answer, basis: Basis, own: Resolution, made: Translation, target: Target) -> Resolution:
    """The release gives no values where it refuses: those of ``own`` stand for it, none of them known."""
    stage = answer.stage or "check"
    error = " ".join(str(answer.error).split())
    if answer.check is not None and ".py:" not in error:
        error += f" ({answer.check.place.removeprefix('sglang/srt/')})"
    message = f"SGLang {made.version} refuses it ({stage}): {error}"
    hint = f"{program()} release fetch {made.version}: its message is then shown" if basis == "recorded" else None
    pinned = "" if "engine.version" in target.composition.settings else f"engine.version={made.version} "
    words = advised(error, made.known.arguments, made.arguments, target.facts.gpu.vendor)
    offers = tuple(Offer(pinned + word) for word in words)
    fields = _named_fields(error, made)
    finding = Finding("error", "REL010", message, fields, hint, stage=stage, offers=offers)  # type: ignore[arg-type]
    estimate = _by_rules(own, made, None)
    findings = (*_without_model(own), finding)
    return replace(estimate, basis=basis, ledger=Ledger(), findings=findings, answer=answer)


def _by_rules(own: Resolution, made: Translation, why: NoAnswer | None) -> Resolution:
    """0.5.2's values under the release's names; those that its rules made are not known to be the release's."""
    unknown = unknown_by_rules(own.ledger, {*own.intent, *made.arguments})
    values = {
        name: None if name in unknown else made.arguments.get(name, argument.default)
        for name, argument in made.known.arguments.items()
        if name[0] != "_"
    }
    values |= {name: own.intent[name] for name in SECRET_FIELDS if name in own.intent}
    values["random_seed"] = own.values["random_seed"]
    findings = list(own.findings)
    if why is not None:
        message = f"the values are an estimate by {SPECIFIED_VERSION}'s rules, not SGLang {made.version}'s: {why.why}"
        findings.append(Finding("warning", "REL011", message, ("engine.version",), why.hint))
    return replace(
        own,
        values=MappingProxyType(values),
        findings=tuple(findings),
        basis="rules",
        unknown=unknown,
        of_0_5_2=MappingProxyType({**values, **own.values}),
        not_asked=None if why is None else f"{why.why}: {why.hint}" if why.hint else why.why,
        release=made.version,
    )


def _stand_in(model: ModelFacts, values: Mapping[str, Any]) -> Iterator[Finding]:
    """What stands for code that the model brings: no question runs it."""
    name = own_config_class(model) if values.get("trust_remote_code") else None
    if name is not None:
        message = f"the model's own config class {name} was not run: the class that the release has stands for it"
        yield Finding("info", "REL014", message, ("trust_remote_code",))


def _overridden(values: Mapping[str, Any], made: Translation) -> Iterator[Finding]:
    """What was set and the release changed."""
    old_names = {new: old for old, new in made.renamed.items()}
    for name, before in made.arguments.items():
        if name != "random_seed" and name in values and not same_value(before, values[name]):
            known = old_names.get(name, name)
            message = f"{known}={shown(before)} was set, and SGLang {made.version} makes it {shown(values[name])}"
            yield Finding("warning", "REL012", message, (known,))


def _without_model(own: Resolution) -> list[Finding]:
    """Of our own rules' findings those on arguments that no release has."""
    return [finding for finding in own.findings if finding.id == "ARG001"]


def _named_fields(error: str, made: Translation) -> tuple[str, ...]:
    """The typed arguments that a refusal names, by name or by flag."""
    text = error.replace("-", "_")
    return tuple(name for name in made.arguments if name in text and name not in ("model_path", "random_seed"))
