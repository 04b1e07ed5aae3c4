"""Everything here uses a part of Hydra or OmegaConf that they do not publish; no other file may (tests/test_house.py),
but for hydra_jobs.py, which runs Hydra's jobs, and hydra_apps.py, which watches apps start.

For each: what it is for, why the public way does not serve, and the test that fails when Hydra changes it.

- ``loader_of``: ``create_config_search_path``, ``ConfigLoaderImpl``. ``hydra.initialize`` takes one folder and keeps it
  in a global. test_a_loader_searches_*
- ``Repository``: ``CachingConfigRepository``, ``create_defaults_list``, and of the loader
  ``_process_config_searchpath`` and ``_compose_config_from_defaults_list``. ``hydra.compose`` returns the merged config
  alone, not the files that it is made of. ``_metadata.object_type`` tells our schema by its type before its nodes are
  made; nothing public sets it. test_a_repository_*, tests/compose/test_compose.py
- ``apply_override``: ``_apply_overrides_to_config``. ``OmegaConf.update`` knows neither ``+`` and ``~`` nor the error
  messages of Hydra. test_an_override_is_applied_as_hydra_does
- ``Repository._outline``: ``_create_defaults_list`` of the repository. Only Hydra reads its defaults lists right.
  test_a_repository_*
- ``header_package``: ``ConfigSource._get_header_dict``. ``ConfigSource.load_config`` reads the whole file with the slow
  parser first. test_the_package_of_a_header
- ``yaml_loader``: ``get_yaml_loader``. ``OmegaConf.load`` returns nodes, not plain values, and lines are lost.
  test_yaml_is_read_as_omegaconf_reads_it
- ``key_and_text``, ``set_parent``: methods of OmegaConf's nodes. A resolver is given its node, but nothing public tells
  the node's key, and nothing public resolves a tree within another one. test_a_resolver_*, test_a_tree_resolves_*

None of these has a public way in Hydra up to 1.4.0rc3 and OmegaConf up to 2.4.1rc1. With Hydra 1.3 go ``setbase`` in
``loader_of``, the store of each source (``_stores``) and the first wording in ``UNMATCHED``; with OmegaConf 2.3 its
module in ``yaml_loader``.

The public parts stay where they are used: ``hydra.main``, ``hydra.core`` (``config_store``, ``default_element``,
``global_hydra``, ``hydra_config``, ``override_parser``, ``plugins``, ``utils``), ``hydra.errors``, ``hydra.types`` and
``hydra.plugins``."""

from __future__ import annotations

import copy
import errno
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.errors import ConfigCompositionException, MissingConfigException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from sglang_hydra.compose import recipes
from sglang_hydra.compose.schema import PATH_PROVIDER, PRIMARY_NAME, SCHEMA_NAME, Root, UnmadeSchema
from sglang_hydra.text.budget import OverBudget, check_yaml
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text
from sglang_hydra.text.json_types import JsonDict
from sglang_hydra.text.locations import conf_dir, shown_path

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.default_element import InputDefault, ResultDefault
    from hydra.core.override_parser.types import Override
    from omegaconf import Container, Node


def loader_of(config_dirs: Sequence[str | Path]) -> ConfigLoaderImpl:
    """Returns Hydra's loader over the given folders (or ``scheme://`` paths), then those of plugins, then ours."""
    if version.getbase() is version._UNSPECIFIED_:  # with Hydra 1.4 it never is
        version.setbase("1.3")
    ours = f"file://{conf_dir()}"
    named = [str(folder) if "://" in str(folder) else f"file://{Path(folder).absolute()}" for folder in config_dirs]
    search_path = create_config_search_path(None)
    plugged = [element.path for element in search_path.get_path() if element.provider not in ("hydra", "schema")]
    search_path.get_path().clear()
    for path in dict.fromkeys((*named, *plugged)):
        if path != ours:
            search_path.append("main" if path in named else "plugin", str(path))
    search_path.append("sglang_hydra", ours)
    search_path.append("schema", "structured://")
    return ConfigLoaderImpl(search_path)


def _listed(source: ConfigSource, group: str) -> list[str]:
    """Returns the sorted options of a group in one source. ``FileConfigSource.list`` resolves two paths for each file,
    a fiftieth of a plan's time."""
    from hydra._internal.core_plugins.file_config_source import FileConfigSource  # Hydra's scan makes this class anew

    if type(source) is not FileConfigSource:
        return source.list(group, ObjectType.CONFIG)
    with os.scandir(os.path.join(source.path, group)) as entries:
        return sorted(entry.name[:-5] for entry in entries if entry.name.endswith(".yaml") and entry.is_file())


