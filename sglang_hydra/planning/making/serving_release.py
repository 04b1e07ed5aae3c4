"""The release that a plan is for where nobody named one: the newest, or the newest that serves the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.tables.architectures import has_class
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.arguments.tables.table import release
from sglang_hydra.compose.recipes import GROUP
from sglang_hydra.releases.recorded import recorded_releases
from sglang_hydra.releases.records import first_reading, records
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.user_settings import settings

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composition
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.planning.engines.planned import PlannedEngine

EXTERNAL = "SGLANG_EXTERNAL_MODEL_PACKAGE"


class Needed(NamedTuple):
    """What a plan asks of a release: one of ``classes`` (architectures of the model's config.json; empty where any
    release will do), a reader of its ``model_type``, and the ``arguments`` that a published recipe sets. A release that
    would read the model by its own code (trust_remote_code) is not chosen: that code is not run, so its plan would be
    an estimate."""

    classes: tuple[str, ...] = ()
    model_type: str | None = None
    arguments: tuple[str, ...] = ()

    def missing_in(self, version: str) -> str | None:
        """Returns what a release lacks; None where it has all."""
        if self.classes and not has_class(version, self.classes):
            return f"a class {self.classes[0]}"
        first = first_reading(self.model_type) if self.classes else None
        if first is not None and not at_least(version, first):
            return f"a reader of {self.model_type}"
        return next((name for name in self.arguments if not _takes(version, name)), None)


def _takes(version: str, name: str) -> bool:
    """Returns whether a release takes an argument, if only by a flag that it calls deprecated."""
    known = release(version)
    old = known.old_flags.get("--" + name.replace("_", "-"))
    return name in known.arguments or (old is not None and (old.field in known.arguments or old.does_nothing))


def is_open(composition: Composition, engine: PlannedEngine) -> bool:
    """Returns whether neither a person nor an installed SGLang decides which release a plan is for."""
    decides = engine.installed or composition.nodes.engine.version or settings().release
    return engine.name == "sglang" and decides is None


def needed_by(composition: Composition, model: ModelFacts, env: Mapping[str, str]) -> Needed:
    """Returns what a release must have to serve the model as the recipe says."""
    of_recipe = tuple(name for name, chain in composition.origins.items() if chain and chain[-1].layer == GROUP)
    return needed_for(composition.intent, model, {**env, **composition.nodes.engine.env}, of_recipe)


def needed_for(
    intent: Mapping[str, object], model: ModelFacts, env: Mapping[str, str], of_recipe: tuple[str, ...] = ()
) -> Needed:
    """Returns the same for arguments, of which a recipe sets ``of_recipe``."""
    config = model.config or {}
    names = config.get("architectures")
    if not isinstance(names, (list, tuple)) or intent.get("model_impl") == "transformers" or EXTERNAL in env:
        return Needed(arguments=of_recipe)
    return Needed(tuple(map(str, names)), config.get("model_type"), of_recipe)


def newest_serving(plans: Iterable[Needed]) -> str | None:
    """Returns the newest recorded release that lacks nothing of what ``plans`` need, where it is not the newest of all
    one whose answers ship with this package, if any; None where no release is known to lack nothing."""
    needed = list(plans)
    known = [*reversed([*records()])]
    serving = (version for version in known if not any(one.missing_in(version) for one in needed))
    newest = next(serving, None)
    if newest in (None, known[0]):
        return newest
    return next((version for version in (newest, *serving) if version in recorded_releases()), newest)


def with_release(composition: Composition, version: str) -> Composition:
    """Returns ``composition`` with ``engine.version``, which is no setting of anybody's."""
    return replace(composition, nodes=composition.nodes.having("engine", {"version": version}))


def chosen(version: str, what: str) -> Finding:
    """Returns the finding on an older release that nobody named. ``what`` it is the newest to do."""
    message = f"nobody named a release: SGLang {version} is the newest recorded one that {what}"
    hint = f"engine.version={version} in a file pins it"
    return Finding("info", "REL013", message, ("engine.version",), hint)
