"""Chooses the engine to serve with on this machine."""

from __future__ import annotations

from typing import NamedTuple

from sglang_hydra.planning.engines.base import Engine, Machine
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
    """Returns the engine for ``engine=<setting>`` here, for weights of that size in bytes (None: unknown, which stops
    ``auto``, but not a named engine).

    Raises MachineError where no engine here can serve them. Planning has refused unknown names."""
    known, reasons, is_auto = engines(), dict[str, str](), setting == AUTO
    for name, engine in known.items() if is_auto else [(setting, known[setting])]:
        found = engine.available(python)
        is_sized = found.ok if is_auto else weights_bytes is not None
        obstacle = engine.obstacle(machine, weights_bytes) if is_sized else None
        if found.ok and not obstacle:
            why = "; ".join(f"no {other}: {reason}" for other, reason in reasons.items())
            here = f"{name} {found.version} is installed" if is_auto else f"engine={setting}"
            return Choice(engine, found.version, why or here)
        reasons[name] = (obstacle or "") if found.ok else found.missing or "it is not installed"
    raise MachineError(_cannot_serve(reasons))


def _cannot_serve(reasons: dict[str, str]) -> Finding:
    why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    hint = f"engine.python=<an interpreter that has sglang>, or {install_command('local')} for the embedded engine"
    hint += ", or model=tiny to try a server on any machine"
    return Finding("error", "ENG002", f"nothing here can serve this ({why})", ("engine.python", "engine"), hint)