class Repository(CachingConfigRepository):
    """Every config that can be composed, without its values for Hydra's own node.

    Raises ConfigError for a missing or unreadable primary config."""

    def __init__(
        self,
        loader: ConfigLoaderImpl,
        config_name: str,
        searchpath: Sequence[Override] = (),
        *,
        trusts_files: bool = False,
    ) -> None:
        # Not Hydra's own initializer: its deep copy of all sources and the ConfigStore costs as much as merging.
        self.delegate = loader.repository
        self.cache = {}
        self._loader = loader
        self._config_name = config_name
        self._hydra_is_kept = True
        self._options: dict[str, list[str]] = {}
        self._groups: dict[str, bool] = {}
        self._outlined: set[str] | None = None
        self._hydra_nodes: dict[str, dict[str, object]] = {}
        self._schema = self._outlined_schema()
        if not self.config_exists(config_name):
            files = [shown_path(source.path) for source in self.get_sources() if source.scheme() == "file"]
            where = ", ".join(dict.fromkeys(files))
            here = next(
                (one for one in (".", "conf", "config", "configs") if os.path.isfile(f"{one}/{config_name}.yaml")), None
            )
            hint = f"--config-dir {here or 'FOLDER'}, where {here or 'FOLDER'}/{config_name}.yaml is"
            raise ConfigError.of("CLI018", f"there is no config {config_name!r} in {where}", hint=hint)
        file = self._file(config_name)
        own = own_content(file) if file is not None and is_own_file(file) else None
        if searchpath or own is None or "hydra" in own.tree:  # else it adds no search path
            if not searchpath and not trusts_files:
                self._refuse_search_path(file)
            loader._process_config_searchpath(config_name, list(searchpath), self)
        self._hydra_is_kept = False

    def _refuse_search_path(self, file: str | None) -> None:
        """Raises ConfigError if the primary config's file adds a package to the search path, because Hydra would import
        it; also for a folder outside its own if nobody typed the name of the primary config."""
        loaded = self.load_config(self._config_name)
        if file is None or loaded is None or not isinstance(loaded.config, DictConfig):
            return
        from sglang_hydra.facts.trust import refused_search_path

        named = OmegaConf.select(loaded.config, "hydra.searchpath")
        was_typed = self._config_name != PRIMARY_NAME
        if named and (finding := refused_search_path(file, [str(path) for path in named], was_typed)) is not None:
            raise ConfigError(finding)

    def group_exists(self, config_path: str) -> bool:
        if config_path not in self._groups:
            self._groups[config_path] = config_path == recipes.GROUP or super().group_exists(config_path)
        return self._groups[config_path]

    def config_exists(self, config_path: str) -> bool:
        self._offer_recipe(config_path)
        return super().config_exists(config_path)

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        """Replaces the sources of this repository alone, for ``hydra.searchpath``."""
        self.delegate = copy.copy(self.delegate)
        super().initialize_sources(config_search_path)

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path == SCHEMA_NAME and self._schema is not None:
            return self._schema
        self._offer_recipe(config_path)
        self._last_loaded = config_path
        known = f"config_path={config_path}" in self.cache
        if not known:
            self._check_size(config_path)
        try:
            result = None if known or self._outlined is None else self._outline(config_path)
            result = super().load_config(config_path) if result is None else result
        except (UnicodeError, RecursionError) as failure:
            why = "it refers to itself without end" if isinstance(failure, RecursionError) else "it is not UTF-8 text"
            raise ConfigError.of("CLI009", f"{self._name(config_path)}: {why}") from failure
        if result is None or known or self._hydra_is_kept:
            return result
        if isinstance(result.config, ListConfig):
            why = "it holds a list, not a mapping of keys"
            raise ConfigError.of("CLI009", f"{self._name(config_path)}: {why}")
        kept = self._hydra_nodes[config_path] = {}
        if isinstance(result.config, DictConfig) and "hydra" in result.config:
            kept |= _flat("hydra", OmegaConf.to_container(result.config)["hydra"])  # type: ignore[index,call-overload]
            with open_dict(result.config):
                result.config.pop("hydra")
        if result.defaults_list:
            chosen = [default for default in result.defaults_list if _is_hydras(default)]
            of_groups = [vars(item) for item in chosen if getattr(item, "override", False)]
            kept |= {str(item["group"]).lstrip("/"): item["value"] for item in of_groups}
            result.defaults_list = [default for default in result.defaults_list if not _is_hydras(default)]
        return result

    def _outline(self, config_path: str) -> ConfigResult | None:
        """Returns a file of ours without its content, which only ``merged`` needs: its defaults list, its values for
        Hydra's own node, and whether it has more. None for another config."""
        file = self._file(config_path)
        own = own_content(file) if file is not None and is_own_file(file) else None
        if own is None:
            return None
        kept = {name: value for name, value in own.tree.items() if name == "hydra"}
        more = {"more": 0} if own.tree.keys() - kept - {"defaults"} else {}
        config = OmegaConf.create({**kept, **more})
        delegate: Any = self.delegate
        listed = delegate._create_defaults_list(config_path, OmegaConf.create(own.tree.get("defaults") or []))
        result = ConfigResult("sglang_hydra", f"file://{conf_dir()}", config, {"package": own.package}, listed)
        self.cache[f"config_path={config_path}"] = result
        assert self._outlined is not None
        self._outlined.add(f"config_path={config_path}")
        return result

    def _forget_outlines(self) -> None:
        for key in self._outlined or ():
            self.cache.pop(key, None)
        self._outlined = None

    def _outlined_schema(self) -> ConfigResult | None:
        """Returns our schema without its keys, which only ``merged`` needs; None if the app has such a config."""
        first = next((source for source in self.get_sources() if source.is_config(SCHEMA_NAME)), None)
        stored = [getattr(store.repo.get(f"{SCHEMA_NAME}.yaml"), "node", None) for store in self._stores()]
        if first is None or first.scheme() != "structured" or not all(isinstance(i, UnmadeSchema) for i in stored):
            return None
        config = OmegaConf.create({})
        config._metadata.object_type = Root
        return ConfigResult("sglang_hydra", "structured://", config, {"package": None}, [])

    def hydra_keys(self, defaults: Sequence[ResultDefault]) -> dict[str, object]:
        """Returns the values that these configs set below Hydra's own node, unresolved, as ``hydra.mode``."""
        found: dict[str, object] = {}
        for default in defaults:
            found |= self._hydra_nodes.get(str(default.config_path), {})
        return found

    def _check_size(self, config_path: str) -> None:
        """Raises ConfigError for a foreign file whose size or aliases exceed the budget."""
        file = self._file(config_path)
        if file is None or is_own_file(file):
            return
        try:
            text = read_text(file, CONFIG_BYTES)
        except OSError as failure:
            if failure.errno != errno.EFBIG:
                return  # Hydra's message is clear
            raise ConfigError.of("CLI009", f"{shown_path(file)}: {failure.strerror}") from failure
        except UnicodeError:
            return  # Hydra's message is clear
        try:
            check_yaml(text, "config")
        except OverBudget as failure:
            raise ConfigError.of("CLI009", f"{shown_path(file)}: {failure}") from failure
        except yaml.YAMLError:
            return  # Hydra's message is clear

    def _file(self, config_path: str) -> str | None:
        """Returns the file of a config; None if it has no file or does not exist."""
        found = next((source for source in self.get_sources() if source.is_config(config_path)), None)
        if found is None or found.scheme() != "file":
            return None
        return f"{str(found.path).removeprefix('file://')}/{config_path.removesuffix('.yaml')}.yaml"

    def _name(self, config_path: str) -> str:
        file = self._file(config_path)
        return config_path if file is None else shown_path(file)

    def _offer_recipe(self, config_path: str) -> None:
        """Registers a published recipe with Hydra when a config of this name is read."""
        id = recipes.id_of(config_path)
        if id is None:
            return
        recipes.register(id, ConfigStore.instance())  # for a run of Hydra's own
        for store in self._stores():
            recipes.register(id, store)  # with Hydra 1.3 this repository works on a copy

    def is_registered(self, config_path: str) -> bool:
        """Returns whether code has registered a config with this name, which Hydra would compare with a file."""
        return any(source.scheme() == "structured" and source.is_config(config_path) for source in self.get_sources())

    def is_ours(self, config_path: str) -> bool:
        """Returns whether Hydra would find the published recipe with this name, and not a config registered by code."""
        group, _, name = config_path.partition("/")
        nodes = [store.repo.get(group, {}).get(f"{name}.yaml") for store in self._stores()]
        return bool(nodes) and all(node is None or node.provider == recipes.PROVIDER for node in nodes)

    def is_path(self, model: str) -> bool:
        """Returns whether the chosen model has a slash and is no option, or is an option that only means a path."""
        if "/" not in model:
            return False
        name = f"model/{model.rstrip('/')}"
        source = next((source for source in self.get_sources() if source.is_config(name)), None)
        return source is None or source.load_config(name).provider == PATH_PROVIDER

    def _stores(self) -> list[ConfigStore]:
        """Returns the stores behind the sources. Hydra 1.3 gives each source a copy; later releases share one."""
        shared = ConfigStore.instance()
        return [getattr(source, "store", shared) for source in self.get_sources() if source.scheme() == "structured"]

    def options(self, group: str) -> list[str]:
        """Returns the sorted options of a group; empty if there is no such group."""
        if group not in self._options:
            self._options[group] = sorted(self.options_by_source(group))
        return self._options[group]

    def options_by_source(self, group: str) -> list[str]:
        """Returns the options of a group, with those of the first searched source in front."""
        # A group is a folder below a search path; ``..`` and absolute paths are none.
        if re.fullmatch(r"\w[\w/-]*", group) is None or not self.group_exists(group):
            return []
        sources = [source for source in self.get_sources() if source.is_group(group)]
        names = [name for source in sources for name in _listed(source, group)]
        return list(dict.fromkeys((*names, *(recipes.recipes() if group == recipes.GROUP else ()))))

    def groups(self) -> list[str]:
        return sorted({*self.get_group_options("", ObjectType.GROUP), recipes.GROUP})

    def chooses(self, override: Override) -> bool:
        """Returns whether an override chooses an option of a group instead of setting a value."""
        return not isinstance(override.value(), dict) and self.group_exists(override.key_or_group)

    def defaults(self, choices: Sequence[Override], *, skip_missing: bool = False) -> DefaultsList:
        """Returns the expanded defaults list of the primary config with these choices. ``skip_missing`` leaves out a
        choice that is still open (``model: ???``), which is an error otherwise."""
        self.cache.clear()  # Hydra writes into what it has read: the choices into the lists, other files into a config
        self._outlined = set()
        try:
            listed = create_defaults_list(
                repo=self,
                config_name=self._config_name,
                overrides_list=list(choices),
                prepend_hydra=False,
                skip_missing=skip_missing,
            )
        except RecursionError as failure:
            message = f"{self._name(self._last_loaded)}: its defaults list leads back to itself"
            raise ConfigError.of("CLI008", message, hint="take that name out of defaults") from failure
        except MissingConfigException as failure:
            missing = MissingChoice(str(failure), failure.missing_cfg_file, failure.options)
            missing.line = self._line_of_choice(failure.missing_cfg_file or "")
            raise missing from failure
        except ConfigCompositionException as failure:
            unmatched = re.match(rf"(?s)In '[^']+': {UNMATCHED} '([\w/]+)'", str(failure))
            line = self._line_of_choice(f"{unmatched[1]}/", r"[^#]*") if unmatched else None
            if line is None:
                raise
            raise ConfigCompositionException(f"{line[0]}: {failure}") from None
        finally:
            self._forget_outlines()
        for choice in choices:
            if choice.is_add():
                _refuse_second_choice(listed.defaults, choice)
        return listed

    def _line_of_choice(self, config_path: str, any_option: str = "") -> tuple[str, str] | None:
        """Returns place and text of the line that chooses ``config_path``, or any option of its group with
        ``any_option``. Searches the files read for this defaults list; None if no line does."""
        group, _, option = config_path.rpartition("/")
        chosen = rf"(?:override\s+|optional\s+)*/?([\w/]+)(?:@[\w.]+)?:\s*{any_option or re.escape(option)}"
        wanted = re.compile(rf"\s*-\s+({chosen})\s*(#.*)?")
        found = None
        for name in list(self.cache):
            file = self._file(name.removeprefix("config_path="))
            if file is None or not os.path.isfile(file):
                continue
            for number, line in enumerate(read_text(file, CONFIG_BYTES).splitlines(), 1):
                match = wanted.fullmatch(line)
                if match and f"/{group}".endswith(f"/{match[2].strip('/')}"):
                    found = f"{shown_path(file)}:{number}", match[1]
        return found

    def merged(self, defaults: list[ResultDefault]) -> DictConfig:
        outline, self._schema = self._schema, None
        try:
            config = self._loader._compose_config_from_defaults_list(defaults=defaults, repo=self)
        finally:
            self._schema = outline
        OmegaConf.set_struct(config, True)
        return config


