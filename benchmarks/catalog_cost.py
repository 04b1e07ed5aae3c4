"""What it costs to look at the catalog: the whole audit, and each recipe planned as it is typed, in one process.

Prints figures and fails on none of them. Targets on two cores: the audit 20 seconds, a recipe 5 ms after the first.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.recipes import recipes
from sglang_hydra.planning.choosing.audit import judge_cells, judge_recipes
from sglang_hydra.planning.making.make import make_plan


def main() -> None:
    composer = Composer()
    planned = {}
    gc.disable()  # as timeit does: a full collection takes ten plans' time, in whichever plan it falls
    for id in recipes():
        start = time.perf_counter()
        make_plan(composer, [Request(f"recipe={id}", "benchmark")], seed=42, env={})
        planned[id] = time.perf_counter() - start
    gc.enable()
    first, *rest = planned.values()
    worst = max(list(planned)[1:], key=planned.__getitem__)
    print(
        f"recipe, planned as typed: first {first * 1e3:.0f} ms, then median {statistics.median(rest) * 1e3:.2f} ms, "
        f"worst {planned[worst] * 1e3:.2f} ms ({worst}), {sum(seconds > 0.005 for seconds in rest)} above 5 ms"
    )
    start = time.perf_counter()
    cells = len(list(judge_cells(composer)))
    published = len(list(judge_recipes(composer)))
    print(f"audit: {cells} cells and {published} recipes in {time.perf_counter() - start:.2f} s (target 20 s)")
    judged = []
    for recipe in recipes().values():
        start = time.perf_counter()
        next(judge_recipes(composer, [recipe]))
        judged.append(time.perf_counter() - start)
    print(
        f"recipe, judged: median {statistics.median(judged) * 1e3:.2f} ms, "
        f"worst {max(judged) * 1e3:.2f} ms (target 5 ms)"
    )


if __name__ == "__main__":
    main()
