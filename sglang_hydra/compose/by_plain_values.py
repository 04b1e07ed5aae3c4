"""Bases of other choices without composing anew: what each option brings is read once and merged as plain values.

Which configs Hydra merges for some choices, and in which order, it is asked once (the outline); another option that
names no further config then takes the place of the first one. What this does not cover - defaults lists that depend on
the option, interpolations, an app's own schema or mount - is composed by Hydra and OmegaConf as ever: ``base`` answers
None for it, and for every mistake, which is theirs to name. Tests hold both ways equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.by_omegaconf import package_of, record
from sglang_hydra.compose.grammar import has_interpolation
from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
from sglang_hydra.compose.hydra_internals import Repository
from sglang_hydra.compose.node_types import problems_at, types_of
from sglang_hydra.compose.overrides import Wanted, parsed, value_problem
from sglang_hydra.compose.plain_files import Content, content_of
from sglang_hydra.compose.plain_merge import CALLS, NotPlain, argument, merged_root, with_value
from sglang_hydra.compose.provenance import Layers
from sglang_hydra.compose.recipes import GROUP as RECIPE
from sglang_hydra.compose.recipes import choices, id_of
from sglang_hydra.compose.schema import NODES, Root
from sglang_hydra.facts.tiny import tiny_path
from sglang_hydra.text.errors import ConfigError

if TYPE_CHECKING:
    from hydra.core.default_element import ResultDefault
    from hydra.core.override_parser.types import Override

T = TypeVar("T")
_MOST_KEPT = 512


@dataclass(frozen=True)
class PlainBase:
    """What ``bases.Base`` is, as plain values that are shared and never written to.

    ``root`` has the nodes and the arguments that some file names; ``calls`` lead to the interpolations in it.
    """

    root: Mapping[str, Any]
    layers: Layers
    choices: dict[str, str | None]
    calls: tuple[tuple[str, ...], ...] = ()

    def plain(self) -> dict[str, Any]:
        """The nodes and arguments, every interpolation in them resolved."""
        root = dict(self.root)
        for keys in self.calls:
            if _value_at(root, keys) in CALLS:
                root[keys[0]] = with_value(_type_of(keys[0]), root[keys[0]], keys[1:], str(tiny_path()))
        return root

    def overridden(self, wanted: Sequence[Wanted]) -> PlainBase:
        """With these overrides of values on top. Raises NotPlain where only OmegaConf can apply one, or says what is
        wrong with it."""
        root, layers = dict(self.root), self.layers.copy()
        for item in wanted:
            _apply(root, item.override)
            layers.typed(item.override.key_or_group, item.override.value(), item.request)
        return replace(self, root=root, layers=layers)


class _Slot(NamedTuple):
    """A choice whose option another one can stand in for: its group, how it was typed, the option's package header."""

    group: str
    kind: str
    package: str | None


class _Outline(NamedTuple):
    """The configs that are merged, in order, and the choices behind them; ``places`` says where a slot's config is."""

    defaults: Sequence[ResultDefault]
    choices: Mapping[str, str | None]
    places: Mapping[int, _Slot]


class _Contribution(NamedTuple):
    """What one config brings: its tree from the root on, and who named what in it."""

    tree: Mapping[str, Any]
    layers: Layers


