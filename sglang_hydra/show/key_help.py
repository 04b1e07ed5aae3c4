"""Describes our own keys, for explain, the help, the reference pages and the editors' schema.

The dataclasses of ``compose.schema`` have types and defaults. key_help.json has the texts: the meaning of each key
(``about``), the meaning of null (``null``), and a ``type`` that OmegaConf does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache
from types import MappingProxyType

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.schema import Root
from sglang_hydra.compose.settings.bench import CACHES, CLIENTS, DATASETS
from sglang_hydra.compose.settings.sweep import BISECT
from sglang_hydra.compose.settings.topology import ON_WORKER_EXIT
from sglang_hydra.facts.declared import DEVICES, VENDORS
from sglang_hydra.planning.passing.slurm_options import CONTAINERS, GPU_OPTIONS
from sglang_hydra.text.json_types import Json, JsonObject, json_beside

_TABLE: JsonObject = json_beside(__file__)

GROUPS: Mapping[str, str] = _TABLE["groups"]
"""The meaning of each node, and of each node in it."""

HELP: Mapping[str, Mapping[str, str]] = _TABLE["keys"]
"""The texts of every key. A test compares it with the dataclasses."""

_CHOICES: Mapping[str, Sequence[str]] = {
    "gpu.vendor": VENDORS,
    "gpu.device": DEVICES,
    "launch.slurm.gpus": GPU_OPTIONS,
    "launch.slurm.container": CONTAINERS,
    "bench.dataset": DATASETS,
    "bench.cache": CACHES,
    "bench.client": CLIENTS,
    "sweep.search": (BISECT,),
    "topology.on_worker_exit": ON_WORKER_EXIT,
    "fabric": ("tcp", "roce", "ib"),
}


@dataclass(frozen=True)
class Key:
    """One of our keys: its type as text, its default, its meaning, the meaning of null where allowed, and its possible
    values where they are few."""

    name: str
    type: str
    default: Json
    about: str
    null: str | None
    choices: Sequence[str]


@lru_cache(maxsize=1)
def keys() -> Mapping[str, Key]:
    """Returns every key of ours, in the order of ``compose.schema``."""
    own = (item for item in fields(Root) if item.name not in FIELDS)
    return MappingProxyType({key.name: key for item in own for key in _below(item.name, item)})


def _below(path: str, item: Json) -> Iterator[Key]:
    if is_dataclass(item.type):
        for inner in fields(item.type):
            yield from _below(f"{path}.{inner.name}", inner)
        return
    default = item.default if item.default_factory is MISSING else item.default_factory()
    plain = isinstance(item.type, type) and not hasattr(item.type, "__args__")
    kind = item.type.__name__ if plain else str(item.type).replace("typing.", "")
    row = HELP[path]
    yield Key(path, row.get("type", kind), default, row["about"], row.get("null"), _CHOICES.get(path, ()))


def key_of(word: str) -> Key | None:
    """Returns the key with this name, or the mapping above it (``engine.env.NCCL_DEBUG``); else None."""
    while word:
        key = keys().get(word)
        if key is not None:
            return key
        word = word.rpartition(".")[0]
        if word in keys() and not keys()[word].type.startswith("dict"):
            return None
    return None


def below(group: str) -> list[Key]:
    """Returns the keys of a node, with those of the nodes in it; empty for an unknown node."""
    return [key for name, key in keys().items() if name.startswith(f"{group}.")] if group in GROUPS else []
