"""Describes a question to a release: one server as a command line, the machine, its models and the environment."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.arguments.secrets import is_secret
from sglang_hydra.arguments.tables.table import nearest_known, release
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.facts.host import host_facts
from sglang_hydra.facts.model import ModelFacts
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.file_text import read_text
from sglang_hydra.text.json_types import EMPTY, JsonDict, JsonObject, by_identity, json_beside, plain

_TABLE: JsonObject = json_beside(__file__)
ASSUMED: Mapping[str, object] = _TABLE["assumed"]
"""Facts for machines that declare none: the driver in the example of 0.5.23's own docstring, the cuDNN (9.16) that
SGLang needs from 0.5.6 on, no NVML (which would report an NVLink fabric), HIP 6.4, and a host suited to SGLang's CPU
engine. An answer names those that it used."""

FACTS = (*ASSUMED, *_TABLE["declared"].split())
"""The facts of a machine that a person may declare; its preset has those of the GPU."""

_CUDA = "12.8"


class Case(NamedTuple):
    """One command line on one machine. ``argv`` are the words after the module's name. ``machine`` is made by
    ``machine_facts``. ``models`` maps each model path in the words to the content of its config.json, or to ``{"files":
    {name: text or content}}`` for several files. ``files`` maps absolute paths to the other visible files: a text, a
    list of names for a folder, None for an absent file."""

    argv: tuple[str, ...]
    machine: JsonObject
    models: JsonObject = EMPTY
    files: JsonObject = EMPTY

    def to_json(self) -> JsonDict:
        """Returns the case as the child reads it. Omits words of ``assumed`` that the machine declares."""
        machine = {"environment": {}, "assumed": dict(ASSUMED), **self.machine}
        return {"argv": list(self.argv), "machine": machine, "models": dict(self.models), "files": dict(self.files)}


def machine_facts(
    gpu: GpuFacts, environment: Mapping[str, str] | None = None, cuda: str | None = None, **more: object
) -> dict[str, object]:
    """Returns the machine of a case. ``environment`` has the variables that the server would find, ``cuda`` is the
    version for which its torch is built, ``more`` has further facts: ``driver``, ``cudnn``, ``infiniband`` (a list of
    devices), ``packages`` (name to version, None for absent), ``hip``, ``processor``, ``seed``."""
    device = (
        "none" if gpu.device is None else "cpu" if gpu.device == "cpu" else _TABLE["devices"].get(gpu.vendor, "none")
    )
    capability = gpu.compute_capability
    return {
        "device": device,
        "memory_mib": gpu.memory_mib,
        "capability": list(capability) if capability else None,
        "count": gpu.count,
        "name": gpu.device_name or gpu.name,
        "flashinfer": gpu.flashinfer,
        "triton_kernels": gpu.triton_kernels,
        "torch_cuda": gpu.torch_cuda,
        "cuda": cuda or _CUDA,
        "environment": dict(environment or {}),
        **more,
    }


SEED = 42
"""The number that a release draws as seed when it is asked: the plan's own replaces it."""

MODEL_ARGUMENTS = ("model_path", "speculative_draft_model_path", "trust_remote_code")
"""The arguments that name the model and its draft, and that allow code of the model."""

_DEVICE_FLAGS = ("--disaggregation-ib-device", "--mooncake-ib-device")
_MOST_BYTES = 1 << 22
"""Bytes of one file of a model's folder. Larger ones are tokenizers and lists of weights, which set no argument."""


def case_for(
    flags: Sequence[str],
    gpu: GpuFacts,
    model: ModelFacts,
    values: Mapping[str, object],
    environment: Mapping[str, str],
    version: str,
    declared: JsonObject,
) -> Case:
    """Returns the question to a release. ``flags`` are the release's own words, ``values`` those of
    ``MODEL_ARGUMENTS``. Only the SGLANG_* variables of ``environment`` are passed, without secrets. ``declared`` has
    the facts that a person states (engine.facts)."""
    variables = {
        name: value for name, value in environment.items() if name.startswith("SGLANG_") and not is_secret(name, value)
    }
    host = host_facts() if gpu.device == "cpu" and gpu.memory_mib is None else {}  # the plan is for this machine
    typed = [value for flag, value in pairwise(flags) if flag in _DEVICE_FLAGS]  # the nodes have them, if not we
    devices = {"infiniband": sorted(set(re.findall(r"[A-Za-z][\w.-]*", " ".join(typed))))} if typed else {}
    known = nearest_known(version)
    cuda = release(known).needs["cuda"] if known else None
    facts = {**machine_facts(gpu, variables, cuda, seed=SEED), **host, **devices, **plain(declared)}
    return Case(tuple(flags), facts, _models(model, values))


def folder_to_read(model: ModelFacts, values: Mapping[str, object]) -> str | None:
    """Returns the model's folder if the release can read it as the plan did; None if it is given the plan's facts. With
    trust_remote_code it would run the code in the folder: no question runs a model's own code."""
    folder = model.extra.get("folder")
    return None if folder is None or values["trust_remote_code"] else str(folder)


def _models(model: ModelFacts, values: Mapping[str, object]) -> dict[str, object]:
    """Returns the files that the release reads of the model and of its draft: the JSON files of a folder, else the
    stated config.json, because a release has its own class defaults."""
    found: JsonDict = {}
    paths = (values["model_path"], values["speculative_draft_model_path"])
    for path, facts in zip(paths, (model, model.draft), strict=True):
        if path is None or facts is None:
            continue
        folder = folder_to_read(facts, values)
        if folder is not None:
            found[str(path)] = {"files": _json_files(Path(folder))}
        elif "files" in facts.extra:
            found[str(path)] = {"files": dict(facts.extra["files"])}
        elif facts.config is not None:
            found[str(path)] = _plain(facts.extra.get("stated") or facts.config)
        if values["trust_remote_code"] and str(path) in found:
            found[str(path)] = _without_code(found[str(path)])
    return found


_plain = by_identity(plain)


def own_config_class(model: ModelFacts) -> str | None:
    """Returns the config class in a model's own code, or None."""
    stated = model.extra.get("stated") or model.config or {}
    named = stated.get("auto_map")
    return str(named["AutoConfig"]) if isinstance(named, Mapping) and "AutoConfig" in named else None


def _without_code(content: JsonDict) -> JsonDict:
    """Removes a model's own config class from its config.json or files, so that transformers' class is used."""
    if "files" in content:
        files = dict(content["files"])
        with contextlib.suppress(KeyError, ValueError, AttributeError):  # no config.json, or none that can be read
            stated = read_json(files["config.json"], "record")
            files["config.json"] = json.dumps(_without_code(stated))
        return {"files": files}
    named = {name: value for name, value in content.get("auto_map", {}).items() if name != "AutoConfig"}
    return {**content, "auto_map": named} if "auto_map" in content else content


def _json_files(folder: Path) -> dict[str, str]:
    found = {}
    for file in sorted(folder.glob("*.json")):
        try:
            if file.stat().st_size <= _MOST_BYTES:
                found[file.name] = read_text(file, _MOST_BYTES, errors="replace")
        except (OSError, ValueError):
            continue
    return found
