"""The record of what the rules did: field, before, after, rule, reason. It is also the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One write by one rule."""

    field: str
    before: Any
    after: Any
    rule: str
    reason: str


class Ledger(Sequence[Entry]):
    """The entries in the order in which the rules wrote them. Append-only while resolving, read-only after."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._entries = tuple(entries)

    def __getitem__(self, index: Any) -> Any:
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return self._entries == other._entries if isinstance(other, Ledger) else NotImplemented

    def __hash__(self) -> int:
        return len(self._entries)  # values of entries may be lists

    def of(self, field: str) -> tuple[Entry, ...]:
        """Returns every write to one field, first to last."""
        return tuple(entry for entry in self._entries if entry.field == field)

    def replay(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values that ``start`` ends with when every entry is applied to it.

        Raises ValueError when an entry's ``before`` is not what the field holds by then.
        """
        values = dict(start)
        for entry in self._entries:
            held = values[entry.field]
            if held is not entry.before and held != entry.before:  # nan is not equal to itself
                raise ValueError(f"{entry.rule}: {entry.field} is {held!r}, not {entry.before!r}")
            values[entry.field] = entry.after
        return values