class MissingChoice(MissingConfigException):
    """Raised for an option that does not exist, with place and text of the line that chooses it, if a file does."""

    line: tuple[str, str] | None = None


def _refuse_second_choice(defaults: Sequence[ResultDefault], choice: Override) -> None:
    """Raises ConfigCompositionException if an added choice (``+gpu=h100``) is the second one for its place. Hydra 1.3
    and 1.4 do so only if the options have no defaults list."""
    in_group = f"{choice.key_or_group}/"
    packages = [
        entry.package
        for entry in defaults
        if (entry.is_self or entry.override_key)
        and str(entry.config_path).startswith(in_group)
        and not str(entry.parent).startswith(in_group)
    ]
    if len(set(packages)) < len(packages):
        key = choice.get_key_element().lstrip("+")
        raise ConfigCompositionException(f"{key} appears more than once in the final defaults list")


def file_of(loaded: ConfigResult | None, config_path: str) -> str:
    """Returns the file of a loaded config; '' for one without a file (from the ConfigStore or a package)."""
    if loaded is None or not str(loaded.path).startswith("file://"):
        return ""
    return str(Path(str(loaded.path).removeprefix("file://")) / f"{config_path.removesuffix('.yaml')}.yaml")


def _is_hydras(default: InputDefault) -> bool:
    name = getattr(default, "group", None) or getattr(default, "path", None) or ""
    return str(name).lstrip("/").partition("/")[0] == "hydra"


