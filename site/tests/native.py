"""Plans every recipe and random inputs with this Python, for the tests that compare Pyodide with it.

    python site/tests/native.py build/native.json

No SGLang release is asked and no hub: a browser has neither.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from pathlib import Path

os.environ["SGLANG_HYDRA_SETTINGS"] = ""  # a browser has none of the settings of whoever runs this

ROOT = Path(__file__).resolve().parents[2]
SEED, NUMBER = 20260, 200
CACHE = "/home/pyodide/.cache/sglang_hydra"
"""Where Pyodide looks: the path of model=tiny is part of a plan. Nothing is written there."""
OTHERS = (
    ("tp_size", ("1", "2", "4", "8", "3")),
    ("dp_size", ("2", "4")),
    ("ep_size", ("2", "8")),
    ("enable_dp_attention", ("true",)),
    ("kv_cache_dtype", ("fp8_e5m2", "fp8_e4m3", "fp4")),
    ("context_length", ("8192", "1000000", "-1")),
    ("mem_fraction_static", ("0.5", "0.95", "1.5")),
    ("attention_backend", ("triton", "fa3", "flashinfer", "nonsense")),
    ("quantization", ("fp8", "awq", "w8a8_int8")),
    ("chunked_prefill_size", ("2048", "-1")),
    ("speculative_algorithm", ("EAGLE", "NEXTN")),
    ("disable_cuda_graph", ("true",)),
    ("nnodes", ("2",)),
    ("pp_size", ("2",)),
    ("bench.concurrency", ("8",)),
    ("tp_siez", ("8",)),
)


def questions() -> list[list[str]]:
    """The overrides of every recipe, then random ones; the seed of each is fixed."""
    from sglang_hydra.arguments.tables.table import known_versions
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.compose.recipes import recipes
    from sglang_hydra.planning.choosing.catalog import gpu_classes, models

    chance, composer = random.Random(SEED), Composer()
    gpus = [gpu.name for gpu in gpu_classes(composer)]
    names = [model.name for model in models(composer)]
    asked = [[f"recipe={id}"] for id in recipes()]
    for _ in range(NUMBER):
        words = [f"gpu={chance.choice(gpus)}", f"model={chance.choice(names)}"]
        words += [f"{key}={chance.choice(values)}" for key, values in chance.sample(OTHERS, chance.randrange(5))]
        if chance.random() < 0.2:
            words.append(f"engine.version={chance.choice(known_versions())}")
        asked.append(words)
    return [[*words, "random_seed=7"] for words in asked]


def main() -> None:
    from sglang_hydra.cli.answers import answer

    target = Path(sys.argv[1]).resolve()
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HF_HUB_OFFLINE="1", SGLANG_HYDRA_OFFLINE="1", HOME=folder)
        os.environ["SGLANG_HYDRA_CACHE"] = CACHE
        os.chdir(folder)
        for words in questions():
            question = {"ask": "plan", "words": words}
            cases.append({"question": question, "answer": answer(json.dumps(question))})
        os.chdir(target.parent)
    target.write_text(json.dumps(cases), encoding="utf-8")
    made = sum('"plan": null' not in case["answer"] for case in cases)
    print(f"{len(cases)} plans, {made} of them made")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
