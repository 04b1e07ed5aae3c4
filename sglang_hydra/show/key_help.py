"""Keys of our own: what each one means, said once for explain, the help, the reference pages and the editors' schema.

Types and defaults are in the dataclasses of ``config`` and its rooms; what is here is loaded when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.compose.schema import Root
from sglang_hydra.compose.settings.bench import CACHES, CLIENTS, DATASETS
from sglang_hydra.compose.settings.sweep import SEARCHES
from sglang_hydra.compose.settings.topology import ON_WORKER_EXIT
from sglang_hydra.facts.declared import DEVICES, VENDORS
from sglang_hydra.planning.slurm_options import CONTAINERS, GPU_OPTIONS

GROUPS = {
    "gpu": "the facts of one GPU class, as conf/gpu/*.yaml declares them; each can be overridden",
    "model": "which checkpoint, and the fields of its config.json, as conf/model/*.yaml declares them",
    "engine": "which server runs the plan, and the interpreter that has it",
    "launch": "where the server runs, and what waits for it; times in seconds",
    "launch.slurm": "what a job asks Slurm for, with launch=slurm; null leaves a setting to the cluster",
    "launch.k8s": "what an exported Kubernetes manifest needs to know of the cluster",
    "fit": "what the memory fit has to leave alone, and what it counts",
    "bench": "the load of one client point; lengths in tokens, times in seconds",
    "bench.slo": "what a request must meet to count for goodput; null asks for nothing",
    "sweep": "which points a multirun has, how it is run, and what it may cost; times in seconds",
    "topology": "how many servers, what they are for, and the router in front of them",
    "topology.prefill": "the servers that only prefill, with topology=pd",
    "topology.decode": "the servers that only decode, with topology=pd",
    "topology.router": "the router, in its own names; null leaves a setting at the router's default",
}
"""What each node, and each node in it, is about."""


class Said(NamedTuple):
    """What is said of one key: what it does, what null means where it may be null, what it can be alone, and its type
    where OmegaConf has none for it."""

    about: str
    null: str | None = None
    choices: Sequence[str] = ()
    type: str | None = None


_ROLE = {
    "replicas": Said("how many servers of this role"),
    "args": Said("the arguments that differ for this role, by SGLang's names: args.tp_size=4"),
}
_NO_LIMIT = "no limit"
_ROUTERS = "the router's default"
_CLUSTERS = "the cluster's default"
_NOT_KNOWN = "not known"

SAID: Mapping[str, Said] = {
    "gpu.name": Said("the class, as gpu=NAME chose it"),
    "gpu.vendor": Said("who makes it; rules of SGLang ask for that", choices=VENDORS),
    "gpu.device": Said("the device of torch", _NOT_KNOWN, DEVICES),
    "gpu.device_names": Said("the names that the driver reports, by which gpu=auto recognises the class"),
    "gpu.memory_mib": Said("memory of one GPU in MiB, as the vendor's tool reports it", "SGLang would not know it"),
    "gpu.compute_capability": Said("MAJOR.MINOR, of NVIDIA's: 9.0", "the vendor has none"),
    "gpu.count": Said("GPUs of one node", _NOT_KNOWN),
    "gpu.flashinfer": Said("whether flashinfer is installed there"),
    "gpu.triton_kernels": Said("whether triton_kernels is installed there"),
    "gpu.memory_bandwidth_gbps": Said("memory bandwidth of one GPU in GB/s", _NOT_KNOWN),
    "gpu.dense_tflops": Said("peak TFLOPS without sparsity, by type: bf16, fp8, fp4"),
    "gpu.scale_up_gbps": Said("bandwidth to the other GPUs of the node in GB/s, both ways together", _NOT_KNOWN),
    "gpu.unverified": Said("the facts that no source confirms"),
    "gpu.source": Said("where the facts come from", "nobody said"),
    "gpu.args": Said("arguments that this class brings, weaker than any other layer: gpu.args.NAME=VALUE"),
    "model.name": Said("the preset, as model=NAME chose it", "no preset"),
    "model.model_path": Said("the checkpoint: org/name on the hub, or a folder", "none was named"),
    "model.config": Said("fields of its config.json that rules and checks read", "they are read from the checkpoint"),
    "model.source": Said("where the fields come from", "nobody said"),
    "model.facts_from": Said("a config.json, or a folder with one, to take the fields from", "from the checkpoint"),
    "model.revision": Said("the revision on the hub that the fields are read from", "the argument revision, else main"),
    "model.args": Said("arguments that its vendor says every server needs: model.args.NAME=VALUE"),
    "engine.name": Said("sglang, transformers (embedded), or auto: SGLang where it is installed"),
    "engine.python": Said("the interpreter that has the engine: engine.python=/venv/bin/python", "this program's own"),
    "engine.version": Said("the release to plan for, such as 0.5.23", "the one that is installed, else 0.5.2"),
    "engine.env": Said("variables that the launch sets: engine.env.NAME=VALUE"),
    "launch.name": Said("local (a child process here) or slurm (one job), as launch=NAME chose it"),
    "launch.ready_timeout": Said("seconds within which the server has to answer; in Slurm from the job's start"),
    "launch.stop_timeout": Said("seconds to end by itself when it is told to; then it is killed with its children"),
    "launch.detach": Said("true: the server stays when the command has returned; see status, stop and logs"),
    "launch.wait": Said("with launch.detach: return when the server is ready; false: as soon as it is started"),
    "launch.force": Said("true starts despite errors that only this package raises; SGLang's own stay refused"),
    "launch.image": Said("the container image", "none here; in exports the image of the release"),
    "launch.slurm.account": Said("the account that is charged", _CLUSTERS),
    "launch.slurm.partition": Said("the partition", _CLUSTERS),
    "launch.slurm.qos": Said("the quality of service", _CLUSTERS),
    "launch.slurm.constraint": Said("the node features that are asked for", "any node"),
    "launch.slurm.walltime": Said("the job's longest run: H:MM:SS or D-HH:MM:SS, quoted", "the partition's default"),
    "launch.slurm.gpus": Said("how GPUs are asked for", choices=GPU_OPTIONS),
    "launch.slurm.gpu_type": Said("the cluster's name for them: h200", "any"),
    "launch.slurm.cpus": Said("CPU cores of each node", _CLUSTERS),
    "launch.slurm.mem": Said("host memory of each node as Slurm writes it: 200G, 0 for all of it", _CLUSTERS),
    "launch.slurm.exclusive": Said("true: no other job on the nodes"),
    "launch.slurm.container": Said("what runs the server in launch.image", choices=CONTAINERS),
    "launch.slurm.mounts": Said("SOURCE:TARGET[:ro] for the container: the model, the hub's cache"),
    "launch.slurm.setup": Said("lines of shell before anything else in the job"),
    "launch.slurm.sbatch": Said("further options of sbatch by name: launch.slurm.sbatch.reservation=NAME"),
    "launch.slurm.srun": Said("further words for srun: ['--mpi=none']"),
    "launch.k8s.rdma_resource": Said("the name of RDMA in the cluster's device plugin (kubectl describe node)"),
    "launch.k8s.cache_gib": Said("the volume for downloaded weights in GiB", "the model's, with room to spare"),
    "launch.k8s.storage_class": Said("the class of that volume", _CLUSTERS),
    "fit.reserved_gib": Said("GiB kept free on each GPU for others, such as a trainer"),
    "fit.context": Said("tokens of the requests that are counted", "the longest that the model takes"),
    "bench.dataset": Said(
        "random tokens, the prompts of bench.path, or prompts that share their beginnings", choices=DATASETS
    ),
    "bench.path": Said("the file of prompts, with bench.dataset=file", "no file"),
    "bench.input_len": Said("tokens of each prompt"),
    "bench.output_len": Said("tokens of each answer, whatever the model would like"),
    "bench.range_ratio": Said("0.8 draws each length evenly from 80 % to 100 %"),
    "bench.prefix_len": Said("tokens that the prompts of a group share, with bench.dataset=shared_prefix"),
    "bench.prefix_groups": Said("how many such groups there are"),
    "bench.concurrency": Said(
        "requests in flight at a time; ladder tries the powers of two until nothing is gained or the SLO fails",
        "1, or with bench.request_rate as many as arrive",
        type="int | ladder | None",
    ),
    "bench.request_rate": Said(
        "requests a second, at random times (Poisson); bench.concurrency then only bounds them",
        "the next one when one ends",
    ),
    "bench.num_prompts": Said("how many requests", "at least 10 x the concurrency, until bench.min_duration is over"),
    "bench.min_duration": Said("seconds that a point lasts at least, without bench.num_prompts"),
    "bench.warmup": Said("requests before the measurement; 0 sends none"),
    "bench.seed": Said("where all prompts come from"),
    "bench.repeats": Said("how often each point is taken, with other prompts each time"),
    "bench.stream": Said("false asks for whole answers: then there is no ITL, no TPOT and no interactivity"),
    "bench.cache": Said("cold: an empty prefix cache; warm: the same prompts were sent once before", choices=CACHES),
    "bench.client": Said("who measures; auto takes bench_serving where it is there and can", choices=CLIENTS),
    "bench.quality": Said("true, or a file of questions: fixed answers are checked after the load", type="bool | str"),
    "bench.timeout": Said("seconds in which a server may say nothing"),
    "bench.slo.ttft_ms": Said("milliseconds to the first token", _NO_LIMIT),
    "bench.slo.itl_ms": Said("milliseconds between two tokens", _NO_LIMIT),
    "bench.slo.e2e_ms": Said("milliseconds to the end of the answer", _NO_LIMIT),
    "bench.slo.share": Said("the part of the requests that must meet all of it for the point to meet the SLO"),
    "sweep.name": Said("how the folder of results begins", "as sweep=NAME chose it, else sweep"),
    "sweep.params": Said("keys with lists of values, or texts in Hydra's sweep grammar"),
    "sweep.zip": Said("keys that vary together instead of with each other: [[tp_size,mem_fraction_static]]"),
    "sweep.where": Said("a constraint that every point has to meet: 'tp_size * pp_size <= gpu.count'", "all points"),
    "sweep.dry_run": Said("true: plan and show the points, start nothing"),
    "sweep.budget_gpu_hours": Said("GPU hours; a sweep that would take more is refused", _NO_LIMIT),
    "sweep.start_seconds": Said("what the estimate assumes for a server start"),
    "sweep.point_seconds": Said("what the estimate assumes for a point"),
    "sweep.folder": Said("where the results go", "multirun/<name>-<id>, the id made from the points"),
    "sweep.retries": Said("further attempts at what may pass by itself"),
    "sweep.fail_fast": Said("true ends the sweep at the first failure"),
    "sweep.rerun": Said("the states that resume takes again: [failed], [failed,invalid]"),
    "sweep.max_jobs": Said("servers that a launcher's jobs run at a time", _NO_LIMIT),
    "sweep.search_space": Said("FILE or FILE#ENTRY: a master configuration of InferenceX, its rows as points", "none"),
    "sweep.search": Said(
        "bisect: the highest load that meets the SLO; tpe: points drawn for the highest goodput",
        "every point is measured",
        SEARCHES,
    ),
    "sweep.search_key": Said("what bisect raises: bench.concurrency or bench.request_rate"),
    "sweep.search_min": Said("where bisect begins", "1"),
    "sweep.search_max": Said("where bisect ends", "as high as it goes"),
    "sweep.search_steps": Said("measurements that bisect may take at each point"),
    "sweep.trials": Said("points that tpe draws"),
    "sweep.seed": Said("of what tpe draws; the same draws the same"),
    "sweep.ladder_gain": Said("the share of throughput that the next rung of bench.concurrency=ladder must add"),
    "topology.name": Said("single, replicas (as many as the root's replicas) or pd (prefill and decode)"),
    **{f"topology.{role}.{name}": said for role in ("prefill", "decode") for name, said in _ROLE.items()},
    "topology.worker_host": Said("where the servers listen: the router alone is for clients"),
    "topology.on_worker_exit": Said(
        "when a server ends by itself: continue as long as requests can be served, or stop everything",
        choices=ON_WORKER_EXIT,
    ),
    "topology.router.python": Said("the interpreter that has the router", "the engine's, else this program's"),
    "topology.router.host": Said("where the router listens", "the argument host"),
    "topology.router.port": Said("the router's port", "the argument port"),
    "topology.router.policy": Said("who gets a request: cache_aware, round_robin, random, power_of_two", _ROUTERS),
    "topology.router.prefill_policy": Said("the same for prefill servers alone, with topology=pd", "policy"),
    "topology.router.decode_policy": Said("the same for decode servers alone, with topology=pd", "policy"),
    "topology.router.worker_startup_timeout_secs": Said("seconds that it waits for its servers", _ROUTERS),
    "topology.router.worker_startup_check_interval": Said("seconds between two looks at them", _ROUTERS),
    "topology.router.request_timeout_secs": Said("seconds that a request may take", _ROUTERS),
    "topology.router.max_concurrent_requests": Said("requests that it lets through at a time", _ROUTERS),
    "topology.router.prometheus_host": Said("where its metrics are"),
    "topology.router.prometheus_port": Said("the port of its metrics", "one that is free"),
    "topology.router.log_level": Said("how much it logs", _ROUTERS),
    "topology.router.ready_timeout": Said("seconds in which it has to know all its servers"),
    "topology.router.args": Said("further flags of the installed release, by name"),
    "replicas": Said("how many servers topology=replicas starts", "none were asked for"),
    "fabric": Said("the network between the nodes, in exports", "left to NCCL", ("tcp", "roce", "ib")),
    "lock": Said("a saved plan to serve again: lock=plan.json; what no longer holds is said", "none"),
    "extra": Said("arguments that only the release of engine.version has: extra.NAME=VALUE"),
    "ignore": Said("findings of ours to leave out, by id: ignore=[FIT001]"),
}
"""Every key of ours, in the order of ``config``. A test holds it against the dataclasses."""


@dataclass(frozen=True)
class Key:
    """One key of ours with its type as text, its default, and what is said of it."""

    name: str
    type: str
    default: Any
    said: Said


@lru_cache(maxsize=1)
def keys() -> Mapping[str, Key]:
    """Every key of ours, in the order of ``config``."""
    own = (item for item in fields(Root) if item.name not in FIELDS)
    return MappingProxyType({key.name: key for item in own for key in _below(item.name, item)})


def _below(path: str, item: Any) -> Iterator[Key]:
    if is_dataclass(item.type):
        for inner in fields(item.type):
            yield from _below(f"{path}.{inner.name}", inner)
        return
    default = item.default if item.default_factory is MISSING else item.default_factory()
    plain = isinstance(item.type, type) and not hasattr(item.type, "__args__")
    kind = item.type.__name__ if plain else str(item.type).replace("typing.", "")
    said = SAID[path]
    yield Key(path, said.type or kind, default, said)


def key_of(word: str) -> Key | None:
    """The key that a word names: itself, or for what is below a mapping (``engine.env.NCCL_DEBUG``) that mapping."""
    while word:
        key = keys().get(word)
        if key is not None:
            return key
        word = word.rpartition(".")[0]
        if word in keys() and not keys()[word].type.startswith("dict"):
            return None
    return None


def below(group: str) -> list[Key]:
    """The keys of a node, those of the nodes in it too; empty for what is no node."""
    return [key for name, key in keys().items() if name.startswith(f"{group}.")] if group in GROUPS else []
