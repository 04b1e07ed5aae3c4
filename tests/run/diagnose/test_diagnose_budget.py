"""Every pattern of diagnose against lines that are made to cost it the most, within a budget for each line."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import random
import re
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from sglang_hydra.run import diagnose
from sglang_hydra.run.diagnose.classes import _NEAR, _compiled, failure_classes
from tests.run.diagnose.hostile_lines import hostile_lines

LINE_S = 0.25
"""Of the processor, for a pattern and a line: the slowest takes 0.04 s on a quiet core."""
SEED = 26
_UNBOUNDED = re.compile(r"(?<!\\)[*+]|,\d{2,}\}")


def patterns() -> Iterator[tuple[str, str]]:
    """Each expression of a class, with the text that a line must hold before it is searched."""
    for failure in failure_classes():
        for signature in failure.signatures:
            for pattern in filter(None, (signature.pattern, signature.unless)):
                yield from ((pattern, needle) for needle in signature.needles)
        for detail in failure.details:
            yield detail.pattern, ""


def expressions() -> Iterator[re.Pattern[str]]:
    """Each expression that a module of the room holds."""
    for module in pkgutil.iter_modules(diagnose.__path__):
        held = vars(importlib.import_module(f"{diagnose.__name__}.{module.name}")).values()
        several = (one for value in held for one in (value if isinstance(value, tuple) else (value,)))
        yield from (one for one in several if isinstance(one, re.Pattern))


def _is_slow(pattern: re.Pattern[str], line: str, how: str = "search") -> bool:
    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, LINE_S)
    try:
        getattr(pattern, how)(line[:_NEAR])
        return False
    except TimeoutError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _slow(most: int | None) -> list[tuple[str, str]]:
    draw = random.Random(SEED)
    found = []
    for pattern, needle in patterns():
        if not _UNBOUNDED.search(pattern):
            continue
        lines = list(itertools.islice(hostile_lines(pattern, needle), 400))
        chosen = lines if most is None else draw.sample(lines, min(most, len(lines)))
        found += [(pattern, line[:100]) for line in chosen if _is_slow(_compiled(pattern), line)]
    return found


def test_no_pattern_takes_long_for_a_line() -> None:
    assert _slow(1) == []


@pytest.mark.long
def test_no_pattern_takes_long_for_any_hostile_line() -> None:
    assert _slow(None) == []


@pytest.mark.parametrize("piece", ["OOM", "a.", "Error", "-a", "a-", " ", "x", "(", "[20", "1:"])
def test_no_expression_of_the_room_takes_long_where_a_line_begins(piece: str) -> None:
    line = f"A{piece * 2_000}\x00"
    slow = [one.pattern for one in expressions() if _is_slow(one, line, "match")]
    assert slow == []


def test_the_hostile_lines_find_a_slow_pattern() -> None:
    """The lines are worth something: what was slow before its repetitions were bounded still is without the bounds."""
    slow = "(?i)lora.*target modules.*(?:not|unsupported|must)"
    assert any(_is_slow(re.compile(slow), line) for line in hostile_lines(slow, "target modules"))
