"""Reads presets, each an option of a config group (``gpu/h200.yaml``) with its defaults list, as plain values.

Only this module reads the YAML of presets. The composer, the lists of GPU classes and models, the audit and the search
for who set a key use it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

import yaml

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose import recipes
from sglang_hydra.compose.hydra_internals import (
    ConfigFile,
    Repository,
    config_file,
    is_own_file,
    own_content,
    yaml_loader,
)
from sglang_hydra.compose.node_types import problems_at, types_of
from sglang_hydra.compose.overrides import value_problem
from sglang_hydra.compose.plain_merge import NotPlain, argument, with_value
from sglang_hydra.compose.schema import NODES, PAIR, Root
from sglang_hydra.text.budget import read_yaml
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text
from sglang_hydra.text.json_types import JsonDict, JsonObject

T = TypeVar("T")
_MOST_KEPT = 512
_NAME = re.compile(r"[\w-]+")


class Content(NamedTuple):
    """One config. ``tree`` is its unresolved content without the defaults list, ``defaults`` that list (None without
    one), ``package`` the package in its header, and ``file`` is empty for a config without a file."""

    tree: JsonObject
    file: str
    package: str | None = None
    defaults: Any = None

    def key_paths(self) -> Iterator[tuple[str, ...]]:
        yield from _key_paths(self.tree, ())


class Preset(NamedTuple):
    """An option of a config group, composed with its defaults list.

    ``name`` is the option (``gpu=name``). ``node`` has every key of its node, unset ones at their default; a pair
    file's node has its arguments. Interpolations are unresolved. ``parts`` are the configs it was composed of, weakest
    first; ``own_keys`` are the keys in its own file."""

    name: str
    node: JsonObject
    parts: tuple[Content, ...]
    own_keys: frozenset[str]

    def is_alias_in(self, presets: Mapping[str, Preset]) -> bool:
        """Returns whether the preset is only another name for one of ``presets``."""
        other = presets.get(str(self.node.get("name")))
        return other is not None and other.name != self.name and other.node == self.node


class PlainPresets:
    """The presets of one repository that can be read without Hydra. Keeps what it has read."""

    def __init__(self, repository: Repository) -> None:
        self.defaults = {item.name: _default_of(item) for item in fields(Root) if item.name in NODES}
        self._repository = repository
        self._contents: dict[str, Content | None] = {}
        self._chains: dict[str, tuple[str, ...] | None] = {}
        self._presets: dict[str, Preset] = {}

    def content(self, config_path: str) -> Content | None:
        """Returns the content of a config by its name (``gpu/h100``); None if Hydra must read it."""
        return kept(self._contents, config_path, lambda: content_of(self._repository, config_path))

    def chain(self, config_path: str) -> tuple[str, ...]:
        """Returns the names of the configs in an option, weakest first: those in its defaults list, and itself.

        Raises NotPlain for a broken defaults list, and for one with more than names of the same group."""
        found = kept(self._chains, config_path, lambda: self._expanded(config_path, ()))
        if found is None:
            raise NotPlain(config_path)
        return found

    def preset(self, group: str, name: str) -> Preset:
        """Returns a preset. Raises NotPlain for a broken one, and for one that only Hydra can compose."""
        try:
            return kept(self._presets, f"{group}/{name}", lambda: self._composed(group, name))
        except LookupError as failure:
            raise NotPlain(name) from failure

    def _composed(self, group: str, name: str) -> Preset:
        own = self._part(f"{group}/{name}")
        parts = tuple(self._part(config_path) for config_path in self.chain(f"{group}/{name}"))
        if group == PAIR:
            return Preset(name, _arguments(parts), parts, frozenset(own.tree))
        head, *rest = (own.package or group).split(".")
        if head not in NODES:
            raise NotPlain(head)
        node = self.defaults[head]
        for part in parts:
            if any(problems_at((head, *rest), part.tree)):
                raise NotPlain(name)
            node = with_value(types_of(Root)[head], node, rest, part.tree)
        if any(name not in EVERY or value_problem(name, value) for name, value in (node.get("args") or {}).items()):
            raise NotPlain(name)
        return Preset(name, node, parts, frozenset(own.tree))

    def _part(self, config_path: str) -> Content:
        content = self.content(config_path)
        if content is None:
            raise NotPlain(config_path)
        return content

    def _expanded(self, config_path: str, above: tuple[str, ...]) -> tuple[str, ...] | None:
        content = self.content(config_path)
        if content is None or config_path in above:
            return None
        names = [] if content.defaults is None else content.defaults
        if content.package is not None and (names or above):
            return None
        if not isinstance(names, list) or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            return None
        chain: list[str] = []
        for name in names if "_self_" in names else [*names, "_self_"]:
            below = f"{config_path.rpartition('/')[0]}/{name}"
            part = (config_path,) if name == "_self_" else self._expanded(below, (*above, config_path))
            if part is None:
                return None
            chain += part
        return tuple(chain)


def _default_of(item: Any) -> Any:
    value = item.default_factory() if callable(item.default_factory) else item.default
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _arguments(parts: Sequence[Content]) -> JsonDict:
    node: JsonDict = {}
    for part in parts:
        for name, value in part.tree.items():
            if value_problem(name, value):
                raise NotPlain(name)
            node[name] = argument(name, node.get(name), value)
    return node


def kept(store: dict[Any, T], key: Any, make: Callable[[], T]) -> T:
    """Returns the value of ``key``, made at the first call. Clears the store if it is full."""
    if key not in store:
        if len(store) >= _MOST_KEPT:
            store.clear()
        store[key] = make()
    return store[key]


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
    found = own_content(file) if is_own_file(file) else _content_of_others(file)
    if found is None:
        return None
    tree = {name: value for name, value in found.tree.items() if name != "defaults"}
    return Content(tree, file, found.package, found.tree.get("defaults"))


def _content_of_others(file: str) -> ConfigFile | None:
    """Returns the content of a user's file, read within the budget; None for one that Hydra must read."""
    try:
        text = read_text(os.path.realpath(file), CONFIG_BYTES)
        return config_file(text, read_yaml(text, "config", yaml_loader()))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
