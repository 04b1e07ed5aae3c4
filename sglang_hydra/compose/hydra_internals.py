"""The parts of Hydra that composing needs and that Hydra does not publish: its loader, its sources, its messages."""

from __future__ import annotations

import contextlib
import copy
import errno
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from sglang_hydra.compose import recipes
from sglang_hydra.compose.schema import PRIMARY_NAME
from sglang_hydra.compose.variables import without_values
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import CONFIG_BYTES, read_text
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import conf_dir, shown_path
from sglang_hydra.text.words import short
from sglang_hydra.text.yaml_limits import TOO_MUCH, text_is_too_much

if TYPE_CHECKING:
    from hydra._internal.defaults_list import DefaultsList
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.default_element import InputDefault, ResultDefault
    from hydra.core.override_parser.types import Override
    from hydra.plugins.config_source import ConfigResult


def loader_of(config_dirs: Sequence[str | Path]) -> ConfigLoaderImpl:
    """Hydra's loader over the given folders (or ``scheme://`` paths), then what plugins name, then ours."""
    if isinstance(version.getbase(), type(version._UNSPECIFIED_)):
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


class Repository(CachingConfigRepository):
    """Every config that can be composed, without what they say of Hydra's own node.

    Raises ConfigError for a primary config that is not there or cannot be read.
    """

    def __init__(
        self,
        loader: ConfigLoaderImpl,
        config_name: str,
        searchpath: Sequence[Override] = (),
        *,
        trusts_files: bool = False,
    ) -> None:
        # Not Hydra's own initializer: it copies all sources and the ConfigStore deeply, which costs as much as merging.
        self.delegate = loader.repository
        self.cache = {}
        self._loader = loader
        self._config_name = config_name
        self._hydra_is_kept = True
        self._options: dict[str, list[str]] = {}
        self._files: dict[str, list[str]] = {}
        self._groups: dict[str, bool] = {}
        if not self.config_exists(config_name):
            where = ", ".join(shown_path(source.path) for source in self.get_sources() if source.scheme() == "file")
            hint = f"--config-dir FOLDER, where FOLDER/{config_name}.yaml is"
            raise ConfigError(Finding("error", "CLI018", f"there is no config {config_name!r} in {where}", hint=hint))
        if not searchpath and not trusts_files:
            self._refuse_search_path()
        loader._process_config_searchpath(config_name, list(searchpath), self)
        self._hydra_is_kept = False

    def _refuse_search_path(self) -> None:
        """Raises ConfigError where the primary config's file adds a package to the search path: it would be imported.
        Also for a folder outside of its own where nobody typed which config is the primary one."""
        file, loaded = self._file(self._config_name), self.load_config(self._config_name)
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
        """For ``hydra.searchpath``: other sources for this repository alone."""
        self.delegate = copy.copy(self.delegate)
        super().initialize_sources(config_search_path)

    def load_config(self, config_path: str) -> ConfigResult | None:
        self._offer_recipe(config_path)
        known = f"config_path={config_path}" in self.cache
        if not known:
            self._check_size(config_path)
        try:
            result = super().load_config(config_path)
        except (UnicodeError, RecursionError) as failure:
            why = "it refers to itself without end" if isinstance(failure, RecursionError) else "it is not UTF-8 text"
            raise ConfigError(Finding("error", "CLI009", f"{self._name(config_path)}: {why}")) from failure
        if result is None or known or self._hydra_is_kept:
            return result
        if isinstance(result.config, ListConfig):
            why = "it holds a list, not a mapping of keys"
            raise ConfigError(Finding("error", "CLI009", f"{self._name(config_path)}: {why}"))
        if isinstance(result.config, DictConfig) and "hydra" in result.config:
            with open_dict(result.config):
                result.config.pop("hydra")
        if result.defaults_list:
            result.defaults_list = [default for default in result.defaults_list if not _is_hydras(default)]
        return result

    def _check_size(self, config_path: str) -> None:
        """Raises ConfigError for a file of others whose aliases Hydra would follow for hours."""
        file = self._file(config_path)
        if file is None or file.startswith(str(conf_dir())):
            return
        try:
            text = read_text(file, CONFIG_BYTES)
        except OSError as failure:
            if failure.errno != errno.EFBIG:
                return  # Hydra says so
            raise ConfigError(Finding("error", "CLI009", f"{shown_path(file)}: {failure.strerror}")) from failure
        except UnicodeError:
            return  # Hydra says so
        if text_is_too_much(text):
            raise ConfigError(Finding("error", "CLI009", f"{shown_path(file)}: {TOO_MUCH}"))

    def _file(self, config_path: str) -> str | None:
        """The file of a config; None for what lies in no file, or nowhere."""
        found = next((source for source in self.get_sources() if source.is_config(config_path)), None)
        if found is None or found.scheme() != "file":
            return None
        return f"{str(found.path).removeprefix('file://')}/{config_path.removesuffix('.yaml')}.yaml"

    def _name(self, config_path: str) -> str:
        file = self._file(config_path)
        return config_path if file is None else shown_path(file)

    def _offer_recipe(self, config_path: str) -> None:
        """The published recipes become known to Hydra one by one, when they are asked for."""
        id = recipes.id_of(config_path)
        if id is None:
            return
        recipes.register(id, ConfigStore.instance())  # for a run of Hydra's own
        for store in self._stores():
            recipes.register(id, store)  # this repository works on a copy

    def is_registered(self, config_path: str) -> bool:
        """Whether code has registered a config of this name, which Hydra holds a file of the same name against."""
        return any(source.scheme() == "structured" and source.is_config(config_path) for source in self.get_sources())

    def is_ours(self, config_path: str) -> bool:
        """Whether the published recipe of this name is what Hydra would find, and no config that code registered."""
        group, _, name = config_path.partition("/")
        nodes = [store.repo.get(group, {}).get(f"{name}.yaml") for store in self._stores()]
        return bool(nodes) and all(node is None or node.provider == recipes.PROVIDER for node in nodes)

    def _stores(self) -> list[ConfigStore]:
        return [source.__dict__["store"] for source in self.get_sources() if source.scheme() == "structured"]

    def options(self, group: str) -> list[str]:
        """The options of a group, sorted; empty for what is no group."""
        if group not in self._options:
            # A group is a folder below a search path, and no way out of it.
            exists = re.fullmatch(r"\w[\w/-]*", group) is not None and self.group_exists(group)
            found = self.get_group_options(group, ObjectType.CONFIG) if exists else []
            self._options[group] = sorted({*found, *recipes.recipes()}) if group == recipes.GROUP else found
        return self._options[group]

    def groups(self) -> list[str]:
        return sorted({*self.get_group_options("", ObjectType.GROUP), recipes.GROUP})

    def files(self, group: str) -> list[str]:
        """The YAML files of a group's options; where two sources have the same name, the one that counts."""
        if group not in self._files:
            self._files[group] = self._files_of(group)
        return self._files[group]

    def _files_of(self, group: str) -> list[str]:
        found: dict[str, str] = {}
        for source in self.get_sources():
            folder = Path(source.path) / group
            if source.scheme() == "file" and folder.is_dir():
                for file in sorted(folder.glob("*.yaml")):
                    found.setdefault(file.stem, str(file))
        return list(found.values())

    def chooses(self, override: Override) -> bool:
        """Whether an override chooses an option of a group, and does not set a value."""
        return not isinstance(override.value(), dict) and self.group_exists(override.key_or_group)

    def defaults(self, choices: Sequence[Override]) -> DefaultsList:
        """The expanded defaults list of the primary config under these choices."""
        from hydra._internal.defaults_list import create_defaults_list

        self.cache.clear()  # Hydra writes into what it has read: the choices into the lists, other files into a config
        return create_defaults_list(
            repo=self,
            config_name=self._config_name,
            overrides_list=list(choices),
            prepend_hydra=False,
            skip_missing=False,
        )

    def merged(self, defaults: list[ResultDefault]) -> DictConfig:
        config = self._loader._compose_config_from_defaults_list(defaults=defaults, repo=self)
        OmegaConf.set_struct(config, True)
        return config


