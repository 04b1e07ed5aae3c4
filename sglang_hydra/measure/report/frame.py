"""Gives the results of sweeps as a pandas DataFrame, for notebooks."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from sglang_hydra.measure.report.reading import Row, read_sweeps, varying
from sglang_hydra.measure.sweep.required_packages import check_packages

_SETTINGS = {
    "model": "model_path",
    "hw": "gpu",
    "framework": "engine",
    "tp": "tp_size",
    "ep": "ep_size",
    "dp_attention": "enable_dp_attention",
    "conc": "bench.concurrency",
    "isl": "bench.input_len",
    "osl": "bench.output_len",
}
"""InferenceX's names of what a point is."""

_MEASURES = {
    "completed": "completed",
    "duration": "duration_s",
    "total_input_tokens": "input_tokens",
    "total_output_tokens": "output_tokens",
    "tput_per_gpu": "total_throughput_per_gpu",
    "output_tput_per_gpu": "output_throughput_per_gpu",
    "input_tput_per_gpu": "input_throughput_per_gpu",
    "median_intvty": "interactivity",
}
_SPREADS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2e_latency": "e2e_ms"}
_NUMBERS = {"median": "p50"}


def results(*folders: str | Path) -> Any:
    """A DataFrame with a row for each point of these sweeps: its ids, its state with the reasons, what it is (model,
    hw, gpus, framework, release, tp, conc, isl, osl, as InferenceX names them), the settings that vary, its measures as
    bench_serving and InferenceX name them (``output_throughput``, ``mean_ttft_ms``, ``p95_itl_ms``, ``tput_per_gpu``).
    What is not known is None.

    Raises ConfigError for a folder that holds no sweep, MachineError where pandas is missing.
    """
    check_packages("results", "pandas", extra="notebook")
    rows = [row for sweep in read_sweeps([Path(folder) for folder in folders]) for row in sweep.rows]
    keys = [key for key in varying(rows) if key not in _SETTINGS.values()]
    return import_module("pandas").DataFrame(
        [
            {**ids_of(row), **_what(row), **{key: row.settings.get(key) for key in keys}, **_measured(row)}
            for row in rows
        ]
    )


def _what(row: Row) -> dict[str, Any]:
    found = {name: row.settings.get(key) for name, key in _SETTINGS.items()}
    framework, _, release = str(found.pop("framework") or "").partition(" ")
    return {**found, "gpus": row.gpus, "framework": framework or None, "release": release or None}


def _measured(row: Row) -> dict[str, Any]:
    named = {name: row.measures.get(key) for name, key in _MEASURES.items()}
    spreads = {name: row.measures.get(key) or {} for name, key in _SPREADS.items()}
    numbers = ("mean", "median", "std", "min", "p90", "p95", "p99", "max")
    named |= {
        f"{number}_{name}_ms": values.get(_NUMBERS.get(number, number))
        for name, values in spreads.items()
        for number in numbers
    }
    taken = (*_MEASURES.values(), *_SPREADS.values())
    return named | flat({name: value for name, value in row.measures.items() if name not in taken})


def ids_of(row: Row) -> dict[str, Any]:
    """Which point a row is and how it stands, in the cells of a table."""
    names = ("sweep", "point_id", "server_id", "repeat", "state")
    own = {name: getattr(row, name) for name in names}
    return {**own, "reasons": "; ".join(row.reasons), "words": " ".join(row.words)}


def flat(measures: Any, path: str = "") -> dict[str, Any]:
    """``{"ttft_ms.p50": 3.0}`` of ``{"ttft_ms": {"p50": 3.0}}``."""
    found: dict[str, Any] = {}
    for name, value in measures.items():
        found |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
    return found
