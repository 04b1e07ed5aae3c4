"""The plan: requested arguments, facts, resolution and findings, as one artifact with an identity."""

from __future__ import annotations

import copyreg
import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.secrets import masked
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.planning.fields import PlanFields
from sglang_hydra.planning.verdict import Verdict, verdict_on
from sglang_hydra.text.json_types import EMPTY, Json, JsonDict, json_beside, plain, value_at
from sglang_hydra.text.words import no_attribute, without_secret_forms

if TYPE_CHECKING:
    from sglang_hydra.fit.roofline import Roofline


def _sealed(values: dict[str, object]) -> MappingProxyType[str, object]:
    return MappingProxyType(values)


# A plan is copied and sent to other processes with its sealed mappings, which Python cannot pickle by itself.
copyreg.pickle(MappingProxyType, lambda mapping: (_sealed, (dict(mapping),)))

SCHEMA = "sglang_hydra.plan/3"
READ = ("sglang_hydra.plan/1", "sglang_hydra.plan/2", SCHEMA)
"""The readable schemas. In the first, ``values`` has 0.5.2's arguments for every release; the first two keep arguments
that 0.5.2 lacks under ``extra``."""

_FLOATS = frozenset(name for name, field in EVERY.items() if field.kind == "float")
NOT_IDENTITY = frozenset(" ".join(json_beside(__file__)["not_identity"].values()).split())
"""Arguments that decide where a server runs or what it logs, not what it computes."""


GPU_FACTS = ("name", "vendor", "device", "memory_mib", "compute_capability", "count", "flashinfer", "triton_kernels")
"""The facts of a GPU that are part of ``server_id``."""


class Recorded(NamedTuple):
    """The facts of an earlier plan: it is planned again from these, without new probes.

    ``seed`` is the seed that was drawn, ``inherited`` replaces the environment of this process. ``locked``: ``lock=``
    has been followed already."""

    gpu: GpuFacts
    model: ModelFacts
    seed: int | None = None
    inherited: Mapping[str, str] = EMPTY
    locked: bool = False