@contextlib.contextmanager
def told_by_hydra(place_of: Callable[[str], str | None] = lambda key: None) -> Iterator[None]:
    """What Hydra, OmegaConf and the YAML parser refuse inside becomes a ConfigError that says it shortly.

    ``place_of`` tells where a key was set.
    """
    import yaml

    try:
        yield
    except yaml.YAMLError as failure:
        raise ConfigError(_broken_yaml(failure)) from failure
    except (HydraException, OmegaConfBaseException) as failure:
        raise ConfigError(_said_by_hydra(failure, place_of)) from failure
    except RecursionError as failure:
        hint = "one of two keys that are each the other, a: ${b} and b: ${a}, needs a value"
        found = Finding("error", "CLI008", "the configuration refers to itself without end", hint=hint)
        raise ConfigError(found) from failure
    except (OSError, UnicodeError) as failure:
        raise ConfigError(Finding("error", "CLI008", f"a config file cannot be read: {failure}")) from failure
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, AssertionError) as failure:
        # Hydra has no words of its own for a file or a value of an unexpected shape.
        said = short(without_values(" ".join(f"{type(failure).__name__}: {failure}".split())), 300)
        raise ConfigError(Finding("error", "CLI008", f"this cannot be composed ({said})")) from failure


def file_of(loaded: ConfigResult | None, config_path: str) -> str:
    """The file that a config was read from; '' for what lies in no file (the ConfigStore, a package)."""
    if loaded is None or not str(loaded.path).startswith("file://"):
        return ""
    return str(Path(str(loaded.path).removeprefix("file://")) / f"{config_path.removesuffix('.yaml')}.yaml")


