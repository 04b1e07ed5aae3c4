"""The page docs/forecast.md: what the forecast is bad at, its formula, its coefficients, predicted against measured.

Written by tools/fit_forecast.py, from the coefficients and from the errors of rows that were held out. By itself it
writes again, or with ``--check`` compares, all but what only that tool can measure:

    python tools/forecast_page.py [--check]
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from generated import write_or_check

from sglang_hydra.fit.forecast import coefficients
from sglang_hydra.fit.forecast_terms import TERMS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "forecast.md"

_INTRO = """# The forecast

How fast will a plan be? `explain forecast` gives TPOT, TTFT, output tokens/s and requests/s for a plan and a load.
Each has the interval that holds 80 % of measurements. It also shows which parts take the time and which change would
help most:

```bash
sglang-hydra explain forecast gpu=h200 model=gpt_oss bench.concurrency=64
sglang-hydra plan --load gpu=b200 model=deepseek_r1 tp_size=8 bench.concurrency=64 bench.input_len=8192
sglang-hydra suggest model=deepseek_v3 gpu=h200,b200 context=9k concurrency=128 goal=cost \\
  forecast.price.h200=3.5 forecast.price.b200=5.5
```

`suggest` ranks by the forecast. `fit -m` shows it as two columns, a plan's JSON holds it, and a sweep's report shows it
beside the measured numbers. The forecast needs no GPU. After the plan, it takes a fraction of a millisecond.

## Where it is weak

- **The first token.** The TTFT of published runs includes the first wave of requests on a cold server, and kernels that
  are compiled in between. A forecast of TTFT is a guess within a factor of two. If cache hits are unknown, there is no
  forecast of TTFT.
- **Faults of a release.** On B300, DeepSeek-R1's prompts took seven times as long under 0.5.10.post1 as on B200. Such
  rows are in the table, and no interval holds them.
- **Cases that were never measured**: GPUs of vendors other than NVIDIA (the interval is wider by half; MI300X and
  MI325X get a factor of 1.7, because a first forecast was half of the time measured on MI300X), prompts beyond 8,192
  tokens, exchanges between nodes, steps without CUDA graphs, all-to-all backends, prefill elsewhere, LoRA, grammars.
  The forecast names such a case and has a wider interval. For an all-to-all backend, only the bytes are counted.
  `suggest` offers DeepEP only if the expected gain is larger than the error that DeepEP adds.
- **GPU classes without a bandwidth** (`cpu`, `ascend_910b`) have no forecast. Set `gpu.memory_bandwidth_gbps`.
- **Speculation.** The source does not mark speculation. Of two series with the same words, the faster one counts as
  speculation. Acceptance is that of random tokens, unless `forecast.accept_length` sets it.
- **Uneven experts.** The forecast assumes that tokens choose all experts equally often.
- **DP attention of SGLang**: the measured rows with DP attention are from other engines.

## Formula

```text
step   = sum of coefficient x term of a decode step
prompt = sum of coefficient x term of a prompt
TPOT   = step x speculation + mixed x B / output_len x prompt
TTFT   = fixed + open x B + steps x step + prompts x prompt + waiting for other prompts + for room in the KV cache
tokens = B x output_len / (TTFT + (output_len - 1) x TPOT)
```

B requests run at a time: the number of clients, or the number that the KV cache holds. The others wait. While the
server makes one answer, B prompts arrive, and each prompt delays all requests. Clients that begin together stay
together for some rounds; with `bench.range_ratio=1` they stay together for the whole run. In such a wave, a request
meets only half of the prompts while it decodes. It waits for the other half before its first token. The formula is in
`sglang_hydra/fit/forecast.py`, the terms in `forecast_terms.py`. Memory and arithmetic are those of the [hardware's
limit](roofline.md).

## Your own measurements

