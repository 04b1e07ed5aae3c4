"""What planning, comparing and upgrading cost, against a Hydra app that does nothing.

    python benchmarks/plan_vs_empty_app.py [--runs 15] [OVERRIDE ...]

Whole processes, in turns, medians. The targets are ratios, because seconds depend on the machine: at most 1.2 times
the empty app when piped, 1.4 on a terminal (rich draws there), and 48 MiB; for diff, upgrade, suggest and check
of a script at most 3 times, piped. An answer of a release that was never asked for is not in these times: its own code
gives it once (release_plan_cost.py).
Nothing fails when one is missed.
"""

from __future__ import annotations

import argparse
import sys

from processes import EMPTY_APP, REPOSITORY, interleaved, workplace

OVERRIDES = ["gpu=h200", "model=deepseek_v3", "tp_size=8"]
TARGETS = {"piped": 1.2, "terminal": 1.4}
TARGET_MIB = 48
TARGET_OTHERS = 3.0
OTHER_GPU = "gpu=h100"
RELEASE = "0.5.23"
SCRIPT = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Times `serve.py plan` against an empty Hydra app.")
    parser.add_argument("--runs", type=int, default=15, help="runs of each, after one that does not count")
    parser.add_argument("overrides", nargs="*", default=OVERRIDES, metavar="OVERRIDE")
    options = parser.parse_args()
    commands = {
        "empty app": [sys.executable, "-c", EMPTY_APP],
        "plan": [sys.executable, str(REPOSITORY / "serve.py"), "plan", *options.overrides],
    }
    print(f"python serve.py plan {' '.join(options.overrides)}   median of {options.runs}")
    for output, target in TARGETS.items():
        costs = interleaved(commands, options.runs, terminal=output == "terminal")
        plan, empty = costs["plan"], costs["empty app"]
        print(
            f"  {output:9} empty app {empty.seconds * 1000:4.0f} ms {empty.mib:5.1f} MiB   "
            f"plan {plan.seconds * 1000:4.0f} ms {plan.mib:5.1f} MiB   "
            f"ratio {plan.seconds / empty.seconds:.2f} (target {target}), memory target {TARGET_MIB} MiB"
        )
    _compare_and_upgrade(options.overrides, options.runs, commands["empty app"])


def _compare_and_upgrade(overrides: list[str], runs: int, empty_app: list[str]) -> None:
    """The verbs that look at a plan twice: against another GPU, against another release."""
    serve = [sys.executable, str(REPOSITORY / "serve.py")]
    other = [OTHER_GPU if word.startswith("gpu=") else word for word in overrides]
    verbs = {
        "diff": [*serve, "diff", " ".join(overrides), " ".join(other)],
        "upgrade": [*serve, "upgrade", "--to", RELEASE, *overrides],
        "suggest": [*serve, "suggest", *overrides[:2], "context=9k", "concurrency=64"],
    }
    with workplace() as folder:
        script = folder / "run.sh"
        script.write_text(SCRIPT)
        verbs["check"] = [*serve, "check", str(script), *overrides[:1]]
        costs = interleaved({"empty app": empty_app, **verbs}, runs)
    empty = costs["empty app"]
    for verb, command in verbs.items():
        cost = costs[verb]
        print(f"python serve.py {' '.join(command[2:])}")
        print(
            f"  piped     empty app {empty.seconds * 1000:4.0f} ms   {verb} {cost.seconds * 1000:4.0f} ms "
            f"{cost.mib:5.1f} MiB   ratio {cost.seconds / empty.seconds:.2f} (target {TARGET_OTHERS})"
        )


if __name__ == "__main__":
    main()
