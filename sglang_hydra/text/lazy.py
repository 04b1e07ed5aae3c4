"""A mapping of many values, of which few are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

Item = TypeVar("Item")


class Lazy(Mapping[str, Item]):
    """Read-only; makes the value of one of ``names`` when it is first read, and keeps it."""

    def __init__(self, names: Collection[str], make: Callable[[str], Item]) -> None:
        self._names, self._make = names, make
        self._made: dict[str, Item] = {}

    def __getitem__(self, name: str) -> Item:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
