"""Defines the fields of a plan, with the readers of each and what must not depend on it. ``plan.py`` builds on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.layout import Layout
from sglang_hydra.arguments.secrets import masked
from sglang_hydra.compose.settings.nodes import Nodes
from sglang_hydra.compose.variables import Secrets
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.releases.provider import Provider
from sglang_hydra.rules.resolution import Basis, Resolution
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonObject
from sglang_hydra.text.origins import Origin

if TYPE_CHECKING:
    from sglang_hydra.fit.result import Fit
    from sglang_hydra.text.origins import Named


class Engine(NamedTuple):
    """The server that a plan is for. ``python`` is its interpreter, None where none was found."""

    name: str
    version: str
    python: str | None = None
    note: str | None = None


@dataclass(frozen=True, repr=False)
class PlanFields:
    """The fields of a plan, and properties that follow from them alone. The text below each field says what it is, who
    reads it, and what must not depend on it."""

    resolution: Resolution
    """The release's result for the intent: arguments, values, changes with reasons, refusals. Readers: all, by the
    properties below. Nothing writes to it: SGLang gets the intent, and resolves again."""
    origins: Mapping[str, tuple[Origin, ...]]
    """For each named argument the layers that set it, weakest first. Readers: screens, explain, upgrade. The server
    does not depend on who set a value, so neither ``server_id`` nor a command does."""
    nodes: Nodes = field(repr=False)
    """The settings beside the arguments: engine, launch, bench and the rest. Readers: code that starts, exports,
    measures or sizes a server. ``server_id`` must not depend on it: where a server runs does not change its answers."""
    gpu: GpuFacts
    """The facts of one node's GPUs. Readers: rules, checks, fit, forecast, launch. Facts only: an argument follows from
    it only by a rule with a reason."""
    model: ModelFacts
    """The facts of the model, from a config.json. Readers: rules, checks, fit, forecast. Facts named in ``unknown``
    must not be guessed."""
    engine: Engine
    """The server's program, its release and its interpreter. Readers: launch, release tables. The interpreter's path is
    not in ``server_id``."""
    environment: Mapping[str, str] = field(repr=False)
    """The variables that the launch sets. Readers: launch and exports; screens read ``shown_environment``. Only the
    SGLANG_* among them are in ``server_id``."""
    command: Sequence[str]
    """The command as a person types it, without secrets; empty where there is none. Readers: screens, records. Nothing
    is started from it: for a launch, the engine writes the command from the intent."""
    findings: tuple[Finding, ...]
    """All findings, SGLang's and ours. Readers: the verdict, screens, exit codes, replanning with their offers. A
    decision reads level and id, never the text."""
    ignored: tuple[Finding, ...] = ()
    """Our findings that ``ignore=[...]`` silenced. Readers: screens, records. The verdict does not depend on it."""
    notes: tuple[str, ...] = ()
    """Sentences for people on choices and unknown facts. Readers: screens. Nothing else depends on it."""
    choices: Mapping[str, str | None] = field(default_factory=dict)
    """The chosen option of each group. Readers: screens, locks, imports, upgrade. No rule reads it."""
    fit: Fit | None = None
    """The memory of the fullest GPU; None where it cannot be computed. Readers: the verdict, screens, forecast. Values
    never depend on it: SGLang decides them without it."""
    seed_drawn: bool = False
    """Whether ``random_seed`` was unset: the launch draws it, until then there is none. Readers: ``server_id``, which
    leaves such a seed out, and the launch."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """The SGLANG_* variables that are already set for the server and that the launch does not set. Readers: rules,
    ``server_id``, exports."""
    settings: Mapping[str, Origin] = field(default_factory=dict, repr=False)
    """The set keys of the nodes, with their origins. Readers: screens, locks, records. No value depends on it."""
    programs: Mapping[str, Named] = field(default_factory=dict, repr=False)
    """The interpreters among the settings, with their origins. Readers: launch, which checks before it runs a program
    that a file names. It is not written down."""
    probed: bool = False
    """Whether the GPU facts are this machine's own. Readers: locks, doctor, exports, screens. No rule reads it."""
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    """The real values of secrets, in memory only. Readers: launch. No file and no screen has them."""

    @property
    def intent(self) -> JsonObject:
        """Returns the arguments that some layer set. Sealed: resolving writes to a copy."""
        return self.resolution.intent

    @property
    def layout(self) -> Layout:
        """Returns the layout of the server's GPUs: ranks, replicas, groups, nodes, drafts, CUDA graphs."""
        return self.resolution.layout

    @property
    def values(self) -> JsonObject:
        """Returns all arguments of the plan's release as SGLang would hold them after startup (210 in 0.5.2); for those
        in ``unknown`` an estimate."""
        return self.resolution.values

    @property
    def basis(self) -> Basis:
        """Returns the source of ``values``: ``exact`` (the release's own code, or our rules for 0.5.2), ``recorded``
        (an answer of its own code that ships with this package) or ``rules`` (an estimate by 0.5.2's rules)."""
        return self.resolution.basis

    @property
    def unknown(self) -> frozenset[str]:
        """Returns the arguments whose value the release decides, where it was not asked."""
        return self.resolution.unknown

    @property
    def by_own_rules(self) -> bool:
        """Returns whether 0.5.2's rules made the values: for release 0.5.2, or another engine."""
        return self.release.is_by_rules

    @property
    def release(self) -> Provider:
        """Returns the release that made ``values``: for the embedded engine 0.5.2."""
        return Provider(self.resolution.release)

    @property
    def is_exact(self) -> bool:
        """Returns whether ``values`` are the release's own, not an estimate."""
        return self.basis != "rules"

    @property
    def ok(self) -> bool:
        return (self.resolution.ok or not self.is_exact) and all(finding.ours for finding in self.errors)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def shown_environment(self) -> dict[str, str]:
        """Returns ``environment`` with every value masked whose name marks a secret (HF_TOKEN)."""
        return {name: str(masked(name, value)) for name, value in self.environment.items()}
