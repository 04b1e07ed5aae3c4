"""Reads one config file into plain values, without OmegaConf if nothing in it needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from sglang_hydra.compose import recipes
from sglang_hydra.compose.hydra_internals import Repository, header_package, yaml_loader
from sglang_hydra.text.budget import read_yaml
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.locations import conf_dir


class Content(NamedTuple):
    """One config. ``tree`` is its unresolved content without the defaults list, ``defaults`` that list (None without
    one), ``package`` the package in its header, and ``file`` is empty for a config without a file."""

    tree: JsonObject
    file: str
    package: str | None = None
    defaults: Any = None

    def key_paths(self) -> Iterator[tuple[str, ...]]:
        """Yields the path of every key."""
        yield from _key_paths(self.tree, ())


def content_of(repository: Repository, config_path: str) -> Content | None:
    """Returns the content of a config by its name (``gpu/h100``); None if only Hydra itself can read it."""
    for source in repository.get_sources():
        if source.scheme() not in ("file", "structured"):
            return None
        if source.scheme() == "structured":
            return _of_recipe(repository, config_path)
        if source.is_config(config_path):
            return None if repository.is_registered(config_path) else _of_file(str(source.path), config_path)
    return None


def _key_paths(tree: Mapping[str, object], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in tree.items():
        yield (*above, str(name))
        if isinstance(value, Mapping):
            yield from _key_paths(value, (*above, str(name)))


def _of_recipe(repository: Repository, config_path: str) -> Content | None:
    id = recipes.id_of(config_path)
    if id is None or not repository.is_ours(config_path):
        return None
    # The defaults list of a recipe only chooses its GPU and model: ``recipes.choices``.
    node = {name: value for name, value in recipes.recipes()[id].node.items() if name != "defaults"}
    return Content(node, "", "_global_")


def _of_file(folder: str, config_path: str) -> Content | None:
    file = os.path.join(folder.removeprefix("file://"), f"{config_path.removesuffix('.yaml')}.yaml")
    try:
        text = read_text(os.path.realpath(file), CONFIG_BYTES)
        tree = _parsed(text, ours=file.startswith(f"{conf_dir()}{os.sep}"))
        package = header_package(text[:512])
    except (OSError, ValueError, RecursionError):
        return None
    if tree is None:
        return None
    return Content(
        {name: value for name, value in tree.items() if name != "defaults"}, file, package, tree.get("defaults")
    )


def _parsed(text: str, *, ours: bool) -> JsonDict | None:
    """Returns the mapping in a YAML text; None if it is no mapping or cannot be read."""
    import yaml

    try:
        # The parser in C is ten times faster. A test checks that both read our files the same.
        tree = yaml.load(text, Loader=_fast_loader()) if ours else read_yaml(text, "config", _loader())
    except (yaml.YAMLError, ValueError):
        return None
    tree = {} if tree is None else tree
    return tree if isinstance(tree, dict) and all(isinstance(name, str) for name in tree) else None


@lru_cache(maxsize=1)
def _loader() -> Any:
    return yaml_loader()


@lru_cache(maxsize=1)
def _fast_loader() -> Any:
    """Returns a loader with OmegaConf's rules for scalars (``1e5`` is a number, a date is text) and the parser in C."""
    import yaml

    if not hasattr(yaml, "CSafeLoader"):
        return _loader()
    return type("FastLoader", (yaml.CSafeLoader,), {"yaml_implicit_resolvers": _loader().yaml_implicit_resolvers})
