"""The release that a plan is for where nobody named one and none is installed: 0.5.2, or the first that can serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.releases.architectures import has_class
from sglang_hydra.releases.order import at_least
from sglang_hydra.rules.checks.kernels_at_load import runs_since
from sglang_hydra.text.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composition
    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.planning.engines.planned import PlannedEngine

EXTERNAL = "SGLANG_EXTERNAL_MODEL_PACKAGE"


class Needed(NamedTuple):
    """What a model asks of a release: one of ``classes`` (architectures of its config.json; empty where any release
    will do), a reader of its ``model_type``, and kernels for its format, which come with ``since``. A release that
    would read it by the model's own code (trust_remote_code) is not chosen: that code is not run, so its plan would be
    an estimate."""

    classes: tuple[str, ...] = ()
    model_type: str | None = None
    since: str = SPECIFIED_VERSION


def is_open(composition: Composition, engine: PlannedEngine) -> bool:
    """Whether neither a person nor an installed SGLang decides which release a plan is for."""
    return engine.name == "sglang" and engine.installed is None and composition.nodes["engine"]["version"] is None


def needed_by(
    composition: Composition, model: ModelFacts, env: Mapping[str, str], gpu: GpuFacts | None = None
) -> Needed:
    """What a release must have to serve the model, on ``gpu`` where it is known."""
    own = {**env, **composition.nodes["engine"]["env"]}
    config = model.config or {}
    names = config.get("architectures")
    if (
        not isinstance(names, (list, tuple))
        or composition.intent.get("model_impl") == "transformers"
        or EXTERNAL in own
    ):
        return Needed()
    since = None if gpu is None or composition.intent.get("quantization") else runs_since(gpu, config)
    return Needed(tuple(map(str, names)), config.get("model_type"), since or SPECIFIED_VERSION)


def first_serving(models: Iterable[Needed], after: str | None = None) -> str | None:
    """The first recorded release, of those later than ``after``, that has a class for each of ``models`` and reads its
    config.json; None where 0.5.2 has a class for each, and where no release serves them all."""
    asked = [model for model in models if model.classes]
    since = [model.since for model in asked if model.since != SPECIFIED_VERSION]
    if not since and all(has_class(SPECIFIED_VERSION, model.classes) is not False for model in asked):
        return None
    from sglang_hydra.upstream.records import first_reading, records

    reading = [first for model in asked if (first := first_reading(model.model_type)) is not None]
    return next(
        (
            known
            for known in records()
            if (after is None or not at_least(after, known))
            and all(has_class(known, model.classes) for model in asked)
            and all(at_least(known, one) for one in (*reading, *since))
        ),
        None,
    )


def with_release(composition: Composition, version: str) -> Composition:
    """``composition`` with ``engine.version``, which is no setting of anybody's."""
    engine = {**composition.nodes["engine"], "version": version}
    return replace(composition, nodes={**composition.nodes, "engine": engine})


def chosen(version: str, what: str) -> Finding:
    """The finding on a release that nobody named. ``what`` it is the first to do."""
    message = f"nobody named a release: SGLang {version} is the first recorded one that {what}"
    hint = f"engine.version={version} in a file pins it"
    return Finding("info", "REL013", message, ("engine.version",), hint)
