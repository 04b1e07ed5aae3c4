"""Merges the chosen group options into one config with OmegaConf, and records what each file sets.

Composes also presets that need Hydra: with packages in the defaults list, interpolations or a header, or broken."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.core.utils import setup_globals
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import MISSING, ServerArgs
from sglang_hydra.arguments.secrets import SECRET_FIELDS, is_secret
from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
from sglang_hydra.compose.hydra_internals import Repository, apply_override, file_of, set_parent
from sglang_hydra.compose.node_types import problems_at, types_of
from sglang_hydra.compose.override_errors import not_deletable
from sglang_hydra.compose.overrides import Wanted, parsed, value_problem
from sglang_hydra.compose.presets import Content, Preset
from sglang_hydra.compose.provenance import Layers
from sglang_hydra.compose.schema import NODES, PAIR, SCHEMA_NAME, Root
from sglang_hydra.compose.variables import Secrets, is_reference, set_places, trusts_files
from sglang_hydra.text.budget import check_expansions
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Hint, Remedy
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.locations import conf_dir, shown_path
from sglang_hydra.text.origins import Origin

if TYPE_CHECKING:
    from hydra.core.default_element import ResultDefault
    from hydra.core.override_parser.types import Override


GROUPS = ("gpu", "model", "engine", "launch", "topology")
"""Our keys whose value is an option of the group with the same name."""


class Base(NamedTuple):
    """A composition without the overrides of values. ``mount`` is the node above our tree, empty for the root."""

    config: DictConfig
    layers: Layers
    choices: dict[str, str | None]
    mount: tuple[str, ...]

    @property
    def tree(self) -> DictConfig:
        return OmegaConf.select(self.config, ".".join(self.mount)) if self.mount else self.config

    def plain(self) -> JsonDict:
        """Returns our tree as plain containers, with every interpolation resolved and checked."""
        with hydra_errors_as_findings(self.layers.place_of):
            tree = self.tree
            secrets = _sealed(tree)
            check_expansions(unresolved(self.config))
            set_places(self.origin)
            try:
                root = resolved(tree)
            except InterpolationResolutionError as failure:
                if not failure.full_key:
                    self._check_references()
                raise
            finally:
                set_places(None)
        copies = [".".join(path) for path in paths_with(root, SEAL) if path not in secrets]
        refuse_copies(copies, [self.layers.place_of(key) or "" for key in copies])
        self._restore(root, secrets)
        self.layers.check_nodes(root)
        return root

    def origin(self, key: str) -> tuple[str, bool]:
        """Returns the place that set a key of ours, and whether it was typed; an empty place for an unset key."""
        origin = self.layers.origin_at(key.removeprefix("".join(f"{name}." for name in self.mount)))
        return (origin.place, origin.file is None and origin.layer == "cli") if origin else ("", True)

    def _check_references(self) -> None:
        """Raises ConfigError for each key of a node whose interpolation has a value of the wrong type. OmegaConf 2.4
        refuses the first one while it resolves the tree, and does not name the key of a mapping."""
        untyped = OmegaConf.create(dict(unresolved(self.config)))
        root = unresolved(OmegaConf.select(untyped, ".".join(self.mount)) if self.mount else untyped)
        for *above, last in paths_with({name: root[name] for name in NODES}, "${"):
            node: Any = root
            for name in above:
                node = node[name if isinstance(node, dict) else int(name)]
            with contextlib.suppress(OmegaConfBaseException):
                value = OmegaConf.select(untyped, ".".join((*self.mount, *above, last)))
                node[last if isinstance(node, dict) else int(last)] = value
        self.layers.check_nodes(root)

    def _restore(self, root: JsonDict, secrets: Mapping[tuple[str, ...], str]) -> None:
        """Restores the texts of secret fields; reads a variable that a server gets by name now."""
        for path, text in secrets.items():
            node = root
            for name in path[:-1]:
                node = node[name]
            if path[:2] == _ENVIRONMENT and is_reference(text):
                place, typed = self.origin(".".join(path))
                text = Secrets({path[-1]: text}, {} if typed or trusts_files() else {path[-1]: place})[path[-1]]
            node[path[-1]] = text


_ENVIRONMENT = ("engine", "env")
SEAL = "\ue000a secret\ue000"
"""Replaces a secret while references to it are resolved."""


def _sealed(tree: DictConfig) -> dict[tuple[str, ...], str]:
    """Replaces the secret fields in ``tree`` and returns their texts; skips texts that only resolving can tell."""
    raw = unresolved(tree)
    found: dict[tuple[str, ...], str] = {}
    for path in ((), ("gpu", "args"), ("model", "args"), _ENVIRONMENT):
        for name, text in _inside(raw, path).items():
            secret = is_secret(name, text) if path == _ENVIRONMENT else name in SECRET_FIELDS
            if secret and isinstance(text, str) and (is_reference(text) or "${" not in text) and text != MISSING:
                at = (*path, name)
                found[at] = text
                OmegaConf.update(tree, ".".join(at), SEAL)
    return found


def refuse_copies(keys: Sequence[str], places: Sequence[str]) -> None:
    """Raises ConfigError for values that refer to a secret one, because they would be shown."""
    hint = "a value of its own, or ${oc.env:NAME}"
    findings = []
    for key, place in zip(keys, places, strict=True):
        message = f"{place + ': ' if place else ''}{key} is taken from a secret, and would be shown"
        findings.append(Finding("error", "VAR002", message, (key,), hint))
    if findings:
        raise ConfigError(*findings)


def paths_with(node: object, text: str, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(node, (dict, list)):
        for name, item in node.items() if isinstance(node, dict) else enumerate(node):
            yield from paths_with(item, text, (*path, str(name)))
    elif isinstance(node, str) and text in node:
        yield path


def make_base(repository: Repository, chosen: Sequence[Override], at: tuple[str, ...] | None = None) -> Base:
    """Composes the tree under ``at``, or under the first node with SGLang's arguments. Raises ConfigError with every
    mistake in the files themselves."""
    setup_globals()  # ${now:...} and ${hydra:...}
    layers = Layers()
    with hydra_errors_as_findings():
        listed = repository.defaults(chosen)
        mount = mounts_of(repository, listed.defaults)[0] if at is None else at
        record_files(repository, listed.defaults, mount, layers)
        if layers.findings:
            raise ConfigError(*layers.findings)
        config = repository.merged(listed.defaults)
    return Base(config, layers, dict(listed.overrides.known_choices), mount)


def apply_overrides(base: Base, wanted: Sequence[Wanted]) -> None:
    """Applies the overrides of values one by one, so that an error names the typed override."""
    findings: list[Finding] = []
    for item in wanted:
        keys = tuple(item.override.key_or_group.split("."))
        ours = keys[len(base.mount) :] if keys[: len(base.mount)] == base.mount else ()
        value = item.override.value()
        values = {ours: value} if ours else _below(keys, value, base.mount)
        found = [problem for path, part in values.items() if (problem := _problem(path, part, item.override))]
        if base.mount:
            above = ".".join(base.mount)
            found = [
                one.said([Remedy.meant(f"{above}.{each.renames}") if each.renames else each for each in one.remedies])
                for one in found
            ]
        if value is None and keys == base.mount[: len(keys)]:
            message = f"{item.request.text}: the server's keys are below this node"
            found = [
                Finding("error", "CLI005", message, keys, f"leave it out; {'.'.join(base.mount)}.KEY=VALUE sets a key")
            ]
        elif not found:
            try:
                _apply(base.config, item, is_argument=len(ours) == 1 and ours[0] in EVERY)
            except ConfigError as failure:
                is_ours = bool(base.mount) and (keys[0] in EVERY or keys[0] in NODES)
                hint: Hint = Remedy.meant(".".join((*base.mount, *keys))) if is_ours else None
                group = keys[-1].rpartition("/")[2] if "/" in keys[-1] else ""
                if group in GROUPS and base.mount:  # server/model=x
                    hint = f"{group}@{'.'.join((*base.mount, group))}={value}"
                found = [replace(failure.findings[0], id="CLI002", fields=(".".join(keys),)).said(hint)]
        elif len(ours) == 1 and ours[0] in GROUPS and isinstance(value, str):
            where = ".".join(keys)
            found = [found[0].said(f"{ours[0]}@{where}={value}" if base.mount else f"{ours[0]}={value}")]
        findings += [replace(problem, message=f"{item.request.place}: {problem.message}") for problem in found]
        for path, part in values.items():
            base.layers.typed(".".join(path), part, item.request)
    if findings:
        raise ConfigError(*findings)


def _below(keys: tuple[str, ...], value: object, mount: tuple[str, ...]) -> dict[tuple[str, ...], object]:
    """Returns the values for our keys in a mapping for our node or one above (``serving={sglang: {tp_size: 2}}``)."""
    if mount[: len(keys)] != keys:
        return {}
    return {(str(name),): part for name, part in _inside(value, mount[len(keys) :]).items()}


def _inside(content: object, path: Sequence[str]) -> JsonObject:
    """Returns the mapping at a path; an empty one where there is none."""
    for name in path:
        content = content.get(name) if isinstance(content, Mapping) else None
    return content if isinstance(content, Mapping) else {}


def _problem(path: tuple[str, ...], value: object, override: Override) -> Finding | None:
    """Returns the problem of an override of one of our keys, or None. Hydra's message has no suggestion, and with a +
    Hydra adds a key that nobody reads."""
    name = path[0]
    if name in EVERY and override.is_delete():
        return not_deletable(name).finding
    if name in EVERY:
        return value_problem(name, value) if len(path) == 1 else None
    if name in NODES:
        if override.is_delete():
            return None
        return next((wrong.finding() for wrong in problems_at(path, value)), None)
    from sglang_hydra.compose.unknown_words import unknown_key

    return unknown_key("", ".".join(path)).finding


def origins_below(
    repository: Repository, chosen: Sequence[Override], leaves: Sequence[Wanted], mount: tuple[str, ...]
) -> dict[str, Origin]:
    """Maps each key directly below the node ``mount`` of an app to the file or override that sets it."""
    found: dict[str, Origin] = {}
    with hydra_errors_as_findings():
        for default, loaded in loaded_configs(repository, repository.defaults(chosen).defaults):
            package, content = package_of(default), unresolved(loaded.config)
            file = file_of(loaded, str(default.config_path))
            below = mount[len(package) :]
            if package[: len(mount)] == mount and len(package) > len(mount):
                found[package[len(mount)]] = Origin(_layer_of(default), None, file=file or None)
            elif package == mount[: len(package)] and not is_schema(loaded.config):
                for name, value in _inside(content, below).items():
                    found[name] = Origin(_layer_of(default), value, file=file or None, keys=(*below, name))
    for item in leaves:
        keys, value = tuple(item.override.key_or_group.split(".")), item.override.value()
        if keys[: len(mount)] == mount:
            inside = keys[len(mount) :][:1] or tuple(value if isinstance(value, dict) else ())
            for name in inside:
                found[name] = Origin(item.request.layer, value, where=item.request.place)
    return found


def _apply(config: DictConfig, item: Wanted, *, is_argument: bool = False) -> None:
    with hydra_errors_as_findings():
        key, value = item.override.key_or_group, item.override.value()
        parent = key.rpartition(".")[0]
        # For model.config.x=3 and model.config={x: 3} without a declared config.
        for container in (parent, key if isinstance(value, dict) and parent and not is_argument else ""):
            if container and not item.override.is_delete() and OmegaConf.select(config, container) is None:
                OmegaConf.update(config, container, {}, merge=False, force_add=True)
        apply_override(item.override, config)


def record_files(
    repository: Repository, defaults: Sequence[ResultDefault], mount: tuple[str, ...], layers: Layers
) -> None:
    """Records in ``layers`` what every file sets in our tree, in merging order."""
    has_schema = False
    mounts = _schema_packages(repository, defaults) if mount else []
    for default, loaded in loaded_configs(repository, defaults):
        if is_schema(loaded.config):
            lost = [] if has_schema else sorted(layers.named())
            layers.findings += [_too_late(lost, layers.place_of(lost[0]), default, mount)] if lost else []
            has_schema = True
            continue
        file = file_of(loaded, str(default.config_path))
        hidden = len(layers.shadowed)
        record(layers, default, unresolved(loaded.config), file, mount)
        if mount:
            of_another = any(package_of(default)[: len(other)] == other for other in mounts if other != mount)
            layers.warnings += [] if of_another else _namesakes(default, file, mount, layers.shadowed[hidden:])


def _too_late(lost: Sequence[str], place: str | None, schema: ResultDefault, mount: tuple[str, ...]) -> Finding:
    """Returns the finding for values that the defaults of our later schema overwrite."""
    entry = f"/sglang_hydra@{'.'.join(mount)}" if mount else str(schema.config_path)
    shown = ", ".join(lost[:3]) + (f" and {len(lost) - 3} others" if len(lost) > 3 else "")
    message = f"{place or 'a file'}: {shown} overwritten by {entry}, which comes later in the defaults list"
    hint = f"put '- {entry}' before '- _self_', '- experiment: ...' and everything else that sets its keys"
    return Finding("error", "CLI028", message, tuple(lost[:3]), hint)


def _namesakes(default: ResultDefault, file: str, mount: tuple[str, ...], hides: Sequence[str]) -> Iterator[Finding]:
    """Yields warnings for options of the same name in an app's group and in ours, with one chosen for the other."""
    group, _, option = str(default.config_path).rpartition("/")
    package, node = package_of(default), ".".join(mount)
    is_chosen = not str(default.parent).startswith(f"{group}/")  # and not a base that a preset builds on
    if group in GROUPS and is_chosen and file.startswith(f"{conf_dir()}/") and package[: len(mount)] != mount:
        message = f"{group}={option} is a preset of sglang_hydra and is merged into {'.'.join(package) or 'the root'}"
        hint = f"{group}@{node}.{group}={option} chooses it for the server; elsewhere it needs a file of the app's own"
        yield Finding("warning", "CLI029", f"{message}, outside of {node}", (group,), hint)
    for text in hides:
        hint = f"give the app's file another name, or choose another option: {group}@{node}.{group}=NAME"
        yield Finding("warning", "CLI029", f"{group}@{node}.{group}={option}: {text}", (group,), hint)


