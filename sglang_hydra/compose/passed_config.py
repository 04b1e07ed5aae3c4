"""Reads configs that others have composed: what Hydra passes to a task or its compose API returns.

Composing again finds out who set what. A different value in the passed config, as from a callback, another decorator or
the app, becomes the plan's value, with the origin ``app``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import MISSING
from sglang_hydra.compose.by_omegaconf import GROUPS, unresolved
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.grammar import has_interpolation
from sglang_hydra.compose.hydra_errors import hydra_errors_as_findings
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NODES
from sglang_hydra.text.errors import ConfigError

LAYER = "app"
_PASSED = "the config that Hydra passed"
_GIVEN = "the config that plan was given"
_OURS = frozenset(("model_path", "tp_size", "gpu", "model"))
"""Keys that only our tree has together."""


def differences(composer: Composer, requests: Sequence[Request], config: DictConfig) -> list[Request]:
    """Returns an override for each value below our node of ``config`` that differs from what ``requests`` compose.

    Raises ConfigError for the mistakes of composing and for a value that cannot be resolved."""
    composed, mount = composer.tree(requests)
    return _overrides(composed, _select(config, mount), mount, _PASSED)


def composer_of_api(config_dirs: Sequence[str | Path], config_name: str) -> Composer:
    """Returns a composer with these folders, and with those of Hydra's compose API if it is initialized."""
    instance = GlobalHydra.instance()
    sources = instance.config_loader().get_sources() if instance.is_initialized() else []
    found = [f"{source.scheme()}://{source.path}" for source in sources if source.provider not in ("hydra", "schema")]
    return Composer([*config_dirs, *found], config_name, trusts_files=True)


def requests_of(composer: Composer, config: Any) -> list[Request]:
    """Returns a config of the compose API as overrides of our primary config: a choice for each group whose option it
    names, then all other values. Our tree is ``config`` or one of its nodes. Raises ConfigError if not exactly one node
    is our tree."""
    found = list(_trees(config, ()))
    if len(found) != 1:
        places = ", ".join(".".join(path) for path in found)
        message = f"{len(found)} nodes of the config hold SGLang's arguments: {places}" if found else None
        hint = f"plan(config.{places.partition(',')[0]})" if found else "sglang_hydra_schema first in the defaults list"
        raise ConfigError.of("CLI018", message or "the config does not hold SGLang's arguments", hint=hint)
    tree = _select(config, found[0])
    chosen = []
    for group in GROUPS:
        name = (unresolved(tree).get(group) or {}).get("name")
        if name in composer.options(group):
            chosen.append(Request(f"{group}={name}", _GIVEN, LAYER))
    composed, _ = composer.tree(chosen)
    return [*chosen, *_overrides(composed, tree, (), _GIVEN)]


def _trees(config: DictConfig, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields the paths of the nodes with our keys."""
    if {str(name) for name in config} >= _OURS:
        yield path
        return
    for name in config:
        if not OmegaConf.is_missing(config, name) and not OmegaConf.is_interpolation(config, str(name)):
            inner = config[name]
            if isinstance(inner, DictConfig):
                yield from _trees(inner, (*path, str(name)))


def _select(config: DictConfig, path: Sequence[str]) -> DictConfig:
    node: Any = config
    for name in path:
        node = node[name]
    found: DictConfig = node
    return found


def _overrides(composed: DictConfig, passed: DictConfig, mount: Sequence[str], place: str) -> list[Request]:
    """Returns the overrides that turn ``composed`` into ``passed``; both are our tree."""
    found = []
    with hydra_errors_as_findings():
        own = {name: value for name, value in unresolved(passed).items() if name in EVERY or name in NODES}
        for keys in _different(unresolved(composed), own, ()):
            value = _resolved(passed, keys)
            if value != MISSING and value != _resolved_or_none(composed, keys):
                found.append(Request.typed(".".join((*mount, *keys)), value, place, LAYER))
    return found


def _different(composed: object, passed: object, keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields the keys at which two trees differ or the second one has an interpolation."""
    if isinstance(passed, Mapping) and isinstance(composed, Mapping) and not (keys and keys[0] in EVERY):
        for name, value in passed.items():
            yield from _different(composed.get(name), value, (*keys, str(name)))
    elif passed != composed or has_interpolation(passed):
        yield keys


def _resolved(tree: DictConfig, keys: Sequence[str]) -> object:
    *above, last = keys
    node: Any = _select(tree, above)
    value = MISSING if OmegaConf.is_missing(node, last) else node[last]
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _resolved_or_none(tree: DictConfig, keys: Sequence[str]) -> object:
    """Returns the resolved value; None if it is missing or cannot be resolved."""
    try:
        return _resolved(tree, keys)
    except (OmegaConfBaseException, LookupError, TypeError, AttributeError):
        return None
