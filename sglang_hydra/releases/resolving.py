"""Resolves by the code of another release than 0.5.2, or estimates by 0.5.2's rules if that cannot be asked.

Advice in a refusal's message, as flags and values, becomes overrides to try."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from sglang_hydra.arguments.accepted import Accepted
from sglang_hydra.arguments.every import EVERY, last_choices
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.layout import layout_of, names_of
from sglang_hydra.arguments.secrets import SECRET_FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.table import Argument
from sglang_hydra.facts.config_view import yarn_override
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.releases.asking import Answered, Asking, NoAnswer, answer_to
from sglang_hydra.releases.case import MODEL_ARGUMENTS, case_for, folder_to_read, own_config_class
from sglang_hydra.releases.recorded import resolved_fields
from sglang_hydra.rules.answer import Answer, Change
from sglang_hydra.rules.resolution import Basis, Entry, Ledger, Resolution
from sglang_hydra.rules.rule import Facts
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, by_identity
from sglang_hydra.text.screen import shown
from sglang_hydra.text.words import nearest, program, short

_MOST_OF_A_LINE = 200


def resolved(given: Accepted, facts: Facts, asking: Asking, by_rules: Callable[[], Resolution]) -> Resolution:
    """Returns a release's resolution of ``given``. ``by_rules`` applies 0.5.2's rules: an estimate, if the release
    gives no answer."""
    if "model_path" not in facts.given:  # nothing is resolved without a model
        made = replace(_estimate(by_rules(), given, None), basis="exact")
    elif not facts.has_device(given.arguments.get("device")):
        own = by_rules()
        # Every release refuses a machine without an accelerator (get_device; 0.5.23 srt/utils/common.py:1125).
        without_device = tuple(finding for finding in own.findings if finding.about == "no_device")
        made = replace(_estimate(own, given, None), basis="exact", ledger=Ledger(), findings=without_device)
    elif isinstance(found := _asked(given, facts, asking), NoAnswer):
        if not asking.may_ask:  # the catalog's question is whether there is an answer: no estimate, which costs more
            return Resolution(facts.given, given.arguments, Ledger(), (), {}, "rules", release=given.version)
        own = by_rules()
        if found.refusal is not None and not own.ok:  # 0.5.2 refuses it too, whatever else the model's config has
            made = _refused(*found.refusal, own, given, facts)
        else:
            made = _estimate(own, given, found)
    elif found.answer.ok:
        made = _accepted(found.answer, found.basis, given, facts)
    else:
        made = _refused(found.answer, found.basis, by_rules(), given, facts)
    return replace(made, findings=(*given.findings, *made.findings)) if given.findings else made


def _asked(given: Accepted, facts: Facts, asking: Asking) -> Answered | NoAnswer:
    model = facts.model
    if not model.known:
        return NoAnswer(
            "the model's config.json is not known",
            "model.facts_from=PRESET, or its config.json: model.facts_from=./config.json",
        )
    if model.gguf:
        return NoAnswer("the model is a GGUF file, of which only the facts are here")
    try:
        flags = given.written
    except ValueError as failure:
        return NoAnswer(str(failure))
    values = {name: given.arguments.get(name, given.known.arguments[name].default) for name in MODEL_ARGUMENTS}
    case = case_for(flags, facts.gpu, model, values, asking.environment, given.version, asking.declared)
    found = answer_to(case, given.version, asking)
    if isinstance(found, NoAnswer):
        return found
    if found.answer.lacks_type and folder_to_read(model, values) is None:
        return NoAnswer(f"its transformers has no model type {(model.config or {}).get('model_type')}")
    if found.answer.by_library and folder_to_read(model, values) is None:
        return NoAnswer(f"its transformers refuses the known part of config.json: {_first_line(found.answer)}")
    if found.answer.ok is False and not _is_whole(model):
        return NoAnswer(
            f"only a part of the model's config.json is known, and with that it refuses: {_first_line(found.answer)}",
            refusal=found,
        )
    return found


def _first_line(answer: Answer) -> str:
    """Returns the first line of a refusal; upstream's advice on installing follows it."""
    return short(str(answer.error).strip().partition("\n")[0], _MOST_OF_A_LINE)


