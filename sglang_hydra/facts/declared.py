"""From the composed nodes to facts: what a preset declares, or what is read in its place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.findings import Finding

if TYPE_CHECKING:
    from sglang_hydra.compose import Composition
    from sglang_hydra.facts.hardware import Hardware


def gpu_facts(node: Mapping[str, Any], hardware: Hardware) -> GpuFacts:
    """The facts of the ``gpu`` node, under what was probed where ``gpu=auto`` asked the machine.

    Raises ConfigError for a compute capability that is no "MAJOR.MINOR".
    """
    facts = dict(node)
    facts.update(hardware.facts)
    return GpuFacts(
        name=facts["name"],
        vendor=facts["vendor"],
        device=facts["device"],
        memory_mib=facts["memory_mib"],
        compute_capability=_capability(facts["compute_capability"]),
        count=facts["count"],
        flashinfer=facts["flashinfer"],
        triton_kernels=facts["triton_kernels"],
        extra={
            name: facts[name]
            for name in ("memory_bandwidth_gbps", "dense_tflops", "scale_up_gbps", "unverified", "source")
            if facts.get(name)
        },
    )


def model_facts(
    composition: Composition, env: Mapping[str, str], preset_files: Sequence[str] = ()
) -> tuple[ModelFacts, list[Finding]]:
    """The preset's facts where ``model_path`` is still the preset's; else what its own config.json says.

    A preset's facts never speak for another checkpoint: the change is a warning, and what cannot be read is unknown.
    A hub id that was named without its preset finds it among ``preset_files``, so that nothing is downloaded for it.
    """
    node = composition.nodes["model"]
    path = composition.intent.get("model_path")
    if path is None:
        return ModelFacts(None, source="no model was named"), []
    if node["config"] is not None and path == node["model_path"] and node["facts_from"] is None:
        return ModelFacts(node["config"], source=node["source"] or f"preset {node['name']}"), []
    if node["facts_from"] is None and not os.path.exists(str(path)):
        known = _facts_of_preset(str(path), preset_files)
        if known is not None:
            return known, []
    from sglang_hydra.facts.hub import read_model

    facts, findings = read_model(
        str(path),
        revision=composition.intent.get("revision") or node["revision"],
        trust_remote_code=bool(composition.intent.get("trust_remote_code")),
        facts_from=node["facts_from"],
        env=env,
    )
    if node["config"] is None or path == node["model_path"]:
        return facts, findings
    changed = Finding(
        "warning",
        "FCT001",
        f"model_path={path} is not the checkpoint of model={node['name']} ({node['model_path']}): "
        f"the preset's facts are not used; {facts.source}",
        ("model_path",),
        "model.facts_from=<its config.json> if it cannot be read from there",
    )
    return facts, [changed, *findings]


def _facts_of_preset(path: str, files: Sequence[str]) -> ModelFacts | None:
    """The facts of the preset whose ``model_path`` is ``path``. Only its own file is parsed."""
    line = re.compile(rf"^model_path: [\"']?{re.escape(path)}[\"']?\s*$", re.MULTILINE)
    for file in files:
        with open(file, encoding="utf-8") as opened:
            content = opened.read()
        if line.search(content):
            import yaml

            declared = yaml.safe_load(content)
            if declared.get("config"):
                return ModelFacts(declared["config"], source=f"preset {declared['name']}, which has this model_path")
    return None


def _capability(written: str | None) -> tuple[int, int] | None:
    if written is None:
        return None
    major, _, minor = str(written).partition(".")
    if not (major.isdigit() and (minor.isdigit() or not minor)):
        from sglang_hydra.errors import ConfigError

        raise ConfigError(
            Finding(
                "error",
                "FCT002",
                f"gpu.compute_capability={written!r} is not MAJOR.MINOR",
                ("gpu.compute_capability",),
                "gpu.compute_capability='9.0'",
            )
        )
    return int(major), int(minor or 0)
