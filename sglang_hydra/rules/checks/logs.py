"""Checks the histogram buckets of the token metrics."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule
from sglang_hydra.text.json_types import Json


@rule("BUC001", (2390, 2436), stage="check")
def prompt_buckets_are_a_rule(args: ServerArgs, facts: Facts) -> Outcome:
    """What: prompt_tokens_buckets must be [default], [tse, middle, base, count] or [customer, values...].
    Why: buckets grow exponentially around the middle (tse: base above 1, the others above 0) or are listed, each once
        and none below 0.
    Example: prompt_tokens_buckets=["tse","1000","1","8"] -> refused"""
    return _checked("prompt_tokens_buckets", args.prompt_tokens_buckets)


@rule("BUC002", (2390, 2436), stage="check")
def generation_buckets_are_a_rule(args: ServerArgs, facts: Facts) -> Outcome:
    """What: generation_tokens_buckets must be [default], [tse, middle, base, count] or [customer, values...].
    Why: buckets grow exponentially around the middle (tse: base above 1, the others above 0) or are listed, each once
        and none below 0.
    Example: generation_tokens_buckets=["customer","10","10.0"] -> refused"""
    return _checked("generation_tokens_buckets", args.generation_tokens_buckets)


def _checked(field: str, buckets: object) -> Outcome:
    if not buckets:
        return None
    problem = _problem(buckets)
    if problem is None:
        return None
    listed = f"""{field}='["customer","100","1000","10000"]'"""
    return Refusal(f"{field}: {problem}", field, offers=(f'{field}=["default"]', listed))


def _problem(buckets: Json) -> str | None:
    kind, count = buckets[0], len(buckets)
    if kind == "tse":
        if count != 4:
            return f"tse takes 3 numbers, got {count - 1}"
        return _problem_of_series(*buckets[1:])
    if kind == "default":
        return None if count == 1 else f"default takes no values, got {count - 1}"
    if kind == "customer":
        return "customer needs values" if count < 2 else _problem_of_list(buckets[1:])
    return f"{kind!r} is not one of tse, default, customer"


def _problem_of_series(middle: Json, base: Json, count: Json) -> str | None:
    try:
        middle, base, count = float(middle), float(base), int(count)
    except ValueError:
        return f"tse takes a number, a number and a whole number, got {middle!r}, {base!r}, {count!r}"
    if not base > 1:
        return f"the base must be above 1, got {base}"
    if not count > 0:
        return f"the count must be above 0, got {count}"
    return None if middle > 0 else f"the middle must be above 0, got {middle}"


def _problem_of_list(values: Json) -> str | None:
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return f"customer takes numbers, got {values!r}"
    if len(set(numbers)) != len(numbers):
        return f"a value occurs twice: {values!r}"
    return None if all(number >= 0 for number in numbers) else f"a value is below 0 or none: {values!r}"
