"""Why a server holds another value than planned: each fact of the plan is changed in turn, and resolved again.

A change that leads to the server's very value is the likely reason; where none does, the words say what is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.text.screen import printable, shown
from sglang_hydra.text.words import number

if TYPE_CHECKING:
    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.planning.plan import Plan

DRAWN = ("port", "nccl_port", "dist_init_addr", "random_seed", "disaggregation_bootstrap_port")
"""Arguments that a server, or who starts it, may draw."""

_CPU_ENGINE = "SGLANG_USE_CPU_ENGINE"
_FLASHINFER = "SGLANG_IS_FLASHINFER_AVAILABLE"


class _Other(NamedTuple):
    """What the plan would have been, had one fact been another; ``why`` names that fact."""

    why: str
    values: Mapping[str, Any]


class Reasons:
    """For one plan and one server: the likely reason of each difference."""

    def __init__(self, plan: Plan, version: str, machine: GpuFacts | None = None) -> None:
        self.plan = plan
        self.version = version
        self.machine = machine

    def of(self, name: str, actual: Any) -> str:
        """A clause on why the server holds ``actual`` for the argument ``name``."""
        if is_secret_name(name):
            return "the key did not reach it as planned" if actual is None else "it was given a key by someone else"
        if self.version != SPECIFIED_VERSION:
            return self._of_release(name, actual)
        for other in self._others:
            if _same(name, other.values[name], actual):
                return other.why
        if name in DRAWN:
            return "it was drawn when the server started"
        if not self.plan.model.known:
            return "the plan knew nothing of the model's config.json"
        written = self.plan.resolution.ledger.of(name)
        if written:
            return f"{written[-1].rule} planned it ({written[-1].reason}), and the server decided otherwise"
        if self.plan.intent.get(name) is not None:
            return "the plan sets it: the server was started with another value, or changed it after its rules had run"
        return "no rule of ours leads there"

    def of_own(self, name: str) -> str:
        """The same for an argument that 0.5.2 does not have."""
        return f"it was set, and a rule of {printable(self.version)} changed it"

    def _of_release(self, name: str, actual: Any) -> str:
        from sglang_hydra.arguments.changed_defaults import changed_default

        release = printable(self.version)
        if name not in self.plan.intent and (reason := changed_default(name, self.version, actual)):
            return reason
        written = self.plan.resolution.ledger.of(name)
        if written:
            return f"{written[-1].rule} is {SPECIFIED_VERSION}'s rule, and {release} has one of its own"
        if self.plan.intent.get(name) is not None:
            return f"it was set, and a rule of {release} changed it"
        return f"a rule of {release} sets it"

    @cached_property
    def _others(self) -> tuple[_Other, ...]:
        return tuple(self._imagined())

    def _imagined(self) -> Iterator[_Other]:
        """Every plan with one fact changed, the likeliest first."""
        from sglang_hydra.arguments.memory_classes import CLASSES

        gpu, machine = self.plan.gpu, self.machine
        if machine is not None and machine.memory_mib is not None and machine.memory_mib != gpu.memory_mib:
            had = f"{number(gpu.memory_mib)} MiB of {gpu.name}" if gpu.memory_mib else gpu.name
            why = f"this machine's GPU has {number(machine.memory_mib)} MiB, the plan is for {had}"
            yield self._with(why, gpu=replace(gpu, memory_mib=machine.memory_mib))
        if machine is not None and machine.compute_capability != gpu.compute_capability:
            why = f"this machine's GPU is {_capability(machine)}, the plan is for {_capability(gpu)}"
            yield self._with(why, gpu=replace(gpu, compute_capability=machine.compute_capability))
        yield self._with(_packaged("flashinfer", gpu.flashinfer), gpu=replace(gpu, flashinfer=not gpu.flashinfer))
        triton = not gpu.triton_kernels
        yield self._with(_packaged("triton_kernels", gpu.triton_kernels), gpu=replace(gpu, triton_kernels=triton))
        for variable, value in ((_FLASHINFER, "false"), (_CPU_ENGINE, "1")):
            yield self._with(f"{variable}={value} in the server's environment", env={variable: value})
        if gpu.memory_mib is not None and machine is None:
            for row in CLASSES:
                memory_mib = min(row.below_gib, 512) * 1024 - 1024
                yield self._with(
                    f"the server's GPU has another size: {row.name}", gpu=replace(gpu, memory_mib=memory_mib)
                )

    def _with(self, why: str, gpu: GpuFacts | None = None, env: Mapping[str, str] | None = None) -> _Other:
        from sglang_hydra.rules.resolution import resolve

        plan = self.plan
        planned = {**plan.inherited, **plan.environment, **(env or {})}
        resolution = resolve(
            plan.intent, gpu=gpu or plan.gpu, model=plan.model, seed=plan.values["random_seed"], env=planned
        )
        return _Other(why, resolution.values)


def _same(name: str, imagined: Any, actual: Any) -> bool:
    from sglang_hydra.planning.actual_values import comparable

    return bool(comparable(name, imagined) == actual)


def _packaged(name: str, planned: bool) -> str:
    return f"the server's environment has {'no' if planned else 'the package'} {name}, against the plan"


def _capability(gpu: GpuFacts) -> str:
    return "SM" + "".join(map(str, gpu.compute_capability)) if gpu.compute_capability else shown(gpu.name)
