"""What a release's own code did to the arguments, as lines of a ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sglang_hydra.arguments.accepted import Accepted
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.tables.table import Argument
from sglang_hydra.releases.recorded import resolved_fields
from sglang_hydra.rules.answer import Answer, Change
from sglang_hydra.rules.ledger import Entry
from sglang_hydra.text.screen import shown

_MOST_SHOWN = 3
"""Values that a reason names."""


def changes(
    values: Mapping[str, Any], typed: Mapping[str, Any], arguments: Mapping[str, Argument]
) -> Iterator[tuple[str, Any, Any]]:
    """Each argument that the release's own code set: its name, the value before, and the value after."""
    for name, after in values.items():
        argument = arguments.get(name)
        if argument is None or (argument.computed and name not in typed):
            continue
        before = typed.get(name, argument.default)
        if not same_value(before, after):
            yield name, before, after


def entries_of(answer: Answer, made: Accepted) -> Iterator[Entry]:
    """What the release's own code set, in its order: an entry for each step of a value, one for a mapping."""
    steps: dict[str, list[Change]] = {}
    for change in answer.changes:
        steps.setdefault(change.field, []).append(change)
    typed, arguments = made.arguments, made.known.arguments
    for name, found in steps.items():
        after = answer.values[name]
        if found[-1].after == after:
            for step in found:
                yield Entry(name, step.before, step.after, made.version, reason_of(step, made.version))
        else:  # of a mapping or a long list only what differs is passed
            before = typed.get(name, arguments[name].default if name in arguments else None)
            if not same_value(before, after):  # a seed that is left to the start
                yield Entry(name, before, after, made.version, reason_of(found[-1], made.version))
    if not steps:
        for name, before, after in changes(answer.values, typed, arguments):
            yield Entry(name, before, after, made.version, f"SGLang {made.version}'s own code")


def reason_of(change: Change, version: str) -> str:
    """The place of a change, and the values that decided it: ``memory_hook.py:167: gpu_mem=183359.0``."""
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


def same_value(before: Any, after: Any) -> bool:
    """Whether a value came through unchanged, also where only its form differs: 1 and 1.0, a set and a list."""
    if isinstance(before, (set, frozenset, list, tuple)) and isinstance(after, (set, frozenset, list, tuple)):
        return sorted(map(str, before)) == sorted(map(str, after)) or _is_read_adapter(before, after)
    return bool(before == after) and isinstance(before, bool) is isinstance(after, bool)


def _is_read_adapter(before: Any, after: Any) -> bool:
    """A list of NAME=PATH that the release made a list of records."""
    return len(before) == len(after) and all(
        isinstance(one, str) and isinstance(other, Mapping) and str(other.get("lora_path", "?")) in one
        for one, other in zip(before, after, strict=True)
    )


def unknown_by_rules(ledger: Iterable[Entry], typed: Collection[str]) -> frozenset[str]:
    """Arguments that nobody set and that 0.5.2's rules resolve, or the code of another release, as far as recorded."""
    resolved = {entry.field for entry in ledger if entry.field in FIELDS} | resolved_fields()
    return frozenset(resolved - {*typed, "random_seed"})
