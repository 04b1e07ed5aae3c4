"""How many configurations ``resolve`` finishes in a second, ledger and all.

    python benchmarks/resolve_rate.py [FILE] [--seconds 3]

Runs the recorded constructor cases over and over in one process; reading and decoding them is not timed. The target
is 3,000 a second on two cores. Nothing fails when it is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import conformance  # noqa: E402

from sglang_hydra import ModelFacts, resolve  # noqa: E402

CASES = REPOSITORY / "tests" / "data" / "conformance" / "public.jsonl.gz"
TARGET = 3000


def main() -> None:
    parser = argparse.ArgumentParser(description="Resolves the recorded constructor cases over and over.")
    parser.add_argument("file", nargs="?", type=Path, default=CASES)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure")
    options = parser.parse_args()
    cases = [record["case"] for record in conformance.read_cases(options.file)]
    work = [
        (conformance.decode(case["args"]), conformance._gpu_facts(case["hardware"]), ModelFacts(case["hf_config"]))
        for case in cases
        if "args" in case and "available" not in case
    ]
    rates: list[float] = []
    entries = 0
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(rates) < 2:
        begin = time.perf_counter()
        entries = sum(
            len(resolve(intent, gpu=gpu, model=model, seed=conformance.SEED).ledger) for intent, gpu, model in work
        )
        rates.append(len(work) / (time.perf_counter() - begin))
    # The first round pays for what is built once.
    print(
        f"  {options.file.name}: {len(work)} cases, {entries / len(work):.1f} ledger entries each, "
        f"{len(rates)} rounds: median {median(rates[1:]):,.0f}, best {max(rates):,.0f} a second (target {TARGET:,})"
    )


if __name__ == "__main__":
    main()