class Plan(PlanFields):
    """The planned server, the reasons, and whether it can be launched.

    ``ok`` is SGLang's verdict on the arguments; ``launchable`` adds ours, and is None where unknown. For a release that
    was not asked, only its command line's refusals are known; 0.5.2's other refusals are then opinions."""

    def __repr__(self) -> str:
        """Returns the verdict, the GPUs and the command in a line; ``to_json`` has everything."""
        wrong = ", ".join(dict.fromkeys(finding.id for finding in self.errors))
        verdict = f"cannot be launched: {wrong}" if wrong else "can be launched"
        command = without_secret_forms(" ".join(self.command))
        return f"<Plan {self.server_id}, {verdict}, on {self.layout.gpus} x {self.gpu.name}: {command}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            where = f"; its argument is plan.values[{name!r}]" if name in EVERY else ""
            no_attribute(self, name, where)

    def __getitem__(self, name: object) -> NoReturn:
        raise TypeError(f"a Plan has no items: plan.values[{name!r}] is an argument of its server")

    @cached_property
    def verdict(self) -> Verdict:
        """Returns whether it can be launched, and why; the only place that decides it."""
        return verdict_on(self.findings, [self])

    @property
    def launchable(self) -> bool | None:
        """Returns whether it can be launched; None if unknown: the release was not asked, or a fact is missing."""
        return self.verdict.launchable

    @cached_property
    def server_id(self) -> str:
        """Returns 16 hex digits: equal for plans whose servers compute the same."""
        known = self.resolution.known_values
        ignored = NOT_IDENTITY | ({"random_seed"} if self.seed_drawn else frozenset())
        return digest(
            {
                "values": {name: _exact(name, value) for name, value in known.items() if name not in ignored},
                "gpu": _gpu_record(self.gpu),
                "model": {"config": self.model.identity, "revision": self.model.revision},
                "engine": [self.engine.name, self.engine.version],
                "environment": {**self.inherited, **_sglang(self.shown_environment)},
            }
        )

    @cached_property
    def roofline(self) -> Roofline | None:
        """Returns the terms of the hardware's limit; None where a fact is missing."""
        from sglang_hydra.planning.choosing.forecast import known_limit

        return known_limit(self).roofline

    @cached_property
    def forecast(self) -> JsonDict | None:
        """Returns the expected performance under the load of ``bench``, with its error; None where a fact is
        missing."""
        from sglang_hydra.planning.choosing.forecast import forecast_of_plan

        return forecast_of_plan(self).to_json()

    def setting(self, key: str) -> Json:
        """Returns the value of a key such as ``launch.image``, with secrets masked; None where it is unset."""
        return masked(key.rpartition(".")[2], value_at(self.nodes.plain, key))

    def as_argv(self, node: int = 0) -> list[str]:
        """Returns SGLang's own flags for one node, without interpreter and API key."""
        from sglang_hydra.planning.passing.passed import flags_of_nodes

        return flags_of_nodes(self)[node]

    def as_engine_kwargs(self, node: int = 0) -> JsonDict:
        """Returns the arguments of ``sglang.Engine(**plan.as_engine_kwargs())``: the requested ones and the seed,
        without address and API key."""
        from sglang_hydra.planning.passing.passed import keyword_arguments

        return keyword_arguments(self)[node]

    def as_env(self) -> dict[str, str]:
        """Returns the variables to set for the server, without secrets."""
        from sglang_hydra.planning.passing.passed import environment_of

        return environment_of(self)

    def as_yaml(self, node: int = 0) -> str:
        """Returns a file for SGLang's ``--config`` (0.5.2 has no such option). Raises ConfigError if it cannot."""
        from sglang_hydra.planning.passing.passed import as_yaml

        return as_yaml(self, node)

    def _repr_html_(self) -> str:
        from sglang_hydra.planning.notebook import plan_html

        return plan_html(self, self.server_id, self.verdict)

    def to_json(self) -> JsonDict:
        """Returns the artifact, without secrets. Its schema is committed as schemas/plan.schema.json."""
        draft = self.model.draft
        return {
            "schema": SCHEMA,
            "server_id": self.server_id,
            "ok": self.ok,
            "launchable": self.launchable,
            "why": self.verdict.why,
            "engine": {"name": self.engine.name, "version": self.engine.version, "python": self.engine.python},
            "gpu": {**_gpu_record(self.gpu), "device_name": self.gpu.device_name},
            "model": {
                "config": plain(self.model.config),
                "source": self.model.source,
                "revision": self.model.revision,
                "gguf": self.model.gguf,
                "unknown": list(self.model.unknown),
                "details": self.model.details(),
                "draft": draft and {"config": plain(draft.config), "source": draft.source, "details": draft.details()},
            },
            "probed": self.probed,
            "choices": dict(self.choices),
            "settings": {
                key: {"layer": origin.layer, "place": origin.place, "value": plain(self.setting(key))}
                for key, origin in self.settings.items()
            },
            "intent": plain(self.intent),
            "origins": {
                name: [plain(origin.to_json()) for origin in self.origins.get(name, ())] for name in self.intent
            },
            "values": plain(self.resolution.known_values),
            "basis": self.basis,
            "unknown": sorted(self.unknown),
            "rules": SPECIFIED_VERSION,
            "seed_drawn": self.seed_drawn,
            "ledger": [plain(entry._asdict()) for entry in self.resolution.ledger],
            "findings": [finding.to_json() for finding in self.findings],
            "ignored": [finding.to_json() for finding in self.ignored],
            "notes": list(self.notes),
            "fit": self.fit.to_json() if self.fit else None,
            "roofline": self.roofline.to_json() if self.roofline else None,
            "forecast": self.forecast,
            "command": list(self.command),
            "environment": self.shown_environment,
            "inherited": dict(self.inherited),
        }


def _sglang(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("SGLANG_")}


def _exact(name: str, value: Json) -> object:
    """Converts an int value of a float argument to float (SGLang's default of watchdog_timeout is one)."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and name in _FLOATS else value


def may_start(plan: Plan) -> bool:
    """Returns whether the plan may start: nothing prevents it, or only our findings do and ``launch.force`` overrides
    them."""
    return plan.launchable is not False or (plan.ok and bool(plan.nodes.launch.force))


def digest(record: Mapping[str, object]) -> str:
    """Returns the first 16 hex digits of SHA-256 over canonical JSON (sorted keys, shortest exact floats)."""
    text = json.dumps(plain(record), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _gpu_record(gpu: GpuFacts) -> dict[str, object]:
    capability = list(gpu.compute_capability) if gpu.compute_capability else None
    return {**{name: getattr(gpu, name) for name in GPU_FACTS}, "compute_capability": capability}