def _said_by_hydra(failure: Exception, place_of: Callable[[str], str | None]) -> Finding:
    """Hydra's and OmegaConf's own message, the key that it is about and its place in front."""
    if isinstance(failure, MissingConfigException) and (unknown := _no_such_option(failure)) is not None:
        return unknown
    cause = failure.__cause__
    lines = [line.strip() for error in (failure, cause) if error for line in str(error).splitlines() if line.strip()]
    kept = [
        line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=", "See https"))
    ]
    message = short(without_values(" ".join(dict.fromkeys(kept))) or type(failure).__name__, 400)
    key = next((str(key) for error in (failure, cause) if (key := getattr(error, "full_key", None))), None)
    if key is None:
        return Finding("error", "CLI008", message, hint=_hint_of_group(message))
    place = place_of(key)
    message = f"{place + ': ' if place else ''}{key}: {message}"
    return Finding("error", "CLI008", message, (key,), _hint_of_interpolation(message, key))


def _no_such_option(failure: MissingConfigException) -> Finding | None:
    """An option that its group has not; None for another file that is missing. In front the config that chose it, as
    Hydra sees it: the primary one for a choice on the command line."""
    from sglang_hydra.compose.override_errors import unknown_option

    file = failure.missing_cfg_file or ""
    offered = re.search(r"Available options in '([^']+)'", str(failure))
    group = offered[1] if offered else file.partition("/")[0]
    option = file.removeprefix(f"{group}/")
    if not option or option == file:
        return None
    options = [*(failure.options or ()), *(recipes.recipes() if group == "recipe" else ())]
    refused = unknown_option(group, option, options).finding
    where = re.match(r"In ('[^']+'): ", str(failure))
    return replace(refused, message=f"in {where[1]}: {refused.message}") if where else refused


def _hint_of_group(message: str) -> str | None:
    """What to type where a group that has a choice already is added to, or a file of a group says not where it goes."""
    if group := re.match(r"Multiple values for (\w+)\. To override a value use 'override \1: (\w+)'", message):
        return f"without the +: {group[1]}={group[2]}"
    if loose := re.match(r"In '(bench)/([\w/.-]+)': ConfigKeyError", message):
        return f"# @package {loose[1]} as the first line of {loose[1]}/{loose[2]}.yaml"
    added = re.match(r"force-add of config groups is not supported: '\+\+([^']+)'", message)
    return f"without the ++: {added[1]}" if added else None


def _hint_of_interpolation(message: str, key: str) -> str | None:
    """What to type where an interpolation leads nowhere."""
    if variable := re.search(r"Environment variable '(\w+)' not found", message):
        return f"export {variable[1]}=..., or {key}='${{oc.env:{variable[1]},DEFAULT}}'"
    if re.search(r"Interpolation key '.*' not found", message):
        return f"the name of a key that is there; a literal ${{ is written \\${{: {key}='...\\${{...'"
    return None


def _is_hydras(default: InputDefault) -> bool:
    name = getattr(default, "group", None) or getattr(default, "path", None) or ""
    return str(name).lstrip("/").startswith("hydra/")


def _broken_yaml(failure: Exception) -> Finding:
    mark = getattr(failure, "problem_mark", None)
    problem = getattr(failure, "problem", None) or str(failure).splitlines()[0]
    if mark is None:
        name = shown_path(str(getattr(failure, "name", "a config file")).removeprefix("file://"))
        return Finding("error", "CLI009", f"{name}: this is no YAML: {problem}")
    place = f"{shown_path(str(mark.name).removeprefix('file://'))}:{mark.line + 1}:{mark.column + 1}"
    return Finding("error", "CLI009", f"{place}: this is no YAML: {problem}")
