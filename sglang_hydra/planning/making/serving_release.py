"""The release that a plan is for where nobody named one: the newest, or the newest that serves the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.tables.architectures import has_class
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.releases.records import first_reading, records
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.user_settings import settings

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composition
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.planning.engines.planned import PlannedEngine

EXTERNAL = "SGLANG_EXTERNAL_MODEL_PACKAGE"


class Needed(NamedTuple):
    """What a model asks of a release: one of ``classes`` (architectures of its config.json; empty where any release
    will do), and a reader of its ``model_type``. A release that would read it by the model's own code
    (trust_remote_code) is not chosen: that code is not run, so its plan would be an estimate."""

    classes: tuple[str, ...] = ()
    model_type: str | None = None


def is_open(composition: Composition, engine: PlannedEngine) -> bool:
    """Whether neither a person nor an installed SGLang decides which release a plan is for."""
    decides = engine.installed or composition.nodes.engine.version or settings().release
    return engine.name == "sglang" and decides is None


def needed_by(composition: Composition, model: ModelFacts, env: Mapping[str, str]) -> Needed:
    """What a release must have to serve the model."""
    config = model.config or {}
    names = config.get("architectures")
    if (
        not isinstance(names, (list, tuple))
        or composition.intent.get("model_impl") == "transformers"
        or EXTERNAL in {**env, **composition.nodes.engine.env}
    ):
        return Needed()
    return Needed(tuple(map(str, names)), config.get("model_type"))


def newest_serving(models: Iterable[Needed]) -> str | None:
    """The newest recorded release that has a class for each of ``models`` and reads its config.json; None where no
    release is known to serve them all."""
    asked = [model for model in models if model.classes]
    reading = [first for model in asked if (first := first_reading(model.model_type)) is not None]
    return next(
        (
            known
            for known in reversed([*records()])
            if all(has_class(known, model.classes) for model in asked) and all(at_least(known, one) for one in reading)
        ),
        None,
    )


def with_release(composition: Composition, version: str) -> Composition:
    """``composition`` with ``engine.version``, which is no setting of anybody's."""
    return replace(composition, nodes=composition.nodes.having("engine", {"version": version}))


def chosen(version: str, what: str) -> Finding:
    """The finding on an older release that nobody named. ``what`` it is the newest to do."""
    message = f"nobody named a release: SGLang {version} is the newest recorded one that {what}"
    hint = f"engine.version={version} in a file pins it"
    return Finding("info", "REL013", message, ("engine.version",), hint)
