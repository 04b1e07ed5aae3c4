"""Composing: Hydra's defaults list and merging, without an app, a run folder or logging.

The same steps as Hydra's own loader, less its ``hydra`` node (which costs as much as all the rest and which only
``@hydra.main`` needs), and with a record of the layer and place of everything that was set. A test holds the
outcome equal to Hydra's compose API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.config import PRIMARY_NAME, SCHEMA_NAME, conf_dir, register
from sglang_hydra.errors import ConfigError
from sglang_hydra.fields import FIELDS
from sglang_hydra.fields.check import check_value
from sglang_hydra.findings import Finding
from sglang_hydra.overrides import API_KEY_REFERENCE, Request, Wanted, read_requests
from sglang_hydra.places import Origin, shown_path

if TYPE_CHECKING:
    from hydra._internal.config_repository import CachingConfigRepository
    from hydra._internal.defaults_list import DefaultsList
    from hydra.core.default_element import ResultDefault
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

_SECRET_FIELDS = ("api_key",)


@dataclass(frozen=True)
class Composition:
    """What was composed. ``intent`` holds the arguments that some layer named, and nothing else.

    ``origins`` has for each of them every layer that named it, weakest first; the last one won. ``nodes`` are the
    root keys that are not arguments, as plain values; ``choices`` the option taken of each group; ``secrets`` the
    real values of what stands as a reference in ``intent``, in memory only. ``shadowed`` names presets that hide one
    of ours.
    """

    intent: Mapping[str, Any]
    origins: Mapping[str, tuple[Origin, ...]]
    nodes: Mapping[str, Any]
    choices: Mapping[str, str | None]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    shadowed: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


class Composer:
    """Hydra's config sources for one application: the folders that are searched, in order.

    ``config_dirs`` are searched before ours, so that a preset there hides ours of the same name. ``config_name``
    names the primary config.
    """

    def __init__(self, config_dirs: Sequence[str | Path] = (), config_name: str = PRIMARY_NAME) -> None:
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra._internal.utils import create_config_search_path

        register()
        register_resolvers()
        self.config_name = config_name
        ours = f"file://{conf_dir()}"
        search_path = create_config_search_path(None)
        found = [element for element in search_path.get_path() if element.path not in (ours, "structured://")]
        search_path.get_path().clear()
        search_path.get_path().extend(found)
        for folder in config_dirs:
            if f"file://{Path(folder).absolute()}" != ours:
                search_path.append("main", f"file://{Path(folder).absolute()}")
        search_path.append("sglang_hydra", ours)
        search_path.append("schema", "structured://")
        self._loader = ConfigLoaderImpl(search_path)

    def options(self, group: str) -> list[str]:
        """The options of a config group, sorted; empty for what is no group."""
        from hydra.core.object_type import ObjectType

        if not group or not self._loader.repository.group_exists(group):
            return []
        return sorted(self._loader.repository.get_group_options(group, ObjectType.CONFIG))

    def canonical(self, requests: Sequence[Request]) -> list[str]:
        """The overrides as Hydra itself would take them, a secret as its reference; for Hydra's own record of a run.

        Raises ConfigError as ``compose`` does.
        """
        wanted, findings = read_requests(requests, group_options=self.options)
        if findings:
            raise ConfigError(*findings)
        return [
            f"{item.override.key_or_group}={API_KEY_REFERENCE}" if item.secret else str(item.override.input_line)
            for item in wanted
        ]

    def preset_files(self, group: str) -> list[str]:
        """The YAML files of a group's options; where two sources have the same name, the one that counts."""
        found: dict[str, str] = {}
        for source in self._loader.get_sources():
            folder = Path(source.path) / group
            if source.scheme() == "file" and folder.is_dir():
                for file in sorted(folder.glob("*.yaml")):
                    found.setdefault(file.stem, str(file))
        return list(found.values())

    def groups(self) -> list[str]:
        """The names of the top-level config groups, without Hydra's own."""
        from hydra.core.object_type import ObjectType

        found = self._loader.repository.get_group_options("", ObjectType.GROUP)
        return sorted(name for name in found if name not in ("hydra", "gpu_model"))

    def compose(self, requests: Sequence[Request]) -> Composition:
        """Composes the primary config with ``requests`` on top.

        Raises ConfigError with every finding at once: unknown keys and options, wrong types, broken YAML.
        """
        wanted, findings = read_requests(requests, group_options=self.options)
        if findings:
            raise ConfigError(*findings)
        repo, listed = self._defaults([item.override for item in wanted])
        choices = dict(listed.overrides.known_choices)
        layers = _Layers()
        config = self._merge(repo, listed.defaults, layers)
        _apply(config, [item for item in wanted if item.override in listed.config_overrides], layers)
        root = _plain(config)
        return self._finalize(root, layers, repo, choices, wanted)

    def _defaults(self, overrides: list[Override]) -> tuple[CachingConfigRepository, DefaultsList]:
        from hydra._internal.config_repository import CachingConfigRepository
        from hydra._internal.defaults_list import create_defaults_list
        from hydra.errors import HydraException

        repo = CachingConfigRepository(self._loader.repository)
        try:
            self._loader._process_config_searchpath(self.config_name, overrides, repo)
            listed = create_defaults_list(
                repo=repo,
                config_name=self.config_name,
                overrides_list=overrides,
                prepend_hydra=False,
                skip_missing=False,
            )
        except HydraException as failure:
            raise ConfigError(_said_by_hydra(failure)) from failure
        except Exception as failure:
            raise _broken_yaml(failure) from failure
        return repo, listed

    def _merge(self, repo: CachingConfigRepository, defaults: list[ResultDefault], layers: _Layers) -> DictConfig:
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        for default in defaults:
            if default.config_path == SCHEMA_NAME or default.config_path is None:
                continue
            loaded = repo.load_config(default.config_path)
            file = _file_of(loaded, default.config_path)
            if loaded is not None and not default.package:
                layers.add_root(_layer_of(default), loaded.config, file)
            elif loaded is not None and default.package in ("gpu", "model"):
                layers.add_preset(str(default.package), file)
        if layers.findings:
            raise ConfigError(*layers.findings)
        try:
            config = self._loader._compose_config_from_defaults_list(defaults=defaults, repo=repo)
        except (HydraException, OmegaConfBaseException) as failure:
            raise ConfigError(_said_by_hydra(failure)) from failure
        OmegaConf.set_struct(config, True)
        return config

    def _finalize(
        self,
        root: dict[str, Any],
        layers: _Layers,
        repo: CachingConfigRepository,
        choices: dict[str, str | None],
        wanted: list[Wanted],
    ) -> Composition:
        """Lifts what presets and the pair file say about arguments, each below every layer of the root."""
        gpu, model = root["gpu"], root["model"]
        if model["model_path"] is not None:
            layers.name("model", "model_path", model["model_path"], layers.preset_file("model"), ("model_path",))
        for node, preset in (("gpu", gpu), ("model", model)):
            for name, value in preset["args"].items():
                layers.name(node, name, value, layers.preset_file(node), ("args", name))
        pair = f"gpu_model/{gpu['name']}-{model['name']}"
        loaded = repo.load_config(pair) if repo.config_exists(pair) else None
        if loaded is not None:
            for name, value in _plain(loaded.config).items():
                layers.name("gpu_model", name, value, _file_of(loaded, pair), (name,))
        if layers.findings:
            raise ConfigError(*layers.findings)
        intent = layers.winners(root)
        secrets = {name: item.secret for item in wanted if item.secret for name in (item.override.key_or_group,)}
        for name in _SECRET_FIELDS:
            if isinstance(intent.get(name), str) and name not in secrets:
                secrets[name] = intent[name]
            if intent.get(name) is not None:
                intent[name] = API_KEY_REFERENCE
        return Composition(
            intent=intent,
            origins=layers.chains(hidden=secrets),
            nodes={name: root[name] for name in root if name not in FIELDS},
            choices=choices,
            secrets=secrets,
            shadowed=tuple(layers.shadowed),
            findings=tuple(_typed_secrets(wanted)),
        )