def _flat(key: str, value: object) -> dict[str, object]:
    """Returns ``{"hydra.run.dir": "x"}`` for the key ``hydra`` and the value ``{"run": {"dir": "x"}}``."""
    if not isinstance(value, dict) or not value:
        return {key: value}
    return {path: item for name, inner in value.items() for path, item in _flat(f"{key}.{name}", inner).items()}


UNMATCHED = r"(?:Could not override|Invalid Defaults List override .*No earlier Group Default for)"
"""How the messages of Hydra 1.3 and 1.4 begin if an override in a defaults list has nothing to override."""


def apply_override(override: Override, config: DictConfig) -> None:
    """Sets, adds or deletes a value in ``config`` itself. Raises what Hydra raises for the override."""
    ConfigLoaderImpl._apply_overrides_to_config([override], config)


class ConfigFile(NamedTuple):
    """The keys of a config file, which nobody may change, and the package in its header."""

    tree: JsonDict
    package: str | None


def header_package(text: str) -> str | None:
    """Returns the package in the header of a config file (``# @package bench``). ValueError if broken."""
    return ConfigSource._get_header_dict(text)["package"]


@lru_cache(maxsize=1)
def yaml_loader() -> Any:
    """Returns the class of OmegaConf's YAML loader: it reads ``1e5`` as a number and a date as text, and raises for a
    repeated key."""
    try:
        module = import_module("omegaconf._yaml")
    except ModuleNotFoundError:  # before OmegaConf 2.4
        module = import_module("omegaconf._utils")
    return module.get_yaml_loader()


