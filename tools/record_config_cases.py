"""Record what the real SGLang 0.5.2 makes of model folders whose config.json leaves fields out.

    VENV/bin/python tools/record_config_cases.py

VENV holds the real SGLang 0.5.2 and the transformers that it pins. For every architecture that it serves there is a
folder with a whole config.json, and one with each key missing, each key null, each nested config missing, empty or of
another kind, with other lists of architectures, another model_type, and code of its own. SGLang reads each folder
itself, on the machines of ``MACHINES``, which are stood in for. Written: ``tests/data/conformance/configs.jsonl.gz``,
one ``{"case": {"id", "config"}, "expected": {machine: outcome}}`` a line; an outcome is ``{"ok": true, "resolved"}``
with the values that are not at their defaults and no path, or ``{"ok": false, "error"}``.
"""

from __future__ import annotations

import copy
import gzip
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]  # the interpreter is another one's

from record_config_defaults import Recorder, built, is_part  # noqa: E402
from recording.asked_with_torch import ask_with_torch  # noqa: E402

from sglang_hydra.architecture.reading_layers import ENCODERS, KNOWN  # noqa: E402

OUT = ROOT / "tests" / "data" / "conformance" / "configs.jsonl.gz"
H100 = {"device": "cuda", "capability": [9, 0], "flashinfer": True, "triton_kernels": True}
CPU = {"device": "cpu", "capability": None, "flashinfer": False, "triton_kernels": False}
MACHINES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, str], int | None]] = {
    "h100": (H100, {}, 81559),
    "cpu": (CPU, {"SGLANG_USE_CPU_ENGINE": "1"}, None),
}
"""By the name of a preset: what SGLang finds there, the variables, the memory in MiB."""

LLAVA = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 96}
OWN_TYPES = {
    "ChatGLMModel": "chatglm", "DeepseekVL2ForCausalLM": "deepseek_vl_v2", "ExaoneForCausalLM": "exaone",
    "InternS1ForConditionalGeneration": "internvl", "InternVLChatModel": "internvl_chat",
    "KimiVLForConditionalGeneration": "kimi_vl", "LlamaEmbeddingModel": "llama", "LlamaForCausalLMEagle": "llama",
    "LlamaForCausalLMEagle3": "llama", "LlamaForClassification": "llama",
    "LlamaForSequenceClassificationWithNormal_Weights": "llama", "LlavaLlamaForCausalLM": "llava",
    "LlavaMistralForCausalLM": "llava", "LlavaQwenForCausalLM": "llava", "LlavaVidForCausalLM": "llava",
    "LongcatFlashForCausalLM": "longcat_flash", "MultiModalityCausalLM": "multi_modality",
    "QuantMixtralForCausalLM": "mixtral", "Qwen2ForCausalLMEagle": "qwen2", "Qwen2ForRewardModel": "qwen2",
    "Qwen3NextForCausalLM": "qwen3_next", "Step3VLForConditionalGeneration": "step3_vl", "YiVLForCausalLM": "llava",
}  # fmt: skip
"""The model_type of architectures that transformers itself has no model of."""


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    recorder, types = Recorder(), types_of_architectures()
    for name in sorted((*KNOWN, *ENCODERS)):
        kind = OWN_TYPES.get(name) or types.get(name)
        if kind is None or kind not in recorder.mapping:
            yield f"{name}/no-class", {"architectures": [name], "model_type": kind or "other", **LLAVA}
            continue
        made = recorder.registry.get(kind) or recorder.mapping[kind]
        whole = stated(recorder, made())
        grown = larger(whole)
        whole = whole if built(made, **copy.deepcopy(grown)) is None else grown
        own = LLAVA if name.startswith("Llava") and name.endswith("ForCausalLM") else {}
        for tag, config in variants({"architectures": [name], **whole, **own, "model_type": kind}):
            yield f"{name}/{tag}", config


def types_of_architectures() -> dict[str, str]:
    from importlib import import_module

    tables: Any = import_module("transformers.models.auto.modeling_auto")
    found: dict[str, str] = {}
    for table in sorted(name for name in vars(tables) if name.endswith("_MAPPING_NAMES")):
        for kind, names in vars(tables)[table].items():
            for name in names if isinstance(names, (list, tuple)) else (names,):
                found.setdefault(name, kind)
    return found


