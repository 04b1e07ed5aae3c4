"""Folders whose config.json leaves fields out, as the real SGLang 0.5.2 read them, and as they are planned."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from sglang_hydra import GpuFacts, ModelFacts, resolve
from sglang_hydra.arguments.fields import fresh_defaults
from sglang_hydra.facts.defaults import completed
from sglang_hydra.text.json_types import plain

RECORDED = Path(__file__).parent / "data" / "conformance" / "configs.jsonl.gz"
H100 = GpuFacts("h100", "nvidia", "cuda", 81559, (9, 0), 8, flashinfer=True, triton_kernels=True, torch_cuda=True)
MACHINES: Mapping[str, tuple[GpuFacts, Mapping[str, str]]] = {
    "h100": (H100, {}),
    "cpu": (GpuFacts("cpu", "none", "cpu", torch_cuda=False), {"SGLANG_USE_CPU_ENGINE": "1"}),
}
_PATHS = ("model_path", "tokenizer_path", "served_model_name", "random_seed")


@lru_cache(maxsize=1)
def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]


def differences(record: Mapping[str, Any], machine: str) -> str | None:
    """Where the plan of a folder is not what the release made of it; None where both are the same."""
    gpu, env = MACHINES[machine]
    case, expected = record["case"], record["expected"][machine]
    made = completed(case["config"], "org/name")
    model = ModelFacts(made.config, config_class=made.class_name, refused=made.refused)
    resolution = resolve({"model_path": "org/name"}, gpu=gpu, model=model, seed=1, env=env)
    if resolution.ok is not expected["ok"]:
        ids = [finding.id for finding in resolution.findings if finding.level == "error"]
        return f"{case['id']} on {machine}: refused by {ids}, the release: {expected}"
    if not resolution.ok:
        return None
    usual = {**fresh_defaults(), "model_path": None}
    values = {name: plain(value) for name, value in resolution.values.items() if value != usual[name]}
    mine, theirs = (
        {key: item for key, item in each.items() if key not in _PATHS} for each in (values, expected["resolved"])
    )
    return None if mine == theirs else f"{case['id']} on {machine}: {mine} is planned, the release: {theirs}"


def _without_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _PATHS}
