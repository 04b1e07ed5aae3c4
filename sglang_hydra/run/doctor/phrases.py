"""Small phrases that several checks share: sizes, lists and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_GIB = 1 << 30
_MIB = 1 << 20


def size(count: float | None) -> str:
    """Bytes as GiB, or MiB below one GiB; ``unknown`` for None."""
    if count is None:
        return "unknown"
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


def mib(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:.0f} MiB"


def gib(count: float | None) -> float | None:
    """Bytes in GiB for ``values``."""
    return None if count is None else round(count / _GIB, 3)


def numbers(places: Iterable[int]) -> str:
    """``0-3, 5``: sorted numbers, runs drawn together."""
    runs: list[list[int]] = []
    for place in sorted(set(places)):
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def several(places: Sequence[int], word: str = "GPU") -> str:
    """``GPU 3`` or ``GPUs 0-3``."""
    return f"{word}{'s' if len(set(places)) > 1 else ''} {numbers(places)}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few of a list, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def dotted(version: Sequence[int] | None) -> str:
    return "unknown" if version is None else ".".join(str(part) for part in version)
