"""What one ``resolve`` costs a program that starts for it: the whole process, import and all.

    python benchmarks/import_time.py [--runs 15]

The target is 150 ms on two cores, without Hydra among the imported modules. Nothing fails when it is missed.
"""

from __future__ import annotations

import argparse
import sys

from processes import interleaved

RESOLVE = """
from sglang_hydra import GpuFacts, ModelFacts, resolve

gpu = GpuFacts(name="h200", vendor="nvidia", device="cuda", memory_mib=143771, compute_capability=(9, 0), count=8)
model = ModelFacts({"architectures": ["LlamaForCausalLM"]})
resolution = resolve({"model_path": "meta-llama/Llama-3.1-8B-Instruct"}, gpu=gpu, model=model, seed=42)
assert resolution.ok, resolution.findings

import sys

heavy = [name for name in ("hydra", "omegaconf", "torch", "transformers", "pandas", "rich") if name in sys.modules]
assert not heavy, heavy
"""
TARGET_MS = 150


def main() -> None:
    parser = argparse.ArgumentParser(description="Times a process that imports resolve and calls it once.")
    parser.add_argument("--runs", type=int, default=15, help="runs of each, after one that does not count")
    options = parser.parse_args()
    commands = {"python": [sys.executable, "-c", "pass"], "resolve": [sys.executable, "-c", RESOLVE]}
    costs = interleaved(commands, options.runs)
    for name, cost in costs.items():
        print(f"  {name:8} {cost.seconds * 1000:4.0f} ms {cost.mib:5.1f} MiB")
    ratio = costs["resolve"].seconds / costs["python"].seconds
    print(f"  from sglang_hydra import resolve, and one resolve: {ratio:.1f} x python alone (target {TARGET_MS} ms)")


if __name__ == "__main__":
    main()
