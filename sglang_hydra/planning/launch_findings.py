"""Findings on how a plan is launched: on several nodes, as a Slurm job, over a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglang_hydra.rules.resolution import Resolution
from sglang_hydra.text.findings import Finding


def launch_findings(nodes: Mapping[str, Any], resolution: Resolution, engine: str, in_range: bool) -> Iterator[Finding]:
    """``nodes`` are the composed ones, ``engine`` is the planned engine's name. Several nodes are looked at only where
    every size is ``in_range``. What does not apply is not imported."""
    if in_range and resolution.view["nnodes"] != 1:
        from sglang_hydra.planning.nodes import node_findings

        yield from node_findings(resolution.view, nodes["launch"]["name"], engine)
    if nodes["launch"]["name"] == "slurm":
        from sglang_hydra.planning.slurm_options import slurm_findings

        yield from slurm_findings(nodes["launch"], str(resolution.view["model_path"]))
    if nodes["fabric"] is not None:
        from sglang_hydra.planning.fabric import fabric_findings

        yield from fabric_findings(nodes["fabric"])