def _is_whole(model: ModelFacts) -> bool:
    """Returns whether the whole config.json of a checkpoint is known: transformers writes its version into each."""
    stated = model.extra.get("stated") or model.config or {}
    known = {"files", "folder", "whole"} & set(model.extra)
    return bool(known) or "transformers_version" in stated


def _accepted(answer: Answer, basis: Basis, given: Accepted, facts: Facts) -> Resolution:
    seed = given.arguments.get("random_seed")  # without one the plan's own: the release drew another
    values = {**answer.values, "random_seed": facts.seed if seed is None else seed}
    values |= {name: facts.given[name] for name in SECRET_FIELDS if name in facts.given}
    return Resolution(
        intent=MappingProxyType(dict(facts.given)),
        values=MappingProxyType(values),
        ledger=Ledger(lambda: list(entries_of(answer._replace(values=values), given))),
        findings=(*_overridden(values, given), *_stand_in(facts.model, values)),
        env=answer.environment,
        basis=basis,
        answer=answer,
        release=given.version,
    )


def _refused(answer: Answer, basis: Basis, own: Resolution, given: Accepted, facts: Facts) -> Resolution:
    """Returns the resolution of a refusal: the release gives no values, so those of ``own`` are used as unknown."""
    stage = answer.stage or "check"
    error = " ".join(str(answer.error).split())
    if answer.check is not None and ".py:" not in error:
        error += f" ({answer.check.place.removeprefix('sglang/srt/')})"
    message = f"SGLang {given.version} refuses it ({stage}): {error}"
    hint = f"{program()} release fetch {given.version}: its message is then shown" if basis == "recorded" else None
    offers = advised(error, given.known.arguments, given.arguments, facts.gpu.vendor)
    fields = _named_fields(error, given) or tuple(name for one in own.findings if not one.ours for name in one.fields)
    if "Error: (" in error and (like := next((one for one in own.findings if not one.ours), None)):  # it says nothing
        hint = like.message
    for name in fields:
        if hint is None and isinstance(given.arguments.get(name), str) and (listed := last_choices(name)):
            hint = f"{name} was one of {', '.join(map(str, listed))} in the last release that lists them"
    if "context_length" in fields and "context_length" in given.arguments:
        longer = yarn_override(facts.model.config, given.arguments["context_length"])
        offers = [longer, *offers] if longer else offers
    finding = Finding("error", "REL010", message, fields, hint, stage=stage, offers=offers)  # type: ignore[arg-type]
    return replace(_estimate(own, given, None), basis=basis, ledger=Ledger(), findings=(finding,), answer=answer)


def _estimate(own: Resolution, given: Accepted, why: NoAnswer | None) -> Resolution:
    """Returns 0.5.2's values under the release's names; those from its rules are ``unknown`` for the release."""
    unknown = unknown_by_rules(own.ledger, {*own.intent, *given.arguments})
    values = {**_defaults(given.known.arguments), **given.arguments}
    values |= {name: own.values[name] for name in unknown & own.values.keys() & values.keys()}
    values |= {name: own.intent[name] for name in SECRET_FIELDS if name in own.intent}
    values["random_seed"] = own.values["random_seed"]
    findings = list(own.findings)
    if why is not None:
        message = f"the values are an estimate by {SPECIFIED_VERSION}'s rules, not SGLang {given.version}'s: {why.why}"
        findings.append(Finding("warning", "REL011", message, ("engine.version",), why.hint))
    return replace(
        own,
        values=MappingProxyType(values),
        findings=tuple(findings),
        basis="rules",
        unknown=unknown & values.keys(),
        not_asked=None if why is None else f"{why.why}: {why.hint}" if why.hint else why.why,
        release=given.version,
    )


