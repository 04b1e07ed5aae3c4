"""The fields of a plan, each with who may read it and what must not depend on it. ``plan.py`` builds on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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


@dataclass(frozen=True)
class Engine:
    """The server that a plan is for. ``python`` is its interpreter, None where none was found."""

    name: str
    version: str
    python: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class PlanFields:
    """What a plan holds, and what follows from it alone. Below each field: what it is; who reads it; what must not
    depend on it."""

    resolution: Resolution
    """What the release makes of the intent: arguments, values, changes with reasons, refusals. Readers: all, by the
    properties below. Nothing writes to it: SGLang gets the intent, and resolves again."""
    origins: Mapping[str, tuple[Origin, ...]]
    """For each argument that was named the layers that named it, weakest first. Readers: screens, explain, upgrade. The
    server does not depend on who named a value, so neither ``server_id`` nor a command does."""
    nodes: Nodes = field(repr=False)
    """The settings beside the arguments: engine, launch, bench and the rest. Readers: what starts, exports, measures or
    sizes a server. ``server_id`` must not depend on it: where a server runs is not what it computes."""
    gpu: GpuFacts
    """The facts of one node's GPUs. Readers: rules, checks, fit, forecast, what starts it. Facts only: no argument is
    taken from it but by a rule with its reason."""
    model: ModelFacts
    """The facts of the model, from a config.json. Readers: rules, checks, fit, forecast. What ``unknown`` names in it
    must not be guessed."""
    engine: Engine
    """The server's program, its release and its interpreter. Readers: what starts it, release tables. The interpreter's
    path is not in ``server_id``."""
    environment: Mapping[str, str] = field(repr=False)
    """The variables that the launch sets. Readers: what starts or exports it; screens read ``shown_environment``. Only
    the SGLANG_* among them are in ``server_id``."""
    command: Sequence[str]
    """The command as a person types it, without secrets; empty where there is none. Readers: screens, records. Nothing
    is started from it: what starts a server has its engine write the command from the intent."""
    findings: tuple[Finding, ...]
    """All that was found, SGLang's and ours. Readers: the verdict, screens, exit codes, replanning with their offers. A
    decision reads level and id, never the text."""
    ignored: tuple[Finding, ...] = ()
    """Findings of ours that ``ignore=[...]`` silenced. Readers: screens, records. The verdict does not depend on it."""
    notes: tuple[str, ...] = ()
    """Sentences for people: what was chosen, what is not known. Readers: screens. Nothing else depends on it."""
    choices: Mapping[str, str | None] = field(default_factory=dict)
    """The option taken of each group. Readers: screens, locks, imports, upgrade. No rule does: it reads the facts."""
    fit: Fit | None = None
    """The memory of the fullest GPU; None where it cannot be computed. Readers: the verdict, screens, forecast. Values
    never depend on it: SGLang decides them without knowing."""
    seed_drawn: bool = False
    """Whether nobody set ``random_seed``: what starts a server draws it, until then there is none. Readers:
    ``server_id``, which leaves such a seed out, and what starts it."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """The SGLANG_* variables that the server finds set already, and that the launch does not set. Readers: rules,
    ``server_id``, exports."""
    settings: Mapping[str, Origin] = field(default_factory=dict, repr=False)
    """The keys of the nodes that were set, with who set them. Readers: screens, locks, records. No value does."""
    programs: Mapping[str, Named] = field(default_factory=dict, repr=False)
    """The interpreters among them, with who named them. Readers: what starts it, which asks before it runs the program
    of a file. It is not written down."""
    probed: bool = False
    """Whether the GPU facts are this machine's own. Readers: locks, doctor, exports, screens. No rule or fit does."""
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    """The real values of secrets, in memory only. Readers: what starts a server. No file and no screen has them."""

    @property
    def intent(self) -> JsonObject:
        """Returns the arguments that some layer named. Sealed: resolving writes to a copy."""
        return self.resolution.intent

    @property
    def layout(self) -> Layout:
        """Returns the groups that the server's GPUs form: ranks, replicas, groups, nodes, drafts, CUDA graphs."""
        return self.resolution.layout

    @property
    def values(self) -> JsonObject:
        """Returns all arguments of the plan's release as SGLang would hold them after start-up (210 in 0.5.2); an
        estimate for one of ``unknown``."""
        return self.resolution.values

    @property
    def basis(self) -> Basis:
        """Returns what made ``values``: ``exact`` (the release's own code, or our rules for 0.5.2), ``recorded`` (an
        answer of its own code that ships with this package) or ``rules`` (an estimate by 0.5.2's rules)."""
        return self.resolution.basis

    @property
    def unknown(self) -> frozenset[str]:
        """Returns arguments whose value the release decides, and it was not asked."""
        return self.resolution.unknown

    @property
    def by_own_rules(self) -> bool:
        """Returns whether the plan's release is 0.5.2, whose rules these are, or its engine is another one."""
        return self.release.is_by_rules

    @property
    def release(self) -> Provider:
        """Returns the release that made ``values``: for the embedded engine 0.5.2."""
        return Provider(self.resolution.release)

    @property
    def is_exact(self) -> bool:
        """Returns whether ``values`` are the release's own, and no estimate."""
        return self.basis != "rules"

    @property
    def ok(self) -> bool:
        return (self.resolution.ok or not self.is_exact) and all(finding.ours for finding in self.errors)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def shown_environment(self) -> dict[str, str]:
        """Returns ``environment`` with every value hidden whose name says that it is a secret (HF_TOKEN)."""
        return {name: str(masked(name, value)) for name, value in self.environment.items()}
