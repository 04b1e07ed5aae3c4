"""Composes other choices without Hydra: reads each option once (``presets``) and merges plain values.

Asks Hydra once which configs it merges for some choices, and in which order (the outline). Another option then replaces
the first one, with the presets in its own defaults list. Hydra and OmegaConf compose everything else: defaults lists
that choose other groups, interpolations, an app's own schema or mount. ``base`` raises NotPlain for these and for every
mistake, because OmegaConf's way has the messages. Tests compare both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from omegaconf import OmegaConf

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose.by_omegaconf import package_of, record
from sglang_hydra.compose.grammar import has_interpolation
from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
from sglang_hydra.compose.hydra_internals import Repository
from sglang_hydra.compose.node_types import problems_at, types_of
from sglang_hydra.compose.overrides import Wanted, parsed, value_problem
from sglang_hydra.compose.plain_merge import CALLS, NotPlain, argument, merged_root, with_value
from sglang_hydra.compose.presets import Content, PlainPresets, kept
from sglang_hydra.compose.provenance import Layers
from sglang_hydra.compose.recipes import GROUP as RECIPE
from sglang_hydra.compose.recipes import choices, id_of
from sglang_hydra.compose.schema import NODES, PAIR, Root
from sglang_hydra.facts.tiny import tiny_path
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, value_at

if TYPE_CHECKING:
    from hydra.core.default_element import ResultDefault
    from hydra.core.override_parser.types import Override


@dataclass(frozen=True, repr=False, eq=False)
class PlainBase:
    """Corresponds to ``by_omegaconf.Base``, with plain values that are shared and never written.

    ``root`` contains the nodes and the arguments that some file names; ``calls`` are the paths of its interpolations.
    """

    root: JsonObject
    layers: Layers
    choices: dict[str, str | None]
    mount: tuple[str, ...] = ()
    calls: tuple[tuple[str, ...], ...] = ()

    def plain(self) -> JsonDict:
        """Returns the nodes and arguments with every interpolation resolved."""
        root = dict(self.root)
        for keys in self.calls:
            if value_at(root, ".".join(keys)) in CALLS:
                root[keys[0]] = with_value(types_of(Root)[keys[0]], root[keys[0]], keys[1:], str(tiny_path()))
        return root

    def overridden(self, wanted: Sequence[Wanted]) -> PlainBase:
        """Adds these overrides of values to the base. Raises NotPlain for one that only OmegaConf can apply or
        explain."""
        root, layers = dict(self.root), self.layers.copy()
        for item in wanted:
            _apply(root, item.override)
            layers.typed(item.override.key_or_group, item.override.value(), item.request)
        return replace(self, root=root, layers=layers)


class _Slot(NamedTuple):
    """A choice whose option can be replaced: its group, the kind of its override, the option's package header."""

    group: str
    kind: str
    package: str | None


class _Outline(NamedTuple):
    """The merged configs, in order, and the choices behind them; ``places`` maps positions of configs to slots."""

    defaults: Sequence[ResultDefault]
    choices: Mapping[str, str | None]
    places: Mapping[int, _Slot]


class _Contribution(NamedTuple):
    """The contents of one config: its tree from the root on, and who named what in it."""

    tree: JsonObject
    layers: Layers