def _stand_in(model: ModelFacts, values: Mapping[str, object]) -> Iterator[Finding]:
    """Yields the finding on a model's own code, which no question runs."""
    name = own_config_class(model) if values.get("trust_remote_code") else None
    if name is not None:
        message = f"the model's own config class {name} was not run: the release's own class is used instead"
        yield Finding("info", "REL014", message, ("trust_remote_code",))


def _overridden(values: Mapping[str, object], given: Accepted) -> Iterator[Finding]:
    """Yields a warning for each set argument that the release changed. DP attention under another argument's name
    (0.5.22: attn_dp_size) is no change."""
    for name, asked in given.arguments.items():
        if name == "random_seed" or name not in values or same_value(asked, values[name]):
            continue
        before, after = (layout_of(each, given.version) for each in (given.arguments, values))
        kept = (before.attention_groups, before.gpus) == (after.attention_groups, after.gpus)
        if not (kept and before.attention_groups > 1 and name in names_of("attention_groups")):
            message = f"{name}={shown(asked)} was set, and SGLang {given.version} makes it {shown(values[name])}"
            yield Finding("warning", "REL012", message, (name,))


def _named_fields(error: str, given: Accepted) -> tuple[str, ...]:
    """Returns the typed arguments that a refusal names, by name, by flag or in words; else those whose value it has."""
    text = re.sub("[- ]", "_", error.lower())
    typed = {name: value for name, value in given.arguments.items() if name not in ("model_path", "random_seed")}
    valued = (name for name, value in typed.items() if len(str(value)) > _SHORTEST and str(value).lower() in text)
    return tuple(name for name in typed if name in text) or tuple(valued)


_FLAG = re.compile(r"(?P<flag>--[a-z][a-z0-9-]*)(?:(?:=| (?:to )?)[\"'`]?(?P<value>-?\w[\w.]*)[\"'`]?)?")
_QUOTED = re.compile(r"['\"`]([\w.-]+)['\"`]")
_NUMBER = re.compile(r"^-?[\d.]+$")
_SWITCHES = ("store_true", "store_false", "BooleanOptionalAction")
_VENDORS = {"ascend": "ascend", "intel_amx": "intel", "intel_xpu": "intel", "aiter": "amd", "wave": "amd"}
"""Backends of only one vendor's machines."""
_SHORTEST = 3
"""The least letters of a value that is searched for in a message."""


