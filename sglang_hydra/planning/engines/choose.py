"""Chooses the engine to serve with on this machine."""

from __future__ import annotations

from typing import NamedTuple

from sglang_hydra.planning.engines.base import Availability, Engine, Machine
from sglang_hydra.planning.engines.sglang import ENGINE as SGLANG
from sglang_hydra.planning.engines.transformers import ENGINE as TRANSFORMERS
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.words import install_command

AUTO = "auto"


class Choice(NamedTuple):
    """The engine, its installed version, and a short reason."""

    engine: Engine
    version: str | None
    reason: str


def engines() -> dict[str, Engine]:
    """Returns every engine by name, in the order in which ``auto`` tries them."""
    return {engine.name: engine for engine in (SGLANG, TRANSFORMERS)}


def choose(setting: str, python: str | None, machine: Machine, weights_bytes: int | None) -> Choice:
    """Returns the engine for ``engine=<setting>`` here, for weights of that size in bytes (None: unknown).

    Raises MachineError where no engine here can serve them. Planning has refused unknown names."""
    known = engines()
    if setting == AUTO:
        return _first_that_can(known, python, machine, weights_bytes)
    engine = known[setting]
    found = engine.available(python)
    # An unknown size stops auto, but not a named engine.
    obstacle = engine.obstacle(machine, weights_bytes) if weights_bytes is not None else None
    if not found.ok or obstacle:
        raise MachineError(_cannot_serve({setting: _why_not(found, obstacle)}))
    return Choice(engine, found.version, f"engine={setting}")


def _first_that_can(
    known: dict[str, Engine], python: str | None, machine: Machine, weights_bytes: int | None
) -> Choice:
    reasons: dict[str, str] = {}
    for name, engine in known.items():
        found = engine.available(python)
        obstacle = engine.obstacle(machine, weights_bytes) if found.ok else None
        if found.ok and not obstacle:
            why = "; ".join(f"no {other}: {reason}" for other, reason in reasons.items())
            return Choice(engine, found.version, why or f"{name} {found.version} is installed")
        reasons[name] = _why_not(found, obstacle)
    raise MachineError(_cannot_serve(reasons))


def _why_not(found: Availability, obstacle: str | None) -> str:
    return obstacle or "" if found.ok else found.missing or "it is not installed"


def _cannot_serve(reasons: dict[str, str]) -> Finding:
    why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    hint = f"engine.python=<an interpreter that has sglang>, or {install_command('local')} for the embedded engine"
    hint += ", or model=tiny to try a server on any machine"
    return Finding("error", "ENG002", f"nothing here can serve this ({why})", ("engine.python", "engine"), hint)
