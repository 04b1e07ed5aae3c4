"""Draws random command lines of a release, and records what its real install makes of them.

    python tools/random_release_cases.py 0.5.23 --python VENV/bin/python --count 2000 --seed 1 --out cases.jsonl
    python tools/conformance_releases.py cases.jsonl --no-kept

The install has torch and the release's own libraries; ``tests/real/install.sh`` makes one. Only the accelerator is
stood in for, as ``recording/with_torch.py`` does it. Cases that nothing could answer there are counted and left out.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from recording.asked_with_torch import ask_with_torch
from release_cases import MODELS

from sglang_hydra.arguments.tables.table import Argument, nearest_known, release
from sglang_hydra.planning.comparing.installed import case_of
from sglang_hydra.planning.making.make import plan
from sglang_hydra.releases.case import ASSUMED

GPUS = (
    *("h100", "h200", "b200", "b300", "mi300x", "mi355x", "a100_80gb", "l40s", "rtx_5090", "rtx_pro_6000", "t4"),
    *("h20", "gb200", "l4"),
)
LONGEST = 400
"""Characters of an error that are kept."""
LEFT_OUT = frozenset({"model_path", "random_seed", "config", "help", "version"})
NUMBERS = ("0", "1", "2", "3", "4", "8", "16", "32", "64", "128", "256", "1024", "4096", "8192", "131072")
FLOATS = ("0.1", "0.5", "0.8", "0.88", "0.9", "1.0", "1.5")
INVALID = ("bogus", "-1", "", "1.5", "[1,2]", "{", "99999999999")
TEXTS: Mapping[str, Sequence[str]] = {
    "load_format": ("auto", "dummy", "safetensors", "gguf"),
    "dtype": ("auto", "half", "bfloat16", "float32"),
    "host": ("0.0.0.0", "::", "127.0.0.1"),
    "dist_init_addr": ("10.0.0.1:5000", "[::1]:5000", "nonsense"),
    "json_model_override_args": ("{}", '{"num_hidden_layers": 4}', '{"max_position_embeddings": 1024}'),
    "model_loader_extra_config": ("{}", '{"enable_multithread_load": true}'),
    "hisparse_config": ("{}",),
    "chat_template": ("chatml", "llama-2"),
    "torchao_config": ("", "int8wo", "fp8wo"),
    "max_lora_rank": ("16", "64"),
    "lora_target_modules": ("all", "q_proj", "gate_proj"),
    "tool_call_parser": ("qwen25", "deepseekv3", "auto"),
    "served_model_name": ("name", "a:b"),
    "cuda_graph_config": ('{"decode": {"backend": "full"}}', "decode=full", "{}"),
    "device": ("cuda", "cpu", "hip"),
}
THEMES: tuple[tuple[str, ...], ...] = (
    ("--speculative-algorithm", "EAGLE"),
    ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
    ("--speculative-algorithm", "NGRAM"),
    ("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "meta-llama/Llama-3.1-8B-Instruct"),
    ("--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-eagle-topk", "4",
     "--speculative-num-draft-tokens", "16"),
    ("--disaggregation-mode", "prefill"),
    ("--disaggregation-mode", "decode"),
    ("--disaggregation-mode", "decode", "--disaggregation-decode-enable-offload-kvcache"),
    ("--enable-dp-attention", "--dp", "8"),
    ("--enable-dp-attention", "--dp", "2", "--ep", "8"),
    ("--dp", "2"),
    ("--moe-a2a-backend", "deepep"),
    ("--ep", "8"),
    ("--pp-size", "2"),
    ("--enable-lora", "--max-lora-rank", "16", "--lora-target-modules", "all"),
    ("--enable-lora", "--lora-paths", "a=/loras/a", "--max-loras-per-batch", "2"),
    ("--enable-hierarchical-cache",),
    ("--enable-hierarchical-cache", "--hicache-storage-backend", "file"),
    ("--kv-cache-dtype", "fp8_e4m3"),
    ("--context-length", "131072"),
    ("--nnodes", "2", "--dist-init-addr", "10.0.0.1:5000"),
    ("--disable-cuda-graph",),
    ("--enable-torch-compile",),
    ("--enable-two-batch-overlap",),
    ("--enable-eplb",),
    ("--is-embedding",),
    ("--mem-fraction-static", "0.8"),
    ("--page-size", "64"),
    ("--load-format", "dummy"),
    ("--trust-remote-code",),
    ("--enable-multimodal",),
    ("--language-only",),
    ("--encoder-only",),
    ("--skip-server-warmup",),
    ("--enable-deterministic-inference",),
    ("--enable-mixed-chunk",),
    ("--enable-metrics",),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--python", required=True, help="the interpreter of an environment with the release")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpus", nargs="+", default=GPUS)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    models = {**preset_models(), **json.loads(MODELS.read_text(encoding="utf-8"))}
    cases = list(drawn(options.version, options.count, options.seed, options.gpus, models))
    counts: Counter[str] = Counter()
    with options.out.open("w", encoding="utf-8") as file:
        for gpu in options.gpus:
            mine = [case for case in cases if case["gpu"] == gpu]
            if not mine:
                continue
            facts = {**ASSUMED, **mine[0]["machine"]}
            asked = [{"machine": facts, "argv": case["argv"], "models": case["models"], "whole": True} for case in mine]
            for case, answer in zip(mine, ask_with_torch(options.python, facts, asked, 3000.0), strict=True):
                kind = "left out" if "refused" in answer else "accepted" if answer["ok"] else "refused"
                counts[kind] += 1
                if "refused" in answer:
                    print(f"{case['id']}: {answer['refused'][:200]}", file=sys.stderr)
                    continue
                public = {name: value for name, value in answer.get("values", {}).items() if name[:1] != "_"}
                short = {"error": answer["error"][:LONGEST]} if "error" in answer else {"values": public}
                file.write(json.dumps({**case, "expected": {**answer, **short}}) + "\n")
    print(f"{options.version}: {len(cases)} lines, {dict(counts)}")
    return 0


def preset_models() -> dict[str, Any]:
    """The config.json contents of the presets of conf/model, by the path that each serves."""
    found: dict[str, Any] = {}
    for file in sorted(Path(__file__).resolve().parents[1].glob("conf/model/*.yaml")):
        made = plan([f"model={file.stem}", "gpu=h200", "tp_size=8"])
        if made.model.known and "model_path" in made.intent:
            found |= case_of(made, "0.5.23").models
    return found


def drawn(
    version: str, count: int, seed: int, gpus: Sequence[str], models: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The cases of one seed, always the same."""
    dice = random.Random(f"{version} {seed}")
    arguments = [
        argument
        for argument in release(nearest_known(version) or version).arguments.values()
        if argument.flag is not None and argument.name not in LEFT_OUT
    ]
    machines = {
        gpu: dict(case_of(plan([f"gpu={gpu}", "model=qwen3_8b"]), version).machine) | {"seed": 42} for gpu in gpus
    }
    names = sorted(models)
    for number in range(count):
        gpu = dice.choice(list(gpus))
        words = ["--model-path", dice.choice(names), "--random-seed", "42", "--tp", dice.choice("1248")]
        for theme in dice.sample(THEMES, dice.choice((0, 0, 1, 1, 2))):
            words += theme
        for argument in dice.sample(arguments, dice.choice((0, 1, 1, 1, 2, 2, 3))):
            words += words_of(argument, dice, names)
        named = {word: models[word] for word in words if word in models}
        yield {
            "id": f"random-{version}-{seed}-{number}",
            "release": version,
            "gpu": gpu,
            "machine": machines[gpu],
            "argv": words,
            "models": named,
        }


