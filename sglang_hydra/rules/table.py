"""Makes the rules and checks that only compare arguments with constants, from the rows of table.json.

A row has the three parts of its page and the ``lines`` of SGLang that it follows. It applies where each value in
``when`` fits, checked in their order: true and false fit any value of that truth value, null and other constants an
equal value, a list any of its items, ``{"not": list}`` any other value; ``above``, ``below`` and ``at_most`` compare
numbers. In a list true and false fit themselves alone. A name is that of an argument, ``a|b`` either of two; a dotted
one is a fact (``gpu.is_hip``), a requested value (``given.a``) or a variable in small letters (``env.A``),
``architecture`` the model's first class, ``quant_method`` that of its checkpoint, and ``$name`` the value of another
name. Of several ``cases``, each with a
``when`` of its own, the first that fits applies.

Where it applies, it ``sets`` arguments, or ``restates`` them in another form, ``because`` of a reason; or it
``refuses`` or ``warns``, with a message about its ``fields``, ``offers`` (one that only the user can choose is a pair
with the condition) and a ``hint``. ``{name}`` in a text is a value."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.facts.config_view import ConfigView, view_of
from sglang_hydra.rules.rule import Change, Facts, Notice, Outcome, Refusal, Restated, Rule, RuleFunction
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.json_types import Json, JsonObject, json_beside
from sglang_hydra.text.words import typed

_COMPARED = {"above": operator.gt, "below": operator.lt, "at_most": operator.le}


def _quant_method(view: ConfigView) -> Json:
    stored = view.get("quantization_config")
    return None if stored is None else stored.get("quant_method")


_OF_THE_MODEL: Mapping[str, Callable[[ConfigView], Json]] = {
    "architecture": operator.attrgetter("architecture"),
    "quant_method": _quant_method,
}


class _Words(NamedTuple):
    """The values of a server as words of a text."""

    args: ServerArgs
    facts: Facts

    def __getitem__(self, name: Json) -> Json:
        return getattr(self.facts, name) if name in ("gpu", "model") else typed(_read(name, self.args, self.facts))


def _read(name: str, args: ServerArgs, facts: Facts) -> Json:
    if name in _OF_THE_MODEL:
        view = view_of(facts.model, args.json_model_override_args)
        return None if view is None else _OF_THE_MODEL[name](view)
    group, _, inner = name.rpartition(".")
    if group == "given":
        return facts.given.get(inner)
    if group == "env":
        return facts.env[inner].lower() if inner in facts.env else None
    return getattr({"": args, "facts": facts, "gpu": facts.gpu, "model": facts.model}[group], inner)


def _value(stated: Json, args: ServerArgs, facts: Facts) -> Json:
    if isinstance(stated, str) and stated.startswith("$"):
        return _read(stated[1:], args, facts)
    return list(stated) if isinstance(stated, list) else stated


def _fits(value: Json, wanted: Json, args: ServerArgs, facts: Facts) -> bool:
    if isinstance(wanted, bool):
        return bool(value) is wanted
    if isinstance(wanted, dict):
        return all(
            not _fits(value, stated, args, facts)
            if name == "not"
            else _COMPARED[name](value, _value(stated, args, facts))
            for name, stated in wanted.items()
        )
    if isinstance(wanted, list):
        return any(value is one if isinstance(one, bool) else _fits(value, one, args, facts) for one in wanted)
    return value is None if wanted is None else bool(value == _value(wanted, args, facts))


def _condition(names: str, wanted: Json) -> Callable[[ServerArgs, Facts], bool]:
    """Makes the test of one entry of ``when``. Most compare one argument with a constant, in every resolve."""
    if "|" in names:
        several = [_condition(name, wanted) for name in names.split("|")]
        return lambda args, facts: any(one(args, facts) for one in several)
    if "." in names or names in _OF_THE_MODEL:
        return lambda args, facts: _fits(_read(names, args, facts), wanted, args, facts)
    read: Callable[[ServerArgs], Json] = operator.attrgetter(names)
    if isinstance(wanted, bool):
        return lambda args, facts: bool(read(args)) is wanted
    if wanted is None or isinstance(wanted, int) or (isinstance(wanted, str) and wanted[0] != "$"):
        return lambda args, facts: bool(read(args) == wanted)
    if isinstance(wanted, list) and all(isinstance(one, str) and one[0] != "$" for one in wanted):
        return lambda args, facts: read(args) in wanted
    return lambda args, facts: _fits(read(args), wanted, args, facts)


def _change(row: JsonObject, words: _Words) -> Change:
    kind, stated = (Restated, row["restates"]) if "restates" in row else (Change, row["sets"])
    values = {name: _value(value, words.args, words.facts) for name, value in stated.items()}
    return kind(row["because"].format_map(words), **values)


def _refusal(row: JsonObject, words: _Words) -> Refusal:
    kind, message = (Notice, row["warns"]) if "warns" in row else (Refusal, row["refuses"])
    offers = [
        one.format_map(words) if isinstance(one, str) else Remedy.typed(one[0], when=one[1]) for one in row["offers"]
    ]
    return kind(message.format_map(words), *row["fields"].split(), hint=row.get("hint"), offers=offers)


def _conditions(row: JsonObject) -> list[Callable[[ServerArgs, Facts], bool]]:
    return [_condition(names, wanted) for names, wanted in row["when"].items()]


def _rule(id: str, row: JsonObject) -> Rule:
    conditions = _conditions(row)
    cases = [({**row, **case}, _conditions(case)) for case in row.get("cases", ())] or [(dict(row), [])]

    def apply(args: ServerArgs, facts: Facts) -> Outcome:
        for holds in conditions:
            if not holds(args, facts):
                return None
        for case, of_case in cases:
            if all(holds(args, facts) for holds in of_case):
                return (_change if "because" in case else _refusal)(case, _Words(args, facts))
        return None

    apply.__name__ = row["name"].replace(" ", "_")
    apply.__doc__ = f"What: {row['what']}\nWhy: {row['why']}\nExample: {row['example']}"
    function: RuleFunction = apply
    return Rule(id, function, row.get("stage", "post_init"), (row["lines"][0], row["lines"][1]))


TABLE: dict[str, Rule] = {id: _rule(id, row) for id, row in json_beside(__file__).items()}
"""Each rule and check of the table, by its id."""