def stated(recorder: Recorder, config: Any) -> dict[str, Any]:
    """The keys of a config that plans read, as a file would state them."""
    found = {}
    for name, value in vars(config).items():
        if isinstance(value, recorder.base) and name in recorder.names:
            found[name] = stated(recorder, value)
        elif name in recorder.names and name not in recorder.generic and value is not None:
            found[name] = value
    if "llm_config" in found:
        found["llm_config"]["architectures"] = ["Qwen2ForCausalLM"]
    return {**found, "model_type": config.model_type} if config.model_type else found


def larger(config: Mapping[str, Any]) -> dict[str, Any]:
    """Other values than the defaults, so that a key that is left out shows."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict) and is_part(name):
            found[name] = larger(value)
        elif name != "layer_types":
            found[name] = value * 2 if type(value) is int and (value > 16 or "layer" in name) else value
    return found


def variants(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "whole", whole
    for path in paths(whole):
        name = ".".join(path)
        yield f"no-{name}", changed(whole, path)
        yield f"null-{name}", changed(whole, path, None)
        if is_part(path[-1]):
            kind = "siglip_vision_model" if "vision" in path[-1] else "qwen2"
            yield f"empty-{name}", changed(whole, path, {})
            yield f"kind-{name}", changed(whole, path, {"model_type": kind})
    first = whole["architectures"][0]
    yield "bare", {"architectures": [first], "model_type": whole["model_type"]}
    yield "no-architecture", {**whole, "architectures": []}
    yield "two-architectures", {**whole, "architectures": ["LlamaForCausalLM", first]}
    yield "unknown-type", {**whole, "model_type": "other_thing"}
    yield "own-code", {**whole, "auto_map": {"AutoConfig": "configuration.Config"}}


def paths(config: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in config.items():
        yield (*above, name)
        if isinstance(value, dict) and is_part(name):
            yield from paths(value, (*above, name))


def changed(config: dict[str, Any], path: tuple[str, ...], *value: Any) -> dict[str, Any]:
    """``config`` with another value at ``path``, or without it."""
    copied = copy.deepcopy(config)
    part = copied
    for name in path[:-1]:
        part = part[name]
    if value:
        part[path[-1]] = value[0]
    else:
        del part[path[-1]]
    return copied


def outcomes(folders: list[Path], machine: str) -> Iterator[dict[str, Any]]:
    """What the release makes of each folder on a machine."""
    hardware, variables, memory = MACHINES[machine]
    machine_of = {**hardware, "cuda": "12.8", "environment": dict(variables)}
    lines = [
        {
            "machine": {"memory_mib": memory, "count": 8, "name": machine},
            "argv": ["--model-path", str(folder), "--random-seed", "1"],
            "models": {},
        }
        for folder in folders
    ]
    answers = ask_with_torch(sys.executable, machine_of, lines, timeout_s=3600.0)
    defaults = json.loads((OUT.parent / "defaults.json").read_text("utf-8"))
    usual = {row["name"]: row.get("default") for row in defaults}
    for folder, answer in zip(folders, answers, strict=True):
        yield compact(answer, usual, str(folder))


def compact(answer: Mapping[str, Any], usual: Mapping[str, Any], folder: str) -> dict[str, Any]:
    if not answer.get("ok"):
        return {"ok": False, "error": str(answer.get("error", answer.get("refused"))).replace(folder, "FOLDER")[:160]}
    values = answer["values"].items()
    return {"ok": True, "resolved": {name: value for name, value in values if value not in (usual.get(name), folder)}}


def main() -> int:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    made = list(cases())
    with tempfile.TemporaryDirectory(prefix="00-") as root:
        folders = [Path(root, f"{number:05d}") for number in range(len(made))]
        for folder, (_, config) in zip(folders, made, strict=True):
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        answers = {machine: list(outcomes(folders, machine)) for machine in MACHINES}
    lines = [
        {"case": {"id": id, "config": config}, "expected": {machine: answers[machine][at] for machine in MACHINES}}
        for at, (id, config) in enumerate(made)
    ]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    OUT.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{OUT}: {len(lines)} folders on {len(MACHINES)} machines, {OUT.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
