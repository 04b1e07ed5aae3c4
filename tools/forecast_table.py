"""Forecasts measured servers and says how wrong it was.

    python tools/forecast_table.py FILE.jsonl [--rows]

Each line is one measurement: {"words": ["gpu=h200", "model=deepseek_r1", "tp_size=8"], "engine": "sglang",
"input_len": 922, "output_len": 922, "concurrency": 64, "tpot_ms": 12.3, "ttft_ms": 400.1}; lengths are means. It may
say more: "release" of the engine, "spread" of the lengths (their range by their mean: 0 where all are alike), "rounds"
(requests of each client; null: they arrive by chance); a time that nobody measured is null. Words that no plan takes
are mended or left out, with the reason, where the others say what the server is. The last line is JSON: rows,
unanswered, errors in percent and the share of rows inside the interval of 80 %. ``--rows`` prints each row before it. 2
where the file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from sglang_hydra import ConfigError, plan
from sglang_hydra.architecture.known import Missing
from sglang_hydra.architecture.published_checkpoints import CHECKPOINTS
from sglang_hydra.fit.forecast import Demand, Forecast, forecast
from sglang_hydra.fit.forecast_server import ForecastServer
from sglang_hydra.planning.choosing.forecast import server_of_plan

_NEEDED = ("gpu", "model", "model_path", "tp_size", "dp_size", "ep_size", "pp_size", "nnodes", "enable_dp_attention")
_NEEDED += ("attn_dp_size", "quantization", "kv_cache_dtype")
_LEAST = ("gpu", "model", "tp_size")
_TRIES = 6
_PRESETS = Path(__file__).resolve().parents[1] / "conf" / "model"
_MODEL_PATH = re.compile(r"^model_path: ([\w./-]+)", re.M)


class Row(NamedTuple):
    """A measurement and the server that it is about."""

    record: Mapping[str, Any]
    server: ForecastServer


def rows_of(records: Iterable[Mapping[str, Any]]) -> tuple[list[Row], list[str]]:
    """The rows, and of those that no plan explains why."""
    servers: dict[tuple[str, ...], ForecastServer | str] = {}
    rows, unanswered = [], []
    for record in records:
        words = tuple(record["words"])
        if words not in servers:
            servers[words] = _server(words)
        server = servers[words]
        if isinstance(server, str):
            unanswered.append(f"{' '.join(words)}: {server}")
            continue
        release = record.get("release") or server.release
        engine = str(record.get("engine") or "sglang").lower()
        rows.append(Row(record, server._replace(engine=engine, release=str(release))))
    return rows, unanswered


def _server(words: Sequence[str]) -> ForecastServer | str:
    """The server of a plan with these words, or of those that can be planned: each that is refused is replaced by what
    it should have been, or left out; a checkpoint of unknown shape is taken as one that its name begins with. A text
    says why none of these can be planned."""
    first, taken = "", list(words)
    for attempt in range(_TRIES):
        try:
            found = server_of_plan(plan(taken))
        except Missing as failure:
            typed = " ".join(f"{name}=NUMBER" for name in failure.names if name.startswith("gpu."))
            first = first or f"unknown: {', '.join(failure.names)}" + (f"; add {typed} to its words" if typed else "")
            fewer = _with_known_checkpoint(taken)
        except ConfigError as failure:
            first = first or failure.findings[0].message
            fewer = _without_refused(taken, failure)
        else:
            if first:
                print(f"{' '.join(words)}: taken as {' '.join(taken)}: {first}", file=sys.stderr)
            return found
        if fewer == taken:  # nothing named: those that say its size
            fewer = [word for word in taken if _name(word) in (_NEEDED, _LEAST)[attempt > 1] or "gpu." in word]
        if fewer == taken:
            break
        taken = fewer
    return first


def _without_refused(words: Sequence[str], failure: ConfigError) -> list[str]:
    """The words, each that a finding is about as it should have been; without it where nobody knows that."""
    kept = list(words)
    for finding in failure.findings:
        fix = next((remedy.words for remedy in finding.remedies if remedy.kind == "fix"), ())
        about = [
            word for word in kept if word in finding.typed or (not finding.typed and _name(word) in finding.fields)
        ]
        kept = [word for word in kept if word not in about]
        kept += [word for word in fix if about and "=" in word and word not in about and not word.startswith("-")]
    return kept


def _with_known_checkpoint(words: Sequence[str]) -> list[str]:
    """The words with a known checkpoint in place of one whose name goes on behind that one's: of the same shapes, and
    of 4 bits where the name says so and one is known."""
    path = next((word.partition("=")[2] for word in words if _name(word) == "model_path"), None)
    if path is None:
        return list(words)
    paths = [found[1] for file in _PRESETS.glob("*.yaml") if (found := _MODEL_PATH.search(file.read_text("utf-8")))]
    paths += [checkpoint.path for checkpoint in CHECKPOINTS]
    known = {name.partition("/")[2].lower(): name for name in paths}
    asked = path.partition("/")[2].lower()
    alike = max((name for name in known if name and asked.startswith(name)), key=len, default=None)
    if alike is not None and "fp4" in asked:
        alike = min((name for name in known if name.startswith(alike) and "fp4" in name), key=len, default=alike)
    new = [] if alike is None or known[alike] == path else [f"model_path={known[alike]}"]
    return [word for word in words if _name(word) != "model_path"] + new


def _name(word: str) -> str:
    return word.partition("=")[0].lstrip("+")


def demand_of(record: Mapping[str, Any]) -> Demand:
    """The load of a row."""
    given = {name: record[name] for name in ("spread", "rounds", "cached", "accepted") if name in record}
    return Demand(record["input_len"], record["output_len"], record["concurrency"], **given)


def summary(forecasts: Sequence[tuple[Row, Forecast]], unanswered: int) -> dict[str, Any]:
    """The last line."""
    tpot, ttft, inside = [], [], []
    for row, found in forecasts:
        if measured := (row.record.get("tpot_ms") or 0) / 1e3:
            tpot.append(100 * abs(found.tpot.value / measured - 1))
            inside.append(found.tpot.low <= measured <= found.tpot.high)
        if row.record.get("ttft_ms") and found.ttft is not None:
            ttft.append(100 * abs(found.ttft.value * 1e3 / row.record["ttft_ms"] - 1))
    return {
        "rows": len(forecasts) + unanswered,
        "unanswered": unanswered,
        "tpot_median_percent": round(statistics.median(tpot), 1) if tpot else None,
        "tpot_mape_percent": round(statistics.fmean(tpot), 1) if tpot else None,
        "ttft_median_percent": round(statistics.median(ttft), 1) if ttft else None,
        "inside_80_percent": round(100 * statistics.fmean(inside), 1) if inside else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Forecasts measured servers and says how wrong it was.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", action="store_true", help="print each row")
    options = parser.parse_args()
    try:
        lines = options.file.read_text(encoding="utf-8").splitlines()
        rows, unanswered = rows_of(json.loads(line) for line in lines if line.strip())
        found = [(row, forecast(row.server, demand_of(row.record))) for row in rows]
    except (OSError, ValueError, KeyError) as failure:
        sys.exit(f"{options.file}: {type(failure).__name__}: {failure}")
    for row, item in found if options.rows else ():
        tpot = item.tpot
        load = " ".join(f"{row.record[name]:g}" for name in ("input_len", "output_len", "concurrency"))
        print(
            f"{row.record.get('tpot_ms') or 0:8.1f} ms, forecast {tpot.value * 1e3:8.1f} ({tpot.low * 1e3:.1f} to"
            f" {tpot.high * 1e3:.1f})  {' '.join(row.record['words'])} {load}"
        )
    for line in unanswered:
        print(line)
    print(json.dumps(summary(found, len(unanswered))))


if __name__ == "__main__":
    main()
