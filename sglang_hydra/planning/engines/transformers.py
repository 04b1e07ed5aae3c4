"""Runs the embedded engine, ``transformers serve``, for machines without SGLang. Facts are those of transformers
5.23."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from sglang_hydra.facts.environments import find_python
from sglang_hydra.facts.installed import installed
from sglang_hydra.planning.engines.base import Availability, Command, EngineRequest, Machine
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.words import install_command

# The runtime packages of `transformers[serving]`, and torch, which it does not require.
_PARTS = ("torch", "transformers", "accelerate", "fastapi", "uvicorn", "openai")
# The first version whose `serve` takes the model as its argument, as observed.
_OLDEST = (5, 8)
# Covers activations, the KV cache and the copy made while loading, beside the weights.
_WEIGHTS_FACTOR = 1.3
_DTYPES = {"half": "float16", "float": "float32"}
_PLAIN_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
_LOG_LEVELS = {"debug", "info", "warning", "error", "critical"}


class Transformers:
    name = "transformers"
    health_path = "/health"
    health_timeout_s = 10.0
    used_fields: frozenset[str] | None = frozenset(
        (
            *("model_path", "tokenizer_path", "host", "port", "device", "dtype", "trust_remote_code", "revision"),
            *("served_model_name", "random_seed", "log_level"),
        )
    )
    milestones: Mapping[str, str] = {"Loading weights": "loading weights", "Application startup complete": "answering"}

    def available(self, python: str | None) -> Availability:
        packages = installed(python)
        if packages.problem:
            return Availability(False, None, packages.problem)
        version = packages.versions.get("transformers")
        lacking = [part for part in _PARTS if part not in packages.versions]
        whose = f"the environment of engine.python={python}" if python else "this environment"
        lacks = parts_command(python)
        if lacking:
            return Availability(False, version, f"{whose} lacks {', '.join(lacking)} ({lacks})")
        if _release(packages.versions["transformers"]) < _OLDEST:
            needed = ".".join(map(str, _OLDEST))
            return Availability(False, version, f"{whose} has transformers {version}, before {needed} ({lacks})")
        return Availability(True, version)

    def obstacle(self, machine: Machine, weights_bytes: int | None) -> str | None:
        free = machine.accelerator_memory_bytes if machine.accelerator else machine.memory_bytes
        if weights_bytes is None:
            return "how large the weights are is not known before they are downloaded"
        if free is None:
            return "how much memory is free here is not known"
        need = int(weights_bytes * _WEIGHTS_FACTOR)
        if need <= free:
            return None
        return f"the weights times {_WEIGHTS_FACTOR} need {_size(need)}, {_size(free)} are free"

    def findings(self, request: EngineRequest) -> list[Finding]:
        findings = []
        if request.intent.get("api_key"):
            message = "the embedded engine cannot enforce api_key: everyone who reaches the port would be served"
            hint, offer = "leave api_key out, and listen on 127.0.0.1 only", ("engine=sglang", ", which enforces it")
            findings.append(Finding("error", "ENG003", message, ("api_key",), hint, offers=Remedy.typed(*offer)))
        if unused := self._unused(request):
            message = f"the embedded engine (transformers serve) does not use {', '.join(unused)}"
            obeys = Remedy.typed("engine=sglang", when="obeys them")
            hint = "the plan shows what SGLang would do with them"
            findings.append(Finding("warning", "ENG004", message, tuple(unused), hint, offers=obeys))
        return findings

    def _unused(self, request: EngineRequest) -> list[str]:
        from sglang_hydra.arguments.fields import fresh_defaults

        intent, defaults = request.intent, fresh_defaults()
        used = (self.used_fields or frozenset()) | {"api_key"}
        unused = [name for name, value in intent.items() if name not in used and value != defaults.get(name)]
        if intent.get("tokenizer_path") not in (None, intent.get("model_path")):
            unused.append("tokenizer_path")
        if intent.get("served_model_name") and not _alias(intent):
            unused.append("served_model_name")
        return sorted(unused)

    def command(self, request: EngineRequest) -> Command:
        intent = request.intent
        model = os.path.expanduser(str(intent["model_path"]))
        alias = _alias(intent)
        if os.path.isdir(model):
            model = os.path.abspath(model)
        elif intent.get("revision"):
            model = f"{model}@{intent['revision']}"
        device = intent.get("device") or request.machine.accelerator or "cpu"
        flags = ["--host", request.host, "--port", str(request.port), "--device", str(device)]
        dtype = intent.get("dtype") or "auto"
        if dtype != "auto":
            flags += ["--dtype", _DTYPES.get(dtype, dtype)]
        if intent.get("trust_remote_code"):
            flags.append("--trust-remote-code")
        if intent.get("random_seed") is not None:
            flags += ["--default-seed", str(intent["random_seed"])]
        if intent.get("log_level") in _LOG_LEVELS:
            flags += ["--log-level", intent["log_level"]]
        python = find_python(request.python) or str(request.python)
        child = Path(__file__).parents[2] / "run" / "launch" / "child_transformers.py"
        beside = os.path.join(os.path.dirname(python), "transformers")
        folder = str(_alias_folder(model, alias)) if alias else ""
        return Command(
            argv=[python, str(child), model, folder, alias, *flags],
            shown=[beside if os.path.isfile(beside) else "transformers", "serve", model, *flags],
            env=dict(request.env),
        )


def _alias(intent: Mapping[str, object]) -> str:
    """Returns the name under which a local folder is served, empty for its own path.

    The server answers only to the path that it was given, and cuts it at an "@"."""
    folder, name = os.path.expanduser(str(intent["model_path"])), intent.get("served_model_name")
    if not os.path.isdir(folder):
        return ""
    if isinstance(name, str) and _PLAIN_NAME.fullmatch(name):
        return name
    return "model" if "@" in os.path.abspath(folder) else ""


def _alias_folder(model: str, alias: str) -> Path:
    """Returns the link's path. Raises MachineError (REL015) where others could put another model there."""
    from sglang_hydra.facts.tiny import default_cache
    from sglang_hydra.text.private import require_private

    folder = default_cache() / "names"
    require_private(folder)
    return folder / hashlib.sha256(f"{model}\0{alias}".encode()).hexdigest()[:16]


def parts_command(python: str | None) -> str:
    """Returns the command that installs the embedded engine's packages, into this environment or that of ``python``."""
    return f"{python} -m pip install torch 'transformers[serving]' accelerate" if python else install_command("local")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


ENGINE = Transformers()
