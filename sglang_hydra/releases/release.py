"""The values that a release gives to command lines, by its own code: from the cache of answers, else from a child."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_hydra.releases import answers, wheels
from sglang_hydra.releases.case import ASSUMED, Case
from sglang_hydra.releases.environment import NotRecorded, installed_release
from sglang_hydra.releases.fetching import progress_if_allowed
from sglang_hydra.releases.process import Child, ChildFailed, Incomplete, child_for
from sglang_hydra.releases.records import Record, not_recorded, record_of
from sglang_hydra.rules.answer import Answer, answer_of
from sglang_hydra.text.errors import MachineError
from sglang_hydra.text.findings import Finding

_MIB = 1 << 20


def can_answer(version: str) -> bool:
    """Whether the release is recorded and its wheels are here."""
    record = record_of(version)
    return record is not None and not wheels.missing(record)


def ask_release(version: str, cases: Sequence[Case], *, use_kept: bool = True, why: bool = False) -> list[Answer]:
    """What a release makes of each case, in their order; with ``why`` also the reasons. Nothing is fetched.

    Raises MachineError: REL001 for a release without a record, REL004 where its wheels are not here and an answer is
    not kept.
    """
    return [answer_of(raw) for raw in raw_answers(_recorded(version), cases, use_kept=use_kept, why=why)]


def raw_answers(
    record: Record, cases: Sequence[Case], *, use_kept: bool = True, why: bool = True
) -> Iterator[dict[str, Any]]:
    """The answers as the child writes them. Raises as ``ask_release``."""
    for case in cases:
        asked = {**case.to_json(), **({"why": True} if why else {})}
        key = answers.answer_key(record.fingerprint, asked)
        raw = answers.kept_answer(key) if use_kept else None
        if raw is None:
            raw = _asked(record, _places(record), asked)
            if use_kept and "failed" not in raw:
                answers.keep_answer(key, raw)
        yield raw


def ask_installed(python: str, version: str, cases: Sequence[Case], *, why: bool = False) -> list[Answer]:
    """What the SGLang of an environment makes of each case, by its own files; ``version`` is that of its metadata. Its
    interpreter ``python`` runs them only where ours cannot load its compiled libraries. No answer is kept."""
    try:
        there = installed_release(python, version)
    except NotRecorded as failure:
        return [Answer(None, unanswered=str(failure))] * len(cases)
    reasons = {"why": True} if why else {}
    asked = ({**case.to_json(), **reasons} for case in cases)
    return [answer_of(_asked(there.record, there.places, case, there.interpreter)) for case in asked]


def prepare(version: str) -> None:
    """Runs a release once, so that its byte code is there for the next start. Raises MachineError as ``ask_release``,
    and REL005 where it does not run here."""
    record = _recorded(version)
    try:
        child = Child(record, _places(record), PLAIN_MACHINE)
        try:
            child.ask(Case(("--model-path", "tiny"), PLAIN_MACHINE, {"tiny": TINY}).to_json())
        finally:
            child.end()
    except ChildFailed as failure:
        message = f"SGLang {version} does not run here: {failure}"
        raise MachineError(Finding("error", "REL005", message)) from failure


PLAIN_MACHINE: Mapping[str, Any] = {
    "device": "cuda", "memory_mib": 81559, "capability": [9, 0], "count": 8, "name": "NVIDIA H100", "flashinfer": True,
    "triton_kernels": True, "cuda": "12.8", "environment": {}, "seed": 42, "assumed": dict(ASSUMED),
}  # fmt: skip
TINY: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 4, "vocab_size": 256,
    "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip


def _recorded(version: str) -> Record:
    record = record_of(version)
    if record is None:
        raise MachineError(not_recorded(version))
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
    except Incomplete as failure:
        progress = progress_if_allowed()
        if progress is None:
            return {"failed": f"{failure}; without --offline it is"}
        wheels.complete(record, failure.names, progress)
        return _asked(record, places, case, python)
    except ChildFailed as failure:
        return {"failed": str(failure)}
    answer.pop("id", None)
    return answer
