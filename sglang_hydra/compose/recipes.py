"""Published launch configurations, ready to plan with ``recipe=ID`` and further overrides.

They are in one data file, conf/recipes.json, and become options of the config group ``recipe`` on demand. A folder
conf/recipe/ of an app adds YAML options to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.every import canonical_name
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import EMPTY
from sglang_hydra.text.locations import conf_dir
from sglang_hydra.text.words import program, typed

if TYPE_CHECKING:
    from hydra.core.config_store import ConfigStore

GROUP = "recipe"
PROVIDER = "sglang_hydra"


class Recipe(NamedTuple):
    """One published configuration. ``gpus`` counts all ``nodes`` together; ``version`` is the SGLang release in the
    source, ``checkpoint`` the format of the weights there (bf16, fp8, fp4), if it names one."""

    id: str
    model: str
    gpu: str
    gpus: int
    nodes: int
    args: Mapping[str, object]
    version: str
    source: str
    env: Mapping[str, str] = EMPTY
    scenario: str | None = None
    checkpoint: str | None = None
    note: str | None = None

    @property
    def unknown_args(self) -> tuple[str, ...]:
        return tuple(name for name in self.args if canonical_name(name) is None)

    @property
    def left_open(self) -> tuple[str, ...]:
        """Returns the arguments whose value is a variable in the source's script."""
        return tuple(name for name, value in self.args.items() if str(value).startswith("$"))

    @property
    def node(self) -> dict[str, object]:
        """Returns the recipe as a config: hardware and model as choices, arguments at the root."""
        model: dict[str, object] = {}
        if self.checkpoint == "bf16" and "model_path" not in self.args:
            model["config"] = {"quantization_config": None}  # the source converts the checkpoint first
        known = {name: own for name in self.args if (own := canonical_name(name)) and name not in self.left_open}
        args = {own: self.args[name] for name, own in known.items()}
        if self.nodes > 1:
            args.setdefault("nnodes", self.nodes)
        return {
            "defaults": [{f"override /{group}": option} for group, option in choices(self.id).items()],
            **args,
            **({"model": model} if model else {}),
            **({"engine": {"env": dict(self.env)}} if self.env else {}),
        }


@lru_cache(maxsize=1)
def recipes() -> Mapping[str, Recipe]:
    """Returns the published configurations by id. Raises OSError or ValueError if the installation is broken."""
    content = json.loads((conf_dir() / "recipes.json").read_text(encoding="utf-8"))
    return {id: Recipe(id=id, **record) for id, record in content.items()}


def id_of(config_path: str) -> str | None:
    """Returns the id of a published configuration from ``recipe/deepseek_v3-h200-8``; None for other configs."""
    group, _, id = config_path.lstrip("/").partition("/")
    return id if group == GROUP and id in recipes() else None


def choices(id: str) -> dict[str, str]:
    """Returns the recipe's own choices in other groups; typed choices replace them."""
    recipe = recipes()[id]
    return {"gpu": recipe.gpu, "model": recipe.model}


def register(id: str, store: ConfigStore) -> None:
    """Registers a recipe as an option in Hydra's ``store``; does nothing for an unknown id."""
    recipe = recipes().get(id)
    if recipe is not None and f"{id}.yaml" not in store.repo.get(GROUP, {}):
        store.store(group=GROUP, name=id, node=recipe.node, package="_global_", provider=PROVIDER)


def recipe_findings(id: str | None) -> list[Finding]:
    """Returns the findings for a chosen recipe: unknown arguments, values left to its script, its note."""
    recipe = recipes().get(id) if id is not None else None
    if recipe is None:
        return []
    findings = []
    for name in recipe.unknown_args:
        uses = f"uses {name}={typed(recipe.args[name])}, which no release has"
        message = f"recipe={recipe.id} was written for SGLang {recipe.version} and {uses}"
        findings.append(Finding("error", "RCP001", message, (GROUP,), f"another recipe: {program()} recipes"))
    findings += [
        Finding("info", "RCP003", f"recipe={recipe.id} leaves {name} to its script: {recipe.args[name]}", (name,))
        for name in recipe.left_open
    ]
    if recipe.note:
        findings.append(Finding("info", "RCP002", f"recipe={recipe.id}: {recipe.note}", (GROUP,)))
    return findings