class PlainBases:
    """Caches all bases over one repository."""

    def __init__(self, repository: Repository) -> None:
        self.presets = PlainPresets(repository)
        self._repository = repository
        self._contributions: dict[tuple[str, ...], _Contribution] = {}
        self._outlines: dict[tuple[Json, ...], _Outline | None] = {}
        self._bases: dict[tuple[str, ...], PlainBase | None] = {}
        self._pairs: dict[str, bool] = {}

    def base(self, chosen: Sequence[Override]) -> PlainBase:
        """Returns the base of these choices. Raises NotPlain if only Hydra can compose them, or if they are wrong."""
        if all(item.type.name == "CHANGE" and not item.package for item in chosen):  # Hydra uses the last of a group
            chosen = [*{item.key_or_group: item for item in chosen}.values()]

        def make() -> PlainBase | None:
            try:
                return self._made([*chosen, *self._choices_of_recipes(chosen)])
            except (NotPlain, LookupError, ConfigError):
                return None

        key = tuple(str(override.input_line) for override in chosen)
        if (base := kept(self._bases, key, make)) is None:
            raise NotPlain(chosen)
        return base

    def pair(self, gpu: str, model: str) -> tuple[Content, ...]:
        """Returns the configs of the pair file of these two, weakest first; empty without one. Raises NotPlain if only
        Hydra can compose it."""
        name = f"{gpu}-{model}"
        exists = kept(self._pairs, name, lambda: self._repository.config_exists(f"{PAIR}/{name}"))
        return self.presets.preset(PAIR, name).parts if exists else ()

    def _made(self, chosen: Sequence[Override]) -> PlainBase | None:
        slots = [self._slot(override) for override in chosen]
        outline = self._outline(chosen, slots)
        if outline is None:
            return None
        options = {slot: str(override.value()) for slot, override in zip(slots, chosen, strict=True) if slot}
        root: JsonDict = dict(self.presets.defaults)
        layers = Layers()
        for position, default in enumerate(outline.defaults):
            slot = outline.places.get(position)
            own = (str(default.config_path),)
            for config_path in self.presets.chain(f"{slot.group}/{options[slot]}") if slot else own:
                contribution = self._contribution(default, config_path)
                root = merged_root(root, contribution.tree)
                layers.absorb(contribution.layers)
        chosen_options = {slot.group: option for slot, option in options.items()}
        return PlainBase(root, layers, {**outline.choices, **chosen_options}, calls=tuple(_calls_in(root)))

    def _slot(self, override: Override) -> _Slot | None:
        """Returns the slot of a choice; None for one that Hydra must handle (it chooses others, or deletes)."""
        value = override.value()
        if not isinstance(value, str) or override.package is not None or override.is_delete():
            return None
        config_path = f"{override.key_or_group}/{value}"
        try:
            self.presets.chain(config_path)
        except NotPlain:
            return None
        content = self.presets.content(config_path)
        return _Slot(override.key_or_group, str(override.type), content.package if content else None)

    def _without_defaults(self, override: Override) -> Override:
        """Returns the choice of the preset that the chosen one is based on and that has no defaults list itself."""
        group = override.key_or_group
        for config_path in self.presets.chain(f"{group}/{override.value()}"):
            content = self.presets.content(config_path)
            if content is not None and not content.defaults:
                typed = str(override.input_line).partition("=")[0]
                return parsed(f"{typed}={config_path.removeprefix(f'{group}/')}", group)
        raise NotPlain(override.input_line)

    def _outline(self, chosen: Sequence[Override], slots: Sequence[_Slot | None]) -> _Outline | None:
        known = [slot for slot in slots if slot]
        key = tuple(slot or str(override.input_line) for slot, override in zip(slots, chosen, strict=True))

        def ask() -> _Outline | None:
            asked = [self._without_defaults(item) if slot else item for slot, item in zip(slots, chosen, strict=True)]
            with hydra_errors_as_findings():
                listed = self._repository.defaults(asked)
            schema, *rest = listed.defaults
            loaded = self._repository.load_config(str(schema.config_path))
            if loaded is None or OmegaConf.get_type(loaded.config) is not Root or package_of(schema):
                return None
            # A defaults list that refers to other choices differs for another option.
            contents = [self.presets.content(str(default.config_path)) for default in rest]
            if any(content is None or has_interpolation(content.defaults) for content in contents):
                return None
            places = {
                position: slot
                for position, default in enumerate(rest)
                for slot in known
                if default.override_key == slot.group
            }
            whole = len(places) == len(known) and set(places.values()) == set(known)
            return _Outline(rest, dict(listed.overrides.known_choices), places) if whole else None

        return kept(self._outlines, key, ask)

    def _contribution(self, default: ResultDefault, config_path: str) -> _Contribution:
        """Returns the contents of a config. Raises NotPlain for a mistake and for what only OmegaConf can merge."""
        package = package_of(default)

        def make() -> _Contribution:
            content = self.presets.content(config_path)
            # ``record`` reads the content of the root and of presets; nobody checks that of other nodes.
            if content is None or (package and any(problems_at(package, content.tree))):
                raise NotPlain(config_path)
            layers = Layers()
            record(layers, replace(default, config_path=config_path), content.tree, content.file)
            if layers.findings:
                raise NotPlain(config_path)
            tree = content.tree
            for name in reversed(package):
                tree = {name: tree}
            return _Contribution(tree, layers)

        return kept(self._contributions, (config_path, str(default.primary), *package), make)

    def _choices_of_recipes(self, chosen: Sequence[Override]) -> Iterator[Override]:
        """Yields the choices of a published recipe as if typed; a typed choice of the same group wins."""
        typed = {override.key_or_group for override in chosen}
        for override in chosen:
            id = id_of(f"{RECIPE}/{override.value()}") if override.key_or_group == RECIPE else None
            if id is not None and self._repository.is_ours(f"{RECIPE}/{id}"):
                for group, option in choices(id).items():
                    if group not in typed:
                        yield parsed(f"{group}={option}", group)


def _apply(root: JsonDict, override: Override) -> None:
    """Writes one override into ``root``; copies the changed nodes, because they are shared. Raises NotPlain."""
    key, value = override.key_or_group, override.value()
    taken_away = override.is_delete() or override.is_add()
    if override.package is not None or isinstance(value, dict) or taken_away:
        raise NotPlain(key)
    name, *rest = key.split(".")
    if name in EVERY and not rest:
        if value_problem(name, value):
            raise NotPlain(key)
        root[name] = argument(name, root.get(name), value)
        return
    if name not in NODES or any(problems_at((name, *rest), value)):
        raise NotPlain(key)
    root[name] = with_value(types_of(Root)[name], root[name], rest, value, may_add=override.is_force_add())


def _calls_in(node: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(node, dict):
        for name, item in node.items():
            yield from _calls_in(item, (*path, name))
    elif isinstance(node, str) and node in CALLS:
        yield path