class _Layers:
    """Collects, for each argument, who named it."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.shadowed: list[str] = []
        self._origins: dict[str, list[Origin]] = {}
        self._presets: dict[str, str] = {}

    def add_root(self, layer: str, config: Any, file: str) -> None:
        for name, value in _raw_items(config):
            if name in FIELDS:
                self.name(layer, name, value, file, (name,))

    def add_preset(self, group: str, file: str) -> None:
        self._presets[group] = file
        ours = conf_dir() / group / Path(file).name
        if ours.exists() and ours != Path(file):
            self.shadowed.append(f"{shown_path(file)} hides {shown_path(str(ours))}")

    def preset_file(self, group: str) -> str:
        return self._presets.get(group, "")

    def name(self, layer: str, name: str, value: Any, file: str, keys: tuple[str, ...]) -> None:
        origin = Origin(layer, value, file=file or None, keys=keys, where="" if file else layer)
        problem = f"{name!r} is not an argument of SGLang 0.5.2" if name not in FIELDS else None
        if problem is None and not (isinstance(value, str) and "${" in value):
            problem = check_value(name, value)
        if problem:
            hint = None
            if isinstance(value, bool):
                hint = f'quote it if a word was meant: {name}: "{"on" if value else "off"}"'
            self.findings.append(Finding("error", "CLI002", f"{origin.place}: {problem}", (name,), hint, "plan"))
        self._origins.setdefault(name, []).append(origin)

    def typed(self, name: str, value: Any, request: Request) -> None:
        self._origins.setdefault(name, []).append(Origin(request.layer, value, where=request.place))

    def winners(self, root: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every named argument: the root's where a root layer named it, else the strongest preset's."""
        intent: dict[str, Any] = {}
        for name, chain in self._origins.items():
            chain.sort(key=lambda origin: _strength(origin.layer))
            last = chain[-1]
            intent[name] = last.value if last.layer in ("gpu", "model", "gpu_model") else root[name]
        return {name: intent[name] for name in FIELDS if name in intent}

    def chains(self, hidden: Mapping[str, str]) -> dict[str, tuple[Origin, ...]]:
        return {
            name: tuple(
                Origin(origin.layer, API_KEY_REFERENCE, origin.where, origin.file, origin.keys)
                if name in hidden
                else origin
                for origin in chain
            )
            for name, chain in self._origins.items()
        }


