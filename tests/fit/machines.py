"""GPUs, models and arguments for the tests of the memory fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from sglang_hydra import GpuFacts, ModelFacts, resolve
from sglang_hydra.architecture.published_checkpoints import facts_as, find_published, originals
from sglang_hydra.facts.declared import gpu_facts
from sglang_hydra.fit.result import Fit
from sglang_hydra.fit.sizing import fit
from sglang_hydra.planning.choosing.catalog import models
from tests.plans import composer

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data"
GIB = 1 << 30


@cache
def gpu(name: str) -> GpuFacts:
    """A class of GPU as its preset declares it."""
    return gpu_facts(composer().preset("gpu", name).node, {})


@lru_cache(maxsize=1)
def catalog() -> dict[str, dict[str, Any]]:
    """The models of the catalogue by preset name, with the fields that were added to them."""
    models: dict[str, dict[str, Any]] = json.loads((DATA / "catalog" / "models.json").read_text("utf-8"))["models"]
    additions = json.loads((DATA / "catalog" / "model_additions.json").read_text("utf-8"))["models"]
    for name, model in models.items():
        model["config"] = _merged(model["config"], additions.get(name, {}).get("config", {}))
    return models


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {**below, **above}
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(below.get(key), Mapping):
            both[key] = _merged(below[key], value)
    return both


@cache
def model(path: str) -> ModelFacts:
    """The facts of a catalogued model by name or id, or of a published checkpoint made from one or from a preset."""
    for name, entry in catalog().items():
        if path in (name, entry["hf_id"]):
            return ModelFacts(entry["config"], source=f"catalogue, {name}")
    checkpoint = find_published(path)
    if checkpoint is not None and checkpoint.config_file is not None:
        return facts_as(checkpoint, ModelFacts({}, source="not read"))
    known = [entry["hf_id"] for entry in catalog().values()]
    for original in originals(checkpoint) if checkpoint else ():
        if checkpoint is not None and original in known:
            return facts_as(checkpoint, model(original))
        preset = next((listed.facts for listed in models(composer()) if listed.path == original), None)
        if checkpoint is not None and preset is not None:
            return facts_as(checkpoint, preset)
    return ModelFacts(None, source="nothing is known about it")


def sized(on: str, facts: ModelFacts | str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Fit:
    """The fit of a server with ``arguments`` on a class of GPU, resolved as SGLang 0.5.2 would."""
    known = model(facts) if isinstance(facts, str) else facts
    intent = {"model_path": facts if isinstance(facts, str) else "org/model", **(arguments or {})}
    values = resolve(intent, gpu=gpu(on), model=known, seed=1).values
    return fit(values, gpu(on), known, **options)


def dense(**fields: Any) -> ModelFacts:
    """A small Llama: 4 layers of 1024, 8 heads, 2 KV heads."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 4096,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }
    return ModelFacts({**config, **fields}, source="small/config.json")
