"""Chooses the engine of a plan, and the one to serve with on this machine; makes its command. Starts nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from sglang_hydra.arguments.accepted import unknown_version
from sglang_hydra.arguments.fields import fresh_defaults
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import is_candidate_of, release_key
from sglang_hydra.arguments.tables.table import known_versions, nearest_known
from sglang_hydra.compose.schema import EngineNode
from sglang_hydra.facts.environments import find_python
from sglang_hydra.planning.engines.base import Availability, Engine, EngineRequest, Machine
from sglang_hydra.planning.engines.sglang import ENGINE as SGLANG
from sglang_hydra.planning.engines.transformers import ENGINE as TRANSFORMERS
from sglang_hydra.releases.provider import Provider
from sglang_hydra.releases.records import default_release, record_of, release_named
from sglang_hydra.rules.resolution import Basis, Resolution
from sglang_hydra.text.errors import ConfigError, MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import install_command, program

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+([a-z.+-]*[0-9a-z]+)*")


class PlannedEngine(NamedTuple):
    """An engine and the planned release; ``installed`` is None where this machine lacks it. ``newest_that`` is why an
    older release was chosen: it is the newest that does this."""

    engine: Engine
    version: str
    python: str | None
    installed: str | None
    newest_that: str | None = None

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def program(self) -> str | None:
        """Returns the path of its interpreter; None where this machine lacks the engine."""
        return None if self.installed is None else find_python(self.python) or sys.executable

    @property
    def provider(self) -> Provider:
        """Returns the provider of the values: the release, for the embedded engine 0.5.2."""
        return Provider(self.version if self.engine is SGLANG else SPECIFIED_VERSION)

    def note(self, basis: Basis) -> str:
        """Returns a line on the installed engine and the source of the values."""
        if self.engine is not SGLANG:
            return f"engine: {self.name} {self.version}, the embedded engine; SGLang would use the values below"
        if self.installed == self.version:
            return f"engine: SGLang {self.installed}"
        own = f"the rules of {SPECIFIED_VERSION}"
        made = {"exact": f"{self.version}'s own code", "recorded": f"{self.version}'s own code, recorded", "rules": own}
        by = own if self.provider.is_by_rules else made[basis]
        here = "SGLang is not installed here" if self.installed is None else f"SGLang {self.installed} is installed"
        chosen = f"; it is the newest recorded release that {self.newest_that}" if self.newest_that else ""
        return f"engine: {here}; planned by {by}{chosen}"

    def request(self, resolution: Resolution, env: Mapping[str, str], machine: Machine) -> EngineRequest:
        """Returns the request to the engine: the given intent with a drawn seed."""
        # Null is left out where it is the default; elsewhere the engine reports whether its command can pass it.
        defaults = fresh_defaults()
        intent = {
            name: value
            for name, value in resolution.intent.items()
            if value is not None or defaults.get(name) is not None
        }
        if resolution.values["random_seed"] is not None:
            intent["random_seed"] = resolution.values["random_seed"]
        return EngineRequest(
            intent=intent,
            # Ours by its path where it has the engine: the first `python` on PATH may be another one.
            python=self.python or (sys.executable if self.installed else "python"),
            host=str(resolution.values["host"]),
            port=int(resolution.values["port"]),
            env=env,
            machine=machine,
            version=self.version if self.engine is SGLANG else None,
        )


def plan_engine(node: EngineNode, *, embedded_first: bool = False) -> PlannedEngine:
    """Returns the engine of the ``engine`` node. ``auto`` is SGLang, except with ``embedded_first`` (no accelerator
    here) where only the embedded one is installed. Raises ConfigError for an unknown name."""
    name, python = node.name, node.python
    if name == "transformers":
        return _planned(TRANSFORMERS, node, TRANSFORMERS.available(python))
    if name not in ("auto", "sglang"):
        message, hint = f"engine.name={name!r} is not an engine", "engine=auto, engine=sglang or engine=transformers"
        raise ConfigError.of("ENG001", message, "engine.name", hint=hint)
    found = SGLANG.available(python)
    if name == "auto" and not found.ok and embedded_first:
        embedded = TRANSFORMERS.available(python)
        if embedded.ok:
            return _planned(TRANSFORMERS, node, embedded)
    return _planned(SGLANG, node, found)


def engine_command(
    planned: PlannedEngine, resolution: Resolution, env: Mapping[str, str]
) -> tuple[list[str], list[Finding]]:
    """Returns the command that a person would type, and findings on arguments that the engine refuses or ignores. The
    command is empty where it cannot be written; without a model both are empty."""
    request = planned.request(resolution, env, Machine(None))
    if "model_path" not in request.intent:
        return [], []
    findings = list(planned.engine.findings(request))
    if planned.python and find_python(planned.python) is None:
        message = f"engine.python={planned.python} is not a program here"
        findings.append(Finding("warning", "ENG013", message, ("engine.python",)))
    if not request.intent.get("model_path"):
        return [], findings
    try:
        return list(planned.engine.command(request).shown), findings
    except ValueError as failure:
        return [], [*findings, Finding("error", "ENG005", str(failure), hint="leave it at its default")]


def opinions(findings: Iterable[Finding], version: str) -> list[Finding]:
    """Turns 0.5.2's refusals into warnings for another release whose own code was not asked."""
    return [
        replace(
            finding,
            level="warning",
            stage="plan",
            message=f"{finding.message} (a rule of {SPECIFIED_VERSION}; {version} was not asked)",
        )
        if finding.level == "error" and not finding.ours and not finding.id.startswith(("ARG", "VER"))
        else finding
        for finding in findings
    ]


