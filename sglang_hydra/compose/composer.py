"""Composes with Hydra's defaults list and merging, without an app, a run folder or logging.

Takes the same steps as Hydra's own loader, without the ``hydra`` node (which costs as much as all the rest, and only
``@hydra.main`` needs it), and records the layer and place of every set value. If no value depends on another one, works
on plain values (``by_plain_values``) at a hundredth of the cost, else by ``by_omegaconf``. Tests compare both with
Hydra's compose API."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.secrets import API_KEY_REFERENCE, HIDDEN, SECRET_FIELDS, is_secret_name, secret_keys
from sglang_hydra.compose.model_presets import ModelPresets, path_of_variant
from sglang_hydra.compose.overrides import Request, Wanted, named_release, parse_requests, read_requests
from sglang_hydra.compose.schema import NODES, PAIR, PRIMARY_NAME, register
from sglang_hydra.compose.separate_words import joined
from sglang_hydra.compose.settings.nodes import Nodes
from sglang_hydra.compose.variables import Secrets, reading
from sglang_hydra.facts.resolvers import register_resolvers
from sglang_hydra.text.budget import OverBudget, cpu_limit
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.origins import Named, Origin

_MOST_WORDS = 1024
_MOST_BASES = 64

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from sglang_hydra.compose.by_omegaconf import Base
    from sglang_hydra.compose.by_plain_values import PlainBase, PlainBases
    from sglang_hydra.compose.hydra_internals import Repository
    from sglang_hydra.compose.presets import Content, Preset

    PairOf = Callable[[str, str], Sequence[Content]]
    """Returns the configs of the pair file of a GPU and a model, weakest first."""


@dataclass(frozen=True)
class Composition:
    """A composed configuration. ``intent`` contains only the arguments that some layer named.

    ``origins`` lists every layer that named each of them, weakest first; the last one won. ``nodes`` are the other root
    keys, as plain values; ``choices`` the option of each group; ``named`` every set key, also inside the nodes
    (``gpu.count``). ``secrets`` are the real values of the references in ``intent``, only in memory; ``secret_keys``
    all keys with a secret. ``shadowed`` names presets that hide one of ours. ``settings`` maps the keys inside the
    nodes, other than those of a preset's file, to who set them. ``programs`` are the named interpreters, with who named
    them. ``of_app``: a user's own app, whose files are trusted as Hydra trusts them."""

    intent: JsonObject
    origins: Mapping[str, tuple[Origin, ...]]
    nodes: Nodes = field(repr=False)
    choices: Mapping[str, str | None]
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    secret_keys: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    shadowed: tuple[str, ...] = ()
    settings: Mapping[str, Origin] = field(default_factory=dict)
    programs: Mapping[str, Named] = field(default_factory=dict)
    of_app: bool = False
    findings: tuple[Finding, ...] = ()


