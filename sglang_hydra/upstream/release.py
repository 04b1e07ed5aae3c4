"""The values that a release gives to command lines, by its own code: from the cache of answers, else from a child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding
from sglang_hydra.upstream import answers, wheels
from sglang_hydra.upstream.environment import NotRecorded, installed_release
from sglang_hydra.upstream.process import Child, ChildFailed, child_for
from sglang_hydra.upstream.records import Record, record_of

if TYPE_CHECKING:
    from sglang_hydra.facts.gpu import GpuFacts

ASSUMED: Mapping[str, Any] = {"driver": "595.58.03", "cudnn": 91600, "nvml": False}
"""Facts for machines that declare none: the driver that 0.5.23's own docstring has as its example, the cuDNN (9.16)
that SGLang asks for from 0.5.6 on, and no NVML, which tells of an NVLink fabric. An answer says which of them it used.
"""

_DEVICES = {"nvidia": "cuda", "amd": "hip", "intel": "xpu", "habana": "hpu", "huawei": "npu"}
_CUDA = "12.8"
_MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """One command line on one machine.

    ``argv`` are the words behind the module's name. ``machine`` is what ``machine_facts`` makes. ``models`` has for
    each model path among the words the content of its config.json, or ``{"files": {name: text or content}}`` for
    several files. ``files`` has what else may be looked at by its absolute path: a text, a list of names for a folder,
    None for what is not there.
    """

    argv: tuple[str, ...]
    machine: Mapping[str, Any]
    models: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The case as the child reads it. Words of ``assumed`` that the machine declares are left to it."""
        machine = {"environment": {}, "assumed": dict(ASSUMED), **self.machine}
        return {
            "argv": list(self.argv),
            "machine": machine,
            "models": dict(self.models),
            "files": dict(self.files),
        }


@dataclass(frozen=True)
class Answer:
    """What a release made of a case.

    ``ok`` is None where it has no answer: ``unanswered`` says which question nobody answered, or why the child failed.
    ``values`` are all its fields where it accepts, ``stage`` and ``error`` its refusal. ``environment`` are variables
    that it set, ``assumed`` facts that were assumed and asked for. ``by_library`` says that transformers refused: what
    was told of the model is then no whole config.json, or one that it does not read.
    """

    ok: bool | None
    values: Mapping[str, Any] = field(default_factory=dict)
    stage: str | None = None
    error: str | None = None
    unanswered: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    assumed: Mapping[str, Any] = field(default_factory=dict)
    by_library: bool = False


def machine_facts(
    gpu: GpuFacts, environment: Mapping[str, str] | None = None, cuda: str | None = None, **more: Any
) -> dict[str, Any]:
    """The machine of a case. ``environment`` are the variables that the server would find, ``cuda`` the version that
    its torch is made for, ``more`` further facts: ``driver``, ``cudnn``, ``infiniband`` (a list of devices),
    ``packages`` (name to version, None for absent), ``hip``, ``processor``, ``seed``."""
    device = "none" if gpu.device is None else "cpu" if gpu.device == "cpu" else _DEVICES.get(gpu.vendor, "none")
    capability = gpu.compute_capability
    return {
        "device": device,
        "memory_mib": gpu.memory_mib,
        "capability": list(capability) if capability else None,
        "count": gpu.count,
        "name": gpu.name,
        "flashinfer": gpu.flashinfer,
        "triton_kernels": gpu.triton_kernels,
        "torch_cuda": gpu.torch_cuda,
        "cuda": cuda or _CUDA,
        "environment": dict(environment or {}),
        **more,
    }


def can_answer(version: str) -> bool:
    """Whether the release is recorded and its wheels are here."""
    record = record_of(version)
    return record is not None and not wheels.missing(record)


def require(version: str) -> None:
    """Raises MachineError where a release cannot be asked: REL001 without a record, REL004 without its wheels."""
    _places(_recorded(version))


def ask_release(version: str, cases: Sequence[Case], *, use_kept: bool = True) -> list[Answer]:
    """What a release makes of each case, in their order. Nothing is fetched.

    Raises MachineError: REL001 for a release without a record, REL004 where its wheels are not here and an answer is
    not kept.
    """
    record = _recorded(version)
    found: list[Answer] = []
    for case in cases:
        asked = case.to_json()
        key = answers.answer_key(record.fingerprint, asked)
        kept = answers.kept_answer(key) if use_kept else None
        if kept is None:
            kept = _asked(record, _places(record), asked)
            if use_kept and "failed" not in kept:
                answers.keep_answer(key, kept)
        found.append(_answer(kept))
    return found


def ask_installed(python: str, version: str, cases: Sequence[Case]) -> list[Answer]:
    """What the SGLang of an environment makes of each case, by its own files; ``version`` is that of its metadata. Its
    interpreter ``python`` runs them only where ours cannot load its compiled libraries. No answer is kept."""
    try:
        there = installed_release(python, version)
    except NotRecorded as failure:
        return [Answer(None, unanswered=str(failure))] * len(cases)
    return [_answer(_asked(there.record, there.places, case.to_json(), there.interpreter)) for case in cases]


def prepare(version: str) -> None:
    """Runs a release once, so that its byte code is there for the next start. Raises MachineError as ``ask_release``,
    and REL005 where it does not run here."""
    record = _recorded(version)
    try:
        child = Child(record, _places(record), _PLAIN_MACHINE)
        try:
            child.ask(Case(("--model-path", "tiny"), _PLAIN_MACHINE, {"tiny": _TINY}).to_json())
        finally:
            child.end()
    except ChildFailed as failure:
        message = f"SGLang {version} does not run here: {failure}"
        raise MachineError(Finding("error", "REL005", message)) from failure


_PLAIN_MACHINE: Mapping[str, Any] = {
    "device": "cuda", "memory_mib": 81559, "capability": [9, 0], "count": 8, "name": "NVIDIA H100", "flashinfer": True,
    "triton_kernels": True, "cuda": _CUDA, "environment": {}, "seed": 42, "assumed": dict(ASSUMED),
}  # fmt: skip
_TINY: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 4, "vocab_size": 256,
    "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip


def _recorded(version: str) -> Record:
    record = record_of(version)
    if record is None:
        hint = "sglang-hydra release list shows those that there are"
        raise MachineError(Finding("error", "REL001", f"SGLang {version} is not recorded here", hint=hint))
    return record


def _places(record: Record) -> list[Any]:
    missing = wheels.missing(record)
    if missing:
        size = wheels.download_size(record) / _MIB
        message = f"SGLang {record.version} is not here: {len(missing)} wheels, {size:.1f} MiB"
        hint = f"sglang-hydra release fetch {record.version}"
        raise MachineError(Finding("error", "REL004", message, hint=hint))
    return [wheels.place_of(wheel) for wheel in record.wheels]


def _asked(
    record: Record, places: Sequence[Path], case: Mapping[str, Any], python: str | None = None
) -> dict[str, Any]:
    try:
        answer = child_for(record, places, case["machine"], python).ask(case)
    except ChildFailed as failure:
        return {"failed": str(failure)}
    answer.pop("id", None)
    return answer


def _answer(record: Mapping[str, Any]) -> Answer:
    if "failed" in record or "unanswered" in record:
        return Answer(None, unanswered=str(record.get("failed") or record["unanswered"]))
    return Answer(
        ok=bool(record["ok"]),
        values=record.get("values", {}),
        stage=record.get("stage"),
        error=record.get("error"),
        environment=record.get("environment", {}),
        warnings=tuple(record.get("warnings", ())),
        assumed=record.get("assumed", {}),
        by_library=bool(record.get("by_library")),
    )