class PlainBases:
    """All bases over one repository. It keeps what it has read."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._nodes = {item.name: _default_of(item) for item in fields(Root) if item.name in NODES}
        self._contents: dict[str, Content | None] = {}
        self._contributions: dict[tuple[str, ...], _Contribution] = {}
        self._outlines: dict[tuple[Any, ...], _Outline | None] = {}
        self._bases: dict[tuple[str, ...], PlainBase | None] = {}
        self._pairs: dict[str, tuple[Mapping[str, Any], str] | None] = {}

    def base(self, chosen: Sequence[Override]) -> PlainBase:
        """The base of these choices. Raises NotPlain where it takes Hydra, also to say what is wrong with them."""

        def make() -> PlainBase | None:
            try:
                return self._made([*chosen, *self._choices_of_recipes(chosen)])
            except (NotPlain, LookupError, ConfigError):
                return None

        key = tuple(str(override.input_line) for override in chosen)
        return _plain(_kept(self._bases, key, make), chosen)

    def pair(self, gpu: str, model: str) -> tuple[Mapping[str, Any], str]:
        """What the pair file of these two says, and the file, as ``bases.pair_of``. Raises NotPlain where it takes
        Hydra."""
        name = f"gpu_model/{gpu}-{model}"

        def read() -> tuple[Mapping[str, Any], str] | None:
            if not self._repository.config_exists(name):
                return {}, ""
            content = self._content(name)
            if content is None or content.defaults is not None or has_interpolation(dict(content.tree)):
                return None
            return content.tree, content.file

        return _plain(_kept(self._pairs, name, read), name)

    def _made(self, chosen: Sequence[Override]) -> PlainBase | None:
        slots = [self._slot(override) for override in chosen]
        outline = self._outline(chosen, slots)
        if outline is None:
            return None
        options = {slot: str(override.value()) for slot, override in zip(slots, chosen, strict=True) if slot}
        root: dict[str, Any] = dict(self._nodes)
        layers = Layers()
        for position, default in enumerate(outline.defaults):
            slot = outline.places.get(position)
            name = f"{slot.group}/{options[slot]}" if slot else str(default.config_path)
            contribution = self._contribution(default, name)
            root = merged_root(root, contribution.tree)
            layers.absorb(contribution.layers)
        chosen_options = {slot.group: option for slot, option in options.items()}
        return PlainBase(root, layers, {**outline.choices, **chosen_options}, tuple(_calls_in(root)))

    def _slot(self, override: Override) -> _Slot | None:
        """The slot of a choice; None for one that must be Hydra's (an option that chooses others, a deletion)."""
        value = override.value()
        if not isinstance(value, str) or override.package is not None or override.is_delete():
            return None
        content = self._content(f"{override.key_or_group}/{value}")
        if content is None or content.defaults is not None:
            return None
        return _Slot(override.key_or_group, str(override.type), content.package)

    def _outline(self, chosen: Sequence[Override], slots: Sequence[_Slot | None]) -> _Outline | None:
        known = [slot for slot in slots if slot]
        key = tuple(slot or str(override.input_line) for slot, override in zip(slots, chosen, strict=True))

        def ask() -> _Outline | None:
            from omegaconf import OmegaConf

            with hydra_errors_as_findings():
                listed = self._repository.defaults(chosen)
            schema, *rest = listed.defaults
            loaded = self._repository.load_config(str(schema.config_path))
            if loaded is None or OmegaConf.get_type(loaded.config) is not Root or package_of(schema):
                return None
            # What a defaults list takes from other choices is not the same for another option.
            contents = [self._content(str(default.config_path)) for default in rest]
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

        return _kept(self._outlines, key, ask)

    def _contribution(self, default: ResultDefault, config_path: str) -> _Contribution:
        """Raises NotPlain for a config with a mistake, or one that only OmegaConf can merge."""
        package = package_of(default)

        def make() -> _Contribution:
            content = self._content(config_path)
            # ``record`` looks at the content of the root and of presets, and nobody else at that of other nodes.
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

        return _kept(self._contributions, (config_path, str(default.primary), *package), make)

    def _content(self, config_path: str) -> Content | None:
        return _kept(self._contents, config_path, lambda: content_of(self._repository, config_path))

    def _choices_of_recipes(self, chosen: Sequence[Override]) -> Iterator[Override]:
        """What a published recipe chooses, as if it had been typed: Hydra takes it where nothing else was."""
        typed = {override.key_or_group for override in chosen}
        for override in chosen:
            id = id_of(f"{RECIPE}/{override.value()}") if override.key_or_group == RECIPE else None
            if id is not None and self._repository.is_ours(f"{RECIPE}/{id}"):
                for group, option in choices(id).items():
                    if group not in typed:
                        yield parsed(f"{group}={option}", group)


def _apply(root: dict[str, Any], override: Override) -> None:
    """Writes one override into ``root``, whose nodes are shared and so are made anew. Raises NotPlain."""
    key, value = override.key_or_group, override.value()
    adds = override.is_force_add()
    taken_away = override.is_delete() or override.is_add()
    if override.package is not None or isinstance(value, dict) or taken_away:
        raise NotPlain(key)
    name, *rest = key.split(".")
    if name in FIELDS and not rest:
        if value_problem(name, value):
            raise NotPlain(key)
        root[name] = argument(name, root.get(name), value)
        return
    if name not in NODES or any(problems_at((name, *rest), value)):
        raise NotPlain(key)
    root[name] = with_value(_type_of(name), root[name], rest, value, may_add=adds)


def _type_of(name: str) -> Any:
    return types_of(Root)[name]


def _default_of(item: Any) -> Any:
    value = item.default_factory() if callable(item.default_factory) else item.default
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _value_at(node: Any, keys: Sequence[str]) -> Any:
    for name in keys:
        node = node[name]
    return node


def _calls_in(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(node, dict):
        for name, item in node.items():
            yield from _calls_in(item, (*path, name))
    elif isinstance(node, str) and node in CALLS:
        yield path


def _plain(value: T | None, what: Any) -> T:
    if value is None:
        raise NotPlain(what)
    return value


def _kept(store: dict[Any, T], key: Any, make: Callable[[], T]) -> T:
    """The value of ``key``, made when it is first asked for. A store that has grown too large starts anew."""
    if key not in store:
        if len(store) >= _MOST_KEPT:
            store.clear()
        store[key] = make()
    return store[key]
