"""Resolves gpu=auto: finds the class of this machine's GPUs before anything is resolved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.facts.host import host_facts
from sglang_hydra.facts.machine_cache import once
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.json_types import EMPTY, JsonDict, JsonObject
from sglang_hydra.text.words import number, program

if TYPE_CHECKING:
    from sglang_hydra.compose.composer import Composer, Composition
    from sglang_hydra.compose.overrides import Request
    from sglang_hydra.facts.gpu import GpuFacts


class Hardware(NamedTuple):
    """The results of a probe for a plan: facts that replace the preset's, findings, and notes for the heading.
    ``embedded``: the embedded engine would start on this machine, which has no accelerator; ``lacks`` is the command
    that installs it."""

    facts: JsonObject = EMPTY
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    without_accelerator: bool = False
    embedded: bool = False
    lacks: str = ""

    def named(self, finding: Finding) -> Finding:
        """Adds the missing package to ``finding``, if only the engine for CPUs is missing."""
        if not self.lacks or finding.fields != ("device",):
            return finding
        message = "no GPU is here, and the embedded engine, which serves on the CPU, is not installed"
        other = f"{program()} plan ... gpu=h100 plans for a machine that has one"
        return replace(finding, message=message, remedies=(Remedy(self.lacks, kind="shell"), Remedy(other)))


def choose_gpu_class(
    composer: Composer, requests: Sequence[Request], composition: Composition, env: Mapping[str, str]
) -> tuple[Composition, Hardware]:
    """Replaces ``gpu=auto`` by the class of this machine and composes again; any other choice stays.

    A GPU of unknown class keeps its probed facts alone. Without an accelerator the choice is ``none``, which SGLang
    refuses; where the embedded engine would start it is ``cpu``."""
    if composition.nodes.gpu.name != "auto":
        return composition, Hardware()
    from sglang_hydra.facts.probe import probe_gpu
    from sglang_hydra.facts.recognise import recognise
    from sglang_hydra.planning.engines.planned import plan_engine
    from sglang_hydra.planning.engines.transformers import parts_command

    python = composition.nodes.engine.python
    probe = once(("GPUs", python), lambda: probe_gpu(env, python=python))
    if not probe.found:
        engine, on_cpu = composition.nodes.engine.name, composition.intent.get("device") == "cpu"
        is_tiny = composition.nodes.model.name == "tiny"
        wanted = composer.for_start or on_cpu or engine == "transformers" or is_tiny  # a server on this machine
        embedded = wanted and plan_engine(composition.nodes.engine, embedded_first=True).name == "transformers"
        may_be = wanted and not embedded and composition.nodes.engine.name == "auto"
        lacks = parts_command(python) if may_be and not plan_engine(composition.nodes.engine).installed else ""
        choice, why = ("cpu", "the embedded engine runs on the CPU") if embedded else ("none", "no accelerator found")
        chosen = composer.compose(composer.with_choice(requests, "gpu", choice, "probe"))
        note = f"gpu: auto -> {choice} ({why}; {'; '.join(probe.tried)})"
        return chosen, Hardware(notes=(note,), without_accelerator=True, embedded=embedded, lacks=lacks)
    name = recognise(probe, gpu_nodes(composer, requests))
    seen = f"{probe.count} x {probe.name}, {number(probe.memory_mib)} MiB" + (
        f", {probe.visible}" if probe.visible else ""
    )
    # Facts set beside gpu=auto, which itself declares none, take priority over the probe.
    by_hand = {key.removeprefix("gpu.") for key in composition.named if key.startswith("gpu.") and key != "gpu.name"}
    facts = {key: value for key, value in _probed(probe.facts()).items() if key not in by_hand}
    if name is None:
        note = f"gpu: auto -> no class of that name ({seen}): probed facts only, and no gpu_model file is applied"
        return composition, Hardware(facts=facts, notes=(note,))
    chosen = composer.compose(composer.with_choice(requests, "gpu", name, "probe"))
    facts = {key: value for key, value in facts.items() if key != "name"}
    return chosen, Hardware(
        facts, tuple(_differences(name, chosen.nodes.plain["gpu"], facts)), (f"gpu: auto -> {name} ({seen})",)
    )


def gpu_nodes(composer: Composer, requests: Sequence[Request] = ()) -> dict[str, JsonObject]:
    """Returns the ``gpu`` node of every preset by its option; those with inherited device names come last."""
    found = sorted(composer.presets("gpu", requests), key=lambda preset: "device_names" not in preset.own_keys)
    return {preset.name: preset.node for preset in found}


def _probed(facts: GpuFacts) -> JsonDict:
    """Returns this machine's own facts, under the keys of the ``gpu`` node."""
    capability = facts.compute_capability
    return {
        **{name: getattr(facts, name) for name in ("name", "vendor", "device", "memory_mib", "count")},
        **{name: getattr(facts, name) for name in ("flashinfer", "triton_kernels")},
        "device_names": [facts.name],
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        **({"host_memory_gib": memory // 1024} if (memory := host_facts().get("memory_mib")) else {}),
    }


def _differences(name: str, declared: Mapping[str, object], probed: Mapping[str, object]) -> Iterator[Finding]:
    for key, value in probed.items():
        if key in ("memory_mib", "count", "compute_capability") and declared[key] != value:
            ours, theirs = number(value), number(declared[key])
            message = f"gpu.{key}: this machine has {ours}, the class {name} has {theirs}; the machine's is used"
            yield Finding("info", "FCT003", message, (f"gpu.{key}",))
