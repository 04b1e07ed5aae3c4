"""Runs SGLang itself, from the environment of ``engine.python``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.facts.environments import find_python
from sglang_hydra.facts.installed import installed
from sglang_hydra.planning.engines.base import Availability, Command, EngineRequest, Machine
from sglang_hydra.releases.provider import Provider
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import json_beside


class SGLang:
    name = "sglang"
    # It generates a token to answer: about a second, and up to 20 (SGLANG_HEALTH_CHECK_TIMEOUT) before it gives up.
    health_path = "/health"
    health_timeout_s = 30.0
    used_fields: frozenset[str] | None = None
    # The log texts of 0.5.2 and 0.5.23; a graph may be for CUDA, the CPU or another device, for the model or its draft.
    milestones: Mapping[str, str] = json_beside(__file__)["milestones"]

    def available(self, python: str | None) -> Availability:
        packages = installed(python)
        version = packages.versions.get("sglang")
        if version is not None:
            return Availability(True, version)
        whose = f"the environment of engine.python={python}" if python else "this environment"
        return Availability(False, None, packages.problem or f"{whose} has no package sglang")

    def obstacle(self, machine: Machine, weights_bytes: int | None) -> str | None:
        return None

    def findings(self, request: EngineRequest) -> list[Finding]:
        return []  # its release has judged the arguments

    def command(self, request: EngineRequest) -> Command:
        intent = dict(request.intent)
        secret = intent.pop("api_key", None)
        flags = Provider(request.version or SPECIFIED_VERSION).render(intent)
        python = find_python(request.python) or str(request.python)
        child = Path(__file__).parents[2] / "run" / "launch" / "child_sglang.py"
        return Command(
            argv=[python, str(child), *flags],
            shown=[request.python or "python", "-m", "sglang.launch_server", *flags],
            env=dict(request.env),
            secret=secret or None,
        )


ENGINE = SGLang()
