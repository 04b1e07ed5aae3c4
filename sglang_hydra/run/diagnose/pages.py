"""Writes the page of each failure class, for ``explain DIA007`` and for docs/diagnosis.md."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from sglang_hydra.run.diagnose.advice import as_typed
from sglang_hydra.run.diagnose.classes import failure_classes
from sglang_hydra.run.diagnose.failure_class import FailureClass, Weight

_WIDTH = 94
_MOST_SHOWN = 6
_LEAST_LETTERS = 8


@dataclass(frozen=True)
class Page:
    """The page of an id for ``explain``: name and text. ``lines`` is None, as it has no lines of SGLang's source."""

    name: str
    page: str
    lines: None = None


def page_of(id: str) -> Page | None:
    """Returns the page of a failure class, or None for another id."""
    failure = next((failure for failure in failure_classes() if failure.id == id), None)
    return Page(failure.kind, as_typed(_text(failure))) if failure else None


def ids() -> list[str]:
    return [failure.id for failure in failure_classes()]


def known_by(failure: FailureClass) -> list[str]:
    """Returns some texts that identify the class, the strongest evidence first."""
    signatures = sorted(failure.signatures, key=lambda signature: signature.weight)
    told = [item for item in signatures if item.weight < Weight.END and item.frame is None]
    found = [needle.strip() for item in told for needle in item.needles]
    shown = [needle for needle in dict.fromkeys(found) if len(needle) >= _LEAST_LETTERS]
    return shown[:_MOST_SHOWN]


def _text(failure: FailureClass) -> str:
    parts = [
        f"What: {failure.what}.",
        f"Why: {failure.meaning}",
        f"To type: {'; or '.join(failure.advice)}.",
        f"Again: {'the same command may succeed next time' if failure.retryable else 'the same command fails again'}.",
        f"Known by: {', '.join(known_by(failure))}" if known_by(failure) else "",
    ]
    wrapper = textwrap.TextWrapper(_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(wrapper.fill, filter(None, parts)))