class Composer:
    """The config sources of one application: the folders to search, in order.

    ``config_dirs`` (folders, or Hydra's ``scheme://`` paths) are searched before ours, so that their presets hide ours
    of the same name. ``config_name`` names the primary config. With ``hydra_syntax`` the requests are overrides that
    Hydra has already accepted (``gpu@server.gpu=h100``), and are used unchanged. With ``trusts_files`` (a user's own
    app, always with ``hydra_syntax``) files may name programs and packages. A composer can be used repeatedly, but may
    miss later changes of files. In an app with several servers, ``at`` is the node of the composed one."""

    def __init__(
        self,
        config_dirs: Sequence[str | Path] = (),
        config_name: str = PRIMARY_NAME,
        *,
        hydra_syntax: bool = False,
        trusts_files: bool = False,
        at: tuple[str, ...] | None = None,
    ) -> None:
        from sglang_hydra.compose.hydra_internals import loader_of

        register()
        register_resolvers()
        self.config_name = config_name
        self.searched: Sequence[Request] = ()
        self.hydra_syntax = hydra_syntax
        self.for_start = hydra_syntax
        self.only_judges = False
        self.trusts_files = trusts_files or hydra_syntax
        self.at = at
        self._loader = loader_of(config_dirs)
        self._repositories: dict[str, Repository] = {}
        self._bases: dict[tuple[str, ...], Base | None] = {}
        self._plain: dict[int, PlainBases] = {}
        self._models: dict[int, ModelPresets] = {}
        self._presets: dict[tuple[int, str], tuple[list[Preset], list[Finding]]] = {}
        self._words: dict[tuple[str | None, ...], Wanted] = {}
        self._lock = threading.RLock()  # all users of this composer share its cache
        self._group_keys: dict[str, str] | None = None

    def options(self, group: str) -> list[str]:
        """Returns the sorted options of a config group, including folders of ``searched``; empty for an unknown
        group."""
        return self._repository(self.searched).options(group)

    def is_path(self, model: str) -> bool:
        """Returns whether the choice of a model is a folder or a repository name, and not an option of Hydra's."""
        return self._repository(self.searched).is_path(model)

    def groups(self) -> list[str]:
        """Returns the names of the top-level config groups, without Hydra's own."""
        return [name for name in self._repository().groups() if name not in ("hydra", PAIR)]

    def listed_groups(self) -> set[str]:
        """Returns the groups in the primary config's defaults list, as typed: ``gpu@server.gpu``.

        Raises ConfigError for an unreadable list."""
        from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings

        with self._lock, hydra_errors_as_findings():
            listed = self._repository().defaults([], skip_missing=True)
            return set(listed.overrides.known_choices)

    def preset(self, group: str, name: str, requests: Sequence[Request] = ()) -> Preset:
        """Returns the option ``name`` of a group, composed only with its defaults list, without values of the primary
        config or an override. ``requests`` may add a search folder.

        Raises ConfigError for a missing option, and with every mistake in the preset's files."""
        from sglang_hydra.compose.by_omegaconf import preset_of
        from sglang_hydra.compose.plain_merge import NotPlain

        with self._lock:
            repository = self._repository(requests)
            try:
                return self._plain_bases(repository).presets.preset(group, name)
            except NotPlain:
                with self._reading(requests):
                    return preset_of(repository, self._spelled_groups().get(group, group), name)

    def presets(self, group: str, requests: Sequence[Request] = (), *, strict: bool = False) -> list[Preset]:
        """Returns the presets of a group, folder by folder in search order, without mere aliases.

        Also omits broken presets, whose mistakes are reported when they are chosen. With ``strict`` raises ConfigError
        with the findings on all of them."""
        with self._lock:
            repository = self._repository(requests)
            key = (id(repository), group)
            if key not in self._presets:
                found: dict[str, Preset] = {}
                findings: list[Finding] = []
                for name in repository.options_by_source(group):
                    try:
                        found[name] = self.preset(group, name, requests)
                    except ConfigError as failure:
                        findings += failure.findings
                presets = [preset for preset in found.values() if not preset.is_alias_in(found)]
                self._presets[key] = presets, findings
            presets, findings = self._presets[key]
        if strict and findings:
            raise ConfigError(*findings)
        return presets

    def model_presets(self, requests: Sequence[Request] = ()) -> ModelPresets:
        """Returns the facts on checkpoints in the presets of the ``model`` group."""
        unread = ModelPresets(lambda: self.presets("model", requests))
        with self._lock:
            return self._models.setdefault(id(self._repository(requests)), unread)

    def canonical(self, requests: Sequence[Request]) -> list[str]:
        """Returns the overrides in Hydra's own form for Hydra's record, with secrets as references.

        Raises ConfigError as ``compose`` does."""
        overrides = [item.override for item in self._read(requests, self._repository(requests))]
        words = [str(override.input_line) for override in overrides if not override.is_hydra_override()]
        # A file's secret would be recorded too, so the last word for every secret is its reference.
        for key in self.compose(requests).secret_keys:
            name = key.rpartition(".")[2]
            words.append(f"++{key}={API_KEY_REFERENCE if name in SECRET_FIELDS else HIDDEN!r}")
        return words

    def with_choice(self, requests: Sequence[Request], group: str, choice: str, why: str) -> list[Request]:
        """Replaces the option of ``group`` in ``requests`` by one that this program chose; ``why`` is its place in
        findings."""
        key = self._spelled_groups().get(group, group)
        kept = [request for request in requests if request.name not in (group, key)]
        return [*kept, Request(f"{key}={choice}", why, group)]

    def spelled(self, request: Request) -> Request | None:
        """Returns an override of ours as this app spells it: below our node, in Hydra's own syntax. None for the choice
        of a group that the app lacks."""
        if not self.hydra_syntax:
            return request
        if request.key is None:
            group, _, option = request.text.partition("=")
            known = self._spelled_groups().get(group)
            return request._replace(text=f"{known}={option}") if known else None
        # Keys below a node of a node are free (engine.env.X), so they may be new.
        prefix = "++" if request.key.count(".") > 1 else ""
        return request._replace(text=f"{prefix}{self.mount}{request.text}")

    @property
    def mount(self) -> str:
        """Returns the prefix of our keys in the composed config: ``server.``, or nothing at the root."""
        return self._spelled_groups().get("gpu", "gpu").partition("@")[2].removesuffix("gpu")

    def _spelled_groups(self) -> dict[str, str]:
        """Returns each group as this app spells it (``gpu@server.gpu``): by its last composition, else by its defaults
        list."""
        if self._group_keys is None:
            self._group_keys = {key.partition("@")[0]: key for key in self.listed_groups()}
        return self._group_keys

    def check(self, requests: Sequence[Request]) -> None:
        """Raises ConfigError for the mistakes of single words: an unknown key or option, a value of the wrong type."""
        with self._lock, self._reading(requests):
            self._read(requests, self._repository(requests))

    def hydra_keys(self, requests: Sequence[Request]) -> dict[str, object]:
        """Returns the values that the files set below Hydra's own node, unresolved: ``hydra.sweep.dir``."""
        from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings

        with self._lock, self._reading(requests), hydra_errors_as_findings():
            repository, chosen, _ = self._split(requests)
            return repository.hydra_keys(repository.defaults([item.override for item in chosen]).defaults)

    def origins_below(self, mount: tuple[str, ...], requests: Sequence[Request]) -> dict[str, Origin]:
        """Returns who last set each key directly below a node of an app, with or without SGLang's arguments."""
        from sglang_hydra.compose.by_omegaconf import origins_below

        with self._lock, self._reading(requests):
            repository, chosen, leaves = self._split(requests)
            return origins_below(repository, [item.override for item in chosen], leaves, mount)

    def mounts(self, requests: Sequence[Request]) -> list[tuple[str, ...]]:
        """Returns every node of an app that contains a server's arguments; an empty path for the root."""
        from sglang_hydra.compose.by_omegaconf import mounts_of
        from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings

        with self._lock, self._reading(requests), hydra_errors_as_findings():
            repository, chosen, _ = self._split(requests)
            return mounts_of(repository, repository.defaults([item.override for item in chosen]).defaults)

    def tree(self, requests: Sequence[Request]) -> tuple[DictConfig, tuple[str, ...]]:
        """Composes our tree from these requests, unresolved within the whole config, and returns it with its node.

        Raises ConfigError as ``compose`` does."""
        from sglang_hydra.compose.by_omegaconf import apply_overrides

        with self._lock, self._reading(requests):
            repository, chosen, leaves = self._split(requests)
            base = self._base(repository, chosen)
            apply_overrides(base, leaves)
        return base.tree, base.mount

    def compose(self, requests: Sequence[Request]) -> Composition:
        """Composes the primary config with ``requests`` on top.

        Raises ConfigError with every finding at once: unknown keys and options, wrong types, invalid YAML."""
        from sglang_hydra.compose.plain_merge import NotPlain

        with self._lock, self._reading(requests):
            repository, chosen, leaves = self._split(requests)
            try:
                return self._merged_plainly(repository, chosen, leaves)
            except NotPlain:
                from sglang_hydra.compose.by_omegaconf import apply_overrides, pair_of

                base = self._base(repository, chosen)
                apply_overrides(base, leaves)
                return self._finalized(base, lambda gpu, model: pair_of(repository, base, gpu, model), leaves)

    @contextlib.contextmanager
    def _reading(self, requests: Sequence[Request]) -> Iterator[None]:
        """Lets typed ``requests``, and all files of a user's own Hydra app, read any variable. Raises ConfigError
        (CLI009) for a composition over its budget."""
        words = [item.text for item in requests]
        typed = [item.text for item in requests if item.layer == "cli"]
        places = dict.fromkeys(item.place.partition(":")[0] for item in requests if not item.is_word)
        try:
            with reading(typed, trusts_files=self.trusts_files), cpu_limit("config", words=words):
                yield
        except OverBudget as failure:
            what = ", ".join(places) or "the command line"
            why = str(failure).partition("\n")[0]  # OmegaConf writes its own lines behind the message
            raise ConfigError.of("CLI009", f"{what} cannot be composed: {why}") from failure

    def _split(self, requests: Sequence[Request]) -> tuple[Repository, list[Wanted], list[Wanted]]:
        """Returns the repository, the requests that choose options, and those that set values."""
        repository = self._repository(requests)
        own = [item for item in self._read(requests, repository) if not item.override.is_hydra_override()]
        chosen = [item for item in own if repository.chooses(item.override)]
        return repository, chosen, [item for item in own if not repository.chooses(item.override)]

    def _merged_plainly(
        self, repository: Repository, chosen: Sequence[Wanted], leaves: Sequence[Wanted]
    ) -> Composition:
        """Merges plain values. Raises NotPlain if only OmegaConf can compose this, and for every mistake."""
        plain = self._plain_bases(repository)
        base = plain.base([item.override for item in chosen]).overridden(leaves)
        return self._finalized(base, plain.pair, leaves)

    def _plain_bases(self, repository: Repository) -> PlainBases:
        from sglang_hydra.compose.by_plain_values import PlainBases

        key = id(repository)
        return self._plain.get(key) or self._plain.setdefault(key, PlainBases(repository))

    def _finalized(self, base: Base | PlainBase, pair_of: PairOf, leaves: Sequence[Wanted]) -> Composition:
        self._group_keys = _own_groups(base)
        made = _finalized(base, pair_of, leaves, trusted=self.trusts_files)
        if self.trusts_files:
            own = {key: named._replace(is_of_app=True) for key, named in made.programs.items()}
            made = replace(made, programs=own, of_app=True)
        if made.programs:
            from sglang_hydra.facts.trust import grant_typed

            grant_typed(made.programs.values())
        return made

    def _read(self, requests: Sequence[Request], repository: Repository) -> list[Wanted]:
        release = named_release(requests)
        known = [
            self._words.get((item.text, item.place, item.layer, release)) if item.key is None else None
            for item in requests
        ]
        if None not in known:
            return [item for item in known if item]
        if self.hydra_syntax:
            wanted, findings = parse_requests(requests, repository.is_path)
        else:
            wanted, findings = read_requests(
                joined(requests), group_options=repository.options, is_own_key=self._is_own_key
            )
        if findings:
            raise ConfigError(*findings)
        if len(self._words) > _MOST_WORDS:
            self._words.clear()
        # A word with several meanings, or none, is read again.
        for request, item in zip(requests, wanted, strict=True) if len(requests) == len(wanted) else ():
            if item.request is request and request.key is None:
                self._words[request.text, request.place, request.layer, release] = item
        return wanted

    def _is_own_key(self, key: str) -> bool:
        """Returns whether the app's config has this key beside our tree; only possible if ours is under a node."""
        if self.config_name == PRIMARY_NAME:
            return False
        base = self._base(self._repository(), [])
        return bool(base.mount) and key in base.config

    def _repository(self, requests: Sequence[Request] = ()) -> Repository:
        """Returns the repository with the search folders of a typed ``hydra.searchpath=...``, also from a file."""
        from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
        from sglang_hydra.compose.hydra_internals import Repository
        from sglang_hydra.compose.override_errors import Refused
        from sglang_hydra.compose.overrides import parsed

        words = [item.text.lstrip("+") for item in requests if item.layer in ("cli", "experiment") and item.key is None]
        added = [word for word in words if word.startswith("hydra.searchpath=")][-1:]
        key = "".join(added)
        if key not in self._repositories:
            try:
                overrides = [parsed(word, "hydra.searchpath") for word in added]
            except Refused as refused:
                raise ConfigError(refused.finding) from None
            with hydra_errors_as_findings():
                self._repositories[key] = Repository(
                    self._loader, self.config_name, overrides, trusts_files=self.trusts_files
                )
        return self._repositories[key]

    def _base(self, repository: Repository, chosen: Sequence[Wanted]) -> Base:
        """Returns a copy of the cached base for these choices: a copy costs a seventh of composing."""
        from sglang_hydra.compose.by_omegaconf import make_base

        key = (str(id(repository)), *(str(item.override.input_line) for item in chosen))
        kept = self._bases.get(key)
        if len(self._bases) > _MOST_BASES:
            self._bases.clear()
        if kept is None:
            made = make_base(repository, [item.override for item in chosen], self.at)
            if key not in self._bases:
                self._bases[key] = None
                return made
            kept = self._bases[key] = made
        return kept._replace(config=copy.deepcopy(kept.config), layers=kept.layers.copy())


