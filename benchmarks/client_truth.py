"""How true our load client is: against a compiled reference client, in turns, on a server with exact timing.

    python benchmarks/client_truth.py [--busy]

Server, reference client and ours share this machine. Three rounds at 8, 64 and 256 streams, medians of the valid ones.
The exit code is 1 where ours is further from the reference than LIMITS allow. With --busy another process computes on
one core all along: then ours is compared with the server's own timing, within BUSY_LIMITS, and a round that our client
calls not valid does not count. Needs ``cc``, and two cores that nobody else uses: the load of the machine is printed
beside the figures, and how far the reference's own rounds lie apart.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sglang_hydra.compose.settings.bench import BenchNode  # noqa: E402
from sglang_hydra.measure.bench.client import LoadProcesses, run_load  # noqa: E402
from sglang_hydra.measure.bench.load import load_of  # noqa: E402
from sglang_hydra.measure.bench.measures import (  # noqa: E402
    measure,
    moved_by_client,
    moved_by_server_waits,
)
from sglang_hydra.measure.bench.prompts import Prompt  # noqa: E402
from sglang_hydra.measure.bench.validity import Seen, invalid_reasons  # noqa: E402
from sglang_hydra.measure.bench.wires import Generate, Target  # noqa: E402

SOURCES = Path(__file__).with_name("client_truth_c")
TTFT_MS, TOKENS, ROUNDS, WAVES = 50, 128, 3, 4
POINTS = ((8, 10), (64, 10), (256, 25))
"""Streams, and milliseconds between tokens."""

Limits = Mapping[str, tuple[float, float]]
"""So far from the truth a figure may be: a share of it, or milliseconds if that is more."""

LIMITS: Limits = {"ttft_mean": (0.02, 2.0), "ttft_p99": (0.05, 5.0), "itl_mean": (0.02, 0.0), "requests_s": (0.01, 0.0)}
BUSY_LIMITS: Limits = {"ttft_mean": (0.02, 0.0), "ttft_p99": (0.05, 0.0), "itl_mean": (0.02, 0.0)}
WORDS = {"ttft_mean": "TTFT mean ms", "ttft_p99": "TTFT p99 ms", "itl_mean": "ITL mean ms", "requests_s": "requests/s"}

Figures = dict[str, float]


class Row(NamedTuple):
    streams: int
    itl_ms: int
    measure: str
    truth: str
    ours: str
    off: str
    apart: str
    good: bool


def main(arguments: Sequence[str]) -> int:
    if shutil.which("cc") is None:
        print("client_truth: cc is missing: apt-get install gcc")
        return 1
    is_busy = "--busy" in arguments
    with ExitStack() as stack:
        folder, processes = stack.enter_context(tempfile.TemporaryDirectory()), stack.enter_context(LoadProcesses())
        programs = {name: _compiled(name, Path(folder)) for name in ("exact_server", "reference_client")}
        before = os.getloadavg()
        if is_busy:
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        rows = [row for streams, itl in POINTS for row in _point(programs, streams, itl, processes, is_busy)]
    truth = "server's" if is_busy else "reference"
    for cells in [("streams", "ITL ms", "measure", truth, "ours", "off", "reference's rounds apart"), *rows]:
        print("  ".join(f"{cell:>12}" for cell in cells[:7]))
    print(f"load of the machine (1, 5, 15 minutes): {before} before, {os.getloadavg()} after")
    failed = [row for row in rows if not row.good]
    print(f"{len(rows) - len(failed)} of {len(rows)} within the limits{' or not valid' if is_busy else ''}")
    return int(bool(failed))


def _compiled(name: str, folder: Path) -> str:
    subprocess.run(["cc", "-O2", "-o", str(folder / name), str(SOURCES / f"{name}.c")], check=True)
    return str(folder / name)


def _point(programs: Mapping[str, str], streams: int, itl: int, processes: LoadProcesses, is_busy: bool) -> list[Row]:
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
    exact = {"ttft_mean": TTFT_MS, "ttft_p99": TTFT_MS, "itl_mean": itl}
    found = []
    for name, (share, least) in (BUSY_LIMITS if is_busy else LIMITS).items():
        reference = [one[name] for one, _ in pairs]
        truth = exact[name] if is_busy else median(reference)
        valid = [figures[name] for _, (figures, is_valid) in pairs if is_valid or not is_busy]
        ours = median(valid) if valid else None
        good = all(abs(one - truth) <= max(share * truth, least) for one in (valid if is_busy else [median(valid)]))
        shown = ("not valid", "") if ours is None else (f"{ours:.2f}", f"{ours / truth - 1:+.1%}")
        apart = f"{max(reference) - min(reference):.2f}"
        found.append(Row(streams, itl, WORDS[name], f"{truth:.2f}", *shown, apart, good))
    return found


def _reference(command: Sequence[str]) -> Figures:
    figures: Figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def _ours(port: str, streams: int, requests: int, processes: LoadProcesses) -> tuple[Figures, bool]:
    """Returns the figures of a round, and whether a point of them would be valid."""
    load = load_of(asdict(BenchNode(output_len=TOKENS, concurrency=streams, num_prompts=requests)))
    target = Target(f"http://127.0.0.1:{port}", "exact", Generate())
    prompt = Prompt(TOKENS, tuple(range(300, 556)), None, 256)
    run = run_load(target, load, lambda count: [prompt] * count, 1, processes=processes)
    found = measure(run.samples)
    assert found["failed"] == 0, next(one.error for one in run.samples if one.error)
    client, server = moved_by_client(run.samples), moved_by_server_waits(run.samples)
    reasons = invalid_reasons(Seen(load, run.samples, moved=client, server_moved=server))
    ttft, itl = found["ttft_ms"], found["itl_ms"]
    seen = f"TTFT {ttft['mean']:.2f}, p99 {ttft['p99']:.2f}, ITL {itl['mean']:.2f}"
    print(f"  ours at {streams}: {run.client_cpu:.0%} of a core, {seen}: {'; '.join(reasons) or 'valid'}")
    return {
        "ttft_mean": ttft["mean"],
        "ttft_p99": ttft["p99"],
        "itl_mean": itl["mean"],
        "requests_s": found["request_throughput"],
    }, not reasons


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