def words_of(argument: Argument, dice: random.Random, models: Sequence[str]) -> list[str]:
    """One use of a flag, mostly a valid one."""
    flag = dice.choice(argument.flags)
    if argument.action in ("store_true", "store_false"):
        return [flag]
    if argument.action == "BooleanOptionalAction":
        return [flag if dice.random() < 0.6 else flag.replace("--", "--no-", 1)]
    if dice.random() < 0.04:
        return [flag, dice.choice(INVALID)]
    if argument.choices:
        return [flag, str(dice.choice(argument.choices))]
    if argument.name in TEXTS:
        return [flag, dice.choice(TEXTS[argument.name])]
    if "draft_model_path" in argument.name or argument.name == "tokenizer_path":
        return [flag, dice.choice(models)]
    many = argument.nargs in ("+", "*")
    pool: Sequence[str] = ("name", "2", "true")
    if "json" in str(argument.reader) or "dict" in argument.type:
        pool = ("{}", '{"a": 1}', "[]", "[1, 2]", '["a"]')
    elif "int" in argument.type:
        pool = NUMBERS
    elif "float" in argument.type:
        pool = FLOATS
    elif "bool" in argument.type:
        pool = ("true", "false")
    return [flag, *(dice.choice(pool) for _ in range(dice.choice((1, 2, 3)) if many else 1))]


if __name__ == "__main__":
    sys.exit(main())
