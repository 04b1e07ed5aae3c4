"""Composes presets that need Hydra: with packages in the defaults list, interpolations or a header, or broken."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sglang_hydra.compose.by_omegaconf import (
    SEAL,
    Base,
    loaded_configs,
    paths_with,
    record_files,
    refuse_copies,
    resolved,
    unresolved,
)
from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
from sglang_hydra.compose.hydra_internals import Repository, file_of, set_parent
from sglang_hydra.compose.node_types import types_of
from sglang_hydra.compose.overrides import parsed
from sglang_hydra.compose.plain_files import Content
from sglang_hydra.compose.presets import Preset
from sglang_hydra.compose.provenance import Layers
from sglang_hydra.compose.schema import PAIR, Root
from sglang_hydra.compose.variables import set_places
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.locations import shown_path

if TYPE_CHECKING:
    from hydra.core.default_element import ResultDefault
    from hydra.core.override_parser.types import Override


def pair_of(repository: Repository, base: Base, gpu: str, model: str) -> tuple[Content, ...]:
    """Returns the configs of ``gpu_model/<gpu>-<model>.yaml``, weakest first, with interpolations resolved in the whole
    configuration; empty without such a file."""
    name = f"{gpu}-{model}"
    if not re.fullmatch(r"[\w./-]+", name) or ".." in name:
        return ()
    with hydra_errors_as_findings():
        loaded = repository.load_config(f"{PAIR}/{name}") if repository.config_exists(f"{PAIR}/{name}") else None
        if loaded is None:
            return ()
        parts: tuple[Content, ...] = (Content(unresolved(loaded.config), file_of(loaded, f"{PAIR}/{name}")),)
        if loaded.defaults_list:
            parts = _parts(repository, option_defaults(repository, parsed(f"+{PAIR}={name}", PAIR)))
        return tuple(_resolved_in(base, part) for part in parts)


def _resolved_in(base: Base, part: Content) -> Content:
    """Returns a config with its interpolations resolved. Raises ConfigError if it copies a secret."""
    from omegaconf import OmegaConf

    own = OmegaConf.create(dict(part.tree))
    set_parent(own, base.config)
    set_places(lambda key: (shown_path(part.file) if key in own else base.origin(key)[0] or PAIR, False))
    try:
        plain = resolved(own)
    finally:
        set_places(None)
    copies = [".".join(path) for path in paths_with(plain, SEAL)]
    refuse_copies(copies, [part.file] * len(copies))
    return part._replace(tree=plain)


def option_defaults(repository: Repository, choice: Override) -> list[ResultDefault]:
    """Returns the entries of Hydra's defaults list that come from an option: its own defaults list and itself."""
    listed = repository.defaults([choice], skip_missing=True).defaults
    own = {f"{choice.key_or_group}/{choice.value()}"}
    while more := {str(entry.config_path) for entry in listed if entry.parent in own} - own:
        own |= more
    return [entry for entry in listed if entry.config_path in own]


def preset_of(repository: Repository, group_key: str, name: str) -> Preset:
    """Returns the option ``name`` of a group as Hydra and OmegaConf compose it. ``group_key`` is what chooses it
    (``gpu``, or ``gpu@server.gpu`` if an app has our tree under a node).

    Raises ConfigError for an unknown option, and with every mistake in its files."""
    from omegaconf import OmegaConf

    group, _, package = group_key.partition("@")
    if name not in repository.options(group):
        from sglang_hydra.compose.unknown_words import unknown_option

        raise ConfigError(unknown_option(group, name, repository.options(group)).finding)
    choice = parsed(f"{'+' if group == PAIR else ''}{group_key}={name}", group)
    path = tuple(package.split(".")) if package else (group.partition("/")[0],)
    layers, schema = Layers(), types_of(Root).get(path[-1])
    with hydra_errors_as_findings(layers.place_of):
        defaults = option_defaults(repository, choice)
        parts = tuple(part._replace(tree=_below(part, path)) for part in _parts(repository, defaults))
        record_files(repository, defaults, path[:-1], layers)
        for part in parts if schema is None else ():
            layers.add_file(path[-1], part.tree, part.file, ())
        node = unresolved(OmegaConf.select(repository.merged(defaults), ".".join(path)) or {})
        arguments = node.get("args")
        for argument, value in arguments.items() if isinstance(arguments, dict) else ():
            layers.lift(path[-1], argument, value, (path[-1], "args", argument))
        if layers.findings:
            raise ConfigError(*layers.findings)
        if schema is not None:
            node = unresolved(OmegaConf.merge(OmegaConf.structured(schema), node))
    keys = (part.tree for entry, part in zip(defaults, parts, strict=True) if entry.config_path == f"{group}/{name}")
    return Preset(name, node, parts, frozenset().union(*keys))


def _parts(repository: Repository, defaults: Sequence[ResultDefault]) -> tuple[Content, ...]:
    """Returns the unresolved content of each config in a defaults list, weakest first."""
    return tuple(
        Content(unresolved(loaded.config), file_of(loaded, str(default.config_path)), str(default.package))
        for default, loaded in loaded_configs(repository, defaults)
    )


def _below(part: Content, path: tuple[str, ...]) -> Mapping[str, object]:
    """Returns the part of a config for the node at ``path``."""
    package = tuple(filter(None, str(part.package or "").split(".")))
    if package != path[: len(package)]:
        return {}
    content: object = part.tree
    for name in path[len(package) :]:
        content = content.get(name) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}