def _own_groups(base: Base | PlainBase) -> dict[str, str]:
    """Maps each group to its typed key: ``gpu@server.gpu`` for the composed server."""
    below = "".join(f"{name}." for name in base.mount)
    own_last = sorted(base.choices, key=lambda key: bool(below) and key.partition("@")[2].startswith(below))
    return {key.partition("@")[0]: key for key in own_last}


def _finalized(base: Base | PlainBase, pair_of: PairOf, leaves: Sequence[Wanted], *, trusted: bool) -> Composition:
    """Lifts the arguments of presets and the pair file, each below every layer of the root."""
    root, layers = base.plain(), base.layers
    gpu, model = root["gpu"], root["model"]
    if model["variant"] is not None:
        model = root["model"] = {**model, "model_path": path_of_variant(model)}
    if model["model_path"] is not None:
        named_by = "model_path" if model["variant"] is None else "variant"
        layers.lift("model", "model_path", model["model_path"], ("model", named_by))
    for node, preset in (("gpu", gpu), ("model", model)):
        for name, value in preset["args"].items():
            layers.lift(node, name, value, (node, "args", name))
    for part in pair_of(gpu["name"], model["name"]):
        layers.add_file(PAIR, part.tree, part.file, ())
    for name, value in root.pop("extra").items():
        layers.lift_extra(str(name), value, root)
    intent = layers.winners(root)
    if layers.findings:
        raise ConfigError(*layers.findings)
    taken_out = [item for item in leaves if item.secret and item.override.value() == HIDDEN]
    texts = {item.override.key_or_group.rpartition(".")[2]: str(item.secret) for item in taken_out}
    places = {}
    for name in SECRET_FIELDS:
        if intent.get(name) is not None:
            if texts.setdefault(name, str(intent[name])) == intent[name] and not (layers.was_typed(name) or trusted):
                places[name] = layers.place_of(name) or name
            intent[name] = API_KEY_REFERENCE
    for name in intent:
        if name not in SECRET_FIELDS and is_secret_name(name):  # no release takes it on its command line
            intent[name] = HIDDEN
    secrets = Secrets(texts, places)
    for node, preset in (("gpu", gpu), ("model", model)):
        args = {name: value for name, value in preset["args"].items() if name not in SECRET_FIELDS}
        root[node] = {**preset, "args": args}
    return Composition(
        intent=intent,
        origins=layers.chains(),
        nodes=Nodes({name: root[name] for name in root if name in NODES or name not in EVERY}),
        choices={group: base.choices[key] for group, key in _own_groups(base).items()},
        secrets=secrets,
        secret_keys=tuple(sorted(secret_keys(root))),
        named=layers.named(),
        shadowed=tuple(layers.shadowed),
        settings=layers.settings(),
        programs=layers.programs(root),
        findings=(*layers.warnings, *_typed_secrets(leaves), *secrets.withheld()),
    )


def _typed_secrets(wanted: Sequence[Wanted]) -> Iterator[Finding]:
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