def record(
    layers: Layers, default: ResultDefault, content: Mapping[str, object], file: str, mount: tuple[str, ...] = ()
) -> None:
    """Records in ``layers`` what one file sets in our tree below ``mount``."""
    package = package_of(default)
    if package[:-1] == mount and package[-1:] in (("gpu",), ("model",)):
        layers.add_preset(package[-1], content, file)
    elif package == mount[: len(package)]:
        below = mount[len(package) :]
        layers.add_file(_layer_of(default), _inside(content, below), file, below, str(default.config_path))
    elif package[: len(mount)] == mount:
        layers.add_option(package[len(mount) :], content, file, str(default.config_path))


def package_of(default: ResultDefault) -> tuple[str, ...]:
    """Returns the keys of the node into which a config is merged; empty for the root."""
    return tuple(filter(None, str(default.package or "").split(".")))


def _schema_packages(repository: Repository, defaults: Sequence[ResultDefault]) -> list[tuple[str, ...]]:
    """Returns the nodes of our schema, or of an app's own extension."""
    loaded = loaded_configs(repository, defaults)
    return list(dict.fromkeys(package_of(default) for default, read in loaded if is_schema(read.config)))


def mounts_of(repository: Repository, defaults: Sequence[ResultDefault]) -> list[tuple[str, ...]]:
    """Returns the nodes of our schema. Raises ConfigError without any."""
    found = _schema_packages(repository, defaults)
    if found:
        return found
    message = "the primary config does not hold SGLang's arguments"
    hint = f"put {SCHEMA_NAME} first in its defaults list, or sglang_hydra@NODE to have everything under a node"
    raise ConfigError.of("CLI018", message, hint=hint)


