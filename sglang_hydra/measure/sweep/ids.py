"""A set of ids that is small: 8 bytes an id, twice that with the room that a hash table needs."""

from __future__ import annotations

from array import array

_FIRST_SIZE = 1024


class IdSet:
    """Ids of 16 hex digits, of which the same one counts once. They are digests, so they are their own hash."""

    def __init__(self) -> None:
        self._table = array("Q", bytes(8 * _FIRST_SIZE))
        self._count = 0
        self._has_zero = False

    def add(self, id: str) -> bool:
        """Whether the id is a new one; it is in the set from then on."""
        number = int(id, 16)
        if number == 0:  # stands for an empty place in the table
            new, self._has_zero = not self._has_zero, True
            return new
        if 3 * self._count >= 2 * len(self._table):
            self._grow()
        new = _put(self._table, number)
        self._count += new
        return new

    def __len__(self) -> int:
        return self._count + self._has_zero

    def _grow(self) -> None:
        larger = array("Q", bytes(16 * len(self._table)))
        for number in self._table:
            if number:
                _put(larger, number)
        self._table = larger


def _put(table: array[int], number: int) -> bool:
    mask = len(table) - 1
    place = number & mask
    while table[place]:
        if table[place] == number:
            return False
        place = (place + 1) & mask
    table[place] = number
    return True
