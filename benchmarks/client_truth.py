"""How true our load client is: against a compiled reference client, in turns, on a server with exact timing.

    python benchmarks/client_truth.py [--markdown]

Server, reference client and ours share this machine. Three rounds at 8, 64 and 256 streams, medians. The exit code is 1
where ours is further from the reference than LIMITS allow. Needs ``cc``, and two cores that nobody else uses: the load
of the machine is printed beside the figures, and how far the reference's own rounds lie apart.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sglang_hydra.compose.settings.bench import BenchNode  # noqa: E402
from sglang_hydra.measure.bench.client import LoadProcesses, run_load  # noqa: E402
from sglang_hydra.measure.bench.load import load_of  # noqa: E402
from sglang_hydra.measure.bench.measures import (  # noqa: E402
    measure,
    most_moved,
    moved_by_client,
)
from sglang_hydra.measure.bench.prompts import Prompt  # noqa: E402
from sglang_hydra.measure.bench.wires import Generate, Target  # noqa: E402

SOURCES = Path(__file__).with_name("client_truth_c")
TTFT_MS, TOKENS, ROUNDS, WAVES = 50, 128, 3, 4
POINTS = ((8, 10), (64, 10), (256, 25))
"""Streams, and milliseconds between tokens."""

LIMITS: Mapping[str, tuple[float, float]] = {
    "ttft_mean": (0.02, 2.0),
    "ttft_p99": (0.05, 5.0),
    "itl_mean": (0.02, 0.0),
    "requests_s": (0.01, 0.0),
}
"""So far from the reference ours may be: a share of it, or milliseconds if that is more."""

WORDS = {"ttft_mean": "TTFT mean ms", "ttft_p99": "TTFT p99 ms", "itl_mean": "ITL mean ms", "requests_s": "requests/s"}

Figures = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    if shutil.which("cc") is None:
        print("client_truth: cc is missing: apt-get install gcc")
        return 1
    with tempfile.TemporaryDirectory() as folder, LoadProcesses() as processes:
        programs = {name: _compiled(name, Path(folder)) for name in ("exact_server", "reference_client")}
        before = os.getloadavg()
        rows = [_point(programs, streams, itl, processes) for streams, itl in POINTS]
    table = [row for rows_of_point in rows for row in rows_of_point]
    line = "| {} |" if arguments == ["--markdown"] else "{}"
    join = " | " if arguments == ["--markdown"] else "  "
    heads = ("streams", "ITL ms", "measure", "reference", "ours", "off", "reference's rounds apart")
    for cells in [heads, *([("---",) * len(heads)] if join == " | " else []), *(row[:-1] for row in table)]:
        print(line.format(join.join(f"{cell:>12}" if join == "  " else cell for cell in cells)))
    print(f"load of the machine (1, 5, 15 minutes): {before} before, {os.getloadavg()} after")
    failed = [row for row in table if not row[-1]]
    print(f"{len(table) - len(failed)} of {len(table)} within the limits")
    return int(bool(failed))


def _compiled(name: str, folder: Path) -> str:
    subprocess.run(["cc", "-O2", "-o", str(folder / name), str(SOURCES / f"{name}.c")], check=True)
    return str(folder / name)


def _point(
    programs: Mapping[str, str], streams: int, itl: int, processes: LoadProcesses
) -> list[tuple[str, str, str, str, str, str, str, bool]]:
    words = [programs["exact_server"], str(TTFT_MS), str(itl), str(TOKENS)]
    requests = streams * WAVES
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        try:
            ask = [programs["reference_client"], port, str(streams), str(requests), str(TOKENS)]
            pairs = [(_reference(ask), _ours(port, streams, requests, processes)) for _ in range(ROUNDS)]
        finally:
            server.kill()
    found = []
    for name, (share, least) in LIMITS.items():
        reference, ours = (median(pair[which][name] for pair in pairs) for which in (0, 1))
        apart = max(pair[0][name] for pair in pairs) - min(pair[0][name] for pair in pairs)
        good = abs(ours - reference) <= max(share * reference, least)
        cells = (str(streams), str(itl), WORDS[name], f"{reference:.2f}", f"{ours:.2f}", f"{ours / reference - 1:+.1%}")
        found.append((*cells, f"{apart:.2f}", good))
    return found


def _reference(command: Sequence[str]) -> Figures:
    figures: Figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def _ours(port: str, streams: int, requests: int, processes: LoadProcesses) -> Figures:
    load = load_of(asdict(BenchNode(output_len=TOKENS, concurrency=streams, num_prompts=requests)))
    target = Target(f"http://127.0.0.1:{port}", "exact", Generate())
    prompt = Prompt(TOKENS, tuple(range(300, 556)), None, 256)
    run = run_load(target, load, lambda count: [prompt] * count, 1, processes=processes)
    found = measure(run.samples)
    assert found["failed"] == 0, next(one.error for one in run.samples if one.error)
    most = most_moved(moved_by_client(run.samples))
    print(f"  ours at {streams}: own delay at most {most[2] if most else 0:.2%}, {run.client_cpu:.0%} of a core")
    return {
        "ttft_mean": found["ttft_ms"]["mean"],
        "ttft_p99": found["ttft_ms"]["p99"],
        "itl_mean": found["itl_ms"]["mean"],
        "requests_s": found["request_throughput"],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
