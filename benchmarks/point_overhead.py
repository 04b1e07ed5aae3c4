"""What a sweep adds to each client point: the time between points less the load itself and the wait for a cold cache.

    python benchmarks/point_overhead.py

On a fake server, whose start is not counted. Limit: 100 ms a point.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sglang_hydra.measure.sweep.runner import run
from tests.measure.sweep.place import Place, make_fake_python, place_in

LIMIT_MS = 100
CONCURRENCY = range(1, 41)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, place_in(Path(folder), make_fake_python(Path(folder))) as place:
        overheads = measured(place)
    middle, mean = statistics.median(overheads), statistics.mean(overheads)
    print(f"own overhead per client point, {len(overheads)} points in a sweep of {len(CONCURRENCY)}:")
    print(f"  median {middle:.1f} ms, mean {mean:.1f} ms, most {max(overheads):.1f} ms (limit {LIMIT_MS} ms)")
    return 0 if mean < LIMIT_MS else 1


def measured(place: Place) -> list[float]:
    """Milliseconds between the ends of two points, less the load and the waiting, for each point but the first."""
    os.environ.update(place.env)
    words = ",".join(map(str, CONCURRENCY))
    with contextlib.redirect_stderr(io.StringIO()):
        assert run(place.plan(f"bench.concurrency={words}", "bench.num_prompts=40", "bench.warmup=0")) == 0
    records = sorted(place.results().values(), key=lambda record: str(record["ended"]))
    ends = [datetime.fromisoformat(record["ended"]).timestamp() for record in records]
    spent = [record["client"]["wall_s"] + record["waited_s"] for record in records]
    return [(ends[n] - ends[n - 1] - spent[n]) * 1000 for n in range(1, len(records))]


if __name__ == "__main__":
    sys.exit(main())