`forecast.results=[multirun/SWEEP]` corrects the forecast with the valid points of sweeps of the same model on the same
GPU class. It fits two factors, on a step and on prompts, with a ridge towards 1, and one factor on TTFT. The interval
is then the remaining error, at least 10 % for other loads of a measured layout and 20 % for other layouts. In your
settings, `results: [FOLDER]` does the same for each command, and `price: {h200: 3.5}` is the price of a GPU hour
([settings](security.md#settings)).

The example shows a forecast before and after five points, on a machine without a GPU. Type the bandwidth of its memory.
One thread for the server leaves the other core to the client. Run nothing else on the machine: otherwise the points are
invalid and correct nothing, and `explain forecast` says so.

```bash
sglang-hydra bench -m model=tiny gpu.memory_bandwidth_gbps=20 engine.env.OMP_NUM_THREADS=1 bench.input_len=256 \\
  bench.output_len=64 bench.num_prompts=32 bench.concurrency=1,2,4,6,8 sweep.folder=multirun/tiny
sglang-hydra explain forecast model=tiny gpu.memory_bandwidth_gbps=20 bench.input_len=256 bench.output_len=64 \\
  bench.num_prompts=32 bench.concurrency=3
sglang-hydra explain forecast model=tiny gpu.memory_bandwidth_gbps=20 bench.input_len=256 bench.output_len=64 \\
  bench.num_prompts=32 bench.concurrency=3 "forecast.results=[multirun/tiny]"
```

Two cores gave this on 2026-11-24 for a sixth load (3 concurrent requests), which is not among the five points:

| | TPOT | output tokens/s |
| --- | --- | --- |
| forecast before | 0.997 ms (0.47 to 2.3) | 675 (290 to 1,400) |
| forecast after | 5.11 ms (4.4 to 5.9) | 240 (210 to 280) |
| measured | 4.8 ms | 196 |

This is the last of three such runs (the first with 16 prompts). The machine was busy, and without `chrt -r 1` the
points were invalid. The sixth loads were 20, 10 and 6 % off. Between runs, points of one load differed by as much. The
embedded engine works on one request after the other. No term of the forecast knows this, so the throughput is outside
the interval.

## Beside another forecaster

`python benchmarks/forecast_against_peer.py` asks aiconfigurator-core 0.12.0 for the same rows of SGLang. It has kernel
tables of these very models. Ours is fitted without the family of each row. For 498 rows, both answer (2026-11-24):

| | TPOT median | TPOT mean | TTFT median | pairs of layouts in the right order | regret |
| --- | --- | --- | --- | --- | --- |
| ours, families held out | 10.4 % | 13.2 % | 29.2 % | 81.5 % of 259 | 4.7 % |
| aiconfigurator 0.12.0 | 21.2 % | 27.4 % | 50.1 % | 80.7 % of 259 | 5.9 % |

"""


def page(record: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """The whole page."""
    return _INTRO + "\n".join([*_errors(report), *_coefficients(record), *_source(record), *_runs(report)]) + "\n"


def stated(old: str, record: Mapping[str, Any]) -> str:
    """The page with what the record says, and of the ``old`` one what a fit measured."""
    _, errors, rest = _divided(old, "## Predicted against measured\n")
    measured, _, rest = _divided(rest, "## Coefficients\n")
    _, heading, runs = _divided(rest, "## By model, GPU and release\n")
    told = "\n".join([*_coefficients(record), *_source(record)])
    return f"{_INTRO}{errors}{measured}{told}\n\n{heading}{runs}"


def _divided(text: str, heading: str) -> tuple[str, str, str]:
    before, found, after = text.partition(heading)
    if not found:
        sys.exit(f"{PAGE.name} has no {heading.strip()!r}: python tools/fit_forecast.py")
    return before, found, after


def _errors(report: Mapping[str, Any]) -> Iterator[str]:
    yield "## Predicted against measured\n"
    yield (
        "These rows of SGLang were held out of the fit: first each family of models, out of all engines' rows, then\n"
        "each GPU class, then each eighth of the layouts. Errors are of TPOT. Bias is the median of\n"
        "predicted / measured.\n"
    )
    yield "| held out | rows | median | mean | bias |\n| --- | --- | --- | --- | --- |"
    for name, found in report.items():
        if isinstance(found, Mapping) and "mape_percent" in found:
            yield _row(name, found)
    for title in ("by family", "by GPU"):
        for name, found in report[title].items():
            yield _row(f"{title.partition(' ')[2]} {name}", found)
    ranking = report["ranking, families held out"]
    yield (
        "\n"
        + _filled(
            f"The forecast orders {ranking['right_percent']} % of {ranking['pairs']} pairs of layouts of one model"
            f" under one load correctly. The layout with the best forecast is {ranking['regret_percent']} % slower than"
            f" the best one in the mean. Intervals from the other families hold {report['inside 80 %, families']} % of"
            f" a family's rows, those from the other GPU classes {report['inside 80 %, GPUs']} %."
        )
        + "\n"
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, 119, break_long_words=False, break_on_hyphens=False)


def _row(name: str, found: Mapping[str, Any]) -> str:
    return f"| {name} | {found['rows']} | {found['median_percent']} % | {found['mape_percent']} % | {found['bias']} |"


def _coefficients(record: Mapping[str, Any]) -> Iterator[str]:
    yield "## Coefficients\n"
    yield "| term | coefficient | unit | what it is |\n| --- | --- | --- | --- |"
    for name, value in record["coefficients"].items():
        yield f"| {name} | {value:g} | {TERMS[name].unit} | {TERMS[name].what} |"
    yield "\nFactors on groups of terms, by engine, GPU class and release (`old`: SGLang before 0.5.8):\n"
    columns = list(dict.fromkeys(group for groups in record["factors"].values() for group in groups))
    yield f"| of | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}"
    for owner, groups in record["factors"].items():
        factors = (f"{groups[column]:g}" if column in groups else "" for column in columns)
        yield f"| {owner} | {' | '.join(factors)} |"
    yield "\nNumbers of the time to the first token:\n"
    yield "| what | value |\n| --- | --- |"
    yield from (f"| {name} | {value:g} |" for name, value in record["ttft"].items())
    yield (
        "\n"
        + _filled(
            f"A share of {record['accepted']:g} of the drafted tokens is accepted. These numbers are assumed and not"
            " fitted: 25 GB/s for a link that no preset states, 30 µs more for each exchange between nodes, 40 µs more"
            " a layer without CUDA graphs, 10 % more for a step that makes drafts, 3 bytes to an expert and back for"
            " each number of a token (all-to-all). The links between nodes and their sources are in"
            " `sglang_hydra/fit/forecast_networks.json`."
        )
        + "\n"
    )


def _source(record: Mapping[str, Any]) -> Iterator[str]:
    rows = ", ".join(f"{number:,} of {engine}" for engine, number in record["measured"]["rows"].items())
    yield "## The table\n"
    yield (
        _filled(
            f"`sglang_hydra/fit/forecast_measured.jsonl.gz` ({rows}) holds published measurements."
            " `tools/forecast_measurements.py` took these facts from `silicon_sample.csv` of aiconfigurator-core 0.12.0"
            " (NVIDIA, Apache-2.0), and lists its corrections and omissions. `python tools/fit_forecast.py` makes the"
            " coefficients and this page again. `python tools/forecast_table.py FILE.jsonl` measures the forecast's"
            " error on rows of your own."
        )
    )


def _runs(report: Mapping[str, Any]) -> Iterator[str]:
    """What was predicted and measured of each model, GPU class, engine and release."""
    yield (
        "\n## By model, GPU and release\n\n"
        + _filled(
            "The median error of TPOT for SGLang: with the shipped coefficients, and with a fit without the family of"
            " models. The rows of other engines are in the measurements above."
        )
        + "\n"
    )
    yield "| model | GPU | release | rows | TPOT measured, ms | error | error, family held out |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for model, gpu, engine, release, rows, low, high, error, unseen in report["runs"]:
        if engine == "sglang":
            yield f"| {model} | {gpu} | {release} | {rows} | {low:.1f} to {high:.1f} | {error} % | {unseen} % |"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, stated(PAGE.read_text(encoding="utf-8"), coefficients()), sys.argv[1:]))
