"""``launch.slurm``: what a job asks Slurm for, as one typed node. ``options`` checks it and makes flags of it."""

# OmegaConf evaluates these annotations, so they are real objects and not postponed strings.
from dataclasses import dataclass, field
from typing import Any


@dataclass
class SlurmNode:
    """Null leaves a setting to the cluster. ``cpus`` and ``mem`` are for each node.

    ``walltime`` is H:MM:SS or D-HH:MM:SS. ``gpus`` says how GPUs are asked for: gpus_per_node, gres or none;
    ``gpu_type`` names them there (h200). ``mem`` is memory as Slurm writes it (200G; 0 is all of a node).
    ``container`` runs the server in ``launch.image`` through pyxis or apptainer, with ``mounts`` (SOURCE:TARGET).
    ``setup`` are lines of shell before anything else in the job; ``sbatch`` are further options of sbatch by name, and
    ``srun`` further words for srun.
    """

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    walltime: str | None = None
    gpus: str = "gpus_per_node"
    gpu_type: str | None = None
    cpus: int | None = None
    mem: str | None = None
    exclusive: bool = False
    container: str = "none"
    mounts: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    sbatch: dict[str, Any] = field(default_factory=dict)
    srun: list[str] = field(default_factory=list)
