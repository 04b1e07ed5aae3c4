"""The space of ``sweep.search=tpe``: what varies, as a search draws it and as anyone would type it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.overrides import Request
from sglang_hydra.measure.sweep.axes import Axis
from sglang_hydra.show.key_help import key_of
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_MOST_CHOICES = 1024
_DIGITS = 4


@dataclass(frozen=True)
class Dimension:
    """One thing that a search varies: a choice among ``choices``, or a number of its axis's span."""

    axis: Axis
    choices: Mapping[str, tuple[Request, ...]]

    @property
    def name(self) -> str:
        return ", ".join(self.axis.keys)

    @property
    def size(self) -> int | None:
        """The number of values; None where they cannot be counted."""
        span = self.axis.span
        if span is None:
            return len(self.choices)
        step = 1 if self.is_whole and span.step is None else span.step
        return None if step is None else int((span.high - span.low) / step) + 1

    @property
    def shown(self) -> str:
        """``tp_size: 1 | 2 | 4`` or ``mem_fraction_static: 0.7 to 0.9``."""
        span = self.axis.span
        if span is None:
            texts = [" ".join(item.text.partition("=")[2] for item in requests) for requests in self.choices.values()]
            return f"{self.name}: {' | '.join(texts)}"
        low, high = (requests[0].text.partition("=")[2] for requests in self.ends())
        return f"{self.name}: {low} to {high}{f' by {span.step}' if span.step else ''}"

    @cached_property
    def is_whole(self) -> bool:
        span = self.axis.span
        assert span is not None
        ends = (span.low, span.high, span.step or Decimal(1))
        return all(end == int(end) for end in ends) and not _takes_fractions(self.axis.keys[0])

    @property
    def distribution(self) -> BaseDistribution:
        """The same as Optuna knows it."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        span = self.axis.span
        if span is None:
            return CategoricalDistribution(tuple(self.choices))
        if self.is_whole:
            return IntDistribution(int(span.low), int(span.high), step=int(span.step or 1), log=span.log)
        step = None if span.step is None else float(span.step)
        return FloatDistribution(float(span.low), float(span.high), step=step, log=span.log)

    def requests(self, value: Any) -> tuple[Request, ...]:
        """The overrides that a drawn value stands for. A fraction has as many digits as anyone would type."""
        span = self.axis.span
        if span is None:
            return self.choices[str(value)]
        if self.is_whole:
            return (self.axis.request(str(int(value))),)
        number = Decimal(repr(float(value)))
        if span.step is not None:
            number = span.low + span.step * round((number - span.low) / span.step)
        else:
            number = Decimal(f"{number:.{_DIGITS}g}")
        return (self.axis.request(repr(float(min(max(number, span.low), span.high)))),)

    def ends(self) -> list[tuple[Request, ...]]:
        """Values that stand for all: every choice, or both ends."""
        span = self.axis.span
        return list(self.choices.values()) if span is None else [self.requests(end) for end in (span.low, span.high)]


def dimensions_of(axes: Sequence[Axis]) -> list[Dimension]:
    """Returns what varies, in an order that does not depend on how it was typed. Raises ConfigError for too many
    choices."""
    found = []
    for axis in axes:
        choices: dict[str, tuple[Request, ...]] = {}
        for requests in axis.values() if axis.span is None else ():
            choices[" ".join(request.text for request in requests)] = requests
            if len(choices) > _MOST_CHOICES:
                message = (
                    f"{', '.join(axis.keys)} has more than {_MOST_CHOICES} values, which sweep.search=tpe draws from"
                )
                hint = f"{axis.keys[0]}=interval(LOW,HIGH) or range(LOW,HIGH,STEP) for numbers"
                raise ConfigError(Finding("error", "RNR005", message, axis.keys, hint))
        found.append(Dimension(axis, choices))
    return sorted(found, key=lambda dimension: dimension.name)


def _takes_fractions(key: str) -> bool:
    """Whether a key holds numbers that need not be whole."""
    known = EVERY.get(key) or key_of(key)
    return known is not None and "float" in known.type