def advised(
    message: str, arguments: Mapping[str, Argument], typed: Mapping[str, object], vendor: str | None
) -> list[str]:
    """Returns the overrides that may fix a refusal, likeliest first: each flag of ``message`` with its value; for each
    ``typed`` argument that it names the value that was probably meant, its default, and the quoted choices, without
    those of other vendors' machines than ``vendor``'s. ``arguments`` are the release's, by name. They are candidates:
    ``planning.making.replan`` plans each and drops those that do not help."""
    by_flag = {flag: argument for argument in arguments.values() for flag in argument.flags}
    flags = [(by_flag[found["flag"]], found["value"]) for found in _FLAG.finditer(message) if found["flag"] in by_flag]
    words = [f"{argument.name}={value}" for argument, word in flags for value in _values(argument, word, typed)]
    quoted = [word for word in _QUOTED.findall(message) if _VENDORS.get(word, vendor) == vendor]
    named = [argument for argument, _ in flags]
    for name, value in typed.items():
        argument = arguments.get(name)
        said = [name, *([value] if isinstance(value, str) and len(value) >= _SHORTEST else [])]
        is_said = (re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", message, re.IGNORECASE) for word in said)
        if argument is None or argument.required or not (argument in named or any(is_said)):
            continue
        if argument.choices is None and isinstance(value, str):  # a name that the release checks itself
            words += _meant(name, value)
        words.append(f"{name}={shown(argument.default)}")
        words += [f"{name}={choice}" for choice in quoted if choice in map(str, argument.choices or ())]
    as_typed = {f"{name}={shown(value)}" for name, value in typed.items()}
    return [word for word in dict.fromkeys(words) if word not in as_typed]


def _meant(name: str, value: str) -> list[str]:
    """Returns the words with the values that were probably meant by a name that no release lists."""
    from sglang_hydra.arguments.meant import values_meant

    near = nearest(value, map(str, last_choices(name)))
    return [*values_meant(EVERY[name], value), *([f"{name}={near}"] if near else [])]


@by_identity
def _defaults(arguments: Mapping[str, Argument]) -> Mapping[str, object]:
    return {name: argument.default for name, argument in arguments.items() if name[0] != "_"}


def _values(argument: Argument, word: str | None, typed: Mapping[str, object]) -> Iterator[str]:
    """Yields the possible values in a message: the word after the flag or, for a switch, the other position."""
    if argument.action in _SWITCHES:
        yield shown(not typed.get(argument.name, argument.default))
    elif word is not None and argument.choices is not None:
        yield from (choice for choice in map(str, argument.choices) if choice == word.rstrip("."))
    elif word is not None and ("int" in argument.type or "float" in argument.type):
        yield from _NUMBER.findall(word.rstrip("."))


_MOST_SHOWN = 3
"""The most values that a reason names."""


def entries_of(answer: Answer, made: Accepted) -> Iterator[Entry]:
    """Yields the changes of the release's own code, in order: an entry for each step of a value, one for a mapping."""
    steps: dict[str, list[Change]] = {}
    for change in answer.changes:
        steps.setdefault(change.field, []).append(change)
    typed, arguments = made.arguments, made.known.arguments
    for name, found in steps.items():
        after = answer.values[name]
        if found[-1].after == after:
            for step in found:
                yield Entry(name, step.before, step.after, made.version, reason_of(step, made.version))
            continue
        # Of a mapping or a long list only what differs is passed.
        before = typed.get(name, arguments[name].default if name in arguments else None)
        if not same_value(before, after):  # a seed that is left to the start
            yield Entry(name, before, after, made.version, reason_of(found[-1], made.version))
    if not steps:
        for name, after in answer.values.items():
            argument = arguments.get(name)
            if argument is None or (argument.computed and name not in typed):
                continue
            before = typed.get(name, argument.default)
            if before is not after and not same_value(before, after):
                yield Entry(name, before, after, made.version, f"SGLang {made.version}'s own code")


def reason_of(change: Change, version: str) -> str:
    """Returns the place of a change, and the values that decided it: ``memory_hook.py:167: gpu_mem=183359.0``."""
    step = change.step
    if step is None:
        return f"SGLang {version}'s own code"
    unset = {change.field: None}
    decided = {
        plain_name: value
        for condition in step.conditions
        if condition.holds
        for name, value in condition.operands.items()
        if (plain_name := name.rpartition(".")[2]) not in unset
    }
    shown_values = ", ".join(f"{name}={shown(value)}" for name, value in list(decided.items())[:_MOST_SHOWN])
    place = f"{step.file.removeprefix('sglang/srt/')}:{step.line}"
    return f"{place}: {shown_values}" if shown_values else f"{place}, {step.function}"


def same_value(before: object, after: object) -> bool:
    """Returns whether a value is unchanged, or differs only in form: 1 and 1.0, a set and a list."""
    if isinstance(before, (set, frozenset, list, tuple)) and isinstance(after, (set, frozenset, list, tuple)):
        return sorted(map(str, before)) == sorted(map(str, after)) or _is_read_adapter(before, after)
    return bool(before == after) and isinstance(before, bool) is isinstance(after, bool)


def _is_read_adapter(before: Json, after: Json) -> bool:
    """Returns whether a list of NAME=PATH became the release's list of records."""
    return len(before) == len(after) and all(
        isinstance(one, str) and isinstance(other, Mapping) and str(other.get("lora_path", "?")) in one
        for one, other in zip(before, after, strict=True)
    )


def unknown_by_rules(ledger: Iterable[Entry], typed: Collection[str]) -> frozenset[str]:
    """Returns the unset arguments that 0.5.2's rules, or another release's recorded code, resolve."""
    resolved = {entry.field for entry in ledger if entry.field in FIELDS} | resolved_fields()
    return frozenset(resolved - {*typed, "random_seed"})
