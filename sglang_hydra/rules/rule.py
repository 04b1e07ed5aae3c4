"""Defines a rule and the kinds of its answer."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from inspect import cleandoc
from string import Template
from typing import Any, Literal, NamedTuple

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.text.findings import Hint, Offers, Remedy, advice_of, offers_of
from sglang_hydra.text.json_types import EMPTY, JsonObject

_WIDTH = 116
RuleStage = Literal["post_init", "check", "plan"]


class Facts(NamedTuple):
    """All inputs of a rule besides the arguments.

    ``seed`` is the seed to use if none was set. ``given`` holds the requested arguments, before any rule: SGLang does
    some steps only for an argument that was unset, even after it got its default. ``release`` is the planned SGLang;
    only our own checks read it, since the rules are those of 0.5.2."""

    gpu: GpuFacts
    model: ModelFacts
    env: Mapping[str, str]
    seed: int | None
    given: JsonObject = EMPTY
    release: str = SPECIFIED_VERSION

    def was_given(self, name: str) -> bool:
        """Returns True when the user or a preset set ``name``; null counts as unset."""
        return self.given.get(name) is not None

    def has_device(self, device: object) -> bool:
        """Returns whether a device can serve: ``device`` was set, the CPU engine was requested, or the machine has a
        GPU."""
        return device is not None or self.env.get("SGLANG_USE_CPU_ENGINE") == "1" or self.gpu.device is not None


class Change:
    """The fields that a rule sets, and the reason, in a few words with the numbers that decided it.

    A class with slots and not a dataclass: nearly every rule of every resolve makes one."""

    __slots__ = ("reason", "values")

    def __init__(self, reason: str, **values: Any) -> None:
        self.reason = reason
        self.values = values


class Restated(Change):
    """A change of form that keeps the meaning of the requested value (a list made a set): an info, not a warning."""

    __slots__ = ()


class Refusal:
    """SGLang (or, in the ``plan`` stage, this package) would not start with these values.

    ``message`` names the given values and the allowed ones. ``offers`` are overrides that may help, the best first, in
    their typed form; a plan tries them. ``hint`` is further advice without overrides."""

    __slots__ = ("fields", "message", "remedies")

    def __init__(self, message: str, *fields: str, hint: Hint = None, offers: Offers = ()) -> None:
        self.message = message
        self.fields = fields
        self.remedies: tuple[Remedy, ...] = (*offers_of(offers), *advice_of(hint))


class Notice(Refusal):
    """A warning, in the form of a refusal."""

    __slots__ = ()


Outcome = Change | Refusal | Notice | None
RuleFunction = Callable[[Any, Facts], Outcome]
"""A rule or check gets a ServerArgs; one of our own gets the ``Arguments`` that it declares, of any release."""


class Rule(NamedTuple):
    """One small pure function with its stable id and its place in SGLang 0.5.2's ``server_args.py``.

    ``lines`` is the inclusive range of upstream lines that it follows, None for a check of our own, whose releases are
    in checks/releases.json."""

    id: str
    apply: RuleFunction
    stage: RuleStage
    lines: tuple[int, int] | None

    @property
    def name(self) -> str:
        return self.apply.__name__

    @property
    def page(self) -> str:
        """Returns the function's docstring, with the upstream lines before its example. ``$NAME`` becomes the meaning
        of null in the help of NAME."""
        meanings = {name: field.arg.none for name, field in FIELDS.items() if field.arg.none}
        page = Template(cleandoc(self.apply.__doc__ or "")).safe_substitute(meanings)
        page = "\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="    ") for line in page.splitlines())
        if self.lines is None:
            return page
        lines = "-".join(map(str, self.lines))
        return page.replace("\nExample:", f"\nUpstream: server_args.py 0.5.2 lines {lines}.\nExample:", 1)


def rule(
    id: str, lines: tuple[int, int] | None = None, *, stage: RuleStage = "post_init"
) -> Callable[[RuleFunction], Rule]:
    """Makes a function a rule. Its docstring is its page: what, why, upstream (unless ``lines`` are given), example."""

    def decorate(function: RuleFunction) -> Rule:
        return Rule(id=id, apply=function, stage=stage, lines=lines)

    return decorate