def release_meant(version: str | None = None, python: str | None = None) -> str:
    """Returns the release of a plan, which reads its words: the named one, else the one installed for ``python`` (None:
    ours), else the user's choice or the newest."""
    return release_named(version) if version else SGLANG.available(python).version or default_release()


def _planned(engine: Engine, node: EngineNode, found: Availability) -> PlannedEngine:
    version = release_named(str(node.version)) if node.version is not None else None
    if version is None and found.version is None and engine is SGLANG:
        version = default_release()
    if version is not None and not _VERSION.fullmatch(version):
        known = known_versions()
        message = f"engine.version={version!r} is no version of SGLang"
        plain = version.lstrip("vV=")
        fix = f"engine.version={plain}" if plain in known else None
        hint = f"engine.version={known[-1]} is the newest; {program()} release list shows all {len(known)}"
        raise ConfigError.of("ENG012", message, "engine.version", hint=hint, fix=fix)
    if engine is SGLANG and version not in (None, found.version, SPECIFIED_VERSION):
        near = nearest_known(version) or ""
        in_table = release_key(near) == release_key(version) or is_candidate_of(version, near)
        if not in_table and record_of(version) is None:
            raise ConfigError(unknown_version(version))
    version = version or found.version or "unknown"
    return PlannedEngine(engine, str(version), node.python, found.version if found.ok else None)


class Choice(NamedTuple):
    """The engine, its installed version, and a short reason."""

    engine: Engine
    version: str | None
    reason: str


def engines() -> dict[str, Engine]:
    """Returns every engine by name, in the order in which ``auto`` tries them."""
    return {engine.name: engine for engine in (SGLANG, TRANSFORMERS)}


def choose(setting: str, python: str | None, machine: Machine, weights_bytes: int | None) -> Choice:
    """Returns the engine for ``engine=<setting>`` here, for weights of that size in bytes (None: unknown, which stops
    ``auto``, but not a named engine).

    Raises MachineError where no engine here can serve them. Planning has refused unknown names."""
    known, reasons, is_auto = engines(), dict[str, str](), setting == "auto"
    for name, engine in known.items() if is_auto else [(setting, known[setting])]:
        found = engine.available(python)
        is_sized = found.ok if is_auto else weights_bytes is not None
        obstacle = engine.obstacle(machine, weights_bytes) if is_sized else None
        if found.ok and not obstacle:
            why = "; ".join(f"no {other}: {reason}" for other, reason in reasons.items())
            here = f"{name} {found.version} is installed" if is_auto else f"engine={setting}"
            return Choice(engine, found.version, why or here)
        reasons[name] = (obstacle or "") if found.ok else found.missing or "it is not installed"
    why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    hint = f"engine.python=<an interpreter that has sglang>, or {install_command('local')} for the embedded engine"
    hint += ", or model=tiny to try a server on any machine"
    raise MachineError.of("ENG002", f"nothing here can serve this ({why})", "engine.python", "engine", hint=hint)