def loaded_configs(repository: Repository, defaults: Sequence[ResultDefault]) -> Iterator[tuple[ResultDefault, Any]]:
    for default in defaults:
        loaded = repository.load_config(default.config_path) if default.config_path is not None else None
        if loaded is not None:
            yield default, loaded


def is_schema(config: object) -> bool:
    """Returns whether a config declares SGLang's arguments: our schema, or an app's extension."""
    kind = OmegaConf.get_type(config)
    return isinstance(kind, type) and issubclass(kind, ServerArgs)


def _layer_of(default: ResultDefault) -> str:
    if default.primary:
        return "primary"
    return str(default.config_path).split("/")[0]


def unresolved(config: object) -> JsonObject:
    content = OmegaConf.to_container(config, resolve=False)
    return {str(key): value for key, value in content.items()} if isinstance(content, dict) else {}


def resolved(config: object) -> JsonDict:
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


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
    group, _, package = group_key.partition("@")
    if name not in repository.options(group):
        from sglang_hydra.compose.unknown_words import unknown_option

        raise ConfigError(unknown_option(group, name, repository.options(group)).finding)
    choice = parsed(f"{'+' if group == PAIR else ''}{group_key}={name}", group)
    path = tuple(package.split(".")) if package else (group.partition("/")[0],)
    layers, schema = Layers(), types_of(Root).get(path[-1])
    with hydra_errors_as_findings(layers.place_of):
        defaults = option_defaults(repository, choice)
        parts = tuple(part._replace(tree=_part_at(part, path)) for part in _parts(repository, defaults))
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


def _part_at(part: Content, path: tuple[str, ...]) -> Mapping[str, object]:
    """Returns the part of a config for the node at ``path``."""
    package = tuple(filter(None, str(part.package or "").split(".")))
    return _inside(part.tree, path[len(package) :]) if package == path[: len(package)] else {}