def register_resolvers() -> None:
    """The OmegaConf resolvers that our YAML uses: ``${tiny_path:}`` and ``${probe:memory_mib}``."""
    from omegaconf import OmegaConf

    if not OmegaConf.has_resolver("tiny_path"):
        from sglang_hydra.facts.probe import register_resolvers as register_probes
        from sglang_hydra.tiny import tiny_path

        OmegaConf.register_new_resolver("tiny_path", lambda: str(tiny_path()))
        register_probes()


def _apply(config: DictConfig, wanted: Sequence[Wanted], layers: _Layers) -> None:
    """Applies the overrides that set values, one by one, so that a failure names the one that was typed."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    for item in wanted:
        override, key = item.override, item.override.key_or_group
        parent = key.rpartition(".")[0]
        if parent and OmegaConf.select(config, parent) is None:
            OmegaConf.update(config, parent, {}, merge=False)  # model.config.x=3 where no config is declared
        try:
            ConfigLoaderImpl._apply_overrides_to_config([override], config)
        except HydraException as failure:
            said = _said_by_hydra(failure)
            finding = Finding("error", "CLI002", f"{item.request.text}: {said.message}", (key,), said.hint)
            raise ConfigError(finding) from failure
        if key in FIELDS:
            layers.typed(key, override.value(), item.request)


def _plain(config: Any) -> dict[str, Any]:
    """The boundary: a DictConfig goes in, plain containers with every interpolation resolved come out."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as failure:
        raise ConfigError(_said_by_hydra(failure)) from failure
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _layer_of(default: ResultDefault) -> str:
    if default.primary or default.is_self:
        return "primary"
    return str(default.config_path).split("/")[0]


def _strength(layer: str) -> int:
    order = ("schema", "gpu", "model", "gpu_model", "primary", "recipe", "experiment", "cli", "lock")
    return order.index(layer) if layer in order else order.index("experiment")


def _raw_items(config: Any) -> Iterator[tuple[str, Any]]:
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(config, resolve=False)
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield str(key), value


def _file_of(loaded: Any, config_path: str) -> str:
    """The file that a ConfigResult was read from; '' for what lies in no file (the ConfigStore, a package)."""
    if loaded is None or not str(loaded.path).startswith("file://"):
        return ""
    return str(Path(str(loaded.path).removeprefix("file://")) / f"{config_path.removesuffix('.yaml')}.yaml")


def _typed_secrets(wanted: list[Wanted]) -> Iterator[Finding]:
    for item in wanted:
        if item.secret and item.request.layer == "cli":
            key = item.override.key_or_group
            yield Finding(
                "warning",
                "CLI010",
                f"{key} was typed on the command line, where the shell's history and other users can see it",
                (key,),
                f"export MY_KEY=... and type '{key}=${{oc.env:MY_KEY}}'",
            )


def _said_by_hydra(failure: Exception) -> Finding:
    """Hydra's and OmegaConf's own message, with the cause's: theirs name the key and the file."""
    cause = failure.__cause__
    lines = [line.strip() for error in (failure, cause) if error for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("full_key:", "object_type=", "See https"))]
    return Finding("error", "CLI008", " ".join(dict.fromkeys(kept)) or type(failure).__name__)


def _broken_yaml(failure: Exception) -> ConfigError:
    import yaml

    if isinstance(failure, yaml.MarkedYAMLError) and failure.problem_mark is not None:
        mark = failure.problem_mark
        place = f"{shown_path(str(mark.name).removeprefix('file://'))}:{mark.line + 1}:{mark.column + 1}"
        return ConfigError(Finding("error", "CLI009", f"{place}: this is no YAML: {failure.problem}"))
    raise failure