def is_own_file(file: str) -> bool:
    """Returns whether a file lies in our ``conf/``; ``conf/../mine`` does not."""
    return file.startswith(f"{conf_dir()}{os.sep}") and os.pardir not in file.split(os.sep)


def own_content(file: str) -> ConfigFile | None:
    """Returns the content of a file of ours; None for a broken one, which Hydra must read. A process reads it once."""
    try:
        stat = os.stat(file)
        return _own_content(file, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None


@lru_cache(maxsize=512)
def _own_content(file: str, _changed_ns: int, _size: int) -> ConfigFile:
    text = read_text(os.path.realpath(file), CONFIG_BYTES)
    # The parser in C is ten times faster. A test checks that both read our files the same.
    return config_file(text, yaml.load(text, Loader=_fast_loader()))


def config_file(text: str, tree: Any) -> ConfigFile:
    """Raises ValueError if a text is no mapping of names, or has a broken header."""
    tree = {} if tree is None else tree
    if not isinstance(tree, dict) or not all(isinstance(name, str) for name in tree):
        raise ValueError("it is no mapping of names")
    return ConfigFile(tree, header_package(text[:512]))


@lru_cache(maxsize=1)
def _fast_loader() -> Any:
    """Returns a loader with OmegaConf's rules for scalars (``1e5`` is a number, a date is text) and the parser in C."""
    if not hasattr(yaml, "CSafeLoader"):
        return yaml_loader()
    return type("FastLoader", (yaml.CSafeLoader,), {"yaml_implicit_resolvers": yaml_loader().yaml_implicit_resolvers})


def key_and_text(node: Node | None) -> tuple[str, str]:
    """Returns the full key of a node and its unresolved text; two empty texts for None."""
    return ("", "") if node is None else (str(node._get_full_key(None)), str(node._value()))


def set_parent(config: Container, parent: Container) -> None:
    """Makes ``parent`` the parent of ``config``, so that its interpolations can refer to keys there."""
    config._set_parent(parent)
