"""Defines the shape of a composed configuration: SGLang's flat arguments, and our own nodes beside them.

Only here does OmegaConf see our types: ``register`` puts the schema into Hydra's ConfigStore, and ``compose`` returns
plain values and typed nodes. ``show.key_help`` explains each key."""

# OmegaConf evaluates these annotations, so they must be real objects and not postponed strings.
import copy
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.fields import FIELDS, ServerArgs
from sglang_hydra.compose.settings.bench import BenchNode
from sglang_hydra.compose.settings.launch import K8sNode, SlurmNode
from sglang_hydra.compose.settings.sweep import SweepNode
from sglang_hydra.compose.settings.topology import TopologyNode

SCHEMA_NAME = "sglang_hydra_schema"
PRIMARY_NAME = "sglang_hydra"
SPARSE_NAME = "sglang_hydra_sparse"
PATH_PROVIDER = "sglang_hydra, a path"
"""The provider of a ``model`` option in the ConfigStore that means a typed folder or repository."""
PAIR = "gpu_model"
"""The group for the arguments of a model on one GPU class: ``gpu_model/<gpu>-<model>.yaml``."""


@dataclass(repr=False, eq=False)
class GpuNode:
    """``gpu``: the facts of one GPU class, as conf/gpu/*.yaml declares them."""

    name: str = "none"
    vendor: str = "none"
    device: str | None = None
    device_names: list[str] = field(default_factory=list)
    memory_mib: float | None = None
    compute_capability: str | None = None
    count: int | None = None
    flashinfer: bool = False
    triton_kernels: bool = False
    memory_bandwidth_gbps: float | None = None
    dense_tflops: dict[str, float | None] = field(default_factory=dict)
    scale_up_gbps: float | None = None
    host_memory_gib: float | None = None
    unverified: list[str] = field(default_factory=list)
    source: str | None = None
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(repr=False, eq=False)
class ModelNode:
    """``model``: which checkpoint, and the fields of its config.json, as conf/model/*.yaml declares them."""

    name: str | None = None
    model_path: str | None = None
    variant: str | None = None
    config_file: str | None = None
    config: dict[str, Any] | None = None
    source: str | None = None
    facts_from: str | None = None
    revision: str | None = None
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(repr=False, eq=False)
class EngineNode:
    """``engine``: the server of the plan, its interpreter and release, and given facts about that release."""

    name: str = "auto"
    python: str | None = None
    version: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(repr=False, eq=False)
class LaunchNode:
    """``launch``: where and how the server runs. Times in seconds."""

    name: str = "local"
    ready_timeout: float = 1800.0
    stop_timeout: float = 12.0
    detach: bool = False
    wait: bool = True
    force: bool = False
    image: str | None = None
    head_port: int | None = None
    disk_gib_s: float | None = None
    slurm: SlurmNode = field(default_factory=SlurmNode)
    k8s: K8sNode = field(default_factory=K8sNode)


@dataclass(repr=False, eq=False)
class FitNode:
    """``fit``: memory that the fit leaves free, and the load to fit: ``users`` requests of ``context`` tokens."""

    reserved_gib: float = 0.0
    context: int | None = None
    users: int | None = None


@dataclass(repr=False, eq=False)
class ColocateNode:
    """``colocate``: a trainer on the same GPUs, and its memory on each while the server works."""

    trainer_gib: float | None = None
    keeps: str | None = None
    sharding: str = "fsdp"
    shards: int | None = None
    optimizer: str = "adamw"
    optimizer_shards: int | None = None
    nccl_gib: float | None = None


@dataclass(repr=False, eq=False)
class ForecastNode:
    """``forecast``: further inputs of the forecast. ``price`` is for one GPU hour, by GPU class."""

    results: list[str] = field(default_factory=list)
    accept_length: float | None = None
    price: dict[str, float] = field(default_factory=dict)


@dataclass(init=False, repr=False, eq=False)
class Root(ServerArgs):
    """The whole configuration: SGLang's arguments under their own names, and our nodes.

    Arguments that only later releases have are added when the schema is made; null leaves each to its release.
    Configurations of earlier versions have them in ``extra``."""

    # Gives every composed config the path of the chosen preset, also below a node and in a task's config.
    model_path: str | None = "${.model.model_path}"  # type: ignore[assignment]
    gpu: GpuNode = field(default_factory=GpuNode)
    model: ModelNode = field(default_factory=ModelNode)
    engine: EngineNode = field(default_factory=EngineNode)
    launch: LaunchNode = field(default_factory=LaunchNode)
    fit: FitNode = field(default_factory=FitNode)
    colocate: ColocateNode = field(default_factory=ColocateNode)
    forecast: ForecastNode = field(default_factory=ForecastNode)
    bench: BenchNode = field(default_factory=BenchNode)
    sweep: SweepNode = field(default_factory=SweepNode)
    topology: TopologyNode = field(default_factory=TopologyNode)
    replicas: int | None = None
    fabric: str | None = None
    lock: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    ignore: list[str] = field(default_factory=list)


NODES = tuple(item.name for item in fields(Root) if item.name not in FIELDS)
"""The root keys that are ours. No release has an argument with such a name."""
NO_CHOICE = {"gpu": "none", "model": "unset", "engine": "auto", "launch": "local", "topology": "single"}
"""The option of each group that chooses nothing, used for ``gpu=null`` and ``~gpu``."""


class UnmadeSchema:
    """Our schema in the ConfigStore. Its nodes are made when it is loaded, by copying: that takes as long as a plan,
    and a plan does not load it. In a copy of the whole ConfigStore (Hydra makes many) it stays unmade."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self if memo else copy.deepcopy(_made_schema())


@lru_cache(maxsize=1)
def _made_schema() -> Any:
    from omegaconf import OmegaConf, open_dict

    made = OmegaConf.structured(Root)
    with open_dict(made):  # takes a third of the time of dataclass fields
        for name in EVERY:
            if name not in FIELDS:
                made[name] = None
    return made


def register() -> None:
    """Registers the schema and the sparse node with Hydra. A second call changes nothing."""
    from hydra.core.config_store import ConfigNode, ConfigStore
    from omegaconf import OmegaConf

    store = ConfigStore.instance()
    name = f"{SCHEMA_NAME}.yaml"
    if name not in store.repo:
        unmade: Any = UnmadeSchema()
        store.repo[name] = ConfigNode(name=name, node=unmade, group=None, package=None, provider="sglang_hydra")
        # Has no key and accepts every key: a mount of it contains only what was set there (verl's node).
        store.store(name=SPARSE_NAME, node=OmegaConf.create({}, flags={"struct": False}), provider="sglang_hydra")
